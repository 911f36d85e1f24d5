//! Releases: the device as it was before the attachment.

use vfleet_api::VfRef;

use crate::cni::facts::{AttachmentFacts, ParentPf};
use crate::cni::journal::{DeviceChanges, Journal};
use crate::cni::{infiniband, rdma, sriov};
use crate::prelude::*;

use super::ReleasePlan;
use super::holder::{describe_holder, find_next_holder};

/// Plans the release of an attachment. A device that does not exist any more, or that another attachment holds meanwhile, is
/// left alone; so is everything after a boot of the machine, which resets devices.
pub fn plan_release(journal: &Journal, facts: &AttachmentFacts) -> ReleasePlan {
    if let Some(plan) = plan_release_without_facts(journal, &facts.boot_id) {
        return plan;
    }
    let device = facts.device.address;
    if !facts.device.exists {
        return nothing(format!("device {device} does not exist any more"));
    }
    if let Some(holder) = find_next_holder(facts, journal) {
        return nothing(format!("device {device} is held by {} now", describe_holder(holder)));
    }
    match &journal.changes {
        DeviceChanges::Sriov(changes) => sriov::plan_release(changes, journal, facts),
        DeviceChanges::Infiniband(changes) => infiniband::plan_release(changes, journal, facts),
        DeviceChanges::Rdma(changes) => rdma::plan_release(changes, facts),
    }
}

/// Plans a release that does not depend on the device; `None` if it does.
pub fn plan_release_without_facts(journal: &Journal, boot_id: &str) -> Option<ReleasePlan> {
    match &journal.changes {
        _ if journal.is_of_earlier_boot(boot_id) => {
            Some(nothing(format!("device {} was reset when the machine was booted", journal.key.device)))
        }
        // A PF, which belonged to the program in the pod as it was.
        DeviceChanges::Infiniband(changes) if changes.vf.is_none() => Some(ReleasePlan::default()),
        _ => None,
    }
}

/// VF of an attachment at its release.
#[derive(Clone, Copy, Debug)]
pub(in crate::cni) enum ReleasedVf<'a> {
    /// It is the same as at ADD.
    Same(&'a ParentPf),
    /// The PF does not have it, or has no interface.
    Orphan,
    /// The device is another VF: VFs were removed and created again.
    Replaced,
}

/// Returns the VF of an attachment, and notes why its settings are left as they are.
pub(in crate::cni) fn find_vf<'a>(
    vf: VfRef,
    facts: &'a AttachmentFacts,
    plan: &mut ReleasePlan,
) -> ReleasedVf<'a> {
    let device = facts.device.address;
    match &facts.device.pf {
        Some(pf) if pf.vf == vf => ReleasedVf::Same(pf),
        Some(pf) => {
            plan.notes.push(format!("device {device} is a new VF: {}, no longer {vf}", pf.vf));
            ReleasedVf::Replaced
        }
        None => {
            plan.notes.push(format!("device {device} has no PF with an interface any more"));
            ReleasedVf::Orphan
        }
    }
}

fn nothing(note: String) -> ReleasePlan {
    ReleasePlan { notes: vec![note], ..ReleasePlan::default() }
}
