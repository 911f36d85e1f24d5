//! Mutations of inputs, determined by a seed.

use serde_json::Value;

/// Maximum length of inputs.
const MAX_LENGTH: usize = 128 << 10;
/// Maximum number of accepted mutations that are mutated further.
const MAX_KEPT: usize = 48;

const NUMBERS: [&str; 24] = [
    "0",
    "-0",
    "-1",
    "1",
    "00",
    "+1",
    "127",
    "128",
    "255",
    "256",
    "32767",
    "32768",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e999",
];
const ODDITIES: [&[u8]; 22] = [
    b"\0",
    b"\xff",
    b"\xfe\xff",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xef\xbb\xbf",
    "\u{202e}".as_bytes(),
    "\u{2028}".as_bytes(),
    "\u{85}".as_bytes(),
    "\u{a0}".as_bytes(),
    "\u{130}".as_bytes(),
    "\u{fb00}".as_bytes(),
    "\u{1f600}".as_bytes(),
    "e\u{301}".as_bytes(),
    b"\r\n",
    b"\t",
    b"\x1b[2J",
    b"\\",
    b"\"",
    b"'",
    b"\\ud83d",
    b"\\u0000",
];
const NESTINGS: [&str; 7] = ["[", "{\"a\":", "[[{\"spec\":", "- ", "? ", "{a: ", "!!seq ["];
/// Placeholder of a number that JSON values cannot represent; replaced in the text.
const NUMBER: &str = "a number that JSON has no room for";
const PUNCTUATION: &[u8] = b"{}[]\"',:;#&*!|>%@`-=\n\t .\\/\0\x7f\x80\xff";
const BINARY: [u64; 12] = [0, 1, 3, 4, 5, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Pseudo-random numbers (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % end).unwrap_or_default()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Returns a range within `length`, usually a short one.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        let limit = if self.one_in(4) { length } else { 16 };
        start..(start + self.below(limit + 1)).min(length)
    }
}

/// Generator of inputs from a corpus.
pub(crate) struct Mutator {
    random: Random,
    pool: Vec<Vec<u8>>,
    corpus_length: usize,
    longest_kept: usize,
    words: Vec<Vec<u8>>,
}

impl Mutator {
    pub(crate) fn new(seed: u64, corpus: Vec<Vec<u8>>, words: &[&str]) -> Self {
        let own = words.iter().map(|word| word.as_bytes().to_vec());
        let found = corpus.iter().flat_map(|input| input.split(|byte| !byte.is_ascii_alphanumeric()));
        let mut words: Vec<Vec<u8>> =
            found.filter(|word| (2..40).contains(&word.len())).map(<[u8]>::to_vec).chain(own).collect();
        words.sort();
        words.dedup();
        let longest_kept = corpus.iter().map(Vec::len).max().unwrap_or_default() * 2 + 256;
        Self { random: Random(seed), corpus_length: corpus.len(), longest_kept, pool: corpus, words }
    }

    /// Keeps an accepted input to be mutated further, unless it has grown, because longer inputs are slower.
    pub(crate) fn keep(&mut self, input: Vec<u8>) {
        if input.len() > self.longest_kept {
            return;
        }
        if self.pool.len() < self.corpus_length + MAX_KEPT {
            self.pool.push(input);
        } else if self.random.one_in(8) {
            let at = self.corpus_length + self.random.below(MAX_KEPT);
            self.pool[at] = input;
        }
    }

    pub(crate) fn next_input(&mut self) -> Vec<u8> {
        if self.random.one_in(40) {
            return (0..self.random.below(300)).map(|_| self.random.byte()).collect();
        }
        let at = self.random.below(self.pool.len());
        let mut input = self.pool[at].clone();
        for _ in 0..=self.random.below(4) {
            self.mutate(&mut input);
            input.truncate(MAX_LENGTH);
        }
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        match self.random.below(20) {
            0 => self.flip_bit(input),
            1 => self.replace_byte(input),
            2 => drop(input.drain(self.random.range(input.len()))),
            3 => input.truncate(self.random.below(input.len() + 1)),
            4 => self.duplicate(input),
            5 => self.splice(input),
            6 | 7 => self.replace_number(input),
            8..=10 => self.replace_binary(input),
            11 => {
                let oddity = self.random.pick(&ODDITIES);
                self.insert(input, oddity);
            }
            12 => self.insert_long(input),
            13 => self.nest(input),
            14 => self.insert_word(input),
            15 => self.shuffle_lines(input),
            _ => self.replace_value(input),
        }
    }

    fn flip_bit(&mut self, input: &mut [u8]) {
        let (at, bit) = (self.random.below(input.len()), self.random.below(8));
        if let Some(byte) = input.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    fn replace_byte(&mut self, input: &mut [u8]) {
        let (at, new) = (self.random.below(input.len()), PUNCTUATION[self.random.below(PUNCTUATION.len())]);
        if let Some(byte) = input.get_mut(at) {
            *byte = new;
        }
    }

    fn insert(&mut self, input: &mut Vec<u8>, what: &[u8]) {
        let at = self.random.below(input.len() + 1);
        input.splice(at..at, what.iter().copied());
    }

    fn duplicate(&mut self, input: &mut Vec<u8>) {
        let range = self.random.range(input.len());
        let piece = input[range.clone()].repeat(1 + self.random.below(3));
        let at = if self.random.one_in(2) { range.end } else { self.random.below(input.len() + 1) };
        input.splice(at..at, piece);
    }

    /// Joins the start of one input and the end of another.
    fn splice(&mut self, input: &mut Vec<u8>) {
        let at = self.random.below(self.pool.len());
        let other = self.pool[at].clone();
        let from = self.random.below(other.len() + 1);
        input.truncate(self.random.below(input.len() + 1));
        input.extend_from_slice(&other[from..]);
    }

    fn replace_number(&mut self, input: &mut Vec<u8>) {
        let is_start =
            |at: &usize| input[*at].is_ascii_digit() && (*at == 0 || !input[at - 1].is_ascii_digit());
        let starts: Vec<usize> = (0..input.len()).filter(is_start).collect();
        let Some(&start) = starts.get(self.random.below(starts.len())) else { return };
        let digits = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        input.splice(start..start + digits, self.random.pick(&NUMBERS).bytes());
    }

    /// Replaces a binary number of two, four or eight bytes, such as lengths and types in netlink.
    fn replace_binary(&mut self, input: &mut [u8]) {
        let width = [2, 4, 8][self.random.below(3)];
        let at = self.random.below(input.len()) & !1;
        let Some(slice) = input.get_mut(at..at + width) else { return };
        let number = if self.random.one_in(2) {
            BINARY[self.random.below(BINARY.len())]
        } else {
            let mut old = [0; 8];
            old[..width].copy_from_slice(slice);
            let step = u64::try_from(1 + self.random.below(8)).unwrap_or(1);
            let old = u64::from_ne_bytes(old);
            if self.random.one_in(2) { old.wrapping_add(step) } else { old.wrapping_sub(step) }
        };
        slice.copy_from_slice(&number.to_ne_bytes()[..width]);
    }

    fn insert_long(&mut self, input: &mut Vec<u8>) {
        let count = 1 << self.random.below(15);
        let piece = if self.random.one_in(2) {
            vec![b'a' + self.random.byte() % 26]
        } else {
            vec![PUNCTUATION[self.random.below(PUNCTUATION.len())]]
        };
        self.insert(input, &piece.repeat(count));
    }

    /// Inserts opening brackets, up to thousands, which may not be closed.
    fn nest(&mut self, input: &mut Vec<u8>) {
        let opening = self.random.pick(&NESTINGS);
        let depth = 1 << self.random.below(14);
        let nested = opening.repeat(depth);
        if self.random.one_in(4) {
            *input = nested.into_bytes();
        } else {
            self.insert(input, nested.as_bytes());
        }
    }

    fn insert_word(&mut self, input: &mut Vec<u8>) {
        let Some(word) = self.words.get(self.random.below(self.words.len())).cloned() else { return };
        let at = self.random.below(input.len() + 1);
        let replaced = if self.random.one_in(2) { word.len() } else { 0 };
        input.splice(at..(at + replaced).min(input.len()), word);
    }

    fn shuffle_lines(&mut self, input: &mut Vec<u8>) {
        let mut lines: Vec<&[u8]> = input.split_inclusive(|byte| *byte == b'\n').collect();
        let (one, other) = (self.random.below(lines.len()), self.random.below(lines.len()));
        match self.random.below(3) {
            _ if lines.is_empty() => {}
            0 => lines.swap(one, other),
            1 => lines.insert(other, lines[one]),
            _ => drop(lines.remove(one)),
        }
        *input = lines.concat();
    }

    /// Replaces one value of a JSON or YAML document by another valid but unexpected value. YAML becomes JSON, which is
    /// valid YAML.
    fn replace_value(&mut self, input: &mut Vec<u8>) {
        let Ok(text) = std::str::from_utf8(input) else { return self.replace_binary(input) };
        let yaml = || serde_saphyr::from_str::<Value>(text).ok().filter(|value| !value.is_string());
        let Some(mut document) = serde_json::from_str(text).ok().or_else(yaml) else {
            return self.replace_number(input);
        };
        let mut chosen = self.random.below(count(&document));
        let selected = nth(&mut document, &mut chosen);
        if let Some(value) = selected {
            *value = match self.random.below(12) {
                0 => Value::Null,
                1 => Value::Bool(self.random.one_in(2)),
                2 => Value::Array(Vec::new()),
                3 => Value::Object(serde_json::Map::new()),
                4 => Value::String(String::new()),
                5 => Value::String(self.random.pick(&NUMBERS).to_owned()),
                6 => Value::String(String::from_utf8_lossy(self.random.pick(&ODDITIES)).into_owned()),
                7 => Value::Array(vec![value.clone(), value.clone()]),
                8 => Value::String("x".repeat(1 << self.random.below(12))),
                9 | 10 => Value::String(NUMBER.to_owned()),
                _ => Value::from(u64::MAX),
            };
        }
        let text = document.to_string();
        *input = text.replace(&format!("{NUMBER:?}"), self.random.pick(&NUMBERS)).into_bytes();
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// Returns the value that comes after `left` others, in the order of the document.
fn nth<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, left)),
        Value::Object(members) => members.values_mut().find_map(|member| nth(member, left)),
        _ => None,
    }
}
