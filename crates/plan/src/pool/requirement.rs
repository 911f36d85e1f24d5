//! One requirement of a selector: a key, an operator and values.

use super::PoolFault;
use crate::prelude::*;

/// The one field of a node that can be selected by.
const NAME_FIELD: &str = "metadata.name";

/// A requirement, from whichever kind of selector.
#[derive(Clone, Copy)]
pub(super) struct Requirement<'a> {
    key: &'a str,
    operator: &'a str,
    values: &'a [String],
}

impl<'a> Requirement<'a> {
    /// As it is written.
    pub(super) fn new(key: &'a str, operator: &'a str, values: Option<&'a [String]>) -> Self {
        Self { key, operator, values: values.unwrap_or_default() }
    }

    /// Whether it holds for a label in a label selector.
    pub(super) fn holds_in_selector(self, found: Option<&String>) -> Result<bool, PoolFault> {
        self.holds(found.map(String::as_str), "In, NotIn, Exists or DoesNotExist")
    }

    /// Whether it holds for a label in a term of node affinity, where labels can also be compared as numbers.
    pub(super) fn holds_in_term(self, found: Option<&String>) -> Result<bool, PoolFault> {
        let found = found.map(String::as_str);
        match self.operator {
            "Gt" => Ok(self.compared(found)?.is_some_and(|(found, limit)| found > limit)),
            "Lt" => Ok(self.compared(found)?.is_some_and(|(found, limit)| found < limit)),
            _ => self.holds(found, "In, NotIn, Exists, DoesNotExist, Gt or Lt"),
        }
    }

    /// Whether it holds for the node's fields, of which there is one.
    pub(super) fn holds_for_field(self, name: &str) -> Result<bool, PoolFault> {
        if self.key != NAME_FIELD {
            return Err(PoolFault::UnknownField { key: self.key.to_owned() });
        }
        match self.operator {
            "In" | "NotIn" => self.holds(Some(name), ""),
            _ => Err(self.unknown_operator("In or NotIn")),
        }
    }

    fn holds(self, found: Option<&str>, known: &'static str) -> Result<bool, PoolFault> {
        match self.operator {
            "In" => Ok(self.is_listed(found)?),
            "NotIn" => Ok(!self.is_listed(found)?),
            "Exists" => Ok(found.is_some()),
            "DoesNotExist" => Ok(found.is_none()),
            _ => Err(self.unknown_operator(known)),
        }
    }

    fn is_listed(self, found: Option<&str>) -> Result<bool, PoolFault> {
        if self.values.is_empty() {
            return Err(PoolFault::NoValues { key: self.key.to_owned(), operator: self.operator.to_owned() });
        }
        Ok(found.is_some_and(|found| self.values.iter().any(|value| value == found)))
    }

    /// What was found and the limit, as numbers. A label that is no number is neither above nor below.
    fn compared(self, found: Option<&str>) -> Result<Option<(i64, i64)>, PoolFault> {
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

    fn unknown_operator(self, known: &'static str) -> PoolFault {
        PoolFault::UnknownOperator { key: self.key.to_owned(), operator: self.operator.to_owned(), known }
    }
}
