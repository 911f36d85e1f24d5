//! Values with a text format: parsed once, written back unchanged.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// Error of parsing a text. The message contains the text and the expected format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseError {
    /// Text that was parsed.
    pub text: String,
    /// Expected format, with an example: `a PCI address such as 0000:3b:00.0`.
    pub expected: &'static str,
}

impl ParseError {
    /// Creates the error that `text` is not `expected`.
    pub fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

/// Value with a text format that a schema describes.
pub trait TextFormat: FromStr<Err = ParseError> + fmt::Display {
    /// Name of the schema.
    const NAME: &'static str;
    /// Regular expression for the API server.
    const PATTERN: &'static str;
    /// Maximum length, by which the API server estimates the cost of validation rules.
    const MAX_LENGTH: u32;
}

/// Text of an object with its parsed value. Deserialization never fails, so that one invalid value leaves the rest of
/// the object, and of the list that contains it, readable; [`Parsed::value`] returns the value or the error.
#[derive(Clone, Debug)]
pub struct Parsed<T> {
    text: String,
    value: Result<T, ParseError>,
}

impl<T: TextFormat> Parsed<T> {
    /// Parses `text`.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let value = text.parse();
        Self { text, value }
    }

    /// Returns the parsed value or the error.
    pub fn value(&self) -> Result<&T, &ParseError> {
        self.value.as_ref()
    }

    /// Returns the original text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl<T: TextFormat> From<T> for Parsed<T> {
    fn from(value: T) -> Self {
        Self { text: value.to_string(), value: Ok(value) }
    }
}

impl<T> fmt::Display for Parsed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T> PartialEq for Parsed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<T> Eq for Parsed<T> {}

impl<T> Serialize for Parsed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, T: TextFormat> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(feature = "crds")]
impl<T: TextFormat> schemars::JsonSchema for Parsed<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::NAME.into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": T::PATTERN, "maxLength": T::MAX_LENGTH })
    }
}
