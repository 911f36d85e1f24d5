//! VLAN of an Ethernet VF.

use crate::cni::facts::{VfVlan, VlanProtocol};
use crate::cni::protocol::json::{KeyFault, Section};
use crate::prelude::*;

/// Highest VLAN ID.
const MAX_VLAN: u16 = 4094;
/// Highest priority of a VLAN.
const MAX_QOS: u8 = 7;

/// Reads `vlan`, `vlanQoS` and `vlanProto`. Without `vlan` nothing is changed; 0 removes the VLAN.
pub(super) fn read_vlan(root: &Section<'_>) -> Result<Option<VfVlan>, KeyFault> {
    let id = root.integer("vlan", 0..=MAX_VLAN)?;
    let qos = root.integer("vlanQoS", 0..=MAX_QOS)?;
    let protocol = root.any_text("vlanProto")?.map(parse_protocol).transpose()?;
    let Some(id) = id else {
        let needs_vlan = |key| Err(KeyFault::new(key, "needs vlan"));
        return match (qos, protocol) {
            (Some(_), _) => needs_vlan("vlanQoS"),
            (None, Some(_)) => needs_vlan("vlanProto"),
            (None, None) => Ok(None),
        };
    };
    let vlan = VfVlan { id, qos: qos.unwrap_or_default(), protocol: protocol.unwrap_or_default() };
    if id == 0 && vlan.qos > 0 {
        return Err(KeyFault::new("vlanQoS", format!("{} needs a vlan other than 0", vlan.qos)));
    }
    if id == 0 && vlan.protocol == VlanProtocol::Ieee8021ad {
        return Err(KeyFault::new("vlanProto", "802.1ad needs a vlan other than 0"));
    }
    Ok(Some(vlan))
}

fn parse_protocol(text: &str) -> Result<VlanProtocol, KeyFault> {
    match text.to_ascii_lowercase().as_str() {
        "802.1q" => Ok(VlanProtocol::Ieee8021q),
        "802.1ad" => Ok(VlanProtocol::Ieee8021ad),
        _ => Err(KeyFault::new("vlanProto", format!("{text:?} is neither 802.1q nor 802.1ad"))),
    }
}
