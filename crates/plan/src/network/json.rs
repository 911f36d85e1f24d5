//! JSON as text. The text of users is kept (key order, digits, escapes); only whitespace changes.

use serde_json::{Map, Value};

use super::fault::NetworkFault;
use crate::prelude::*;

/// Maximum length of a configuration: etcd accepts objects up to 1.5 MiB, including metadata.
const MAX_LENGTH: usize = 1 << 20;
const INDENT: &str = "    ";

/// Writer of a JSON object without whitespace.
pub(super) struct ObjectWriter {
    text: String,
}

impl ObjectWriter {
    pub(super) fn new() -> Self {
        Self { text: "{".to_owned() }
    }

    /// Adds a key with valid JSON.
    pub(super) fn json(&mut self, key: &str, json: &str) -> &mut Self {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        self.text.push_str(&Value::from(key).to_string());
        self.text.push(':');
        self.text.push_str(json);
        self
    }

    /// Adds a string, unless it is empty.
    pub(super) fn text(&mut self, key: &str, text: Option<&str>) -> &mut Self {
        match text.filter(|text| !text.is_empty()) {
            Some(text) => self.json(key, &Value::from(text).to_string()),
            None => self,
        }
    }

    /// Adds a number, if there is one.
    pub(super) fn number(&mut self, key: &str, number: Option<i64>) -> &mut Self {
        match number {
            Some(number) => self.json(key, &number.to_string()),
            None => self,
        }
    }

    pub(super) fn end(&self) -> String {
        format!("{}}}", self.text)
    }
}

/// Parses one JSON object.
pub(super) fn parse_object(
    field: &'static str,
    expected: &'static str,
    text: &str,
) -> Result<Map<String, Value>, NetworkFault> {
    serde_json::from_str(text).map_err(|error| build_fault(field, expected, &error, error.column()))
}

/// Parses one or more JSON objects that are separated by commas.
pub(super) fn parse_objects(
    field: &'static str,
    expected: &'static str,
    text: &str,
) -> Result<Vec<Map<String, Value>>, NetworkFault> {
    match serde_json::from_str(&format!("[{text}]")) {
        Ok(objects) => Ok(objects),
        // The opening bracket is not part of the text of the user.
        Err(error) if error.line() == 1 => {
            Err(build_fault(field, expected, &error, error.column().saturating_sub(1)))
        }
        Err(error) => Err(build_fault(field, expected, &error, error.column())),
    }
}

fn build_fault(
    field: &'static str,
    expected: &'static str,
    error: &serde_json::Error,
    column: usize,
) -> NetworkFault {
    let text = error.to_string();
    // The message ends with the position, which may be a different one in the text of the user.
    let problem = text.rsplit_once(" at line ").map_or(text.as_str(), |(problem, _)| problem);
    let problem = problem.replace("expected a map", "expected a JSON object");
    // An error at a line break is reported in column 0.
    NetworkFault::Json { field, expected, problem, line: error.line(), column: column.max(1) }
}

/// Formats valid JSON on several lines. Empty objects and lists stay on one line.
pub(super) fn indent(json: &str) -> Result<String, NetworkFault> {
    let mut lines = IndentedText { text: String::new(), depth: 0 };
    let mut characters = json.chars().filter(skip_whitespace()).peekable();
    let mut scanner = StringScanner::default();
    while let Some(character) = characters.next() {
        if scanner.advance(character) {
            lines.text.push(character);
            continue;
        }
        match character {
            '{' | '[' => {
                lines.text.push(character);
                match characters.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => lines.text.push(end),
                    None => lines.deeper(),
                }
            }
            '}' | ']' => {
                lines.shallower();
                lines.text.push(character);
            }
            ',' => {
                lines.text.push(character);
                lines.next();
            }
            ':' => lines.text.push_str(": "),
            _ => lines.text.push(character),
        }
        if lines.text.len() > MAX_LENGTH {
            return Err(NetworkFault::TooLong { limit: MAX_LENGTH });
        }
    }
    Ok(lines.text)
}

/// JSON text that is written line by line with its indentation.
struct IndentedText {
    text: String,
    depth: usize,
}

impl IndentedText {
    fn deeper(&mut self) {
        self.depth += 1;
        self.next();
    }

    fn shallower(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.next();
    }

    fn next(&mut self) {
        self.text.push('\n');
        self.text.push_str(&INDENT.repeat(self.depth));
    }
}

fn skip_whitespace() -> impl FnMut(&char) -> bool {
    let mut scanner = StringScanner::default();
    move |character| scanner.advance(*character) || !matches!(character, ' ' | '\t' | '\n' | '\r')
}

/// Scanner that finds JSON strings.
#[derive(Default)]
struct StringScanner {
    inside: bool,
    escaped: bool,
}

impl StringScanner {
    /// Advances by `character` and returns whether it belongs to a string, including its quotes.
    fn advance(&mut self, character: char) -> bool {
        let was_inside = self.inside;
        match character {
            _ if self.escaped => self.escaped = false,
            '\\' if self.inside => self.escaped = true,
            '"' => self.inside = !self.inside,
            _ => {}
        }
        was_inside || self.inside
    }
}
