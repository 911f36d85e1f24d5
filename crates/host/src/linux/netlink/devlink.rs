//! devlink: a card as a whole, its embedded switch and its parameters.

use vfleet_api::PciAddress;
use vfleet_plan::{EswitchMode, Fact};

use super::attribute::{Attributes, Received};
use super::generic::Command;

/// The family's name.
pub(in crate::linux) const FAMILY: &str = "devlink";

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
/// The value of `DEVLINK_ATTR_PARAM_TYPE` for a text.
const NLA_STRING: u8 = 5;

/// A device as devlink names it.
#[derive(Clone, Debug)]
pub(in crate::linux) struct Handle {
    pub(in crate::linux) bus: &'static str,
    pub(in crate::linux) name: String,
}

impl Handle {
    /// Names the PCI function at `address`.
    pub(in crate::linux) fn pci(address: PciAddress) -> Self {
        Self { bus: "pci", name: address.to_string() }
    }

    fn attributes(&self) -> Attributes {
        Attributes::default()
            .with_text(DEVLINK_ATTR_BUS_NAME, self.bus)
            .with_text(DEVLINK_ATTR_DEV_NAME, &self.name)
    }
}

/// Asks for the mode of a card's embedded switch.
pub(in crate::linux) fn get_eswitch(device: &Handle) -> Command {
    Command { number: DEVLINK_CMD_ESWITCH_GET, attributes: device.attributes() }
}

/// Sets the mode of a card's embedded switch.
pub(in crate::linux) fn set_eswitch(device: &Handle, mode: EswitchMode) -> Command {
    let mode = match mode {
        EswitchMode::Legacy => 0,
        EswitchMode::Switchdev => 1,
    };
    let attributes = device.attributes().with_u16(DEVLINK_ATTR_ESWITCH_MODE, mode);
    Command { number: DEVLINK_CMD_ESWITCH_SET, attributes }
}

/// Parses the answer to [`get_eswitch`]. A driver without a switch leaves the mode out.
pub(in crate::linux) fn eswitch_mode(answer: &[u8]) -> Option<Fact<EswitchMode>> {
    let answer = Received::parse(answer)?;
    answer.get(DEVLINK_ATTR_DEV_NAME)?;
    if answer.get(DEVLINK_ATTR_ESWITCH_MODE).is_none() {
        return Some(Fact::None);
    }
    match answer.u16(DEVLINK_ATTR_ESWITCH_MODE)? {
        0 => Some(Fact::Value(EswitchMode::Legacy)),
        1 => Some(Fact::Value(EswitchMode::Switchdev)),
        _ => None,
    }
}

/// Asks for a parameter.
pub(in crate::linux) fn get_parameter(device: &Handle, name: &str) -> Command {
    Command { number: DEVLINK_CMD_PARAM_GET, attributes: parameter(device, name) }
}

/// Sets a parameter that is a text. `mode` is the kernel's number for when it counts, as [`text_parameter`] returns it.
pub(in crate::linux) fn set_text_parameter(device: &Handle, name: &str, mode: u8, value: &str) -> Command {
    let attributes = parameter(device, name)
        .with_u8(DEVLINK_ATTR_PARAM_TYPE, NLA_STRING)
        .with_u8(DEVLINK_ATTR_PARAM_VALUE_CMODE, mode)
        .with_text(DEVLINK_ATTR_PARAM_VALUE_DATA, value);
    Command { number: DEVLINK_CMD_PARAM_SET, attributes }
}

fn parameter(device: &Handle, name: &str) -> Attributes {
    device.attributes().with_text(DEVLINK_ATTR_PARAM_NAME, name)
}

/// Parses the answer to [`get_parameter`]: the first value, and when it counts (the kernel's number for at once, at the
/// next load...).
pub(in crate::linux) fn text_parameter(answer: &[u8]) -> Option<(u8, String)> {
    let parameter = Received::parse(answer)?.nested(DEVLINK_ATTR_PARAM)?;
    let value = parameter.nested(DEVLINK_ATTR_PARAM_VALUES_LIST)?.nested(DEVLINK_ATTR_PARAM_VALUE)?;
    let mode = *value.get(DEVLINK_ATTR_PARAM_VALUE_CMODE)?.first()?;
    Some((mode, value.text(DEVLINK_ATTR_PARAM_VALUE_DATA)?))
}

#[cfg(test)]
mod tests {
    use netlink_bindings::devlink as independent;
    use proptest::prelude::*;

    use super::*;

    fn device() -> Handle {
        Handle::pci("0000:03:00.1".parse().unwrap())
    }

    /// Adds the gap after the last attribute, which the independent encoder leaves to its sender.
    fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_change_of_mode_is_what_an_independent_encoder_writes() {
        for (mode, number) in [(EswitchMode::Legacy, 0), (EswitchMode::Switchdev, 1)] {
            let mut expected = Vec::new();
            independent::OpEswitchSetDo::encode_request(&mut expected)
                .push_bus_name(c"pci")
                .push_dev_name(c"0000:03:00.1")
                .push_eswitch_mode(number);
            assert_eq!(set_eswitch(&device(), mode).request(7).body, padded(expected));
        }
    }

    #[test]
    fn questions_are_what_an_independent_encoder_writes() {
        let mut expected = Vec::new();
        independent::OpEswitchGetDo::encode_request(&mut expected)
            .push_bus_name(c"pci")
            .push_dev_name(c"0000:03:00.1");
        assert_eq!(get_eswitch(&device()).request(7).body, padded(expected));
        let mut expected = Vec::new();
        independent::OpParamGetDo::encode_request(&mut expected)
            .push_bus_name(c"pci")
            .push_dev_name(c"0000:03:00.1")
            .push_param_name(c"flow_steering_mode");
        assert_eq!(get_parameter(&device(), "flow_steering_mode").request(7).body, padded(expected));
    }

    fn a_parameter() -> Vec<u8> {
        let value = Attributes::default()
            .with_u8(DEVLINK_ATTR_PARAM_VALUE_CMODE, 1)
            .with_text(DEVLINK_ATTR_PARAM_VALUE_DATA, "dmfs");
        let values = Attributes::default().with_nested(DEVLINK_ATTR_PARAM_VALUE, &value);
        let parameter = Attributes::default().with_nested(DEVLINK_ATTR_PARAM_VALUES_LIST, &values);
        Attributes::default().with_nested(DEVLINK_ATTR_PARAM, &parameter).after(&[])
    }

    #[test]
    fn reads_answers() {
        let mode = |number| device().attributes().with_u16(DEVLINK_ATTR_ESWITCH_MODE, number).after(&[]);
        assert_eq!(eswitch_mode(&mode(0)), Some(Fact::Value(EswitchMode::Legacy)));
        assert_eq!(eswitch_mode(&mode(1)), Some(Fact::Value(EswitchMode::Switchdev)));
        assert_eq!(eswitch_mode(&device().attributes().after(&[])), Some(Fact::None));
        assert_eq!(eswitch_mode(&mode(9)), None);
        assert_eq!(eswitch_mode(&[]), None);
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
