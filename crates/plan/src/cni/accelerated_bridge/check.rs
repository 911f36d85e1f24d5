//! CHECK of the plugin `accelerated-bridge`.

use crate::cni::attachment::{CheckedAttachment, expect};
use crate::cni::facts::SwitchPort;
use crate::cni::journal::AcceleratedBridgeChanges;
use crate::cni::protocol::CniError;
use crate::cni::sriov;
use crate::cni::step::{BridgeVlans, Ranges};
use crate::prelude::*;

use super::release::find_uplink;

/// Compares representor, uplink and VF with what ADD left.
pub(in crate::cni) fn check(
    changes: &AcceleratedBridgeChanges,
    checked: CheckedAttachment<'_>,
) -> Result<(), CniError> {
    let switch = checked.require_switch()?;
    check_representor(changes, switch.representor.as_ref())?;
    if let Some(uplink) = &changes.uplink {
        let found = find_uplink(uplink, switch);
        let name = found.map_or("none", |port| port.name.as_str());
        expect("uplink of the bridge", uplink.name.as_str(), Some(name))?;
        let present: BTreeSet<u16> = found
            .iter()
            .flat_map(|port| &port.vlans)
            .map(|vlan| vlan.id)
            .filter(|id| uplink.needed.contains(id))
            .collect();
        let text = |vlans: &BTreeSet<u16>| Ranges(vlans.iter().copied()).to_string();
        expect(&format!("VLANs of uplink {name}"), text(&uplink.needed), Some(text(&present)))?;
    }
    sriov::check(&changes.vf, checked)
}

fn check_representor(
    changes: &AcceleratedBridgeChanges,
    representor: Option<&SwitchPort>,
) -> Result<(), CniError> {
    let name = &changes.representor.name;
    expect("representor of the VF", name.as_str(), Some(representor.map_or("none", |found| found.name.as_str())))?;
    let Some(found) = representor else { return Ok(()) };
    expect(&format!("state of {name}"), "up", Some(if found.is_up { "up" } else { "down" }))?;
    let master = found.master.as_ref().map_or("none", |master| master.name.as_str());
    expect(&format!("bridge of {name}"), changes.bridge.as_str(), Some(master))?;
    match &changes.vlans {
        None => Ok(()),
        Some(vlans) => {
            let text = |vlans| BridgeVlans(vlans).to_string();
            expect(&format!("VLANs of {name}"), text(vlans), Some(text(&found.vlans)))
        }
    }
}
