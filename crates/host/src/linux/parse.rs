//! Parsers of values in sysfs. Pure functions that return `None` for invalid text.

use std::num::ParseIntError;

/// Parses a number without a sign; `str::parse` alone would accept `+1`.
fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Parses a number of VFs.
pub(super) fn count(text: &str) -> Option<u16> {
    decimal(text)
}

/// Parses the index of an interface.
pub(super) fn index(text: &str) -> Option<u32> {
    decimal(text).filter(|index| *index > 0)
}

/// Parses the number of a port, which is hexadecimal on some cards.
pub(super) fn port(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => hex(digits),
        None => decimal(text),
    }
}

/// Parses `0` or `1`.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Parses a vendor or device ID such as `0x8086`.
pub(super) fn id(text: &str) -> Option<u16> {
    u16::try_from(hex(text.strip_prefix("0x")?)?).ok()
}

/// Returns whether a device class such as `0x020000` is that of a network controller.
pub(super) fn is_network_class(text: &str) -> Option<bool> {
    Some(hex(text.strip_prefix("0x")?)? >> 16 == 0x02)
}

fn hex(digits: &str) -> Option<u32> {
    let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex { u32::from_str_radix(digits, 16).ok() } else { None }
}

/// Parses a speed in Mbit/s. Returns `None` for -1, signed or unsigned, which drivers use for an unknown speed.
pub(super) fn speed(text: &str) -> Result<Option<u32>, ParseIntError> {
    let speed: i64 = text.parse()?;
    Ok(u32::try_from(speed).ok().filter(|speed| *speed != u32::MAX))
}

/// Parses the driver in `driver_override`.
pub(super) fn driver_override(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty() && *text != "(null)")
}

/// Parses the VF index in the name of a link: `virtfn3`.
pub(super) fn virtfn(name: &str) -> Option<u16> {
    name.strip_prefix("virtfn").filter(|digits| !digits.is_empty()).and_then(decimal)
}

/// Returns whether a port name (`phys_port_name`) belongs to the representor of a VF or SF (`pf0vf3`, `c1pf0sf2`), as
/// opposed to the port of the PF (`p0`).
pub(super) fn is_representor(port_name: &str) -> bool {
    split_pf_port(port_name).is_some_and(|(_, rest)| rest.starts_with("vf") || rest.starts_with("sf"))
}

/// Switch port of a VF.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VfPort {
    /// Number of the PF on its card.
    pub(super) pf: u32,
    pub(super) vf: u16,
}

/// Parses the port name (`phys_port_name`) of a VF: `pf0vf3`. Returns `None` for a VF of another machine that shares
/// the card (`c1pf0vf3`).
pub(super) fn vf_port(port_name: &str) -> Option<VfPort> {
    let (pf, rest) = split_pf_port(port_name).filter(|_| !port_name.starts_with('c'))?;
    let vf = rest.strip_prefix("vf").filter(|digits| !digits.is_empty())?;
    Some(VfPort { pf: decimal(pf).filter(|_| !pf.is_empty())?, vf: decimal(vf)? })
}

/// Returns the digits after `pf` in a port name, and the rest.
fn split_pf_port(port_name: &str) -> Option<(&str, &str)> {
    let after_controller = match port_name.strip_prefix('c') {
        Some(rest) => rest.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => port_name,
    };
    let rest = after_controller.strip_prefix("pf")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some(rest.split_at(digits))
}

/// Parses the number of a NUMA node, which is -1 on a machine without NUMA.
pub(super) fn numa_node(text: &str) -> Option<i32> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_values_of_the_kernel() {
        assert_eq!((count("0"), count("7"), count("65535")), (Some(0), Some(7), Some(65535)));
        assert_eq!((count("65536"), count("-1"), count("+1"), count("")), (None, None, None, None));
        assert_eq!((index("3"), index("0")), (Some(3), None));
        assert_eq!((port("1"), port("0x1f"), port("x")), (Some(1), Some(31), None));
        assert_eq!((switch("1"), switch("0"), switch("2")), (Some(true), Some(false), None));
        assert_eq!((id("0x8086"), id("8086"), id("0x18086"), id("0x+086")), (Some(0x8086), None, None, None));
        assert_eq!((is_network_class("0x020000"), is_network_class("0x028000")), (Some(true), Some(true)));
        assert_eq!((is_network_class("0x120000"), is_network_class("net")), (Some(false), None));
        assert_eq!((driver_override("(null)"), driver_override("")), (None, None));
        assert_eq!(driver_override("vfio-pci"), Some("vfio-pci"));
        assert_eq!((virtfn("virtfn12"), virtfn("virtfn"), virtfn("physfn")), (Some(12), None, None));
    }

    #[test]
    fn an_unknown_speed_is_no_speed() {
        assert_eq!(speed("1000"), Ok(Some(1000)));
        assert_eq!((speed("-1"), speed("4294967295")), (Ok(None), Ok(None)));
        assert!(speed("fast").is_err() && speed("").is_err());
    }

    #[test]
    fn distinguishes_ports_and_representors() {
        for name in ["pf0vf0", "pf12vf127", "pf0sf3", "c1pf0vf1", "c1pf0sf2"] {
            assert!(is_representor(name), "{name}");
        }
        for name in ["", "p0", "p1s2", "pf0", "0", "c", "cpu", "vf0"] {
            assert!(!is_representor(name), "{name}");
        }
    }

    #[test]
    fn parses_the_port_of_a_vf() {
        assert_eq!(vf_port("pf1vf23"), Some(VfPort { pf: 1, vf: 23 }));
        for name in ["c1pf0vf1", "pf0sf1", "pf0", "p0", "pf0vf", "pfvf1", "pf0vf-1", ""] {
            assert_eq!(vf_port(name), None, "{name}");
        }
    }

    #[test]
    fn a_machine_without_numa_has_no_nodes() {
        assert_eq!((numa_node("-1"), numa_node("1"), numa_node("")), (Some(-1), Some(1), None));
    }

    proptest! {
        #[test]
        fn accepts_any_text(text in "\\PC*|[0-9a-fx+-]{0,12}|(c[0-9]*)?pf[0-9]*[a-z]{0,3}") {
            let _ = (count(&text), index(&text), port(&text), switch(&text), id(&text), speed(&text));
            let _ = (is_network_class(&text), driver_override(&text), virtfn(&text), is_representor(&text));
            let _ = (vf_port(&text), numa_node(&text));
        }

        #[test]
        fn parses_what_is_formatted(number: u16) {
            prop_assert_eq!(count(&number.to_string()), Some(number));
            prop_assert_eq!(id(&format!("{number:#06x}")), Some(number));
            prop_assert_eq!(virtfn(&format!("virtfn{number}")), Some(number));
        }
    }
}
