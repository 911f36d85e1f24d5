//! Linux bridge to which a representor is attached.

use crate::cni::config::BridgeChoice;
use crate::cni::facts::{AttachmentFacts, SwitchBridge, SwitchFacts, UplinkFacts};
use crate::cni::protocol::CniError;
use crate::prelude::*;

/// Kind of bridges in the kernel.
const BRIDGE: &str = "bridge";

/// Returns the bridge of a network.
pub(super) fn choose<'a>(
    choice: &BridgeChoice,
    facts: &AttachmentFacts,
    switch: &'a SwitchFacts,
) -> Result<&'a SwitchBridge, CniError> {
    match choice {
        BridgeChoice::Named(name) => named(name, facts, switch),
        BridgeChoice::Found => find(switch),
        BridgeChoice::FoundAmong(names) => {
            let found = find(switch)?;
            if names.contains(&found.name) {
                return Ok(found);
            }
            let problem = format!("bridge {} of the uplink is not one of {}", found.name, names.join(", "));
            Err(CniError::invalid_config("bridge", problem)
                .with_details("add it to the list, or use a device of another card"))
        }
    }
}

fn named<'a>(
    name: &str,
    facts: &AttachmentFacts,
    switch: &'a SwitchFacts,
) -> Result<&'a SwitchBridge, CniError> {
    switch.linux_bridge(name).ok_or_else(|| {
        let problem = if facts.host_names.contains(name) {
            format!("interface {name} is no Linux bridge")
        } else {
            format!("this node has no Linux bridge {name}")
        };
        CniError::invalid_config("bridge", problem)
            .with_details("`ip link show type bridge` lists the bridges")
    })
}

/// Returns the bridge that has the bond of the PF, or the PF, as a port.
fn find(switch: &SwitchFacts) -> Result<&SwitchBridge, CniError> {
    let uplink = switch
        .uplink
        .as_ref()
        .ok_or_else(|| CniError::invalid_config("bridge", "is missing, and the PF has no interface"))?;
    bridge_of(uplink, switch).ok_or_else(|| {
        let problem =
            format!("is missing, and the uplink {} is no port of a Linux bridge", uplink.port().name);
        CniError::invalid_config("bridge", problem).with_details(
            "attach the uplink to a bridge, for example by a policy with bridge.linux, or name the bridge",
        )
    })
}

/// Returns the Linux bridge of an uplink.
pub(super) fn bridge_of<'a>(uplink: &UplinkFacts, switch: &'a SwitchFacts) -> Option<&'a SwitchBridge> {
    let master = uplink.port().master.as_ref().filter(|master| master.kind == BRIDGE)?;
    switch.linux_bridge(&master.name)
}
