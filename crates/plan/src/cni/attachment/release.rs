//! Releases: the device as it was before the attachment.

use crate::cni::facts::AttachmentFacts;
use crate::cni::journal::{DeviceChanges, Journal};
use crate::cni::{infiniband, rdma, sriov};
use crate::prelude::*;

use super::ReleasePlan;
use super::holder::{describe_holder, find_next_holder};

/// Plans the release of an attachment. A device that does not exist any more, or that another attachment holds meanwhile, is
/// left alone; so is everything after a boot of the machine, which resets devices.
pub fn plan_release(journal: &Journal, facts: &AttachmentFacts) -> ReleasePlan {
    let device = facts.device.address;
    if journal.is_of_earlier_boot(&facts.boot_id) {
        return nothing(format!("device {device} was reset when the machine was booted"));
    }
    if !facts.device.exists {
        return nothing(format!("device {device} does not exist any more"));
    }
    if let Some(holder) = find_next_holder(facts, journal) {
        return nothing(format!("device {device} is held by {} now", describe_holder(holder)));
    }
    match &journal.changes {
        DeviceChanges::Sriov(changes) => sriov::plan_release(changes, journal, facts),
        DeviceChanges::Infiniband(changes) => infiniband::plan_release(changes, journal, facts),
        DeviceChanges::Rdma(changes) => rdma::plan_release(changes, journal, facts),
    }
}

fn nothing(note: String) -> ReleasePlan {
    ReleasePlan { notes: vec![note], ..ReleasePlan::default() }
}
