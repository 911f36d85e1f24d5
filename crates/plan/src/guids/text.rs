//! Notations of GUIDs in the administrator's file.

use vfleet_api::{Guid, ParseError};

use crate::prelude::*;

const SEPARATORS: [char; 3] = [':', '-', '.'];

/// Parses a GUID: pairs or groups of four hex digits between colons, dashes or dots; 16 digits; or a number after `0x`.
pub(super) fn read_guid(text: &str) -> Result<Guid, ParseError> {
    let guid = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => number(digits),
        None => bytes(text).and_then(|bytes| bytes.try_into().ok()).map(Guid),
    };
    guid.ok_or_else(|| ParseError::new(text, "a GUID such as 02:00:00:00:00:aa:00:02"))
}

/// Parses the GUID of a PF, also from the 20-byte hardware address of its IPoIB interface, which ends with the GUID of
/// the port. The other bytes change with the subnet and when the driver restarts.
pub(super) fn read_pf_guid(text: &str) -> Result<Guid, ParseError> {
    let of_address = || {
        let bytes: [u8; 20] = bytes(text)?.try_into().ok()?;
        bytes.last_chunk().copied().map(Guid)
    };
    let expected =
        "a GUID such as 02:00:00:00:00:aa:00:02, or the 20-byte hardware address of an IPoIB interface";
    read_guid(text).ok().or_else(of_address).ok_or_else(|| ParseError::new(text, expected))
}

/// Parses a GUID as a number without leading zeros.
fn number(digits: &str) -> Option<Guid> {
    let is_number = (1..=16).contains(&digits.len()) && is_hex(digits);
    is_number.then(|| u64::from_str_radix(digits, 16).ok())?.map(|number| Guid(number.to_be_bytes()))
}

/// Returns the bytes of hex digits in pairs or groups of four with one kind of separator, or without separators.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let separator = text.chars().find(|letter| SEPARATORS.contains(letter));
    let digits = match separator {
        None => text.to_owned(),
        Some(separator) => {
            let length = text.find(separator).filter(|length| matches!(length, 2 | 4))?;
            let has_its_length = |group: &str| group.len() == length;
            text.split(separator).all(has_its_length).then(|| text.replace(separator, ""))?
        }
    };
    if !is_hex(&digits) || digits.len() % 2 != 0 {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2).map(|at| digits.get(at..at + 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// Returns whether all characters are hex digits: `from_str_radix` would accept a sign.
fn is_hex(digits: &str) -> bool {
    digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}
