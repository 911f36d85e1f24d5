//! Settings of a port of a Linux bridge, with the names and values of bridge(8).

use core::fmt;

use thiserror::Error;

use crate::prelude::*;

/// Number of settings.
pub const COUNT: usize = 18;

/// Names of all settings, sorted.
pub const NAMES: [&str; COUNT] = {
    let mut names = [""; COUNT];
    let mut at = 0;
    while at < COUNT {
        names[at] = SETTINGS[at].0;
        at += 1;
    }
    names
};

/// Spanning tree states by the kernel's number.
const STATES: [&str; 5] = ["disabled", "listening", "learning", "forwarding", "blocking"];
/// States that the kernel keeps in a bridge without a spanning tree protocol.
const KEPT_STATES: [&str; 4] = ["disabled", "listening", "learning", "forwarding"];
const FORWARDING: u32 = 3;
const BLOCKING: u32 = 4;

/// Settings by name, with the values that the kernel accepts and its default; `None` if that depends on the port.
const SETTINGS: [(&str, PortValues, Option<u32>); COUNT] = [
    ("bcast_flood", PortValues::Switch, Some(1)),
    ("cost", PortValues::Number { min: 1, max: 65535 }, None),
    ("fastleave", PortValues::Switch, Some(0)),
    ("flood", PortValues::Switch, Some(1)),
    ("guard", PortValues::Switch, Some(0)),
    ("hairpin", PortValues::Switch, Some(0)),
    ("isolated", PortValues::Switch, Some(0)),
    ("learning", PortValues::Switch, Some(1)),
    ("locked", PortValues::Switch, Some(0)),
    ("mab", PortValues::Switch, Some(0)),
    ("mcast_flood", PortValues::Switch, Some(1)),
    // The kernel reports 3 while a router is known, and replaces it by 1 afterwards.
    ("mcast_router", PortValues::Number { min: 0, max: 2 }, Some(1)),
    ("mcast_to_unicast", PortValues::Switch, Some(0)),
    ("neigh_suppress", PortValues::Switch, Some(0)),
    ("priority", PortValues::Number { min: 0, max: 63 }, Some(32)),
    ("root_block", PortValues::Switch, Some(0)),
    ("state", PortValues::State, Some(FORWARDING)),
    ("vlan_tunnel", PortValues::Switch, Some(0)),
];

/// Values of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortValues {
    /// `on` or `off`.
    Switch,
    /// Spanning tree state, by name or number.
    State,
    /// Number in a range.
    Number { min: u32, max: u32 },
}

impl fmt::Display for PortValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch => f.write_str("on or off"),
            Self::State => write!(f, "one of {} (or 0 to {FORWARDING})", KEPT_STATES.join(", ")),
            Self::Number { min, max } => write!(f, "a number from {min} to {max}"),
        }
    }
}

/// Reason why a setting of a bridge port is refused. The message contains the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PortSettingFault {
    #[error(
        "{name:?} is not a supported setting of a bridge port: remove it, or use one of {}",
        NAMES.join(", ")
    )]
    UnknownName { name: String },
    #[error("bridge port setting {name} is {value:?}: set it to {values}, or remove it")]
    InvalidValue { name: String, value: String, values: PortValues },
    #[error(
        "bridge port setting state is blocking, which the kernel changes to forwarding at once in a bridge without a spanning tree protocol: set it to disabled, or remove it"
    )]
    BlockingPort,
    #[error(
        "bridge port setting mab is on, which needs a locked port with learning: set locked to on and do not set learning to off, or remove mab"
    )]
    UnlockedMab,
}

/// Returns the faults of settings that a policy requests, each with the name of its setting.
pub fn find_faults(settings: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, PortSettingFault)> {
    let is = |name: &str, value: &str| settings.get(name).is_some_and(|found| found == value);
    let is_unlocked_mab = is("mab", "on") && (!is("locked", "on") || is("learning", "off"));
    let of_values = settings.iter().filter_map(|(name, value)| Some((&**name, validate(name, value).err()?)));
    of_values.chain(is_unlocked_mab.then_some(("mab", PortSettingFault::UnlockedMab)))
}

/// Checks the name and the value of a setting that a policy requests.
pub fn validate(name: &str, value: &str) -> Result<(), PortSettingFault> {
    match parse_value(name, value)? {
        BLOCKING if name == "state" => Err(PortSettingFault::BlockingPort),
        _ => Ok(()),
    }
}

/// Returns the kernel's number for a value.
pub fn parse_value(name: &str, value: &str) -> Result<u32, PortSettingFault> {
    let (_, values, _) = find(name).ok_or_else(|| PortSettingFault::UnknownName { name: name.to_owned() })?;
    let number = match values {
        PortValues::Switch => ["off", "on"].iter().position(|text| *text == value).and_then(to_u32),
        PortValues::State => {
            let by_name = STATES.iter().position(|state| *state == value).and_then(to_u32);
            by_name.or_else(|| parse_number(value).filter(|state| state_name(*state).is_some()))
        }
        PortValues::Number { min, max } => {
            parse_number(value).filter(|number| (*min..=*max).contains(number))
        }
    };
    number.ok_or_else(|| PortSettingFault::InvalidValue {
        name: name.to_owned(),
        value: value.to_owned(),
        values: *values,
    })
}

/// Returns the value for a number of the kernel; `None` for an unknown setting or state.
pub fn format_value(name: &str, number: u32) -> Option<String> {
    match find(name)?.1 {
        PortValues::Switch => Some(if number == 0 { "off" } else { "on" }.to_owned()),
        PortValues::State => state_name(number).map(ToOwned::to_owned),
        PortValues::Number { .. } => Some(number.to_string()),
    }
}

/// Returns the form in which facts have a value: a state by name, a number without leading zeros.
pub fn normalize(name: &str, value: &str) -> Result<String, PortSettingFault> {
    let number = parse_value(name, value)?;
    Ok(format_value(name, number).unwrap_or_else(|| value.to_owned()))
}

/// Returns the default of the kernel for a port with this speed in Mbit/s; `None` for an unknown setting.
pub fn default_value(name: &str, speed: Option<u32>) -> Option<String> {
    let (_, _, default) = find(name)?;
    format_value(name, default.unwrap_or_else(|| default_cost(speed)))
}

/// Returns the path cost that the kernel gives a port (`port_cost` since Linux 6.0).
const fn default_cost(speed: Option<u32>) -> u32 {
    match speed {
        Some(10_001..) => 1,
        Some(10_000) => 2,
        Some(5_000) => 3,
        Some(2_500) => 4,
        Some(1_000) => 5,
        Some(100) => 19,
        _ => 100,
    }
}

fn find(name: &str) -> Option<&'static (&'static str, PortValues, Option<u32>)> {
    SETTINGS.iter().find(|(found, ..)| *found == name)
}

fn state_name(number: u32) -> Option<&'static str> {
    STATES.get(usize::try_from(number).ok()?).copied()
}

/// Parses a decimal number without a sign.
fn parse_number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn to_u32(position: usize) -> Option<u32> {
    u32::try_from(position).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted() {
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn every_default_is_valid() {
        for name in NAMES {
            for speed in [None, Some(10), Some(1_000), Some(25_000)] {
                let value = default_value(name, speed).unwrap();
                assert_eq!(normalize(name, &value), Ok(value));
            }
        }
        assert_eq!(default_value("learning", None).as_deref(), Some("on"));
        assert_eq!(default_value("isolated", None).as_deref(), Some("off"));
        assert_eq!(default_value("state", None).as_deref(), Some("forwarding"));
        let costs = [Some(25_000), Some(10_000), Some(1_000), None].map(|speed| default_value("cost", speed));
        assert_eq!(costs.map(Option::unwrap), ["1", "2", "5", "100"]);
        assert_eq!(default_value("color", None), None);
    }

    #[test]
    fn values_are_those_of_bridge_8() {
        for (name, value, number) in
            [("learning", "off", 0), ("state", "blocking", 4), ("state", "3", 3), ("cost", "65535", 65535)]
        {
            assert_eq!(parse_value(name, value), Ok(number));
        }
        assert_eq!(normalize("state", "3").as_deref(), Ok("forwarding"));
        assert_eq!(normalize("priority", "07").as_deref(), Ok("7"));
        for (name, value) in [
            ("learning", "1"),
            ("learning", "true"),
            ("learning", "On"),
            ("learning", ""),
            ("state", "5"),
            ("state", "up"),
            ("cost", "0"),
            ("cost", "+5"),
            ("cost", "65536"),
            ("cost", "99999999999"),
            ("priority", "64"),
            ("priority", "-1"),
            ("priority", ""),
            ("mcast_router", "3"),
            ("mcast_router", "4"),
        ] {
            assert!(
                matches!(validate(name, value), Err(PortSettingFault::InvalidValue { .. })),
                "{name} {value}"
            );
        }
    }

    #[test]
    fn a_state_that_the_kernel_does_not_keep_is_refused() {
        for value in ["blocking", "4"] {
            assert_eq!(validate("state", value), Err(PortSettingFault::BlockingPort));
        }
        assert_eq!(validate("state", "disabled"), Ok(()));
        assert_eq!(validate("cost", "4"), Ok(()));
    }

    /// The kernel refuses it with EINVAL.
    #[test]
    fn mac_authentication_bypass_needs_a_locked_port_with_learning() {
        let faults = |settings: &[(&str, &str)]| -> Vec<_> {
            let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let settings = settings.collect();
            find_faults(&settings).map(|(name, fault)| (name.to_owned(), fault)).collect()
        };
        let refused = [("mab".to_owned(), PortSettingFault::UnlockedMab)];
        assert_eq!(faults(&[("mab", "on")]), refused);
        assert_eq!(faults(&[("mab", "on"), ("locked", "off")]), refused);
        assert_eq!(faults(&[("mab", "on"), ("locked", "on"), ("learning", "off")]), refused);
        for accepted in [&[("mab", "on"), ("locked", "on")][..], &[("mab", "off")], &[("locked", "on")]] {
            assert_eq!(faults(accepted), []);
        }
        assert_eq!(
            faults(&[("mab", "on"), ("locked", "on"), ("learning", "on"), ("color", "red")]),
            [("color".to_owned(), PortSettingFault::UnknownName { name: "color".to_owned() })]
        );
    }

    #[test]
    fn faults_name_the_setting_the_problem_and_the_remedy() {
        let text = |name, value| validate(name, value).unwrap_err().to_string();
        assert_eq!(
            text("learning", "maybe"),
            "bridge port setting learning is \"maybe\": set it to on or off, or remove it"
        );
        assert_eq!(
            text("priority", "64"),
            "bridge port setting priority is \"64\": set it to a number from 0 to 63, or remove it"
        );
        assert!(text("state", "x").contains("one of disabled, listening, learning, forwarding (or 0 to 3)"));
        assert!(text("color", "red").starts_with("\"color\" is not a supported setting of a bridge port: remove it, or use one of bcast_flood, cost, "));
    }
}
