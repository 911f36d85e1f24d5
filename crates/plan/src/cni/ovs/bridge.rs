//! Bridge of Open vSwitch to which a port is added.

use crate::cni::config::OvsConfig;
use crate::cni::facts::{OvsSocket, OvsSwitchBridge, OvsSwitchFacts, SwitchFacts, UplinkFacts};
use crate::cni::protocol::{CniError, ErrorCode};
use crate::prelude::*;

/// Returns the bridges of Open vSwitch, which must be running.
pub(in crate::cni) fn require_running<'a>(
    socket: &OvsSocket,
    switch: &'a SwitchFacts,
) -> Result<&'a [OvsSwitchBridge], CniError> {
    let reason = match &switch.ovs {
        Some(OvsSwitchFacts::Running { bridges }) => return Ok(bridges),
        Some(OvsSwitchFacts::Down { reason }) => reason.as_str(),
        None => "it was not read",
    };
    let message = format!("Open vSwitch at {socket} does not answer: {reason}");
    Err(CniError::new(ErrorCode::TryAgainLater, message)
        .with_details("start ovsdb-server and ovs-vswitchd, or set socket_file"))
}

/// Returns the bridge of a network: the one that it names, or the one that has an uplink of the VF's card.
pub(super) fn choose<'a>(
    config: &OvsConfig,
    bridges: &'a [OvsSwitchBridge],
    switch: &SwitchFacts,
) -> Result<&'a OvsSwitchBridge, CniError> {
    let Some(name) = &config.bridge else { return find(bridges, switch.uplink.as_ref()) };
    bridges.iter().find(|bridge| bridge.name == *name).ok_or_else(|| {
        let problem = format!("Open vSwitch at {} has no bridge {name}", config.socket);
        CniError::invalid_config("bridge", problem).with_details("`ovs-vsctl list-br` lists the bridges")
    })
}

/// Returns the first bridge that has one of the uplinks: the bond and all its members, or the PF.
fn find<'a>(
    bridges: &'a [OvsSwitchBridge],
    uplink: Option<&UplinkFacts>,
) -> Result<&'a OvsSwitchBridge, CniError> {
    let uplink = uplink
        .ok_or_else(|| CniError::invalid_config("bridge", "is missing, and the PF has no interface"))?;
    let candidates: Vec<&str> = match &uplink.bond {
        None => vec![&uplink.pf.name],
        Some(bond) => [&bond.port.name].into_iter().chain(&bond.members).map(String::as_str).collect(),
    };
    let found = candidates.iter().find_map(|name| bridges.iter().find(|bridge| has_interface(bridge, name)));
    found.ok_or_else(|| {
        let problem =
            format!("is missing, and no bridge of Open vSwitch has the uplink {}", candidates.join(", "));
        CniError::invalid_config("bridge", problem).with_details(
            "add the uplink to a bridge, for example by a policy with bridge.ovs, or name the bridge",
        )
    })
}

fn has_interface(bridge: &OvsSwitchBridge, name: &str) -> bool {
    bridge.ports.iter().flat_map(|port| &port.interfaces).any(|interface| interface.name == name)
}
