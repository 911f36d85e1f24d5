//! Ports of pods that are gone: Open vSwitch keeps them, also after a boot, and reports an error for them.

use crate::cni::facts::{
    HolderNamespace, INTERFACE_KEY, NAMESPACE_KEY, OvsSocket, OvsSwitchBridge, OvsSwitchInterface,
    OvsSwitchPort, PeerFacts,
};
use crate::cni::journal::Phase;
use crate::cni::step::SwitchStep;
use crate::prelude::*;

use super::port::identity;

/// Texts of errors of interfaces that do not exist.
const NO_DEVICE: [&str; 2] = ["No such device", "could not open network device"];

/// Returns the steps that remove ports whose interfaces and pods do not exist any more. A port that no CNI plugin has added
/// is left alone, and so is one with a journal: whoever releases that attachment removes it.
pub fn plan_stale_ports(
    socket: &OvsSocket,
    bridges: &[OvsSwitchBridge],
    peers: &[PeerFacts],
    host_names: &BTreeSet<String>,
) -> Vec<SwitchStep> {
    let is_stale = |port: &&OvsSwitchPort| {
        let is_lost = |interface: &OvsSwitchInterface| {
            has_no_device(interface) && !host_names.contains(&interface.name)
        };
        port.is_owned()
            && port.namespace == Some(HolderNamespace::Gone)
            && !port.interfaces.is_empty()
            && port.interfaces.iter().all(is_lost)
            && !peers.iter().any(|peer| is_of(port, peer))
    };
    let ports = bridges.iter().flat_map(|bridge| &bridge.ports).filter(is_stale);
    let remove = |port: &OvsSwitchPort| SwitchStep::RemoveOvsPort {
        socket: socket.clone(),
        name: port.name.clone(),
        external_ids: identity(port),
    };
    ports.map(remove).collect()
}

fn has_no_device(interface: &OvsSwitchInterface) -> bool {
    interface.error.as_ref().is_some_and(|error| NO_DEVICE.iter().any(|text| error.contains(text)))
}

/// Returns whether a port belongs to an attachment that is not released yet.
fn is_of(port: &OvsSwitchPort, peer: &PeerFacts) -> bool {
    let has = |key, value: &str| port.external_ids.get(key).is_some_and(|found| found == value);
    peer.phase != Phase::Returned
        && has(NAMESPACE_KEY, &peer.namespace)
        && has(INTERFACE_KEY, &peer.interface)
}
