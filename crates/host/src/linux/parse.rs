//! The words of sysfs. Pure: text in, value out, `None` for what is no such word.

use std::num::ParseIntError;

/// A number without a sign, which `str::parse` alone would accept.
fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// A number of VFs.
pub(super) fn count(text: &str) -> Option<u16> {
    decimal(text)
}

/// The index of an interface.
pub(super) fn index(text: &str) -> Option<u32> {
    decimal(text).filter(|index| *index > 0)
}

/// The number of a port; hexadecimal on some cards.
pub(super) fn port(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => hex(digits),
        None => decimal(text),
    }
}

/// `0` or `1`.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// A vendor or device id: `0x8086`.
pub(super) fn id(text: &str) -> Option<u16> {
    u16::try_from(hex(text.strip_prefix("0x")?)?).ok()
}

/// Whether a device class (`0x020000`) is one of network controllers.
pub(super) fn is_network_class(text: &str) -> Option<bool> {
    Some(hex(text.strip_prefix("0x")?)? >> 16 == 0x02)
}

fn hex(digits: &str) -> Option<u32> {
    let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex { u32::from_str_radix(digits, 16).ok() } else { None }
}

/// A speed in Mbit/s; none is what drivers mean that say -1, with or without its sign.
pub(super) fn speed(text: &str) -> Result<Option<u32>, ParseIntError> {
    let speed: i64 = text.parse()?;
    Ok(u32::try_from(speed).ok().filter(|speed| *speed != u32::MAX))
}

/// The driver that `driver_override` names, if it names one.
pub(super) fn driver_override(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty() && *text != "(null)")
}

/// The index in a link's name: `virtfn3`. `None` for other names.
pub(super) fn virtfn(name: &str) -> Option<u16> {
    name.strip_prefix("virtfn").filter(|digits| !digits.is_empty()).and_then(decimal)
}

/// Whether a port name (`phys_port_name`) is that of a VF's or SF's stand-in on the PF (`pf0vf3`, `c1pf0sf2`),
/// not of the PF's own port (`p0`).
pub(super) fn is_representor(port_name: &str) -> bool {
    pf_port(port_name).is_some_and(|(_, rest)| rest.starts_with("vf") || rest.starts_with("sf"))
}

/// The port of a VF.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VfPort {
    /// The number of the PF on its card.
    pub(super) pf: u32,
    pub(super) vf: u16,
}

/// The VF that a port name (`phys_port_name`) is about: `pf0vf3`. Not one of another machine that the card is in, too
/// (`c1pf0vf3`).
pub(super) fn vf_port(port_name: &str) -> Option<VfPort> {
    let (pf, rest) = pf_port(port_name).filter(|_| !port_name.starts_with('c'))?;
    let vf = rest.strip_prefix("vf").filter(|digits| !digits.is_empty())?;
    Some(VfPort { pf: decimal(pf).filter(|_| !pf.is_empty())?, vf: decimal(vf)? })
}

/// The digits after `pf` in a port's name, and what follows them.
fn pf_port(port_name: &str) -> Option<(&str, &str)> {
    let after_controller = match port_name.strip_prefix('c') {
        Some(rest) => rest.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => port_name,
    };
    let rest = after_controller.strip_prefix("pf")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some(rest.split_at(digits))
}

/// The number of a NUMA node; -1 on a machine that has none.
pub(super) fn numa_node(text: &str) -> Option<i32> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_kernels_words() {
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
    fn tells_ports_from_representors() {
        for name in ["pf0vf0", "pf12vf127", "pf0sf3", "c1pf0vf1", "c1pf0sf2"] {
            assert!(is_representor(name), "{name}");
        }
        for name in ["", "p0", "p1s2", "pf0", "0", "c", "cpu", "vf0"] {
            assert!(!is_representor(name), "{name}");
        }
    }

    #[test]
    fn tells_which_vf_a_port_is_of() {
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
        fn takes_any_text(text in "\\PC*|[0-9a-fx+-]{0,12}|(c[0-9]*)?pf[0-9]*[a-z]{0,3}") {
            let _ = (count(&text), index(&text), port(&text), switch(&text), id(&text), speed(&text));
            let _ = (is_network_class(&text), driver_override(&text), virtfn(&text), is_representor(&text));
            let _ = (vf_port(&text), numa_node(&text));
        }

        #[test]
        fn prints_back_what_it_reads(number: u16) {
            prop_assert_eq!(count(&number.to_string()), Some(number));
            prop_assert_eq!(id(&format!("{number:#06x}")), Some(number));
            prop_assert_eq!(virtfn(&format!("virtfn{number}")), Some(number));
        }
    }
}
