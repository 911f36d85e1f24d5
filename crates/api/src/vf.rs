//! References to VFs: single VFs, ranges, and PF names with a range.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::parsed::{ParseError, TextFormat};
use crate::pci::PciAddress;

/// Reference to one VF. It stays valid when the VF is removed and created again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VfRef {
    /// PCI address of the PF.
    pub pf: PciAddress,
    /// Index of the VF, from 0.
    pub index: u16,
}

impl fmt::Display for VfRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} vf {}", self.pf, self.index)
    }
}

/// Inclusive range of VF indexes: `0-3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VfRange {
    first: u16,
    last: u16,
}

impl VfRange {
    /// Creates a range from `first` to `last`, both included; `None` if `last` is below `first`.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if last < first { None } else { Some(Self { first, last }) }
    }

    /// Creates a range of `count` VFs from index 0; `None` if `count` is 0.
    pub const fn all(count: u16) -> Option<Self> {
        match count.checked_sub(1) {
            Some(last) => Some(Self { first: 0, last }),
            None => None,
        }
    }

    /// Returns the lowest index.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// Returns the highest index.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Returns whether `index` is in the range.
    pub const fn contains(self, index: u16) -> bool {
        self.first <= index && index <= self.last
    }

    /// Returns whether the ranges share an index.
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl FromStr for VfRange {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (first, last) = text.split_once('-')?;
            VfRange::new(parse_index(first)?, parse_index(last)?)
        };
        parse().ok_or_else(|| ParseError::new(text, "a VF range such as 0-3"))
    }
}

/// Parses digits only: `str::parse` would accept a sign.
fn parse_index(digits: &str) -> Option<u16> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

impl fmt::Display for VfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl TextFormat for VfRange {
    const NAME: &'static str = "VfRange";
    const PATTERN: &'static str = "^[0-9]{1,5}-[0-9]{1,5}$";
    const MAX_LENGTH: u32 = 11;
}

/// Entry of `nicSelector.pfNames`: name or alternative name of a PF, with an optional VF range: `ens1f0` or
/// `ens1f0#0-3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PfSelector {
    /// Name or alternative name of the PF.
    pub name: String,
    /// Selected VFs; all VFs if absent.
    pub range: Option<VfRange>,
}

impl FromStr for PfSelector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (name, range) = match text.split_once('#') {
            Some((name, range)) => (name, Some(range.parse().map_err(|_| invalid_selector(text))?)),
            None => (text, None),
        };
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(invalid_selector(text));
        }
        Ok(Self { name: name.to_owned(), range })
    }
}

fn invalid_selector(text: &str) -> ParseError {
    ParseError::new(text, "a PF name such as ens1f0, or a PF name with a VF range such as ens1f0#0-3")
}

impl fmt::Display for PfSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range {
            Some(range) => write!(f, "{}#{range}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl TextFormat for PfSelector {
    const NAME: &'static str = "PfSelector";
    const PATTERN: &'static str = r"^[^#\s]+(#[0-9]{1,5}-[0-9]{1,5})?$";
    /// Alternative names have at most 127 characters.
    const MAX_LENGTH: u32 = 127 + 12;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> VfRange {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_is_printed_as_parsed() {
        for text in ["0-0", "0-3", "5-9", "0-65535"] {
            assert_eq!(range(text).to_string(), text);
        }
    }

    #[test]
    fn rejects_invalid_ranges() {
        for text in ["", "3", "3-", "-3", "3-2", "0-65536", "a-b", "0--1", "+0-3", "0 - 3"] {
            assert!(text.parse::<VfRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_overlap_when_they_share_an_index() {
        assert!(range("0-3").overlaps(range("3-5")));
        assert!(range("0-9").overlaps(range("4-5")));
        assert!(range("4-5").overlaps(range("0-9")));
        assert!(!range("0-3").overlaps(range("4-5")));
    }

    #[test]
    fn a_selector_is_printed_as_parsed() {
        for text in ["ens1f0", "ens1f0#0-3", "p0.1@x#5-5"] {
            assert_eq!(text.parse::<PfSelector>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn rejects_invalid_selectors() {
        for text in ["", "#0-3", "ens1f0#", "ens1f0#3", "ens1f0#3-1", "ens1f0#0-1#2-3", "ens 1"] {
            let error = text.parse::<PfSelector>().unwrap_err();
            assert_eq!(error.text, text);
        }
    }
}
