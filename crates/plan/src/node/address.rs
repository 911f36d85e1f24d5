//! What a PF keeps for a VF: its MAC on Ethernet, its GUID on InfiniBand. And RDMA devices that came up without a GUID.

use vfleet_api::{Guid, MacAddr, VfRef};

use super::planned;
use super::vf::{Phase, VfPlanner, is_free};
use super::wanted::VfWish;
use crate::facts::{LinkFacts, VfFacts};
use crate::guids::GuidSource;
use crate::step::{Disruption, PlannedStep, Step, VfDriver};

/// What is to be done about a VF's address.
#[derive(Debug, Default)]
pub(super) struct AddressPlan {
    /// The address that the PF shall keep.
    pub(super) step: Option<PlannedStep>,
    /// Why the VF must be bound anew to take it up, if it is bound.
    pub(super) rebind: Option<&'static str>,
}

/// For a VF that is about to be made.
pub(super) fn of_new_vf(planner: &VfPlanner<'_>, vf: VfRef) -> Option<PlannedStep> {
    match planner.guids {
        Some(guids) => Some(set_guid(vf, guids.guid(planner.pf, vf.index))),
        None => planner.mac(vf.index).map(|mac| set_mac(vf, mac, "an address that stays")),
    }
}

/// For a VF that is there.
pub(super) fn of_existing_vf(
    planner: &VfPlanner<'_>,
    wish: &VfWish,
    found: &VfFacts,
    stays_bound: bool,
) -> AddressPlan {
    let vf = VfRef { pf: planner.wanted.address, index: found.index };
    let needs_rdma = planner.guids.is_some() || wish.rdma;
    let is_broken = needs_rdma && wish.driver == VfDriver::Kernel && is_free(found) && has_zero_guid(found);
    let plan = match (planner.guids, planner.phase) {
        (Some(guids), _) => guid(planner, guids, vf, found, stays_bound),
        (None, Phase::Unfinished) => unfinished_mac(planner, vf, found, stays_bound),
        (None, Phase::New | Phase::Settled) => AddressPlan {
            step: missing_mac(planner, found, stays_bound)
                .map(|mac| set_mac(vf, mac, "the PF keeps no address for it")),
            rebind: None,
        },
    };
    AddressPlan { rebind: plan.rebind.or(is_broken.then_some(NO_GUID)), ..plan }
}

/// The address for a VF for which the PF keeps none: the one that it has now, so that nobody who uses it notices. A
/// VF that somebody holds elsewhere has one that is not known here, and is left alone.
fn missing_mac(planner: &VfPlanner<'_>, found: &VfFacts, stays_bound: bool) -> Option<MacAddr> {
    if found.admin_mac != Some(MacAddr::ZERO) {
        return None;
    }
    match &found.link {
        Some(link) => link.mac.filter(|mac| mac.is_usable()).or_else(|| planner.mac(found.index)),
        None if stays_bound => None,
        None => planner.mac(found.index),
    }
}

/// A VF whose making was cut off gets the address that it would have got.
fn unfinished_mac(planner: &VfPlanner<'_>, vf: VfRef, found: &VfFacts, stays_bound: bool) -> AddressPlan {
    let Some(mac) = planner.mac(found.index) else { return AddressPlan::default() };
    let has_it = found.admin_mac == Some(mac) && !may_be_made_up(planner, found, mac);
    let is_done = found.link.as_ref().is_none_or(|link| has_it && link.mac == Some(mac));
    if stays_bound && is_done {
        return AddressPlan::default();
    }
    AddressPlan {
        step: (!has_it).then(|| set_mac(vf, mac, "an address that stays")),
        rebind: Some("its making was cut off"),
    }
}

/// Whether it may be the driver that made up this address, and told the PF. It can be the one that the VF had before, as
/// udev makes up the same ones again. One that the PF gave is the interface's permanent one.
fn may_be_made_up(planner: &VfPlanner<'_>, found: &VfFacts, mac: MacAddr) -> bool {
    let is_permanent = |link: &LinkFacts| link.permanent_mac == Some(mac);
    planner.is_given(found.index) && found.link.as_ref().is_some_and(|link| !is_permanent(link))
}

/// The administrator's GUIDs are given to whoever has others. Without a file, a VF keeps the one that it has. A VF that a
/// pod holds has the GUID that the pod's CNI plugin gave it, and is left alone; only where the administrator promised a
/// GUID and there is none it is taken from the pod.
fn guid(
    planner: &VfPlanner<'_>,
    guids: &GuidSource,
    vf: VfRef,
    found: &VfFacts,
    stays_bound: bool,
) -> AddressPlan {
    let ours_counts = guids.is_file() || planner.phase == Phase::Unfinished;
    let is_held = !is_free(found) && stays_bound;
    if is_held && !(guids.is_file() && has_zero_guid(found)) {
        return AddressPlan::default();
    }
    let own = guids.guid(planner.pf, found.index);
    let device = found.rdma.as_ref().map(|rdma| rdma.node_guid);
    let sets = match found.admin_guid.or(device) {
        Some(ZERO) => true,
        Some(kept) => ours_counts && kept != own,
        None => ours_counts && found.driver.is_none(),
    };
    let is_behind = ours_counts && device.is_some_and(|device| device != own);
    let why = if has_zero_guid(found) { NO_GUID } else { "it shall have another GUID" };
    AddressPlan { step: sets.then(|| set_guid(vf, own)), rebind: (sets || is_behind).then_some(why) }
}

const NO_GUID: &str = "it has no GUID";
const ZERO: Guid = Guid([0; 8]);

fn has_zero_guid(found: &VfFacts) -> bool {
    found.rdma.as_ref().is_some_and(|rdma| rdma.node_guid == ZERO) || found.admin_guid == Some(ZERO)
}

fn set_mac(vf: VfRef, mac: MacAddr, why: &str) -> PlannedStep {
    planned(Step::SetVfMac { vf, mac }, Disruption::Vf, why)
}

fn set_guid(vf: VfRef, guid: Guid) -> PlannedStep {
    planned(Step::SetVfGuid { vf, guid }, Disruption::Vf, "a GUID that stays")
}
