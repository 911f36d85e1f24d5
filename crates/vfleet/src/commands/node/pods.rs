//! `vfleet node pods`: attachments of pods, and the release of what is left behind of them.

mod read;
#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use vfleet_api::PciAddress;
use vfleet_cni::engine::{self, ReleaseOutcome};
use vfleet_host::attachment::{DeviceLock, LockSubject};
use vfleet_host::format_error_chain;
use vfleet_plan::cni::journal::AttachmentKey;
use vfleet_plan::pods::AttachmentState;

use super::exit::ExitStatus;
use super::machine::NodeMachine;

/// Limit for the lock of a device before a repair.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
/// Holder of locks, for the errors of other programs.
const HOLDER: &str = "vfleet node pods";

/// Result of a repair by a process that cannot run IPAM plugins, with the remedy.
const ADDRESSES_OF_MOUNTED_TREE: &str = "the device is released, its IP addresses are not: IPAM plugins of a mounted file tree \
     cannot be run. DEL or GC of the container runtime frees them, or `vfleet node pods --repair` on the node itself, without \
     --host-root";

/// Attachments of pods on a machine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodsReport {
    pub(super) exit: ExitStatus,
    pub(super) attachments: Vec<AttachmentLine>,
    /// Repairs; `None` if none was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) repairs: Option<Vec<RepairLine>>,
}

/// Attachment of a pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AttachmentLine {
    /// Namespace and name of the pod, if its runtime named it.
    pub(super) pod: Option<String>,
    pub(super) container_id: Option<String>,
    pub(super) interface: Option<String>,
    pub(super) device: Option<PciAddress>,
    /// Name of the PF's interface, or PCI address of a PF without one.
    pub(super) pf: Option<String>,
    pub(super) vf_index: Option<u16>,
    pub(super) plugin: &'static str,
    pub(super) network: Option<String>,
    /// Path of the network namespace.
    pub(super) namespace: Option<String>,
    /// Settings that the plugin changed, by the keys of network configurations.
    pub(super) settings: Vec<Setting>,
    #[serde(rename = "state", serialize_with = "serialize_name")]
    pub(super) state: AttachmentState,
    /// State in words.
    #[serde(rename = "says")]
    pub(super) message: String,
}

/// Setting that a plugin changed.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Setting {
    pub(super) key: &'static str,
    pub(super) value: String,
}

/// Result of a repair.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RepairLine {
    pub(super) device: Option<PciAddress>,
    pub(super) container_id: String,
    pub(super) interface: String,
    /// The device and the IP addresses are free.
    pub(super) is_released: bool,
    #[serde(rename = "says")]
    pub(super) message: String,
}

fn serialize_name<S: serde::Serializer>(state: &AttachmentState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.name())
}

/// Lists the attachments.
pub(super) fn list(machine: &dyn NodeMachine) -> anyhow::Result<PodsReport> {
    let attachments = read::attachments(machine)?;
    let has_fault = attachments.iter().any(|line| line.state.is_fault());
    let exit = if has_fault { ExitStatus::Failed } else { ExitStatus::Done };
    Ok(PodsReport { exit, attachments, repairs: None })
}

/// Releases what is left behind of pods that are gone and of plugins that were killed, and lists the attachments. IP
/// addresses are freed only if this process `runs_programs` of the machine.
pub(super) fn repair(machine: &dyn NodeMachine, runs_programs: bool) -> anyhow::Result<PodsReport> {
    let keys = machine.attachment_keys().context("cannot list the attachments of pods")?;
    let repair = |key| repair_attachment(machine, key, runs_programs);
    let repairs: Vec<RepairLine> = keys.iter().filter_map(repair).collect();
    let mut report = list(machine)?;
    if repairs.iter().any(|line| !line.is_released) {
        report.exit = ExitStatus::Failed;
    }
    Ok(PodsReport { repairs: Some(repairs), ..report })
}

/// Releases an attachment; `None` if a pod or a process may still need it, or if its journal cannot be read.
fn repair_attachment(
    machine: &dyn NodeMachine,
    key: &AttachmentKey,
    runs_programs: bool,
) -> Option<RepairLine> {
    let state = read::state(machine, key).filter(AttachmentState::is_repairable)?;
    let line = |is_released, message: String| RepairLine {
        device: key.device,
        container_id: key.container_id.clone(),
        interface: key.interface.clone(),
        is_released,
        message,
    };
    if state == AttachmentState::AddressesLeft && !runs_programs {
        return Some(line(false, ADDRESSES_OF_MOUNTED_TREE.to_owned()));
    }
    let outcome = match machine.lock(&LockSubject::of(key), HOLDER, LOCK_LIMIT) {
        Ok(lock) => release(machine, key, &lock)?,
        Err(error) => Err(format_error_chain(&error)),
    };
    let has_journal = || !matches!(machine.read_journal(key), Ok(None));
    Some(match outcome {
        Ok(ReleaseOutcome::Released) if has_journal() && !runs_programs => {
            line(false, ADDRESSES_OF_MOUNTED_TREE.to_owned())
        }
        Ok(ReleaseOutcome::Released) if has_journal() => line(
            false,
            "the device is released, its IP addresses are not: RUST_LOG=warn shows the error of the IPAM plugin".to_owned(),
        ),
        Ok(ReleaseOutcome::Released) => line(true, "released".to_owned()),
        Ok(ReleaseOutcome::Waiting) => {
            line(false, "the kernel has not returned the interface yet: run the command again".to_owned())
        }
        Err(error) => line(false, format!("not released: {error}")),
    })
}

/// Releases an attachment whose device is locked; `None` if another process was faster.
fn release(
    machine: &dyn NodeMachine,
    key: &AttachmentKey,
    _lock: &DeviceLock,
) -> Option<Result<ReleaseOutcome, String>> {
    let (journal, state) = read::journal_and_state(machine, key)?;
    state.is_repairable().then(|| engine::repair(machine, &journal).map_err(|error| error.to_string()))
}
