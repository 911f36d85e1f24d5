//! Sweep: release of attachments whose namespace is gone, by a program other than the runtime.

use std::time::Duration;

use vfleet_host::attachment::{AttachmentHost, AttachmentQuery, NamespaceQuery};
use vfleet_plan::cni::facts::{HolderNamespace, OvsSocket, OvsSwitchFacts, SwitchQuery};
use vfleet_plan::cni::journal::{AttachmentKey, Journal, Phase, Plugin};
use vfleet_plan::cni::ovs::plan_stale_ports;
use vfleet_plan::cni::protocol::CniError;
use vfleet_plan::cni::step::SwitchStep;

use super::release::{ReleaseOutcome, mark_returned, release_device};
use super::switch::read_peers;
use crate::failure::host_failure;
use crate::ipam::Ipam;

/// Limit for the lock of a device. An operation of a plugin that is running releases the device itself.
const LOCK_LIMIT: Duration = Duration::from_millis(100);

/// Attachment that a sweep has looked at and found abandoned.
#[derive(Clone, Debug)]
pub struct SweptAttachment {
    /// Attachment.
    pub key: AttachmentKey,
    /// Outcome of its release.
    pub outcome: Result<ReleaseOutcome, CniError>,
}

/// Releases the devices of all attachments whose namespace is really gone. IPAM plugins are not run, because only a runtime
/// knows where they are: an attachment with addresses keeps its journal for DEL or GC, which free them.
pub fn sweep<H: AttachmentHost + ?Sized>(host: &H) -> Result<Vec<SweptAttachment>, CniError> {
    let keys = host.attachment_keys().map_err(host_failure)?;
    let sweep = |key: AttachmentKey| {
        let outcome = sweep_attachment(host, &key).transpose()?;
        Some(SweptAttachment { key, outcome })
    };
    Ok(keys.into_iter().filter_map(sweep).collect())
}

/// Releases the device of an attachment; `None` if its pod may still have it.
fn sweep_attachment<H: AttachmentHost + ?Sized>(
    host: &H,
    key: &AttachmentKey,
) -> Result<Option<ReleaseOutcome>, CniError> {
    if !host.read_journal(key).map_err(host_failure)?.is_some_and(|journal| is_abandoned_now(host, &journal))
    {
        return Ok(None);
    }
    let holder = super::describe_operation(key, "sweep");
    let _lock = super::lock_within(host, key, &holder, LOCK_LIMIT)?;
    // The runtime may have been faster.
    let Some(journal) = host.read_journal(key).map_err(host_failure)? else { return Ok(None) };
    if !is_abandoned_now(host, &journal) {
        return Ok(None);
    }
    let outcome = release_device(host, &journal)?;
    if outcome == ReleaseOutcome::Released {
        if Ipam::of_journal(&journal).is_some() {
            mark_returned(host, &journal)?;
        } else {
            host.remove_journal(key).map_err(host_failure)?;
        }
    }
    Ok(Some(outcome))
}

/// Removes ports of Open vSwitch that are left over: those of pods that are gone, whose interfaces do not exist any more, and
/// of which no attachment of ours has a journal. Returns their names. Does nothing while Open vSwitch does not answer.
pub fn sweep_ports<H: AttachmentHost + ?Sized>(
    host: &H,
    socket: &OvsSocket,
) -> Result<Vec<String>, CniError> {
    let query = SwitchQuery { ovs: Some(socket.clone()), ..SwitchQuery::default() };
    let switch = host.switch_facts(&query).map_err(host_failure)?;
    let Some(OvsSwitchFacts::Running { bridges }) = &switch.ovs else { return Ok(Vec::new()) };
    if !switch.may_have_stale_ports() {
        return Ok(Vec::new());
    }
    let nothing = AttachmentQuery {
        device: None,
        namespace: NamespaceQuery::NotGiven,
        key: None,
        with_addresses: false,
    };
    let facts = host.attachment_facts(&nothing).map_err(host_failure)?;
    let peers = read_peers(host, Plugin::Ovs, None, &facts.boot_id)?;
    let mut removed = Vec::new();
    for step in plan_stale_ports(socket, bridges, &peers, &facts.host_names) {
        tracing::info!(%step, "a port of a pod that is gone is left over");
        host.execute_cni(&step.clone().into()).map_err(host_failure)?;
        if let SwitchStep::RemoveOvsPort { name, .. } = step {
            removed.push(name);
        }
    }
    Ok(removed)
}

/// Returns whether an attachment still has its device although its namespace is gone. What cannot be read is not gone. Reads
/// only the namespace: most attachments of a node belong to pods that run.
fn is_abandoned_now<H: AttachmentHost + ?Sized>(host: &H, journal: &Journal) -> bool {
    journal.phase != Phase::Returned
        && host.namespace_state(journal).is_ok_and(|state| state == HolderNamespace::Gone)
}
