//! What a network card does by itself: its features, through ethtool's netlink.

use super::genl::Family;
use super::netlink::{Attributes, attributes, find, nonsense, text};
use crate::HostError;

const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_HW: u16 = 2;
const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
const ETHTOOL_FLAG_OMIT_REPLY: u32 = 2;
const ETHTOOL_A_BITSET_NOMASK: u16 = 1;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;
const EOPNOTSUPP: i32 = 95;

const TC_OFFLOAD: &str = "hw-tc-offload";

/// Whether traffic control may be offloaded to an interface; `None` when that cannot be switched.
pub(super) fn tc_offload(index: u32) -> Result<Option<bool>, HostError> {
    let attempt = format!("read the features of interface {index}");
    // Kernels before 5.7 have no such family.
    let Some(mut ethtool) = Family::open("ethtool")? else { return Ok(None) };
    match ethtool.ask(ETHTOOL_MSG_FEATURES_GET, &about(index, None), &attempt) {
        Ok(answer) => {
            let feature = feature(&answer, TC_OFFLOAD).ok_or_else(|| nonsense(&attempt))?;
            Ok(feature.can_switch.then_some(feature.is_on))
        }
        Err(error) if error.errno() == Some(EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lets traffic control be offloaded to an interface, or not.
pub(super) fn set_tc_offload(index: u32, on: bool, attempt: &str) -> Result<(), HostError> {
    let Some(mut ethtool) = Family::open("ethtool")? else {
        let source = std::io::Error::from_raw_os_error(EOPNOTSUPP);
        return Err(HostError::Netlink { attempt: attempt.to_owned(), message: None, source });
    };
    ethtool.change(ETHTOOL_MSG_FEATURES_SET, &tc_offload_request(index, on), attempt)
}

fn about(index: u32, flags: Option<u32>) -> Attributes {
    let mut header = Attributes::default().with(ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes());
    if let Some(flags) = flags {
        header = header.with(ETHTOOL_A_HEADER_FLAGS, &flags.to_ne_bytes());
    }
    Attributes::default().with_nested(ETHTOOL_A_FEATURES_HEADER, &header)
}

fn tc_offload_request(index: u32, on: bool) -> Attributes {
    let mut bit = Attributes::default().with_text(ETHTOOL_A_BITSET_BIT_NAME, TC_OFFLOAD);
    if on {
        bit = bit.with(ETHTOOL_A_BITSET_BIT_VALUE, &[]);
    }
    let bits = Attributes::default().with_nested(ETHTOOL_A_BITSET_BITS_BIT, &bit);
    let bitset = Attributes::default().with_nested(ETHTOOL_A_BITSET_BITS, &bits);
    about(index, Some(ETHTOOL_FLAG_OMIT_REPLY)).with_nested(ETHTOOL_A_FEATURES_WANTED, &bitset)
}

/// Something that a card can do by itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Feature {
    pub(super) can_switch: bool,
    pub(super) is_on: bool,
}

/// The feature of this name; one that the kernel does not list cannot be switched on.
pub(super) fn feature(answer: &[u8], name: &str) -> Option<Feature> {
    let sets = attributes(answer)?;
    let is_in = |kind| find(&sets, kind).map_or(Some(false), |set| is_set(set, name));
    Some(Feature { can_switch: is_in(ETHTOOL_A_FEATURES_HW)?, is_on: is_in(ETHTOOL_A_FEATURES_ACTIVE)? })
}

/// Whether the bit of this name is set. A set without a mask has those that are set alone.
fn is_set(bitset: &[u8], name: &str) -> Option<bool> {
    let bitset = attributes(bitset)?;
    let has_mask = find(&bitset, ETHTOOL_A_BITSET_NOMASK).is_none();
    let Some(bits) = find(&bitset, ETHTOOL_A_BITSET_BITS) else { return Some(false) };
    for (_, bit) in attributes(bits)? {
        let bit = attributes(bit)?;
        if find(&bit, ETHTOOL_A_BITSET_BIT_NAME).is_some_and(|found| text(found) == name) {
            return Some(!has_mask || find(&bit, ETHTOOL_A_BITSET_BIT_VALUE).is_some());
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use netlink_bindings::ethtool as independent;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_change_is_what_an_independent_encoder_writes() {
        for on in [true, false] {
            let mut expected = Vec::new();
            let request = independent::OpFeaturesSetDo::encode_request(&mut expected)
                .nested_header()
                .push_dev_index(7)
                .push_flags(ETHTOOL_FLAG_OMIT_REPLY)
                .end_nested();
            let bit = request.nested_wanted().nested_bits().nested_bit().push_name(c"hw-tc-offload");
            drop(if on { bit.push_value(()) } else { bit });
            // It numbers commands and answers in one row, which the kernel does not: the command is left out.
            assert_eq!(tc_offload_request(7, on).after(&[]), expected[4..], "{on}");
        }
    }

    fn bitset(mask: bool, bits: &[(&str, bool)]) -> Attributes {
        let mut list = Attributes::default();
        for (name, is_set) in bits {
            let bit = Attributes::default().with_text(ETHTOOL_A_BITSET_BIT_NAME, name);
            let bit = if *is_set && mask { bit.with(ETHTOOL_A_BITSET_BIT_VALUE, &[]) } else { bit };
            list = list.with_nested(ETHTOOL_A_BITSET_BITS_BIT, &bit);
        }
        let set = Attributes::default().with_nested(ETHTOOL_A_BITSET_BITS, &list);
        if mask { set } else { set.with(ETHTOOL_A_BITSET_NOMASK, &[]) }
    }

    fn answer(can_switch: bool, active: &[(&str, bool)]) -> Vec<u8> {
        Attributes::default()
            .with_nested(ETHTOOL_A_FEATURES_HW, &bitset(true, &[("rx-gro", true), (TC_OFFLOAD, can_switch)]))
            .with_nested(ETHTOOL_A_FEATURES_ACTIVE, &bitset(false, active))
            .after(&[])
    }

    #[test]
    fn reads_what_can_be_switched() {
        let read =
            |answer: &[u8], name| feature(answer, name).map(|feature| (feature.can_switch, feature.is_on));
        assert_eq!(read(&answer(true, &[(TC_OFFLOAD, true)]), TC_OFFLOAD), Some((true, true)));
        assert_eq!(read(&answer(true, &[("rx-gro", true)]), TC_OFFLOAD), Some((true, false)));
        assert_eq!(read(&answer(false, &[]), TC_OFFLOAD), Some((false, false)));
        assert_eq!(read(&answer(true, &[]), "no-such-feature"), Some((false, false)));
    }

    #[test]
    fn the_loopback_has_nothing_to_offload_to() {
        assert_eq!(tc_offload(1).unwrap(), None);
        assert_eq!(tc_offload(999_999).unwrap_err().errno(), Some(19));
    }

    proptest! {
        #[test]
        fn takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (feature(&bytes, TC_OFFLOAD), is_set(&bytes, TC_OFFLOAD));
        }

        #[test]
        fn takes_a_damaged_answer(at in 0_usize..200, byte: u8, length in 0_usize..200) {
            let mut bytes = answer(true, &[(TC_OFFLOAD, true)]);
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(length);
            let _ = feature(&bytes, TC_OFFLOAD);
        }
    }
}
