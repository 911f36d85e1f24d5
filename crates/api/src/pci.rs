//! PCI addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::parsed::{ParseError, TextFormat};

/// Address of a PCI function: `0000:3b:00.0`. Domains above `ffff` exist (Intel VMD).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// Creates an address; `None` if `device` is above 31 or `function` above 7.
    pub const fn new(domain: u32, bus: u8, device: u8, function: u8) -> Option<Self> {
        if device > 0x1f || function > 7 {
            return None;
        }
        Some(Self { domain, bus, device, function })
    }

    /// Returns the number of the function on its device.
    pub const fn function(self) -> u8 {
        self.function
    }

    /// Returns the function that is `distance` routing IDs after this one in the same domain, as for VFs of an SR-IOV
    /// card (`First VF Offset`, `VF Stride`); `None` past the last bus.
    pub fn offset(self, distance: u16) -> Option<Self> {
        let routing_id = u16::from(self.bus) << 8 | u16::from(self.device) << 3 | u16::from(self.function);
        let [bus, devfn] = routing_id.checked_add(distance)?.to_be_bytes();
        Some(Self { domain: self.domain, bus, device: devfn >> 3, function: devfn & 7 })
    }
}

impl FromStr for PciAddress {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text).ok_or_else(|| ParseError::new(text, "a PCI address such as 0000:3b:00.0"))
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    if !(4..=8).contains(&domain.len()) || bus.len() != 2 || device.len() != 2 || function.len() != 1 {
        return None;
    }
    PciAddress::new(
        parse_hex(domain)?,
        u8::try_from(parse_hex(bus)?).ok()?,
        u8::try_from(parse_hex(device)?).ok()?,
        u8::try_from(parse_hex(function)?).ok()?,
    )
}

/// Parses hexadecimal digits only: `from_str_radix` would accept a sign.
fn parse_hex(digits: &str) -> Option<u32> {
    if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        u32::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

impl fmt::Debug for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TextFormat for PciAddress {
    const NAME: &'static str = "PciAddress";
    const PATTERN: &'static str = r"^[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]$";
    const MAX_LENGTH: u32 = 16;
}

impl TryFrom<String> for PciAddress {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_printed_as_parsed() {
        for text in ["0000:00:00.0", "0000:3b:1f.7", "10000:e1:00.0", "ffffffff:ff:1f.7"] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn case_does_not_matter() {
        assert_eq!("0000:3B:00.0".parse::<PciAddress>(), "0000:3b:00.0".parse());
    }

    #[test]
    fn rejects_invalid_addresses() {
        for text in [
            "",
            "3b:00.0",
            "0000:3b:00",
            "0000:3b:20.0",
            "0000:3b:00.8",
            "0000:+b:00.0",
            "0000:3b:00.0 ",
            "0000:3b:00.0.0",
        ] {
            let error = text.parse::<PciAddress>().unwrap_err();
            assert!(error.to_string().contains("0000:3b:00.0"), "{error}");
        }
    }

    #[test]
    fn offsets_are_routing_ids() {
        let pf: PciAddress = "0000:01:00.0".parse().unwrap();
        assert_eq!(pf.offset(128).unwrap().to_string(), "0000:01:10.0");
        assert_eq!(pf.offset(130).unwrap().to_string(), "0000:01:10.2");
        assert_eq!(pf.offset(256).unwrap().to_string(), "0000:02:00.0");
        assert_eq!("0000:ff:1f.7".parse::<PciAddress>().unwrap().offset(1), None);
    }
}
