//! Messages of ethtool: features of interfaces.

use super::attribute::{Attributes, ReceivedAttributes, text};
use super::generic::FamilyCommand;

/// Name of the family. Kernels before 5.7 do not have it.
pub(in crate::linux) const FAMILY: &str = "ethtool";

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

/// Returns the request for the features of an interface.
pub(in crate::linux) fn get_features(index: u32) -> FamilyCommand {
    FamilyCommand { number: ETHTOOL_MSG_FEATURES_GET, attributes: request_header(index, None) }
}

/// Returns the request that switches a feature of an interface.
pub(in crate::linux) fn set_feature(index: u32, name: &str, on: bool) -> FamilyCommand {
    let mut bit = Attributes::default().with_text(ETHTOOL_A_BITSET_BIT_NAME, name);
    if on {
        bit = bit.with_flag(ETHTOOL_A_BITSET_BIT_VALUE);
    }
    let bits = Attributes::default().with_nested(ETHTOOL_A_BITSET_BITS_BIT, &bit);
    let bitset = Attributes::default().with_nested(ETHTOOL_A_BITSET_BITS, &bits);
    let attributes =
        request_header(index, Some(ETHTOOL_FLAG_OMIT_REPLY)).with_nested(ETHTOOL_A_FEATURES_WANTED, &bitset);
    FamilyCommand { number: ETHTOOL_MSG_FEATURES_SET, attributes }
}

fn request_header(index: u32, flags: Option<u32>) -> Attributes {
    let mut header = Attributes::default().with_u32(ETHTOOL_A_HEADER_DEV_INDEX, index);
    if let Some(flags) = flags {
        header = header.with_u32(ETHTOOL_A_HEADER_FLAGS, flags);
    }
    Attributes::default().with_nested(ETHTOOL_A_FEATURES_HEADER, &header)
}

/// Offload feature of an interface.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::linux) struct Feature {
    pub(in crate::linux) can_switch: bool,
    pub(in crate::linux) is_on: bool,
}

/// Parses the answer to [`get_features`] and returns the feature with this name. A feature that the kernel does not
/// list cannot be switched.
pub(in crate::linux) fn parse_feature(answer: &[u8], name: &str) -> Option<Feature> {
    let sets = ReceivedAttributes::parse(answer)?;
    let is_in = |kind| is_set(&sets.nested(kind)?, name);
    Some(Feature { can_switch: is_in(ETHTOOL_A_FEATURES_HW)?, is_on: is_in(ETHTOOL_A_FEATURES_ACTIVE)? })
}

/// Returns whether the bit with this name is set. A bitset without a mask lists only the bits that are set.
fn is_set(bitset: &ReceivedAttributes<'_>, name: &str) -> Option<bool> {
    let has_mask = !bitset.has(ETHTOOL_A_BITSET_NOMASK);
    for (_, bit) in bitset.nested(ETHTOOL_A_BITSET_BITS)?.iter() {
        let bit = ReceivedAttributes::parse(bit)?;
        if bit.get(ETHTOOL_A_BITSET_BIT_NAME).is_some_and(|found| text(found) == name) {
            return Some(!has_mask || bit.has(ETHTOOL_A_BITSET_BIT_VALUE));
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use netlink_bindings::ethtool as independent;
    use proptest::prelude::*;

    use super::*;

    const FEATURE: &str = "hw-tc-offload";

    #[test]
    fn a_request_equals_that_of_an_independent_encoder() {
        for on in [true, false] {
            let mut expected = Vec::new();
            let request = independent::OpFeaturesSetDo::encode_request(&mut expected)
                .nested_header()
                .push_dev_index(7)
                .push_flags(ETHTOOL_FLAG_OMIT_REPLY)
                .end_nested();
            let bit = request.nested_wanted().nested_bits().nested_bit().push_name(c"hw-tc-offload");
            drop(if on { bit.push_value(()) } else { bit });
            // The independent encoder writes wrong command numbers, so the command is left out.
            assert_eq!(set_feature(7, FEATURE, on).attributes.after(&[]), expected[4..], "{on}");
        }
    }

    fn bitset(mask: bool, bits: &[(&str, bool)]) -> Attributes {
        let mut list = Attributes::default();
        for (name, is_set) in bits {
            let bit = Attributes::default().with_text(ETHTOOL_A_BITSET_BIT_NAME, name);
            let bit = if *is_set && mask { bit.with_flag(ETHTOOL_A_BITSET_BIT_VALUE) } else { bit };
            list = list.with_nested(ETHTOOL_A_BITSET_BITS_BIT, &bit);
        }
        let set = Attributes::default().with_nested(ETHTOOL_A_BITSET_BITS, &list);
        if mask { set } else { set.with_flag(ETHTOOL_A_BITSET_NOMASK) }
    }

    fn answer(can_switch: bool, active: &[(&str, bool)]) -> Vec<u8> {
        Attributes::default()
            .with_nested(ETHTOOL_A_FEATURES_HW, &bitset(true, &[("rx-gro", true), (FEATURE, can_switch)]))
            .with_nested(ETHTOOL_A_FEATURES_ACTIVE, &bitset(false, active))
            .after(&[])
    }

    #[test]
    fn parses_features() {
        let read = |answer: &[u8], name| {
            parse_feature(answer, name).map(|feature| (feature.can_switch, feature.is_on))
        };
        assert_eq!(read(&answer(true, &[(FEATURE, true)]), FEATURE), Some((true, true)));
        assert_eq!(read(&answer(true, &[("rx-gro", true)]), FEATURE), Some((true, false)));
        assert_eq!(read(&answer(false, &[]), FEATURE), Some((false, false)));
        assert_eq!(read(&answer(true, &[]), "no-such-feature"), Some((false, false)));
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (parse_feature(&bytes, FEATURE), ReceivedAttributes::parse(&bytes).map(|set| is_set(&set, FEATURE)));
        }

        #[test]
        fn accepts_a_damaged_answer(at in 0_usize..200, byte: u8, length in 0_usize..200) {
            let mut bytes = answer(true, &[(FEATURE, true)]);
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(length);
            let _ = parse_feature(&bytes, FEATURE);
        }
    }
}
