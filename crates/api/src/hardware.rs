//! Hardware addresses: Ethernet MAC addresses and InfiniBand GUIDs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::parsed::{ParseError, TextFormat};

/// Ethernet MAC address: `02:00:00:00:01:00`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Address that a card reports for a VF without an assigned address.
    pub const ZERO: Self = Self([0; 6]);

    /// Returns whether an interface may have this address: neither zero nor a group address.
    pub const fn is_usable(self) -> bool {
        self.0[0] & 1 == 0 && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

/// InfiniBand GUID: `02:00:00:00:00:aa:00:02`. The format of the kernel, `0200:0000:00aa:0002`, is parsed, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Guid(pub [u8; 8]);

/// Parses `N` bytes of hexadecimal digits, with colons between groups of `group` bytes.
fn parse_bytes<const N: usize>(text: &str, group: usize) -> Option<[u8; N]> {
    let mut bytes = Vec::with_capacity(N);
    for part in text.split(':') {
        if part.len() != group * 2 || !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for at in (0..part.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&part[at..at + 2], 16).ok()?);
        }
    }
    bytes.try_into().ok()
}

fn print_bytes(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, byte) in bytes.iter().enumerate() {
        if at > 0 {
            f.write_str(":")?;
        }
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

impl FromStr for MacAddr {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse_bytes(text, 1)
            .map(Self)
            .ok_or_else(|| ParseError::new(text, "a MAC address such as 02:00:00:00:01:00"))
    }
}

impl FromStr for Guid {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse_bytes(text, 1)
            .or_else(|| parse_bytes(text, 2))
            .map(Self)
            .ok_or_else(|| ParseError::new(text, "a GUID such as 02:00:00:00:00:aa:00:02"))
    }
}

/// Implements formatting and serialization of address types.
macro_rules! impl_address {
    ($($type:ident, $max_length:literal, $pattern:literal;)*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print_bytes(&self.0, f)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print_bytes(&self.0, f)
            }
        }

        impl TextFormat for $type {
            const NAME: &'static str = stringify!($type);
            const PATTERN: &'static str = $pattern;
            const MAX_LENGTH: u32 = $max_length;
        }

        impl TryFrom<String> for $type {
            type Error = ParseError;

            fn try_from(text: String) -> Result<Self, ParseError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(address: $type) -> Self {
                address.to_string()
            }
        }
    )*};
}

impl_address! {
    MacAddr, 17, "^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$";
    Guid, 23, "^([0-9a-fA-F]{2}:){7}[0-9a-fA-F]{2}$|^([0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}$";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_is_printed_in_lower_case() {
        assert_eq!("02:00:00:0a:Ff:01".parse::<MacAddr>().unwrap().to_string(), "02:00:00:0a:ff:01");
    }

    #[test]
    fn a_guid_is_parsed_in_both_formats() {
        let pairs: Guid = "02:00:00:00:00:aa:00:02".parse().unwrap();
        assert_eq!("0200:0000:00aa:0002".parse(), Ok(pairs));
        assert_eq!(pairs.to_string(), "02:00:00:00:00:aa:00:02");
    }

    #[test]
    fn rejects_invalid_addresses() {
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:0g",
            "020000000000",
            "02:00:00:00:00:00:00",
            "+2:00:00:00:00:00",
        ] {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
            assert!(text.parse::<Guid>().is_err(), "{text}");
        }
    }

    #[test]
    fn zero_and_group_addresses_are_not_usable() {
        assert!(!MacAddr::ZERO.is_usable());
        assert!(!MacAddr([1, 0, 0, 0, 0, 1]).is_usable());
        assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_usable());
    }
}
