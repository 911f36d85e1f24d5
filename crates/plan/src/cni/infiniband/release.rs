//! Release of the plugin `ib-sriov`.

use vfleet_api::{Guid, VfRef};

use crate::cni::attachment::{
    InterfaceOrigin, ReleasePlan, ReleasedVf, find_in_pod, find_vf, open_pod, return_interface, return_rdma,
};
use crate::cni::facts::{AttachmentFacts, DeviceFacts, InterfaceFacts, LinkState, VfSettings};
use crate::cni::journal::{InfinibandChanges, Journal};
use crate::cni::step::CniStep;
use crate::prelude::*;

use super::UNSET_GUID;

/// Plans the release of a device: settings of the VF, its RDMA device, its driver, and at last its interface, which the steps
/// before may create again.
pub(in crate::cni) fn plan_release(
    changes: &InfinibandChanges,
    journal: &Journal,
    device: &DeviceFacts,
    facts: &AttachmentFacts,
) -> ReleasePlan {
    let mut plan = ReleasePlan::default();
    let Some(vf) = changes.vf else { return plan };
    let pod = open_pod(facts).ok();
    let effective = pod
        .and_then(|pod| find_in_pod(device, pod, &journal.key.interface))
        .or(device.link.as_ref())
        .and_then(InterfaceFacts::guid);
    // An interruption while ADD bound the driver again leaves the VF without one.
    let needs_driver = changes.guid.is_some() && device.driver.is_none();
    let found = find_vf(vf, device, &mut plan);
    let is_bound_again = matches!(found, ReleasedVf::Same(_))
        && changes.interface.is_some()
        && (needs_driver || has_other_guid(changes, effective));
    if let ReleasedVf::Same(pf) = found {
        let current = pf.settings.unwrap_or_default();
        restore_link_state(changes, vf, &current, &mut plan.steps);
        if let Some(guid) = find_guid_to_restore(changes, effective, &current, is_bound_again) {
            plan.steps.push(CniStep::SetVfGuid { vf, guid });
        }
    }
    let mut is_created_again = changes.rdma.as_ref().is_some_and(|rdma| return_rdma(rdma, device, facts, &mut plan));
    let Some(original) = &changes.interface else { return plan };
    if is_bound_again {
        plan.steps.push(CniStep::Rebind { device: device.address });
        is_created_again = true;
    }
    let origin = InterfaceOrigin::new(found, is_created_again);
    return_interface(original, journal, device, facts, origin, &mut plan);
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

fn restore_link_state(
    changes: &InfinibandChanges,
    vf: VfRef,
    current: &VfSettings,
    steps: &mut Vec<CniStep>,
) {
    if changes.link_state.is_some() {
        let state = changes.original.link_state.unwrap_or(LinkState::Auto);
        if current.link_state != Some(state) {
            steps.push(CniStep::SetVfLinkState { vf, state });
        }
    }
}

/// Returns the GUID that the PF has to store. What it stored before is good enough if the driver is not bound again.
fn find_guid_to_restore(
    changes: &InfinibandChanges,
    effective: Option<Guid>,
    current: &VfSettings,
    is_bound_again: bool,
) -> Option<Guid> {
    let (set, original) = (changes.guid?, changes.original_guid?);
    let is_restored = |stored, before| stored == Some(original) || (!is_bound_again && stored == before);
    let is_changed = match (current.node_guid, current.port_guid) {
        // Not reported: the interface shows it.
        (None, None) => is_bound_again || (effective.is_none_or(|guid| guid == set) && set != original),
        (node, port) => {
            !is_restored(node, changes.original.node_guid) || !is_restored(port, changes.original.port_guid)
        }
    };
    is_changed.then_some(original)
}
