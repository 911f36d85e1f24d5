//! Parsed values of the API: any text is parsed without a panic and written back, and a valid value survives a round
//! trip.

use proptest::prelude::*;
use vfleet_api::parsed::TextFormat;
use vfleet_api::{Guid, MacAddr, Parsed, PciAddress, PfSelector, VfRange};

/// Checks that any text is written back unchanged, and that a valid value survives a round trip.
fn check<T: TextFormat + PartialEq + std::fmt::Debug>(text: &str) {
    let parsed = Parsed::<T>::new(text);
    assert_eq!(parsed.text(), text);
    assert_eq!(serde_json::to_value(&parsed).ok(), Some(serde_json::Value::from(text)));
    if let Ok(value) = parsed.value() {
        assert_eq!(value.to_string().parse::<T>().as_ref(), Ok(value));
    }
}

fn check_all(text: &str) {
    check::<PciAddress>(text);
    check::<VfRange>(text);
    check::<PfSelector>(text);
    check::<MacAddr>(text);
    check::<Guid>(text);
}

proptest! {
    #![proptest_config({
        let default = ProptestConfig::default();
        ProptestConfig { cases: default.cases.max(2000), ..default }
    })]

    #[test]
    fn any_text(text in any::<String>()) {
        check_all(&text);
    }

    #[test]
    fn text_that_is_almost_valid(text in "[0-9a-fA-F:.#+-]{0,24}") {
        check_all(&text);
    }

    #[test]
    fn pci_addresses(domain: u32, bus: u8, device in 0u8..32, function in 0u8..8) {
        let address = PciAddress::new(domain, bus, device, function).expect("in range");
        check::<PciAddress>(&address.to_string());
        prop_assert_eq!(address.to_string().to_uppercase().parse(), Ok(address));
    }

    #[test]
    fn ranges(first: u16, length in 0u16..100) {
        let last = first.saturating_add(length);
        let range = VfRange::new(first, last).expect("first is not above last");
        prop_assert_eq!(range.to_string().parse(), Ok(range));
        prop_assert!(range.contains(first) && range.contains(last));
    }

    #[test]
    fn overlap_is_sharing_an_index(a in 0u16..20, b in 0u16..20, c in 0u16..20, d in 0u16..20) {
        let (Some(left), Some(right)) = (VfRange::new(a.min(b), a.max(b)), VfRange::new(c.min(d), c.max(d))) else {
            unreachable!("ordered")
        };
        let share = (0..20).any(|index| left.contains(index) && right.contains(index));
        prop_assert_eq!(left.overlaps(right), share);
        prop_assert_eq!(right.overlaps(left), share);
    }

    #[test]
    fn addresses_of_hardware(mac: [u8; 6], guid: [u8; 8]) {
        check::<MacAddr>(&MacAddr(mac).to_string());
        check::<Guid>(&Guid(guid).to_string());
    }
}
