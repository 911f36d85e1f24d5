//! Report of a sweep: log lines, metrics and Events. A failure is reported once, until it changes or has ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::runtime::events::EventType;
use vfleet_cni::engine::{ReleaseOutcome, SweptAttachment};
use vfleet_plan::cni::journal::AttachmentKey;
use vfleet_plan::cni::protocol::{CniError, ErrorCode};

use super::SweepResult;
use crate::metrics::Metrics;
use crate::notice::Notice;

/// Summary of one sweep.
#[derive(Debug)]
pub(super) struct SweepReport {
    /// New facts for administrators.
    pub(super) notices: Vec<Notice>,
    /// A device was released.
    pub(super) has_released: bool,
    /// Something is left to do.
    pub(super) needs_retry: bool,
}

/// Reporter of sweeps.
#[derive(Debug)]
pub(super) struct SweepReporter {
    pub(super) metrics: Arc<Metrics>,
    /// Errors that were reported, by attachment; `None` for all attachments.
    reported: BTreeMap<Option<AttachmentKey>, String>,
}

impl SweepReporter {
    pub(super) const fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, reported: BTreeMap::new() }
    }

    /// Reports the result of a sweep.
    pub(super) fn report(&mut self, result: SweepResult) -> SweepReport {
        let swept = match result {
            Ok(swept) => swept,
            Err(error) => return self.report_unreadable(&error),
        };
        let mut failures = BTreeMap::new();
        let mut released = Vec::new();
        let mut needs_retry = false;
        for SweptAttachment { key, outcome } in swept {
            needs_retry |= !matches!(outcome, Ok(ReleaseOutcome::Released));
            match outcome {
                Ok(ReleaseOutcome::Released) => released.push(describe(&key)),
                // An event announces the end. An attempt later on is for a kernel that does not report it.
                Ok(ReleaseOutcome::Waiting) => {
                    tracing::debug!("the kernel has not returned {} yet", describe(&key));
                }
                Err(error) if error.code == ErrorCode::TryAgainLater => {
                    tracing::debug!(%error, "another process works on {}", describe(&key));
                }
                Err(error) => _ = failures.insert(Some(key), error.to_string()),
            }
        }
        self.metrics.record_released_attachments(released.len());
        let mut notices: Vec<Notice> = released_notice(&released).into_iter().collect();
        notices.extend(self.report_failures(failures));
        SweepReport { notices, has_released: !released.is_empty(), needs_retry }
    }

    fn report_unreadable(&mut self, error: &CniError) -> SweepReport {
        let notices = self.report_failures([(None, error.to_string())].into()).collect();
        SweepReport { notices, has_released: false, needs_retry: true }
    }

    /// Reports the failures that are new.
    fn report_failures(
        &mut self,
        failures: BTreeMap<Option<AttachmentKey>, String>,
    ) -> impl Iterator<Item = Notice> + use<> {
        self.metrics.record_release_failures(failures.len());
        let last = std::mem::replace(&mut self.reported, failures.clone());
        let new = failures.into_iter().filter(move |(key, error)| last.get(key) != Some(error));
        new.map(|(key, error)| failure_notice(key.as_ref(), &error))
    }
}

fn released_notice(released: &[String]) -> Option<Notice> {
    if released.is_empty() {
        return None;
    }
    let count = released.len();
    let note = format!(
        "released {count} {} whose pod is gone: {}",
        if count == 1 { "device" } else { "devices" },
        released.join("; ")
    );
    tracing::info!("{note}");
    Some(Notice { type_: EventType::Normal, reason: "AttachmentReleased", note })
}

fn failure_notice(key: Option<&AttachmentKey>, error: &str) -> Notice {
    let note = match key {
        Some(key) => format!(
            "{} was not released although its pod is gone: {error}; retrying; no pod gets the device until then, see \
             `vfleet node pods` on the node",
            describe(key)
        ),
        None => format!(
            "attachments of pods cannot be listed: {error}; retrying; repair /var/lib/cni/vfleet on the node, until then no \
             VF counts as free"
        ),
    };
    tracing::warn!("{note}");
    Notice { type_: EventType::Warning, reason: "AttachmentNotReleased", note }
}

/// Returns the device of an attachment and its container.
fn describe(key: &AttachmentKey) -> String {
    let AttachmentKey { plugin, container_id, interface, .. } = key;
    match key.device {
        Some(device) => {
            format!(
                "device {device} (plugin {}, interface {interface}, container {container_id})",
                plugin.name()
            )
        }
        None => format!("interface {interface} of container {container_id} (plugin {})", plugin.name()),
    }
}
