//! Release of the plugin `ib-sriov`.

use vfleet_api::{Guid, VfRef};

use crate::cni::attachment::{ReleasePlan, find_in_pod, open_pod, return_interface};
use crate::cni::facts::{AttachmentFacts, InterfaceFacts, LinkState};
use crate::cni::journal::{InfinibandChanges, Journal};
use crate::cni::step::CniStep;
use crate::prelude::*;

use super::UNSET_GUID;

/// Plans the release of a device: settings of the VF, its RDMA device, its driver, and at last its interface, which the steps
/// before may create again.
pub(in crate::cni) fn plan_release(
    changes: &InfinibandChanges,
    journal: &Journal,
    facts: &AttachmentFacts,
) -> ReleasePlan {
    let mut plan = ReleasePlan::default();
    let Some(vf) = changes.vf else { return plan };
    let device = &facts.device;
    let pod = open_pod(facts).ok();
    let effective = pod
        .and_then(|pod| find_in_pod(facts, pod, &journal.key.interface))
        .or(device.link.as_ref())
        .and_then(InterfaceFacts::guid);
    match &device.pf {
        None => plan.notes.push(format!("device {} is not a VF any more", device.address)),
        Some(pf) if pf.vf != vf => {
            plan.notes.push(format!("device {} is a new VF: {}, no longer {vf}", device.address, pf.vf));
        }
        Some(_) => restore_settings(changes, vf, effective, facts, &mut plan.steps),
    }
    let mut is_created_again = false;
    if let (Some(rdma), Some(pod)) = (&changes.rdma, pod)
        && pod.rdma.contains(rdma)
    {
        let namespace = pod.namespace.clone();
        plan.steps.push(CniStep::ReturnRdmaToHost { device: device.address, rdma: rdma.clone(), namespace });
        is_created_again = true;
    }
    let Some(original) = &changes.interface else { return plan };
    // An interruption while ADD bound the driver again leaves the VF without one.
    let needs_driver = changes.guid.is_some() && device.driver.is_none();
    if needs_driver || has_other_guid(changes, effective) {
        plan.steps.push(CniStep::Rebind { device: device.address });
        is_created_again = true;
    }
    let returned = return_interface(original, journal, facts, is_created_again);
    plan.steps.extend(returned.step);
    plan.notes.extend(returned.note);
    plan.waits_for_device = returned.waits_for_device;
    plan
}

/// Returns whether the driver has to be bound again, so that the original GUID takes effect. An interface without a GUID
/// does not show that one is unset.
fn has_other_guid(changes: &InfinibandChanges, effective: Option<Guid>) -> bool {
    match (effective, changes.original_guid) {
        (Some(effective), Some(UNSET_GUID)) => changes.guid == Some(effective) && effective != UNSET_GUID,
        (Some(effective), Some(original)) => effective != original,
        _ => false,
    }
}

/// Restores the settings that ADD changed.
fn restore_settings(
    changes: &InfinibandChanges,
    vf: VfRef,
    effective: Option<Guid>,
    facts: &AttachmentFacts,
    steps: &mut Vec<CniStep>,
) {
    let current = facts.device.pf.as_ref().and_then(|pf| pf.settings).unwrap_or_default();
    let original = &changes.original;
    if changes.link_state.is_some() {
        let state = original.link_state.unwrap_or(LinkState::Auto);
        if current.link_state != Some(state) {
            steps.push(CniStep::SetVfLinkState { vf, state });
        }
    }
    let (Some(guid), Some(original_guid)) = (changes.guid, changes.original_guid) else { return };
    let is_restored = |stored, before| stored == Some(original_guid) || stored == before;
    let is_set = match (current.node_guid, current.port_guid) {
        (None, None) => effective.is_none_or(|effective| effective == guid) && guid != original_guid,
        (node, port) => !is_restored(node, original.node_guid) || !is_restored(port, original.port_guid),
    };
    if is_set {
        steps.push(CniStep::SetVfGuid { vf, guid: original_guid });
    }
}
