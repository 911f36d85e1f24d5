//! JSON as text: what users wrote stays as they wrote it (order of keys, digits, escapes), only its blanks change.

use serde_json::{Map, Value};

use super::fault::NetworkFault;
use crate::prelude::*;

/// The API server's store takes no objects above 1.5 MiB, with all that is around the configuration.
const LONGEST: usize = 1 << 20;
const INDENT: &str = "    ";

/// A JSON object that is being written, without blanks.
pub(super) struct Object {
    text: String,
}

impl Object {
    pub(super) fn new() -> Self {
        Self { text: "{".to_owned() }
    }

    /// Adds a key with JSON that is known to be good.
    pub(super) fn json(&mut self, key: &str, json: &str) -> &mut Self {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        self.text.push_str(&Value::from(key).to_string());
        self.text.push(':');
        self.text.push_str(json);
        self
    }

    /// Adds a text, unless it is empty.
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

/// What `text` says, if it is one JSON object.
pub(super) fn object(
    field: &'static str,
    wanted: &'static str,
    text: &str,
) -> Result<Map<String, Value>, NetworkFault> {
    serde_json::from_str(text).map_err(|error| fault(field, wanted, &error, error.column()))
}

/// What `text` says, if it is one or more JSON objects with commas between them.
pub(super) fn objects(
    field: &'static str,
    wanted: &'static str,
    text: &str,
) -> Result<Vec<Map<String, Value>>, NetworkFault> {
    match serde_json::from_str(&format!("[{text}]")) {
        Ok(objects) => Ok(objects),
        // The bracket is ours.
        Err(error) if error.line() == 1 => {
            Err(fault(field, wanted, &error, error.column().saturating_sub(1)))
        }
        Err(error) => Err(fault(field, wanted, &error, error.column())),
    }
}

fn fault(
    field: &'static str,
    wanted: &'static str,
    error: &serde_json::Error,
    column: usize,
) -> NetworkFault {
    let text = error.to_string();
    // It ends with the place, which for us may be another one.
    let problem = text.rsplit_once(" at line ").map_or(text.as_str(), |(problem, _)| problem);
    let problem = problem.replace("expected a map", "expected a JSON object");
    // A line break that is at fault counts as the column before the first.
    NetworkFault::Json { field, wanted, problem, line: error.line(), column: column.max(1) }
}

/// Good JSON, on many lines: an empty object or list stays together, everything else has a line of its own.
pub(super) fn indent(json: &str) -> Result<String, NetworkFault> {
    let mut lines = Lines { text: String::new(), depth: 0 };
    let mut characters = json.chars().filter(is_no_blank_outside_texts()).peekable();
    let mut in_text = Text::default();
    while let Some(character) = characters.next() {
        if in_text.takes(character) {
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
        if lines.text.len() > LONGEST {
            return Err(NetworkFault::TooLong { limit: LONGEST });
        }
    }
    Ok(lines.text)
}

struct Lines {
    text: String,
    depth: usize,
}

impl Lines {
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

fn is_no_blank_outside_texts() -> impl FnMut(&char) -> bool {
    let mut in_text = Text::default();
    move |character| in_text.takes(*character) || !matches!(character, ' ' | '\t' | '\n' | '\r')
}

/// Where a JSON text in quotes begins and ends.
#[derive(Default)]
struct Text {
    inside: bool,
    escaped: bool,
}

impl Text {
    /// Whether `character`, the next one, belongs to a text; its quotes do.
    fn takes(&mut self, character: char) -> bool {
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
