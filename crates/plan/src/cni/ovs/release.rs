//! Release of the plugin `ovs`.

use vfleet_api::MacAddr;

use crate::cni::attachment::{ReleasePlan, ReleasedVf, find_vf, open_pod};
use crate::cni::facts::{
    AttachmentFacts, DeviceFacts, NAMESPACE_KEY, OvsSwitchBridge, OvsSwitchPort, SwitchFacts,
};
use crate::cni::journal::{Journal, OvsChanges, OvsLink, VdpaChanges};
use crate::cni::protocol::CniError;
use crate::cni::step::{CniStep, SwitchStep};
use crate::cni::{representor, sriov};
use crate::prelude::*;

use super::{plan_stale_ports, require_running};

/// Kind of veth pairs in the kernel.
const VETH: &str = "veth";

/// Plans the removal of the port, and of ports that are left over. It depends neither on the device, which may be gone, nor
/// on the boot, which the database of Open vSwitch survives.
pub(in crate::cni) fn plan_port_release(
    changes: &OvsChanges,
    facts: &AttachmentFacts,
    switch: &SwitchFacts,
) -> Result<Vec<SwitchStep>, CniError> {
    let bridges = require_running(&changes.socket, switch)?;
    let own = find_own(changes, bridges, switch);
    let mut steps: Vec<SwitchStep> = own
        .map(|port| SwitchStep::RemoveOvsPort {
            socket: changes.socket.clone(),
            name: port.name.clone(),
            external_ids: changes.port_ids.clone(),
        })
        .into_iter()
        .collect();
    let stale = plan_stale_ports(&changes.socket, bridges, &switch.peers, &facts.host_names);
    let is_own = |step: &SwitchStep| matches!(step, SwitchStep::RemoveOvsPort { name, .. } if own.is_some_and(|port| port.name == *name));
    steps.extend(stale.into_iter().filter(|step| !is_own(step)));
    Ok(steps)
}

/// Returns the port of an attachment. The Go plugin records only `external_ids`, and without the path of the namespace they
/// are those of many pods: then only a representor tells the port.
fn find_own<'a>(
    changes: &OvsChanges,
    bridges: &'a [OvsSwitchBridge],
    switch: &SwitchFacts,
) -> Option<&'a OvsSwitchPort> {
    let mut ports = bridges.iter().flat_map(|bridge| &bridge.ports);
    let representor = switch.representor.as_ref().map(|representor| &representor.name);
    let name = match &changes.port {
        Some(name) => Some(name),
        None if changes.port_ids.contains_key(NAMESPACE_KEY) => None,
        None => Some(representor?),
    };
    ports.find(|port| port.has_ids(&changes.port_ids) && name.is_none_or(|name| port.name == *name))
}

/// Plans the return of the device, or the removal of the veth pair.
pub(in crate::cni) fn plan_device_release(
    changes: &OvsChanges,
    journal: &Journal,
    device: &DeviceFacts,
    facts: &AttachmentFacts,
    switch: &SwitchFacts,
) -> ReleasePlan {
    match &changes.link {
        OvsLink::Veth { .. } => plan_veth_release(changes, journal, facts, switch),
        OvsLink::Vf { vf, representor } => {
            let plan = sriov::plan_release(vf, journal, device, facts);
            representor::restore_before(plan, vf.vf, representor, device, switch)
        }
        OvsLink::Vdpa { device: vdpa, representor } => {
            let mut plan = ReleasePlan::default();
            if let ReleasedVf::Same(_) = find_vf(vdpa.vf, device, &mut plan) {
                restore_vdpa(vdpa, device, switch, &mut plan);
            }
            representor::restore_before(plan, vdpa.vf, representor, device, switch)
        }
    }
}

/// Plans the removal of the veth pair of an attachment without a device.
pub(in crate::cni) fn plan_veth_release(
    changes: &OvsChanges,
    journal: &Journal,
    facts: &AttachmentFacts,
    switch: &SwitchFacts,
) -> ReleasePlan {
    let OvsLink::Veth { host_mac } = changes.link else { return ReleasePlan::default() };
    let steps = plan_veth(changes, host_mac, journal, facts, switch);
    ReleasePlan { steps: steps.into_iter().map(CniStep::from).collect(), ..ReleasePlan::default() }
}

/// Plans the removal of a veth pair. The Go plugin does not record its end on the host: that is the port, and, if the port is
/// gone already, the end in the pod is left.
fn plan_veth(
    changes: &OvsChanges,
    host_mac: Option<MacAddr>,
    journal: &Journal,
    facts: &AttachmentFacts,
    switch: &SwitchFacts,
) -> Vec<SwitchStep> {
    let found = || {
        let bridges = require_running(&changes.socket, switch).ok()?;
        find_own(changes, bridges, switch).map(|port| port.name.clone())
    };
    let host_name =
        changes.port.clone().or_else(found).filter(|name| is_own_veth(name, host_mac, facts, switch));
    if let Some(host_name) = host_name {
        return vec![SwitchStep::DeleteVeth { host_name, host_mac }];
    }
    let name = &journal.key.interface;
    let in_pod = open_pod(facts).ok().filter(|pod| {
        changes.port.is_none() && pod.links.iter().any(|link| link.name == *name && link.device.is_none())
    });
    in_pod
        .map(|pod| SwitchStep::DeleteVethInPod { namespace: pod.namespace.clone(), name: name.clone() })
        .into_iter()
        .collect()
}

/// Returns whether the host has this end of a veth pair, and not another interface of the name.
fn is_own_veth(name: &str, host_mac: Option<MacAddr>, facts: &AttachmentFacts, switch: &SwitchFacts) -> bool {
    match switch.interface(name) {
        Some(link) => link.kind == VETH && (host_mac.is_none() || link.mac == host_mac),
        None => facts.host_names.contains(name),
    }
}

/// Adds the steps that restore a vDPA device and the interface of its VF.
fn restore_vdpa(
    changes: &VdpaChanges,
    facts: &DeviceFacts,
    switch: &SwitchFacts,
    plan: &mut ReleasePlan,
) {
    let device = facts.address;
    // The Go plugin does not record the device.
    if changes.name.is_empty() {
        return;
    }
    let found = switch.vdpa.iter().find(|vdpa| vdpa.name == changes.name);
    match (found, changes.original_mac) {
        (Some(vdpa), Some(mac)) if vdpa.mac != Some(mac) => {
            plan.steps.push(SwitchStep::SetVdpaMac { device, name: changes.name.clone(), mac }.into());
        }
        (Some(_), None) if changes.mac.is_some() => {
            plan.notes.push(format!("vDPA device {} keeps its MAC: the one before is unknown", changes.name));
        }
        (None, _) => plan.notes.push(format!("vDPA device {} does not exist any more", changes.name)),
        _ => {}
    }
    let mtu = facts.link.as_ref().map(|link| link.mtu);
    if let Some(original) = changes.original_mtu.filter(|original| mtu.is_some_and(|mtu| mtu != *original)) {
        plan.steps.push(SwitchStep::SetDeviceMtu { device, mtu: original }.into());
    }
}
