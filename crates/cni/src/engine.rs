//! Engine of all plugins: facts, plan, journal, steps, undo.
//!
//! An attachment has a journal from before its first step until after its last. It is written when ADD begins, when ADD has
//! succeeded and when DEL begins, not for each step: undoing compares the state that the journal recorded with fresh facts,
//! and so does not depend on the step at which a process was killed. Everything about a device happens under its lock.

mod add;
mod check;
mod collect;
mod delete;
mod release;
mod sweep;
mod switch;

use std::time::Duration;

use serde_json::Value;
use vfleet_host::attachment::{AttachmentHost, DeviceLock, LockSubject};
use vfleet_plan::cni::facts::{AttachmentFacts, HolderFacts, NamespaceFacts};
use vfleet_plan::cni::journal::{AttachmentKey, Phase};
use vfleet_plan::cni::protocol::{CniError, Command, version_output};

use crate::call::PluginCall;
use crate::failure::lock_failure;

pub use release::{ReleaseOutcome, repair};
pub use sweep::{SweptAttachment, sweep, sweep_ports};

/// Limit for the lock of a device.
const LOCK_LIMIT: Duration = Duration::from_mins(1);

/// Executes a call. Returns the output, if the command has one.
pub fn execute<H: AttachmentHost + ?Sized>(host: &H, call: &PluginCall) -> Result<Option<Value>, CniError> {
    let call = &switch::with_shared_keys(host, call)?;
    match call.invocation.command {
        Command::Add => add::add(host, call).map(Some),
        Command::Del => delete::delete(host, call).map(|()| None),
        Command::Check => check::check(host, call).map(|()| None),
        Command::Gc => collect::collect(host, call).map(|()| None),
        Command::Status => check::status(host, call).map(|()| None),
        Command::Version => Ok(serde_json::from_str(&version_output()).ok()),
    }
}

/// Lets a pod have the namespace of this process if the runtime says so (`CNI_NETNS_OVERRIDE`).
fn allow_own_namespace(facts: &mut AttachmentFacts, call: &PluginCall) {
    if let NamespaceFacts::Present { is_own, .. } = &mut facts.namespace {
        *is_own &= !call.invocation.netns_override;
    }
}

/// Leaves out the attachments that have returned the device: only the addresses of their IPAM plugins are left.
fn forget_returned(facts: &mut AttachmentFacts) {
    facts.holders.retain(
        |holder| !matches!(holder, HolderFacts::Journal { journal, .. } if journal.phase == Phase::Returned),
    );
}

/// Locks the device of an attachment, or the attachment itself, for one operation.
fn lock<H: AttachmentHost + ?Sized>(
    host: &H,
    key: &AttachmentKey,
    operation: &str,
) -> Result<DeviceLock, CniError> {
    lock_within(host, key, &describe_operation(key, operation), LOCK_LIMIT)
}

fn lock_within<H: AttachmentHost + ?Sized>(
    host: &H,
    key: &AttachmentKey,
    holder: &str,
    limit: Duration,
) -> Result<DeviceLock, CniError> {
    host.lock(&LockSubject::of(key), holder, limit).map_err(lock_failure)
}

/// Locks the VLANs of uplinks for one operation. The lock of the attachment is held already.
fn lock_uplinks<H: AttachmentHost + ?Sized>(
    host: &H,
    key: &AttachmentKey,
    operation: &str,
) -> Result<DeviceLock, CniError> {
    let holder = describe_operation(key, operation);
    host.lock(&LockSubject::UplinkVlans, &holder, LOCK_LIMIT).map_err(lock_failure)
}

/// Returns the holder of a lock, for the errors of others.
fn describe_operation(key: &AttachmentKey, operation: &str) -> String {
    let AttachmentKey { plugin, container_id, interface, .. } = key;
    format!("{operation} of plugin {} for interface {interface} of container {container_id}", plugin.name())
}
