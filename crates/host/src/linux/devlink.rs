//! The embedded switch of a card, through devlink.

use vfleet_api::PciAddress;
use vfleet_plan::EswitchMode;

use super::genl::Family;
use super::netlink::{Attributes, attributes, find, nonsense, text};
use crate::HostError;

const DEVLINK_CMD_ESWITCH_GET: u8 = 29;
const DEVLINK_CMD_ESWITCH_SET: u8 = 30;
const DEVLINK_CMD_PARAM_GET: u8 = 38;
const DEVLINK_CMD_PARAM_SET: u8 = 39;
const DEVLINK_ATTR_BUS_NAME: u16 = 1;
const DEVLINK_ATTR_DEV_NAME: u16 = 2;
const DEVLINK_ATTR_ESWITCH_MODE: u16 = 25;
const DEVLINK_ATTR_PARAM: u16 = 80;
const DEVLINK_ATTR_PARAM_NAME: u16 = 81;
const DEVLINK_ATTR_PARAM_TYPE: u16 = 83;
const DEVLINK_ATTR_PARAM_VALUES_LIST: u16 = 84;
const DEVLINK_ATTR_PARAM_VALUE: u16 = 85;
const DEVLINK_ATTR_PARAM_VALUE_DATA: u16 = 86;
const DEVLINK_ATTR_PARAM_VALUE_CMODE: u16 = 87;
/// What `DEVLINK_ATTR_PARAM_TYPE` says of a text.
const NLA_STRING: u8 = 5;
const EPERM: i32 = 1;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// A device as devlink names it.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub(super) bus: &'static str,
    pub(super) name: String,
}

impl Handle {
    /// The PCI function at `address`.
    pub(super) fn pci(address: PciAddress) -> Self {
        Self { bus: "pci", name: address.to_string() }
    }

    fn attributes(&self) -> Attributes {
        Attributes::default()
            .with_text(DEVLINK_ATTR_BUS_NAME, self.bus)
            .with_text(DEVLINK_ATTR_DEV_NAME, &self.name)
    }
}

/// The mode of a card's embedded switch; `None` when its driver tells of none.
pub(super) fn eswitch(device: &Handle) -> Result<Option<EswitchMode>, HostError> {
    let attempt = format!("read the eswitch mode of {}", device.name);
    let Some(mut devlink) = Family::open("devlink")? else { return Ok(None) };
    match devlink.ask(DEVLINK_CMD_ESWITCH_GET, &device.attributes(), &attempt) {
        Ok(answer) => eswitch_mode(&answer).map(Some).ok_or_else(|| nonsense(&attempt)),
        // Not known to devlink, or its driver has no switch, or (EPERM) another processor on the card has it.
        Err(error) if matches!(error.errno(), Some(ENODEV | EOPNOTSUPP | EPERM)) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn eswitch_mode(answer: &[u8]) -> Option<EswitchMode> {
    let mode = find(&attributes(answer)?, DEVLINK_ATTR_ESWITCH_MODE)?;
    match u16::from_ne_bytes(mode.try_into().ok()?) {
        0 => Some(EswitchMode::Legacy),
        1 => Some(EswitchMode::Switchdev),
        _ => None,
    }
}

/// Sets the mode of a card's embedded switch.
pub(super) fn set_eswitch(device: &Handle, mode: EswitchMode, attempt: &str) -> Result<(), HostError> {
    let no_switch = || HostError::NoEswitch { device: device.name.clone() };
    let mut devlink = Family::open("devlink")?.ok_or_else(no_switch)?;
    match devlink.change(DEVLINK_CMD_ESWITCH_SET, &eswitch_request(device, mode), attempt) {
        Err(error) if error.errno() == Some(ENODEV) => Err(no_switch()),
        // Drivers that change the mode only at certain times (ice: without VFs) refuse it with EOPNOTSUPP, too.
        Err(error) if error.errno() == Some(EOPNOTSUPP) => match eswitch(device)? {
            None => Err(no_switch()),
            Some(_) => Err(error),
        },
        set => set,
    }
}

fn eswitch_request(device: &Handle, mode: EswitchMode) -> Attributes {
    let mode: u16 = match mode {
        EswitchMode::Legacy => 0,
        EswitchMode::Switchdev => 1,
    };
    device.attributes().with(DEVLINK_ATTR_ESWITCH_MODE, &mode.to_ne_bytes())
}

/// Sets a parameter that is a text. A device that has no such parameter, or does not take the value, is left as it is.
pub(super) fn set_text_if_taken(
    device: &Handle,
    parameter: &str,
    value: &str,
    attempt: &str,
) -> Result<(), HostError> {
    match try_to_set_text(device, parameter, value, attempt) {
        Err(error) if matches!(error.errno(), Some(ENODEV | EINVAL | EOPNOTSUPP)) => Ok(()),
        tried => tried,
    }
}

fn try_to_set_text(device: &Handle, parameter: &str, value: &str, attempt: &str) -> Result<(), HostError> {
    let Some(mut devlink) = Family::open("devlink")? else { return Ok(()) };
    let parameter = device.attributes().with_text(DEVLINK_ATTR_PARAM_NAME, parameter);
    let answer = devlink.ask(DEVLINK_CMD_PARAM_GET, &parameter, attempt)?;
    let (mode, found) = text_parameter(&answer).ok_or_else(|| nonsense(attempt))?;
    if found == value {
        return Ok(());
    }
    let wanted = parameter
        .with(DEVLINK_ATTR_PARAM_TYPE, &[NLA_STRING])
        .with(DEVLINK_ATTR_PARAM_VALUE_CMODE, &[mode])
        .with_text(DEVLINK_ATTR_PARAM_VALUE_DATA, value);
    devlink.change(DEVLINK_CMD_PARAM_SET, &wanted, attempt)
}

/// The first value of a parameter, and when it counts (the kernel's number for at once, at the next load...).
pub(super) fn text_parameter(answer: &[u8]) -> Option<(u8, String)> {
    fn inside(bytes: &[u8], kind: u16) -> Option<&[u8]> {
        find(&attributes(bytes)?, kind)
    }
    let values = inside(inside(answer, DEVLINK_ATTR_PARAM)?, DEVLINK_ATTR_PARAM_VALUES_LIST)?;
    let value = inside(values, DEVLINK_ATTR_PARAM_VALUE)?;
    let mode = *inside(value, DEVLINK_ATTR_PARAM_VALUE_CMODE)?.first()?;
    Some((mode, text(inside(value, DEVLINK_ATTR_PARAM_VALUE_DATA)?)))
}

#[cfg(test)]
mod tests {
    use netlink_bindings::devlink as independent;
    use proptest::prelude::*;

    use super::*;
    use crate::linux::genl::body;

    fn device() -> Handle {
        Handle::pci("0000:03:00.1".parse().unwrap())
    }

    #[test]
    fn a_change_of_mode_is_what_an_independent_encoder_writes() {
        for (mode, number) in [(EswitchMode::Legacy, 0), (EswitchMode::Switchdev, 1)] {
            let mut expected = Vec::new();
            independent::OpEswitchSetDo::encode_request(&mut expected)
                .push_bus_name(c"pci")
                .push_dev_name(c"0000:03:00.1")
                .push_eswitch_mode(number);
            // It leaves the gap after the last attribute to its sender.
            expected.resize(expected.len().next_multiple_of(4), 0);
            assert_eq!(body(DEVLINK_CMD_ESWITCH_SET, &eswitch_request(&device(), mode)), expected);
        }
    }

    #[test]
    fn a_card_that_devlink_does_not_know_has_no_switch() {
        assert_eq!(eswitch(&device()).unwrap(), None);
        let error = set_eswitch(&device(), EswitchMode::Switchdev, "set x eswitch switchdev").unwrap_err();
        assert_eq!(error.reason(), "NoEswitch");
        set_text_if_taken(&device(), "flow_steering_mode", "smfs", "set x flow steering").unwrap();
    }

    fn a_parameter() -> Vec<u8> {
        let value = Attributes::default()
            .with(DEVLINK_ATTR_PARAM_VALUE_CMODE, &[1])
            .with_text(DEVLINK_ATTR_PARAM_VALUE_DATA, "dmfs");
        let values = Attributes::default().with_nested(DEVLINK_ATTR_PARAM_VALUE, &value);
        let parameter = Attributes::default().with_nested(DEVLINK_ATTR_PARAM_VALUES_LIST, &values);
        Attributes::default().with_nested(DEVLINK_ATTR_PARAM, &parameter).after(&[])
    }

    #[test]
    fn reads_answers() {
        let mode = |number: u16| {
            Attributes::default().with(DEVLINK_ATTR_ESWITCH_MODE, &number.to_ne_bytes()).after(&[])
        };
        assert_eq!(eswitch_mode(&mode(0)), Some(EswitchMode::Legacy));
        assert_eq!(eswitch_mode(&mode(1)), Some(EswitchMode::Switchdev));
        assert_eq!(eswitch_mode(&mode(9)), None);
        assert_eq!(text_parameter(&a_parameter()), Some((1, "dmfs".to_owned())));
    }

    proptest! {
        #[test]
        fn takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (eswitch_mode(&bytes), text_parameter(&bytes));
        }

        #[test]
        fn takes_a_damaged_parameter(at in 0_usize..60, byte: u8) {
            let mut bytes = a_parameter();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = text_parameter(&bytes);
        }
    }
}
