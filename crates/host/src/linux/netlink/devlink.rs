//! Messages of devlink: eswitch, ports and parameters of a card.

use vfleet_api::PciAddress;
use vfleet_plan::{EswitchMode, Fact};

use super::attribute::{Attributes, ReceivedAttributes};
use super::generic::FamilyCommand;

/// Name of the family.
pub(in crate::linux) const FAMILY: &str = "devlink";

const DEVLINK_CMD_PORT_GET: u8 = 5;
const DEVLINK_CMD_ESWITCH_GET: u8 = 29;
const DEVLINK_CMD_ESWITCH_SET: u8 = 30;
const DEVLINK_CMD_PARAM_GET: u8 = 38;
const DEVLINK_CMD_PARAM_SET: u8 = 39;
const DEVLINK_ATTR_BUS_NAME: u16 = 1;
const DEVLINK_ATTR_DEV_NAME: u16 = 2;
const DEVLINK_ATTR_PORT_NETDEV_IFINDEX: u16 = 6;
const DEVLINK_ATTR_ESWITCH_MODE: u16 = 25;
const DEVLINK_ATTR_PORT_FLAVOUR: u16 = 77;
const DEVLINK_ATTR_PARAM: u16 = 80;
const DEVLINK_ATTR_PARAM_NAME: u16 = 81;
const DEVLINK_ATTR_PARAM_TYPE: u16 = 83;
const DEVLINK_ATTR_PARAM_VALUES_LIST: u16 = 84;
const DEVLINK_ATTR_PARAM_VALUE: u16 = 85;
const DEVLINK_ATTR_PARAM_VALUE_DATA: u16 = 86;
const DEVLINK_ATTR_PARAM_VALUE_CMODE: u16 = 87;
const DEVLINK_ATTR_PORT_PCI_VF_NUMBER: u16 = 128;
const DEVLINK_ATTR_PORT_EXTERNAL: u16 = 149;
const DEVLINK_ATTR_PORT_CONTROLLER_NUMBER: u16 = 150;
/// Port of a VF.
const DEVLINK_PORT_FLAVOUR_PCI_VF: u16 = 4;
/// Value of `DEVLINK_ATTR_PARAM_TYPE` for a text.
const NLA_STRING: u8 = 5;

/// Devlink name of a device.
#[derive(Clone, Debug)]
pub(in crate::linux) struct DevlinkHandle {
    pub(in crate::linux) bus: &'static str,
    pub(in crate::linux) name: String,
}

impl DevlinkHandle {
    /// Returns the handle of the PCI function at `address`.
    pub(in crate::linux) fn pci(address: PciAddress) -> Self {
        Self { bus: "pci", name: address.to_string() }
    }

    fn attributes(&self) -> Attributes {
        Attributes::default()
            .with_text(DEVLINK_ATTR_BUS_NAME, self.bus)
            .with_text(DEVLINK_ATTR_DEV_NAME, &self.name)
    }
}

/// Returns the request for the eswitch mode of a card.
pub(in crate::linux) fn get_eswitch(device: &DevlinkHandle) -> FamilyCommand {
    FamilyCommand { number: DEVLINK_CMD_ESWITCH_GET, attributes: device.attributes() }
}

/// Returns the request that sets the eswitch mode of a card.
pub(in crate::linux) fn set_eswitch(device: &DevlinkHandle, mode: EswitchMode) -> FamilyCommand {
    let mode = match mode {
        EswitchMode::Legacy => 0,
        EswitchMode::Switchdev => 1,
    };
    let attributes = device.attributes().with_u16(DEVLINK_ATTR_ESWITCH_MODE, mode);
    FamilyCommand { number: DEVLINK_CMD_ESWITCH_SET, attributes }
}

/// Parses the answer to [`get_eswitch`]. A driver without an eswitch leaves out the mode.
pub(in crate::linux) fn parse_eswitch_mode(answer: &[u8]) -> Option<Fact<EswitchMode>> {
    let answer = ReceivedAttributes::parse(answer)?;
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

/// Returns the request for the ports of a card. Kernels before 6.5 list those of all cards.
pub(in crate::linux) fn list_ports(device: &DevlinkHandle) -> FamilyCommand {
    FamilyCommand { number: DEVLINK_CMD_PORT_GET, attributes: device.attributes() }
}

/// Port of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct DevlinkPort {
    /// Bus and name of the card.
    card: (String, String),
    /// Index of the interface of the port: for the port of a VF, that of its representor.
    pub(in crate::linux) interface: Option<u32>,
    /// VF index, for the port of a VF of this machine.
    pub(in crate::linux) vf: Option<u16>,
}

impl DevlinkPort {
    /// Parses an answer to [`list_ports`].
    pub(in crate::linux) fn parse(answer: &[u8]) -> Option<Self> {
        let port = ReceivedAttributes::parse(answer)?;
        let is_of_vf = port.u16(DEVLINK_ATTR_PORT_FLAVOUR) == Some(DEVLINK_PORT_FLAVOUR_PCI_VF);
        // A card with a processor of its own has ports of the VFs of another machine too.
        let is_local = port.u32(DEVLINK_ATTR_PORT_CONTROLLER_NUMBER).unwrap_or(0) == 0
            && port
                .get(DEVLINK_ATTR_PORT_EXTERNAL)
                .is_none_or(|external| external.iter().all(|byte| *byte == 0));
        Some(Self {
            card: (port.text(DEVLINK_ATTR_BUS_NAME)?, port.text(DEVLINK_ATTR_DEV_NAME)?),
            interface: port.u32(DEVLINK_ATTR_PORT_NETDEV_IFINDEX).filter(|index| *index != 0),
            vf: port.u16(DEVLINK_ATTR_PORT_PCI_VF_NUMBER).filter(|_| is_of_vf && is_local),
        })
    }

    /// Returns whether the port belongs to a card.
    pub(in crate::linux) fn is_of(&self, device: &DevlinkHandle) -> bool {
        let (bus, name) = &self.card;
        bus == device.bus && *name == device.name
    }
}

/// Returns the request for a parameter.
pub(in crate::linux) fn get_parameter(device: &DevlinkHandle, name: &str) -> FamilyCommand {
    FamilyCommand { number: DEVLINK_CMD_PARAM_GET, attributes: parameter_attributes(device, name) }
}

/// Returns the request that sets a text parameter. `mode` is the configuration mode (when the value takes effect), as
/// [`parse_text_parameter`] returns it.
pub(in crate::linux) fn set_text_parameter(
    device: &DevlinkHandle,
    name: &str,
    mode: u8,
    value: &str,
) -> FamilyCommand {
    let attributes = parameter_attributes(device, name)
        .with_u8(DEVLINK_ATTR_PARAM_TYPE, NLA_STRING)
        .with_u8(DEVLINK_ATTR_PARAM_VALUE_CMODE, mode)
        .with_text(DEVLINK_ATTR_PARAM_VALUE_DATA, value);
    FamilyCommand { number: DEVLINK_CMD_PARAM_SET, attributes }
}

fn parameter_attributes(device: &DevlinkHandle, name: &str) -> Attributes {
    device.attributes().with_text(DEVLINK_ATTR_PARAM_NAME, name)
}

/// Parses the answer to [`get_parameter`]: the configuration mode of the first value, and the value.
pub(in crate::linux) fn parse_text_parameter(answer: &[u8]) -> Option<(u8, String)> {
    let parameter = ReceivedAttributes::parse(answer)?.nested(DEVLINK_ATTR_PARAM)?;
    let value = parameter.nested(DEVLINK_ATTR_PARAM_VALUES_LIST)?.nested(DEVLINK_ATTR_PARAM_VALUE)?;
    let mode = *value.get(DEVLINK_ATTR_PARAM_VALUE_CMODE)?.first()?;
    Some((mode, value.text(DEVLINK_ATTR_PARAM_VALUE_DATA)?))
}

#[cfg(test)]
mod tests {
    use netlink_bindings::devlink as independent;
    use proptest::prelude::*;

    use super::*;

    fn device() -> DevlinkHandle {
        DevlinkHandle::pci("0000:03:00.1".parse().unwrap())
    }

    /// Adds the padding after the last attribute, which the independent encoder does not write.
    fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_change_of_the_mode_equals_that_of_an_independent_encoder() {
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
    fn read_requests_equal_those_of_an_independent_encoder() {
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

    #[test]
    fn a_list_of_ports_is_asked_for_as_by_an_independent_encoder() {
        let mut expected = Vec::new();
        independent::OpPortGetDump::encode_request(&mut expected)
            .push_bus_name(c"pci")
            .push_dev_name(c"0000:03:00.1");
        assert_eq!(list_ports(&device()).request(7).body, padded(expected));
    }

    #[test]
    fn the_port_of_a_vf_is_parsed() {
        let port = |more: fn(independent::PushDevlink<&mut Vec<u8>>)| {
            let mut bytes = Vec::new();
            let port = independent::PushDevlink::new(&mut bytes);
            more(port.push_bus_name(c"pci").push_dev_name(c"0000:03:00.1"));
            DevlinkPort::parse(&padded(bytes)).unwrap()
        };
        let of_vf = port(|port| {
            let port = port.push_port_netdev_ifindex(9).push_port_flavour(4).push_port_pci_pf_number(1);
            drop(port.push_port_pci_vf_number(3).push_port_external(0).push_port_controller_number(0));
        });
        assert_eq!((of_vf.interface, of_vf.vf, of_vf.is_of(&device())), (Some(9), Some(3), true));
        assert!(!of_vf.is_of(&DevlinkHandle::pci("0000:03:00.0".parse().unwrap())));
        let without_controller = port(|port| drop(port.push_port_flavour(4).push_port_pci_vf_number(3)));
        assert_eq!((without_controller.interface, without_controller.vf), (None, Some(3)));
        // The uplink, VFs of another machine, and a subfunction.
        let others: [fn(independent::PushDevlink<&mut Vec<u8>>); 4] = [
            |port| drop(port.push_port_flavour(0)),
            |port| drop(port.push_port_flavour(4).push_port_pci_vf_number(3).push_port_controller_number(1)),
            |port| drop(port.push_port_flavour(4).push_port_pci_vf_number(3).push_port_external(1)),
            |port| drop(port.push_port_flavour(7).push_port_pci_vf_number(3)),
        ];
        for other in others {
            assert_eq!(port(other).vf, None);
        }
        assert_eq!(DevlinkPort::parse(&[]), None);
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
    fn parses_answers() {
        let mode = |number| device().attributes().with_u16(DEVLINK_ATTR_ESWITCH_MODE, number).after(&[]);
        assert_eq!(parse_eswitch_mode(&mode(0)), Some(Fact::Value(EswitchMode::Legacy)));
        assert_eq!(parse_eswitch_mode(&mode(1)), Some(Fact::Value(EswitchMode::Switchdev)));
        assert_eq!(parse_eswitch_mode(&device().attributes().after(&[])), Some(Fact::None));
        assert_eq!(parse_eswitch_mode(&mode(9)), None);
        assert_eq!(parse_eswitch_mode(&[]), None);
        assert_eq!(parse_text_parameter(&a_parameter()), Some((1, "dmfs".to_owned())));
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (parse_eswitch_mode(&bytes), parse_text_parameter(&bytes), DevlinkPort::parse(&bytes));
        }

        #[test]
        fn accepts_a_damaged_parameter(at in 0_usize..60, byte: u8) {
            let mut bytes = a_parameter();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = parse_text_parameter(&bytes);
        }
    }
}
