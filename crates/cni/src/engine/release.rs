//! Release of a device: the common end of DEL, GC, an ADD that failed, and repairs.

use std::time::Duration;

use vfleet_host::attachment::{AttachmentHost, AttachmentQuery, NamespaceQuery};
use vfleet_host::format_error_chain;
use vfleet_plan::cni::attachment::{ReleasePlan, plan_release, plan_release_without_facts};
use vfleet_plan::cni::facts::AttachmentFacts;
use vfleet_plan::cni::journal::{AttachmentKey, DeviceChanges, Journal, Phase, Plugin};
use vfleet_plan::cni::protocol::{CniError, Command, ErrorCode};
use vfleet_plan::cni::step::CniStep;

use crate::failure::host_failure;
use crate::ipam::Ipam;

/// Limit for the kernel to return what a namespace that was deleted had.
const RETURN_LIMIT: Duration = Duration::from_secs(3);

/// Outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The device is as it was before the attachment.
    Released,
    /// The kernel has not returned the device yet. The journal stays, so that a later operation finishes the release.
    Waiting,
}

/// Releases the device of an attachment. The caller holds the lock of the device.
pub(super) fn release_device<H: AttachmentHost + ?Sized>(
    host: &H,
    journal: &Journal,
) -> Result<ReleaseOutcome, CniError> {
    let mut plan = plan_and_execute(host, journal)?;
    let AttachmentKey { plugin, device, .. } = journal.key;
    if let Some(device) = device.filter(|_| !plan.waits_for.is_empty()) {
        if host.wait_for_device(device, &plan.waits_for, RETURN_LIMIT).map_err(host_failure)? {
            plan = plan_and_execute(host, journal)?;
        }
        for part in &plan.waits_for {
            tracing::warn!(%device, "the kernel has not returned the {part} of the device yet");
        }
        if !plan.waits_for.is_empty() {
            return Ok(ReleaseOutcome::Waiting);
        }
    }
    if let Some(device) = device.filter(|_| plugin == Plugin::Sriov) {
        let path = journal.namespace.path.clone();
        host.execute_cni(&CniStep::RemoveGoAllocation { device, path }).map_err(host_failure)?;
    }
    Ok(ReleaseOutcome::Released)
}

/// Plans a release and executes it as far as it is possible now.
fn plan_and_execute<H: AttachmentHost + ?Sized>(
    host: &H,
    journal: &Journal,
) -> Result<ReleasePlan, CniError> {
    let shares_uplink =
        matches!(&journal.changes, DeviceChanges::AcceleratedBridge(changes) if changes.uplink.is_some());
    let _uplinks =
        if shares_uplink { Some(super::lock_uplinks(host, &journal.key, "release")?) } else { None };
    let boot_id = host.boot_id().map_err(host_failure)?;
    let plan = match plan_release_without_facts(journal, &boot_id) {
        Some(plan) => plan,
        None => plan_release(journal, &read_facts(host, journal)?),
    };
    for note in &plan.notes {
        tracing::info!(note, "not restored");
    }
    execute_all(host, &plan)?;
    match &plan.postponed {
        None => Ok(plan),
        Some(error) => Err(error.clone()),
    }
}

/// Reads the facts of an attachment.
pub(super) fn read_facts<H: AttachmentHost + ?Sized>(
    host: &H,
    journal: &Journal,
) -> Result<AttachmentFacts, CniError> {
    let namespace = NamespaceQuery::Recorded { namespace: &journal.namespace, boot_id: &journal.boot_id };
    let key = &journal.key;
    let query = AttachmentQuery { device: key.device, namespace, key: Some(key), with_addresses: false };
    let switch = journal.changes.switch_query(key);
    let mut facts = super::switch::read_facts(host, &query, switch.as_ref(), key)?;
    super::forget_returned(&mut facts);
    Ok(facts)
}

/// Executes all steps, also after one that failed: each of them gives something back.
fn execute_all<H: AttachmentHost + ?Sized>(host: &H, plan: &ReleasePlan) -> Result<(), CniError> {
    let mut faults = Vec::new();
    for step in &plan.steps {
        tracing::debug!(%step, "executing");
        if let Err(error) = host.execute_cni(step) {
            faults.push(format_error_chain(&error));
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(CniError::new(ErrorCode::DeviceFailed, faults.join("; ")))
}

/// Releases an attachment without its runtime: the device, and the addresses of the IPAM plugin. The caller holds the lock of
/// the device.
pub fn repair<H: AttachmentHost + ?Sized>(host: &H, journal: &Journal) -> Result<ReleaseOutcome, CniError> {
    tracing::info!(
        plugin = journal.key.plugin.name(),
        container = journal.key.container_id,
        interface = journal.key.interface,
        phase = journal.phase.as_str(),
        "releasing an attachment that was interrupted or whose namespace is gone"
    );
    let outcome = match journal.phase {
        // The device is free since, and may have been configured anew.
        Phase::Returned => ReleaseOutcome::Released,
        _ => release_device(host, journal)?,
    };
    if outcome == ReleaseOutcome::Released {
        match Ipam::of_journal(journal).map_or(Ok(()), |ipam| ipam.forward(host, Command::Del)) {
            Ok(()) => host.remove_journal(&journal.key).map_err(host_failure)?,
            Err(error) => {
                tracing::warn!(%error, "addresses of an attachment were not freed: the next DEL or GC tries again");
                mark_returned(host, journal)?;
            }
        }
    }
    Ok(outcome)
}

/// Records that the device of an attachment is free and only its addresses are left, so that they do not block the device.
pub(super) fn mark_returned<H: AttachmentHost + ?Sized>(host: &H, journal: &Journal) -> Result<(), CniError> {
    let journal = Journal { phase: Phase::Returned, ..journal.clone() };
    host.write_journal(&journal).map_err(host_failure)
}
