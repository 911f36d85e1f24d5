//! Messages of vDPA: devices that are created on others.

use vfleet_api::MacAddr;

use super::attribute::{Attributes, ReceivedAttributes};
use super::generic::FamilyCommand;

/// Name of the family. The kernel has it while the module `vdpa` is loaded.
pub(in crate::linux) const FAMILY: &str = "vdpa";

const VDPA_CMD_DEV_NEW: u8 = 3;
const VDPA_CMD_DEV_DEL: u8 = 4;
const VDPA_CMD_DEV_CONFIG_GET: u8 = 6;
const VDPA_CMD_DEV_ATTR_SET: u8 = 8;
const VDPA_ATTR_MGMTDEV_BUS_NAME: u16 = 1;
const VDPA_ATTR_MGMTDEV_DEV_NAME: u16 = 2;
const VDPA_ATTR_DEV_NAME: u16 = 4;
const VDPA_ATTR_DEV_NET_CFG_MACADDR: u16 = 10;
const VDPA_ATTR_DEV_NET_CFG_MAX_VQP: u16 = 12;
const VDPA_ATTR_DEV_NET_CFG_MTU: u16 = 13;

/// Returns the request that creates a device with this name on the device `parent` of a bus, with a number of queue
/// pairs if that can be chosen.
pub(in crate::linux) fn create(
    name: &str,
    bus: Option<&str>,
    parent: &str,
    queue_pairs: Option<u16>,
) -> FamilyCommand {
    let mut attributes = Attributes::default().with_text(VDPA_ATTR_DEV_NAME, name);
    if let Some(bus) = bus {
        attributes = attributes.with_text(VDPA_ATTR_MGMTDEV_BUS_NAME, bus);
    }
    attributes = attributes.with_text(VDPA_ATTR_MGMTDEV_DEV_NAME, parent);
    if let Some(queue_pairs) = queue_pairs {
        attributes = attributes.with_u16(VDPA_ATTR_DEV_NET_CFG_MAX_VQP, queue_pairs);
    }
    FamilyCommand { number: VDPA_CMD_DEV_NEW, attributes }
}

/// Returns the request that removes the device with this name.
pub(in crate::linux) fn remove(name: &str) -> FamilyCommand {
    FamilyCommand {
        number: VDPA_CMD_DEV_DEL,
        attributes: Attributes::default().with_text(VDPA_ATTR_DEV_NAME, name),
    }
}

/// Returns the request for the configuration of the device with this name.
pub(in crate::linux) fn get_config(name: &str) -> FamilyCommand {
    FamilyCommand {
        number: VDPA_CMD_DEV_CONFIG_GET,
        attributes: Attributes::default().with_text(VDPA_ATTR_DEV_NAME, name),
    }
}

/// Configuration of a device. Not every device has both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::linux) struct VdpaConfig {
    pub(in crate::linux) mac: Option<MacAddr>,
    pub(in crate::linux) mtu: Option<u16>,
}

impl VdpaConfig {
    /// Parses the answer to [`get_config`].
    pub(in crate::linux) fn parse(answer: &[u8]) -> Option<Self> {
        let attributes = ReceivedAttributes::parse(answer)?;
        attributes.get(VDPA_ATTR_DEV_NAME)?;
        Some(Self {
            mac: attributes.array(VDPA_ATTR_DEV_NET_CFG_MACADDR).map(MacAddr),
            mtu: attributes.u16(VDPA_ATTR_DEV_NET_CFG_MTU),
        })
    }
}

/// Returns the request that sets the MAC address of the device with this name (Linux 6.12).
pub(in crate::linux) fn set_mac(name: &str, mac: MacAddr) -> FamilyCommand {
    let attributes =
        Attributes::default().with_text(VDPA_ATTR_DEV_NAME, name).with(VDPA_ATTR_DEV_NET_CFG_MACADDR, &mac.0);
    FamilyCommand { number: VDPA_CMD_DEV_ATTR_SET, attributes }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_configuration_of_a_device_is_parsed() {
        let named = || Attributes::default().with_text(VDPA_ATTR_DEV_NAME, "vdpa0");
        let (mac, mtu) = (MacAddr([2, 0, 0, 0, 0, 9]), 1500);
        let all =
            named().with(VDPA_ATTR_DEV_NET_CFG_MACADDR, &mac.0).with_u16(VDPA_ATTR_DEV_NET_CFG_MTU, mtu);
        let parse = |attributes: Attributes| VdpaConfig::parse(&attributes.after(&[]));
        assert_eq!(parse(all), Some(VdpaConfig { mac: Some(mac), mtu: Some(mtu) }));
        assert_eq!(parse(named()), Some(VdpaConfig::default()));
        assert_eq!(parse(named().with(VDPA_ATTR_DEV_NET_CFG_MACADDR, &[2; 5])), Some(VdpaConfig::default()));
        assert_eq!(parse(Attributes::default()), None);
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = VdpaConfig::parse(&bytes);
        }
    }
}
