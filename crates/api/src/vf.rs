//! Virtual functions: which one, which range, and how a policy names a PF with a range.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::pci::PciAddress;
use crate::written::{Grammar, Invalid};

/// One VF, as its PF counts it. Stays the same when the VF is removed and made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VfRef {
    /// The PF.
    pub pf: PciAddress,
    /// The VF's index on it, from 0.
    pub index: u16,
}

impl fmt::Display for VfRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} vf {}", self.pf, self.index)
    }
}

/// An inclusive range of VF indexes: `0-3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VfRange {
    first: u16,
    last: u16,
}

impl VfRange {
    /// From `first` to `last`, both included; `None` when `last` comes before `first`.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if last < first { None } else { Some(Self { first, last }) }
    }

    /// All of `count` VFs; `None` of none.
    pub const fn all(count: u16) -> Option<Self> {
        match count.checked_sub(1) {
            Some(last) => Some(Self { first: 0, last }),
            None => None,
        }
    }

    /// The lowest index.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The highest index.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Whether `index` lies in it.
    pub const fn contains(self, index: u16) -> bool {
        self.first <= index && index <= self.last
    }

    /// Whether some index lies in both.
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl FromStr for VfRange {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let parse = || {
            let (first, last) = text.split_once('-')?;
            VfRange::new(index(first)?, index(last)?)
        };
        parse().ok_or_else(|| Invalid::new(text, "a VF range such as 0-3, first and last index included"))
    }
}

/// `str::parse` alone would accept a sign.
fn index(digits: &str) -> Option<u16> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

impl fmt::Display for VfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl Grammar for VfRange {
    const NAME: &'static str = "VfRange";
    const PATTERN: &'static str = "^[0-9]{1,5}-[0-9]{1,5}$";
    const LONGEST: u32 = 11;
}

/// An entry of `nicSelector.pfNames`: a PF's name, or one of its alternative names, and possibly a range of its
/// VFs: `ens1f0` or `ens1f0#0-3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PfSelector {
    /// The name.
    pub name: String,
    /// The VFs meant; all of them when absent.
    pub range: Option<VfRange>,
}

impl FromStr for PfSelector {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let (name, range) = match text.split_once('#') {
            Some((name, range)) => (name, Some(range.parse().map_err(|_| not_a_selector(text))?)),
            None => (text, None),
        };
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(not_a_selector(text));
        }
        Ok(Self { name: name.to_owned(), range })
    }
}

fn not_a_selector(text: &str) -> Invalid {
    Invalid::new(text, "a PF name such as ens1f0, or a PF name with a VF range such as ens1f0#0-3")
}

impl fmt::Display for PfSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range {
            Some(range) => write!(f, "{}#{range}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Grammar for PfSelector {
    const NAME: &'static str = "PfSelector";
    const PATTERN: &'static str = r"^[^#\s]+(#[0-9]{1,5}-[0-9]{1,5})?$";
    /// Alternative names have up to 127 characters.
    const LONGEST: u32 = 127 + 12;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> VfRange {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_prints_what_it_reads() {
        for text in ["0-0", "0-3", "5-9", "0-65535"] {
            assert_eq!(range(text).to_string(), text);
        }
    }

    #[test]
    fn refuses_what_is_no_range() {
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
    fn a_selector_prints_what_it_reads() {
        for text in ["ens1f0", "ens1f0#0-3", "p0.1@x#5-5"] {
            assert_eq!(text.parse::<PfSelector>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_what_is_no_selector() {
        for text in ["", "#0-3", "ens1f0#", "ens1f0#3", "ens1f0#3-1", "ens1f0#0-1#2-3", "ens 1"] {
            let error = text.parse::<PfSelector>().unwrap_err();
            assert_eq!(error.text, text);
        }
    }
}
