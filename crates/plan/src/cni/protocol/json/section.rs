//! Lookup of keys in an object.

use alloc::borrow::Cow;
use core::fmt;

use super::{Json, KeyFault};
use crate::prelude::*;

/// Object of a document, or several objects with equal keys, of which later ones count more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section<'a> {
    path: String,
    objects: Vec<&'a [(String, Json)]>,
}

impl<'a> Section<'a> {
    /// Returns an object at a path; `None` if the value is no object.
    pub(crate) fn new(path: &str, value: &'a Json) -> Option<Self> {
        let Json::Object(entries) = value else { return None };
        Some(Self { path: path.to_owned(), objects: vec![entries] })
    }

    /// Returns the path of a key of this object.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Returns whether the key exists, even if it is `null`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries().any(|(name, _)| is_same_key(name, key))
    }

    /// Returns whether there is no key at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries().next().is_none()
    }

    /// Returns the text of a key. An empty text is the same as no key, as in Go.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, KeyFault> {
        let read = |value: &'a Json| match value {
            Json::Text(text) => Some(text.as_str()),
            _ => None,
        };
        Ok(self.last(key, "a string", read)?.filter(|text| !text.is_empty()))
    }

    /// Returns the text of a key that may be empty. A `null` after it removes it.
    pub(crate) fn any_text(&self, key: &str) -> Result<Option<&'a str>, KeyFault> {
        let text = self.last(key, "a string", |value| match value {
            Json::Text(text) => Some(text.as_str()),
            _ => None,
        })?;
        Ok(text.filter(|_| !self.ends_with_null(key)))
    }

    /// Returns the last value of a key that is not `null`.
    pub(crate) fn last_value(&self, key: &str) -> Option<&'a Json> {
        self.values(key).last()
    }

    /// Returns the boolean of a key.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, KeyFault> {
        self.last(key, "true or false", |value| match value {
            Json::Flag(flag) => Some(*flag),
            _ => None,
        })
    }

    /// Returns the whole number of a key, if it is in the range. A `null` after it removes it.
    pub(crate) fn integer<T>(
        &self,
        key: &str,
        range: core::ops::RangeInclusive<T>,
    ) -> Result<Option<T>, KeyFault>
    where
        T: TryFrom<i64> + PartialOrd + fmt::Display,
    {
        let number = self.last(key, "a whole number", |value| match value {
            Json::Number(number) if !number.is_f64() => Some(number),
            _ => None,
        })?;
        let Some(number) = number.filter(|_| !self.ends_with_null(key)) else { return Ok(None) };
        let value = number.as_i64().and_then(|value| T::try_from(value).ok());
        value.filter(|value| range.contains(value)).map(Some).ok_or_else(|| {
            let problem = format!("{number} is not in the range {} to {}", range.start(), range.end());
            KeyFault::new(self.path_of(key), problem)
        })
    }

    /// Returns the elements of a list.
    pub(crate) fn list(&self, key: &str) -> Result<Option<&'a [Json]>, KeyFault> {
        self.last(key, "a list", |value| match value {
            Json::List(elements) => Some(elements.as_slice()),
            _ => None,
        })
    }

    /// Returns the objects of a list.
    pub(crate) fn objects(&self, key: &str) -> Result<Vec<Section<'a>>, KeyFault> {
        let elements = self.list(key)?.unwrap_or_default().iter().enumerate();
        let sections = elements.filter(|(_, element)| **element != Json::Null).map(|(at, element)| {
            let path = format!("{}[{at}]", self.path_of(key));
            Section::new(&path, element).ok_or_else(|| wrong_type(path, element, "an object"))
        });
        sections.collect()
    }

    /// Returns the texts of a list.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<String>, KeyFault> {
        let elements = self.list(key)?.unwrap_or_default().iter().enumerate();
        let texts = elements.map(|(at, element)| match element {
            Json::Text(text) => Ok(text.clone()),
            _ => Err(wrong_type(format!("{}[{at}]", self.path_of(key)), element, "a string")),
        });
        texts.collect()
    }

    /// Returns the object of a key.
    pub(crate) fn section(&self, key: &str) -> Result<Option<Section<'a>>, KeyFault> {
        let mut objects = Vec::new();
        for value in self.values(key) {
            match value {
                Json::Object(entries) => objects.push(entries.as_slice()),
                _ => return Err(wrong_type(self.path_of(key), value, "an object")),
            }
        }
        Ok(if objects.is_empty() { None } else { Some(Section { path: self.path_of(key), objects }) })
    }

    /// Returns the value of a key of a Go map, in which keys match exactly and values may be of any type.
    pub(crate) fn exact(&self, key: &str) -> Option<&'a Json> {
        self.entries().filter(|(name, _)| name == key).last().map(|(_, value)| value)
    }

    /// Returns the text of a key of a Go map.
    pub(crate) fn exact_text(&self, key: &str) -> Result<Option<&'a str>, KeyFault> {
        match self.exact(key) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::Text(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(value) => Err(wrong_type(self.path_of(key), value, "a string")),
        }
    }

    /// Returns what is read from the last value of a key. All values are read: one of a wrong type is an error even if
    /// another follows.
    fn last<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Json) -> Option<T>,
    ) -> Result<Option<T>, KeyFault> {
        let mut found = None;
        for value in self.values(key) {
            found = Some(read(value).ok_or_else(|| wrong_type(self.path_of(key), value, expected))?);
        }
        Ok(found)
    }

    /// Returns the values of a key that are not `null`.
    fn values(&self, key: &str) -> impl Iterator<Item = &'a Json> {
        let same = self.entries().filter(move |(name, _)| is_same_key(name, key));
        same.map(|(_, value)| value).filter(|value| **value != Json::Null)
    }

    /// Returns whether the last value of a key is `null`: it removes values that are optional in Go.
    fn ends_with_null(&self, key: &str) -> bool {
        self.entries()
            .filter(|(name, _)| is_same_key(name, key))
            .last()
            .is_some_and(|(_, value)| *value == Json::Null)
    }

    fn entries(&self) -> impl Iterator<Item = &'a (String, Json)> {
        self.objects.iter().flat_map(|entries| entries.iter())
    }
}

/// Returns the fault of a value that is not of the expected type.
fn wrong_type(path: String, value: &Json, expected: &str) -> KeyFault {
    let found = match value {
        Json::Number(number) if number.is_f64() => Cow::Owned(format!("the number {number}")),
        _ => Cow::Borrowed(value.kind()),
    };
    KeyFault::new(path, format!("is {found}, must be {expected}"))
}

/// Returns whether a key of a document is the key of a Go struct, which consists of ASCII. Go compares under the simple
/// case folding of Unicode, in which two letters outside of ASCII are equal to ASCII ones.
fn is_same_key(name: &str, key: &str) -> bool {
    let fold = |letter: char| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        _ => letter.to_ascii_lowercase(),
    };
    name.chars().map(fold).eq(key.chars().map(fold))
}
