//! Release of attachments whose pod is gone without a DEL of its runtime: at the start of the agent, after a change of the
//! machine, and when a network namespace is deleted. One sweep at a time, beside the attempts of the agent.

mod report;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use vfleet_cni::engine::{self, SweptAttachment};
use vfleet_host::attachment::AttachmentHost;
use vfleet_plan::cni::facts::OvsSocket;
use vfleet_plan::cni::protocol::CniError;

use crate::metrics::Metrics;
use crate::notice::{EventSink, Notice};
use crate::wake_timer::WakeTimer;
use report::SweepReporter;

/// Time after which a sweep that has not ended is reported. It waits for locks and for the kernel, some seconds for each
/// attachment whose pod is gone.
const DEADLINE: Duration = Duration::from_mins(2);
/// Time between two sweeps: a sweep reads every attachment, and pods may come and go all the time.
const PAUSE: Duration = Duration::from_secs(5);

/// Result of one sweep.
type SweepResult = Result<Vec<SweptAttachment>, CniError>;

/// Sweeper of one node.
pub(crate) struct AttachmentSweeper {
    host: Arc<dyn AttachmentHost>,
    /// Open vSwitch of the node, whose ports may be left over.
    ovs: Option<OvsSocket>,
    reporter: SweepReporter,
    /// Notified when a device was released: it may need a repair now.
    released: Arc<Notify>,
    timer: WakeTimer,
    failures: u32,
}

impl AttachmentSweeper {
    /// Returns a sweeper that begins at once. `released` is notified after it released a device.
    pub(crate) fn new(host: Arc<dyn AttachmentHost>, metrics: Arc<Metrics>, released: Arc<Notify>) -> Self {
        let mut timer = WakeTimer::default();
        timer.wake_now();
        Self { host, ovs: None, reporter: SweepReporter::new(metrics), released, timer, failures: 0 }
    }

    /// Returns the sweeper that also removes ports of Open vSwitch that are left over.
    pub(crate) fn with_ovs(self, ovs: Option<OvsSocket>) -> Self {
        Self { ovs, ..self }
    }

    /// Sweeps whenever `changed` is notified, until `stop`. A sweep that is running is finished.
    pub(crate) async fn run(
        mut self,
        changed: Arc<Notify>,
        events: Option<EventSink>,
        stop: CancellationToken,
    ) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = changed.notified() => self.timer.wake_soon(),
                () = self.timer.wait() => {
                    let notices = self.sweep().await;
                    let Some(events) = &events else { continue };
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = events.emit(&notices) => {}
                    }
                }
            }
        }
    }

    /// Sweeps once, and sets the timer for the next sweep. Returns what is worth an Event.
    async fn sweep(&mut self) -> Vec<Notice> {
        self.timer.clear();
        let host = Arc::clone(&self.host);
        let ovs = self.ovs.clone();
        let mut running = tokio::task::spawn_blocking(move || sweep_all(&*host, ovs.as_ref()));
        let ended = if let Ok(ended) = tokio::time::timeout(DEADLINE, &mut running).await {
            ended
        } else {
            tracing::warn!(
                seconds = DEADLINE.as_secs(),
                "releasing attachments of pods that are gone takes long: the kernel or another CNI plugin does not answer"
            );
            // Two sweeps at once would wait for each other's locks.
            running.await
        };
        let report = self.reporter.report(ended.unwrap_or_else(|error| Err(thread_failure(&error))));
        if report.has_released {
            self.released.notify_one();
        }
        if report.needs_retry {
            self.failures += 1;
            self.timer.retry_after(self.failures);
        } else {
            self.failures = 0;
            self.timer.rest(PAUSE);
        }
        report.notices
    }
}

/// Releases attachments of pods that are gone, and then ports that no attachment has.
fn sweep_all(host: &dyn AttachmentHost, ovs: Option<&OvsSocket>) -> SweepResult {
    let swept = engine::sweep(host);
    // The next ADD or DEL of the plugin removes such ports, too.
    if let Some(Err(error)) = ovs.map(|ovs| engine::sweep_ports(host, ovs)) {
        tracing::debug!(%error, "ports of Open vSwitch that are left over were not removed");
    }
    swept
}

fn thread_failure(error: &JoinError) -> CniError {
    let code = vfleet_plan::cni::protocol::ErrorCode::DeviceFailed;
    CniError::new(code, "the thread that releases attachments ended unexpectedly")
        .with_details(error.to_string())
}
