//! Property of every plan: a release restores everything, wherever the ADD was interrupted.

use vfleet_plan::cni::attachment::{AddPlan, plan_release};
use vfleet_plan::cni::facts::{AttachmentFacts, NamespaceFacts, OvsSwitchFacts, SwitchFacts};
use vfleet_plan::cni::journal::DeviceChanges;
use vfleet_plan::cni::step::{CniStep, SwitchStep};

use super::model::{VfDriver, delete_namespace, execute, unbind};

/// End of an interrupted ADD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// After some step.
    BetweenSteps,
    /// In the step behind, while the driver of the device was bound again.
    Unbound,
    /// After some step; then the namespace was deleted.
    NamespaceDeleted,
}

/// Executes every prefix of the steps, and a release, which may be interrupted, too.
pub(crate) fn restores_everything(plan: &AddPlan, facts: &AttachmentFacts) -> Result<(), String> {
    if let DeviceChanges::Infiniband(changes) = &plan.journal.changes
        && changes.guid.is_some()
        && changes.original.port_guid.is_none()
    {
        return Ok(()); // the model has no GUID that the PF stores and does not report
    }
    for driver in [VfDriver::AcceptsMac, VfDriver::IsBoundForMac, VfDriver::AppliesMacAtOnce] {
        for steps in 0..=plan.steps.len() {
            for ending in [Ending::BetweenSteps, Ending::Unbound, Ending::NamespaceDeleted] {
                let binds = |step| matches!(step, &CniStep::Rebind { .. } | &CniStep::SetInterfaceMac { .. });
                if ending == Ending::Unbound && !plan.steps.get(steps).is_some_and(binds) {
                    continue;
                }
                let mut interrupted = facts.clone();
                for step in &plan.steps[..steps] {
                    execute(&mut interrupted, step, driver);
                }
                match ending {
                    Ending::BetweenSteps => {}
                    Ending::Unbound => unbind(&mut interrupted),
                    Ending::NamespaceDeleted => delete_namespace(&mut interrupted),
                }
                release_everywhere(plan, facts, &interrupted, driver)
                    .map_err(|problem| format!("{driver:?}, {steps} steps, {ending:?}, {problem}"))?;
            }
        }
    }
    Ok(())
}

/// Interrupts a release after each of its steps, and releases again.
fn release_everywhere(
    plan: &AddPlan,
    before: &AttachmentFacts,
    interrupted: &AttachmentFacts,
    driver: VfDriver,
) -> Result<(), String> {
    let release = plan_release(&plan.journal, interrupted);
    for cut in 0..=release.steps.len() {
        let mut found = interrupted.clone();
        for step in &release.steps[..cut] {
            execute(&mut found, step, driver);
        }
        for step in &plan_release(&plan.journal, &found).steps {
            execute(&mut found, step, driver);
        }
        let mut expected = before.clone();
        if found.namespace == NamespaceFacts::Gone {
            delete_namespace(&mut expected);
        }
        let (found_again, expected) = (normal(found.clone(), plan), normal(expected, plan));
        if found_again != expected {
            return Err(format!(
                "{cut} steps of the release:\nexpected {:?}, {:?}, {:?}\nfound {:?}, {:?}, {:?}",
                expected.device,
                expected.namespace,
                expected.switch,
                found_again.device,
                found_again.namespace,
                found_again.switch
            ));
        }
        let left = plan_release(&plan.journal, &found);
        let is_left = |step: &CniStep| !sets_unreported(step, &found);
        if left.steps.iter().any(is_left) || !left.waits_for.is_empty() || left.postponed.is_some() {
            return Err(format!("{cut} steps of the release: the next one is not empty: {left:?}"));
        }
    }
    Ok(())
}

/// Returns whether a step sets something that the driver does not report, so that it is always set again.
fn sets_unreported(step: &CniStep, facts: &AttachmentFacts) -> bool {
    let stored = facts.device.as_ref().and_then(|device| device.pf.as_ref()?.settings).unwrap_or_default();
    let reported: Vec<_> = stored.fields().into_iter().map(|(key, _)| key).collect();
    match step {
        CniStep::SetVf { settings, .. } => settings.fields().iter().any(|(key, _)| !reported.contains(key)),
        CniStep::SetVfLinkState { .. } => stored.link_state.is_none(),
        CniStep::SetVfGuid { .. } => stored.port_guid.is_none(),
        _ => false,
    }
}

/// Returns facts without those that a release may leave different: the index and state of the interface, limits that an
/// interface does not have when it is created again, its MTU on InfiniBand, and a GUID that the PF did not store before.
fn normal(mut facts: AttachmentFacts, plan: &AddPlan) -> AttachmentFacts {
    if let Some(switch) = &mut facts.switch {
        normalize_switch(switch, plan);
    }
    let Some(device) = &mut facts.device else { return facts };
    if let Some(link) = &mut device.link {
        link.alt_names.sort();
        (link.index, link.is_up, link.min_mtu, link.max_mtu, link.ips) = (0, false, None, None, Vec::new());
        link.device = Some(device.address);
        if link.is_infiniband() {
            link.mtu = 0;
        }
    }
    let is_for_userspace = device.is_for_userspace();
    if let Some(driver) = device.driver.as_mut().filter(|_| !is_for_userspace) {
        "kernel".clone_into(driver);
    }
    if let (DeviceChanges::Infiniband(changes), Some(settings)) =
        (&plan.journal.changes, device.pf.as_mut().and_then(|pf| pf.settings.as_mut()))
        && changes.original_guid.is_some()
    {
        for (stored, before) in [
            (&mut settings.node_guid, changes.original.node_guid),
            (&mut settings.port_guid, changes.original.port_guid),
        ] {
            *stored = if *stored == changes.original_guid { before } else { *stored };
        }
    }
    facts
}

/// Leaves out what an ADD removes and a release does not restore: ports and mirrors that are left over. The representor leaves
/// the bridge in which another plugin left it, and a mirror that nothing uses may be removed.
fn normalize_switch(switch: &mut SwitchFacts, plan: &AddPlan) {
    let removed = plan.steps.iter().filter_map(|step| match step {
        CniStep::Switch(SwitchStep::RemoveOvsPort { name, external_ids, .. }) => Some((name, external_ids)),
        _ => None,
    });
    if let Some(OvsSwitchFacts::Running { bridges }) = &mut switch.ovs {
        for (name, external_ids) in removed {
            for bridge in bridges.iter_mut() {
                bridge.ports.retain(|port| port.name != *name || !port.has_ids(external_ids));
            }
        }
        for bridge in bridges {
            bridge.mirrors.retain(|mirror| !mirror.is_owned() || !mirror.is_unused());
        }
    }
    if let Some(representor) = &mut switch.representor {
        let attached = plan.steps.iter().find_map(|step| match step {
            CniStep::Switch(SwitchStep::AttachBridgePort { bridge, .. }) => Some(bridge),
            _ => None,
        });
        if representor.master.take_if(|master| Some(&master.name) == attached).is_some() {
            representor.vlans.clear();
        }
        representor.master.take_if(|master| master.kind == "openvswitch");
    }
    if let Some(uplink) = &mut switch.uplink {
        let port = match &mut uplink.bond {
            Some(bond) => &mut bond.port,
            None => &mut uplink.pf,
        };
        port.vlans.sort();
    }
}
