//! Addresses that a PF stores for its VFs: MACs on Ethernet, GUIDs on InfiniBand. Also RDMA devices without a GUID.

use vfleet_api::{Guid, MacAddr, VfRef};

use super::desired::VfSettings;
use super::planned;
use super::vf::{VfPhase, VfPlanner, is_free};
use crate::facts::{LinkFacts, VfFacts};
use crate::guids::GuidSource;
use crate::step::{Disruption, PlannedStep, Step, VfDriver};

/// Steps for the address of a VF.
#[derive(Debug, Default)]
pub(super) struct AddressPlan {
    /// Sets the address on the PF.
    pub(super) step: Option<PlannedStep>,
    /// Reason to rebind the VF, so that its address takes effect.
    pub(super) rebind: Option<&'static str>,
}

/// Returns the step for a VF that is about to be created.
pub(super) fn plan_new_vf(planner: &VfPlanner<'_>, vf: VfRef) -> Option<PlannedStep> {
    match planner.guids {
        Some(guids) => Some(set_guid(vf, guids.guid(planner.pf, vf.index))),
        None => planner.mac(vf.index).map(|mac| set_mac(vf, mac, KEEP_MAC)),
    }
}

/// Returns the steps for an existing VF.
pub(super) fn plan_existing_vf(
    planner: &VfPlanner<'_>,
    settings: &VfSettings,
    observed: &VfFacts,
    stays_bound: bool,
) -> AddressPlan {
    let vf = VfRef { pf: planner.desired.address, index: observed.index };
    let needs_rdma = planner.guids.is_some() || settings.rdma;
    let is_broken =
        needs_rdma && settings.driver == VfDriver::Kernel && is_free(observed) && has_zero_guid(observed);
    let plan = match (planner.guids, planner.phase) {
        (Some(guids), _) => plan_guid(planner, guids, vf, observed, stays_bound),
        (None, VfPhase::Unfinished) => unfinished_mac(planner, vf, observed, stays_bound),
        (None, VfPhase::New | VfPhase::Settled) => AddressPlan {
            step: missing_mac(planner, observed, stays_bound)
                .map(|mac| set_mac(vf, mac, "the PF has no administrative MAC for the VF")),
            rebind: None,
        },
    };
    AddressPlan { rebind: plan.rebind.or(is_broken.then_some(NO_GUID)), ..plan }
}

/// Returns the MAC for a VF without an administrative MAC: its current one, so that its user notices nothing. The MAC
/// of a VF that a pod or program holds is unknown here, so such a VF is left alone.
fn missing_mac(planner: &VfPlanner<'_>, observed: &VfFacts, stays_bound: bool) -> Option<MacAddr> {
    if observed.admin_mac != Some(MacAddr::ZERO) {
        return None;
    }
    // The interface of an attached VF has the MAC of the pod.
    match observed.link.as_ref().filter(|_| !observed.is_attached()) {
        Some(link) => link.mac.filter(|mac| mac.is_usable()).or_else(|| planner.mac(observed.index)),
        None if stays_bound => None,
        None => planner.mac(observed.index),
    }
}

/// Returns the steps that finish an interrupted creation: the VF gets the MAC that it would have got.
fn unfinished_mac(planner: &VfPlanner<'_>, vf: VfRef, observed: &VfFacts, stays_bound: bool) -> AddressPlan {
    let Some(mac) = planner.mac(observed.index) else { return AddressPlan::default() };
    let has_mac = observed.admin_mac == Some(mac) && !may_be_generated(planner, observed, mac);
    let is_done = observed.link.as_ref().is_none_or(|link| has_mac && link.mac == Some(mac));
    if stays_bound && is_done {
        return AddressPlan::default();
    }
    AddressPlan {
        step: (!has_mac).then(|| set_mac(vf, mac, KEEP_MAC)),
        rebind: Some("VF creation was interrupted"),
    }
}

/// Returns whether the driver may have generated this MAC and passed it to the PF. It can equal the previous MAC, since
/// udev generates the same one again. A MAC that the PF gave to the VF is the permanent one of its interface.
fn may_be_generated(planner: &VfPlanner<'_>, observed: &VfFacts, mac: MacAddr) -> bool {
    let is_permanent = |link: &LinkFacts| link.permanent_mac == Some(mac);
    planner.has_foreign_mac(observed.index) && observed.link.as_ref().is_some_and(|link| !is_permanent(link))
}

/// Returns the steps for the GUID of a VF. GUIDs of the administrator's file replace others; without a file, a VF keeps
/// its GUID. A VF that a pod holds has the GUID that the CNI plugin set, and is left alone, unless the file has a GUID
/// for it and it has none: then it is taken from the pod.
fn plan_guid(
    planner: &VfPlanner<'_>,
    guids: &GuidSource,
    vf: VfRef,
    observed: &VfFacts,
    stays_bound: bool,
) -> AddressPlan {
    let uses_planned = guids.has_file() || planner.phase == VfPhase::Unfinished;
    let is_held = !is_free(observed) && stays_bound;
    if is_held && !(guids.has_file() && has_zero_guid(observed)) {
        return AddressPlan::default();
    }
    let planned_guid = guids.guid(planner.pf, observed.index);
    let device_guid = observed.rdma.as_ref().map(|rdma| rdma.node_guid);
    let needs_step = match observed.admin_guid.or(device_guid) {
        Some(ZERO) => true,
        Some(kept) => uses_planned && kept != planned_guid,
        None => uses_planned && observed.driver.is_none(),
    };
    let is_outdated = uses_planned && device_guid.is_some_and(|guid| guid != planned_guid);
    let why = if has_zero_guid(observed) { NO_GUID } else { "the GUID of the VF changed" };
    AddressPlan {
        step: needs_step.then(|| set_guid(vf, planned_guid)),
        rebind: (needs_step || is_outdated).then_some(why),
    }
}

const KEEP_MAC: &str = "keep the MAC across restarts";
const NO_GUID: &str = "the VF has no GUID";
const ZERO: Guid = Guid([0; 8]);

fn has_zero_guid(observed: &VfFacts) -> bool {
    observed.rdma.as_ref().is_some_and(|rdma| rdma.node_guid == ZERO) || observed.admin_guid == Some(ZERO)
}

fn set_mac(vf: VfRef, mac: MacAddr, why: &str) -> PlannedStep {
    planned(Step::SetVfMac { vf, mac }, Disruption::Vf, why)
}

fn set_guid(vf: VfRef, guid: Guid) -> PlannedStep {
    planned(Step::SetVfGuid { vf, guid }, Disruption::Vf, "keep the GUID across restarts")
}
