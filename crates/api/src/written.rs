//! A value as somebody wrote it: parsed once, printed back to the letter.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// Why a text is not what it should be. Says what was found and what is expected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not {expected}")]
pub struct Invalid {
    /// What was written.
    pub text: String,
    /// What it should have been, with an example: `a PCI address such as 0000:3b:00.0`.
    pub expected: &'static str,
}

impl Invalid {
    /// `text` is not `expected`.
    pub fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

/// Words with a grammar: how they look in a schema.
pub trait Grammar: FromStr<Err = Invalid> + fmt::Display {
    /// The name of the schema.
    const NAME: &'static str;
    /// What the API server accepts.
    const PATTERN: &'static str;
    /// How long it can be; the API server weighs the cost of its rules by it.
    const LONGEST: u32;
}

/// A `T` as it was written in an object. Reading never fails, so that one bad word leaves the rest of the
/// object (and of the list it came in) readable; [`Written::value`] gives the parsed value or the reason.
#[derive(Clone, Debug)]
pub struct Written<T> {
    text: String,
    value: Result<T, Invalid>,
}

impl<T: Grammar> Written<T> {
    /// Parses `text`, once.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let value = text.parse();
        Self { text, value }
    }

    /// The parsed value, or why there is none.
    pub fn value(&self) -> Result<&T, &Invalid> {
        self.value.as_ref()
    }

    /// What was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl<T: Grammar> From<T> for Written<T> {
    fn from(value: T) -> Self {
        Self { text: value.to_string(), value: Ok(value) }
    }
}

impl<T> fmt::Display for Written<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T> PartialEq for Written<T> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<T> Eq for Written<T> {}

impl<T> Serialize for Written<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, T: Grammar> Deserialize<'de> for Written<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(feature = "crds")]
impl<T: Grammar> schemars::JsonSchema for Written<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::NAME.into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": T::PATTERN, "maxLength": T::LONGEST })
    }
}
