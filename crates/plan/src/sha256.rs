//! SHA-256 (FIPS 180-4), for values that other programs compute as well.

use crate::prelude::*;

const BLOCK: usize = 64;
/// First 32 bits of the fractional parts of the square roots of the first 8 primes.
const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Returns the digest of `message`.
pub(crate) fn sha256(message: &[u8]) -> [u8; 32] {
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % BLOCK != BLOCK - 8 {
        padded.push(0);
    }
    let bits = message.len() as u64 * 8;
    padded.extend_from_slice(&bits.to_be_bytes());

    let rounds = round_constants();
    let state = padded.chunks_exact(BLOCK).fold(START, |state, block| compress(state, block, &rounds));
    let mut digest = [0; 32];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

/// Returns the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
fn round_constants() -> Vec<u32> {
    let primes = (2_u128..).filter(|number| (2..*number).all(|divisor| number % divisor != 0));
    primes.take(64).map(|prime| (cube_root(prime << 96) & 0xffff_ffff) as u32).collect()
}

/// Returns the whole part of the cube root of a number.
fn cube_root(number: u128) -> u128 {
    let mut root = 0;
    for bit in (0..36).rev() {
        let candidate: u128 = root | 1 << bit;
        if candidate * candidate * candidate <= number {
            root = candidate;
        }
    }
    root
}

fn compress(state: [u32; 8], block: &[u8], rounds: &[u32]) -> [u32; 8] {
    let mut words: Vec<u32> = block
        .chunks_exact(4)
        .map(|bytes| bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
        .collect();
    for at in 16..rounds.len() {
        let (early, late) = (words[at - 15], words[at - 2]);
        let low = early.rotate_right(7) ^ early.rotate_right(18) ^ early >> 3;
        let high = late.rotate_right(17) ^ late.rotate_right(19) ^ late >> 10;
        words.push(words[at - 16].wrapping_add(low).wrapping_add(words[at - 7]).wrapping_add(high));
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
    for (word, round) in words.iter().zip(rounds) {
        let high = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let first = h.wrapping_add(high).wrapping_add(choice).wrapping_add(*round).wrapping_add(*word);
        let low = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(low).wrapping_add(majority));
    }
    let mut result = state;
    for (value, more) in result.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *value = value.wrapping_add(more);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(message: &[u8]) -> String {
        sha256(message).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two_blocks), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
}
