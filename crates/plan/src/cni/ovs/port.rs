//! Port of Open vSwitch that an attachment adds.

use crate::cni::config::OvsConfig;
use crate::cni::facts::{
    HolderNamespace, INTERFACE_KEY, NAMESPACE_KEY, OVS_OWNER, OWNER_KEY, OvsSwitchBridge, OvsSwitchPort,
    POD_UID_KEY,
};
use crate::cni::journal::PodIdentity;
use crate::cni::protocol::{CniError, ErrorCode};
use crate::cni::step::{OvsPort, SwitchStep};
use crate::prelude::*;

/// Key of the logical port of OVN in the `external_ids` of an interface.
const IFACE_ID_KEY: &str = "iface-id";

/// Returns the `external_ids` by which the port of an attachment is recognized.
pub(super) fn ids(namespace: &str, interface: &str, pod: Option<&PodIdentity>) -> BTreeMap<String, String> {
    let uid = pod.map(|pod| pod.uid.as_str()).filter(|uid| !uid.is_empty());
    let entries = [(OWNER_KEY, OVS_OWNER), (NAMESPACE_KEY, namespace), (INTERFACE_KEY, interface)];
    let entries = entries.into_iter().chain(uid.map(|uid| (POD_UID_KEY, uid)));
    entries.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Returns the port that is added.
pub(super) fn describe(config: &OvsConfig, name: &str, external_ids: BTreeMap<String, String>) -> OvsPort {
    let iface_id = config.ovn_port.iter().map(|port| (IFACE_ID_KEY.to_owned(), port.clone()));
    OvsPort {
        name: name.to_owned(),
        vlans: config.vlans.clone(),
        external_ids,
        interface_type: config.interface_type.clone(),
        interface_ids: iface_id.collect(),
        ofport_request: config.ofport_request,
    }
}

/// Returns the port that has an interface of this name, or has the name itself, with its bridge.
pub(in crate::cni) fn find<'a>(
    name: &str,
    bridges: &'a [OvsSwitchBridge],
) -> Option<(&'a OvsSwitchBridge, &'a OvsSwitchPort)> {
    let ports = bridges.iter().flat_map(|bridge| bridge.ports.iter().map(move |port| (bridge, port)));
    let has_name = |port: &OvsSwitchPort| {
        port.name == name || port.interfaces.iter().any(|interface| interface.name == name)
    };
    let mut with_name = ports.filter(|(_, port)| has_name(port));
    with_name.next()
}

/// Returns the step that removes the port that the representor of a VF has already, if there is one. Only the port of a pod
/// that is gone is removed: nobody else has the VF, so that it is left over.
pub(super) fn replace(
    config: &OvsConfig,
    representor: &str,
    bridges: &[OvsSwitchBridge],
) -> Result<Option<SwitchStep>, CniError> {
    let Some((bridge, port)) = find(representor, bridges) else { return Ok(None) };
    let subject =
        format!("representor {representor} is in port {} of bridge {} already", port.name, bridge.name);
    if !port.is_owned() || port.name != representor {
        let message = format!("{subject}, which no CNI plugin has added");
        let remedy = format!("`ovs-vsctl del-port {}` removes it", port.name);
        return Err(CniError::new(ErrorCode::DeviceFailed, message).with_details(remedy));
    }
    let namespace = port.external_ids.get(NAMESPACE_KEY).map_or("unknown", String::as_str);
    let remedy = match port.namespace {
        Some(HolderNamespace::Gone) => return Ok(Some(remove(config, port))),
        Some(HolderNamespace::Alive) => "it is free after the pod was deleted".to_owned(),
        Some(HolderNamespace::Unknown) | None => {
            "it could not be determined whether that namespace still exists".to_owned()
        }
    };
    let message = format!("{subject}, for a pod (namespace {namespace})");
    Err(CniError::new(ErrorCode::TryAgainLater, message).with_details(remedy))
}

/// Returns the step that removes a port that a CNI plugin has added.
pub(super) fn remove(config: &OvsConfig, port: &OvsSwitchPort) -> SwitchStep {
    SwitchStep::RemoveOvsPort {
        socket: config.socket.clone(),
        name: port.name.clone(),
        external_ids: identity(port),
    }
}

/// Returns the entries of `external_ids` by which a port that exists is recognized.
pub(super) fn identity(port: &OvsSwitchPort) -> BTreeMap<String, String> {
    let keys = [OWNER_KEY, NAMESPACE_KEY, INTERFACE_KEY, POD_UID_KEY];
    let entries = port.external_ids.iter().filter(|(key, _)| keys.contains(&key.as_str()));
    entries.map(|(key, value)| (key.clone(), value.clone())).collect()
}
