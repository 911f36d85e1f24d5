//! Releases: the device as it was before the attachment.

use vfleet_api::VfRef;

use crate::cni::facts::{AttachmentFacts, DeviceFacts, ParentPf, SwitchFacts};
use crate::cni::journal::{DeviceChanges, Journal};
use crate::cni::protocol::CniError;
use crate::cni::step::SwitchStep;
use crate::cni::{accelerated_bridge, infiniband, mirror, ovs, rdma, sriov};
use crate::prelude::*;

use super::ReleasePlan;
use super::holder::{describe_holder, find_next_holder};

/// Plans the release of an attachment. A device that does not exist any more, or that another attachment holds meanwhile, is
/// left alone; so is everything after a boot of the machine, which resets devices, except for the ports of Open vSwitch.
pub fn plan_release(journal: &Journal, facts: &AttachmentFacts) -> ReleasePlan {
    if let Some(plan) = plan_release_without_facts(journal, &facts.boot_id) {
        return plan;
    }
    let no_switch = SwitchFacts::default();
    let switch = facts.switch.as_ref().unwrap_or(&no_switch);
    let (steps, postponed) = match plan_switch(journal, facts, switch) {
        Ok(steps) => (steps, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let plan = plan_device(journal, facts, switch);
    let steps = steps.into_iter().map(Into::into).chain(plan.steps).collect();
    ReleasePlan { steps, postponed, ..plan }
}

/// Plans what a release changes on the switch side whether or not the device exists.
fn plan_switch(
    journal: &Journal,
    facts: &AttachmentFacts,
    switch: &SwitchFacts,
) -> Result<Vec<SwitchStep>, CniError> {
    match &journal.changes {
        DeviceChanges::Ovs(changes) => ovs::plan_port_release(changes, facts, switch),
        DeviceChanges::AcceleratedBridge(_) if journal.is_of_earlier_boot(&facts.boot_id) => Ok(Vec::new()),
        DeviceChanges::AcceleratedBridge(changes) => {
            Ok(accelerated_bridge::plan_uplink_release(changes, switch).into_iter().collect())
        }
        DeviceChanges::Mirror(changes) => mirror::plan_release(changes, journal.key.plugin, switch),
        DeviceChanges::Sriov(_) | DeviceChanges::Infiniband(_) | DeviceChanges::Rdma(_) => Ok(Vec::new()),
    }
}

/// Plans the return of the device, or the removal of what took its place.
fn plan_device(journal: &Journal, facts: &AttachmentFacts, switch: &SwitchFacts) -> ReleasePlan {
    if journal.is_of_earlier_boot(&facts.boot_id) {
        return ReleasePlan::default();
    }
    let Some(device) = &facts.device else {
        return match &journal.changes {
            DeviceChanges::Ovs(changes) => ovs::plan_veth_release(changes, journal, facts, switch),
            _ => ReleasePlan::default(),
        };
    };
    let address = device.address;
    if !device.exists {
        return nothing(format!("device {address} does not exist any more"));
    }
    if let Some(holder) = find_next_holder(facts, journal) {
        return nothing(format!("device {address} is held by {} now", describe_holder(holder)));
    }
    match &journal.changes {
        DeviceChanges::Sriov(changes) => sriov::plan_release(changes, journal, device, facts),
        DeviceChanges::Infiniband(changes) => infiniband::plan_release(changes, journal, device, facts),
        DeviceChanges::Rdma(changes) => rdma::plan_release(changes, device, facts),
        DeviceChanges::Ovs(changes) => ovs::plan_device_release(changes, journal, device, facts, switch),
        DeviceChanges::AcceleratedBridge(changes) => {
            accelerated_bridge::plan_device_release(changes, journal, device, facts, switch)
        }
        DeviceChanges::Mirror(_) => ReleasePlan::default(),
    }
}

/// Plans a release that does not depend on facts; `None` if it does.
pub fn plan_release_without_facts(journal: &Journal, boot_id: &str) -> Option<ReleasePlan> {
    match &journal.changes {
        // The database of Open vSwitch survives a boot.
        DeviceChanges::Ovs(_) | DeviceChanges::Mirror(_) => None,
        _ if journal.is_of_earlier_boot(boot_id) => {
            Some(nothing(format!("{} was reset when the machine was booted", journal.key.subject())))
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
    facts: &'a DeviceFacts,
    plan: &mut ReleasePlan,
) -> ReleasedVf<'a> {
    let device = facts.address;
    match &facts.pf {
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
