//! Requirement of a selector: a key, an operator and values.

use super::PoolFault;
use crate::prelude::*;

/// Only field of a node that matchFields supports.
const NAME_FIELD: &str = "metadata.name";

/// Requirement of a label selector or of a node selector term.
#[derive(Clone, Copy)]
pub(super) struct Requirement<'a> {
    key: &'a str,
    operator: &'a str,
    values: &'a [String],
}

impl<'a> Requirement<'a> {
    /// Creates a requirement from the fields of a selector.
    pub(super) fn new(key: &'a str, operator: &'a str, values: Option<&'a [String]>) -> Self {
        Self { key, operator, values: values.unwrap_or_default() }
    }

    /// Returns whether a label matches the requirement of a label selector.
    pub(super) fn matches_label(self, found: Option<&String>) -> Result<bool, PoolFault> {
        self.matches(found.map(String::as_str), "In, NotIn, Exists or DoesNotExist")
    }

    /// Returns whether a label matches the requirement of a term, which can also compare numbers.
    pub(super) fn matches_label_in_term(self, found: Option<&String>) -> Result<bool, PoolFault> {
        let found = found.map(String::as_str);
        match self.operator {
            "Gt" => Ok(self.parse_numbers(found)?.is_some_and(|(found, limit)| found > limit)),
            "Lt" => Ok(self.parse_numbers(found)?.is_some_and(|(found, limit)| found < limit)),
            _ => self.matches(found, "In, NotIn, Exists, DoesNotExist, Gt or Lt"),
        }
    }

    /// Returns whether a node of this name matches the requirement of matchFields.
    pub(super) fn matches_field(self, name: &str) -> Result<bool, PoolFault> {
        if self.key != NAME_FIELD {
            return Err(PoolFault::UnknownField { key: self.key.to_owned() });
        }
        match self.operator {
            "In" | "NotIn" => self.matches(Some(name), ""),
            _ => Err(self.unknown_operator("In or NotIn")),
        }
    }

    fn matches(self, found: Option<&str>, supported: &'static str) -> Result<bool, PoolFault> {
        match self.operator {
            "In" => Ok(self.is_listed(found)?),
            "NotIn" => Ok(!self.is_listed(found)?),
            "Exists" => Ok(found.is_some()),
            "DoesNotExist" => Ok(found.is_none()),
            _ => Err(self.unknown_operator(supported)),
        }
    }

    fn is_listed(self, found: Option<&str>) -> Result<bool, PoolFault> {
        if self.values.is_empty() {
            return Err(PoolFault::NoValues { key: self.key.to_owned(), operator: self.operator.to_owned() });
        }
        Ok(found.is_some_and(|found| self.values.iter().any(|value| value == found)))
    }

    /// Returns the label and the limit as numbers. A label that is no number is neither above nor below the limit.
    fn parse_numbers(self, found: Option<&str>) -> Result<Option<(i64, i64)>, PoolFault> {
        let limit = match self.values {
            [value] => value.parse::<i64>().ok(),
            _ => None,
        };
        let limit = limit.ok_or_else(|| PoolFault::NotANumber {
            key: self.key.to_owned(),
            operator: self.operator.to_owned(),
            values: self.values.to_vec(),
        })?;
        Ok(found.and_then(|found| found.parse().ok()).map(|found| (found, limit)))
    }

    fn unknown_operator(self, supported: &'static str) -> PoolFault {
        PoolFault::UnknownOperator { key: self.key.to_owned(), operator: self.operator.to_owned(), supported }
    }
}
