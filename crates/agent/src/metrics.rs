//! Metrics of the agent, in the text format of Prometheus.

mod port;
mod vfs;

use std::sync::Arc;

use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use vfleet_cluster::server::{Server, ServerLimits, metrics_route};
use vfleet_host::HostError;
use vfleet_plan::NodeSnapshot;

pub use self::port::serve_at;
use self::vfs::VfCollector;
use crate::apply::ExecutionEvent;
use crate::status::AttemptPhase;

/// Metrics of an agent.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    steps: Family<StepLabels, Counter>,
    step_time: Family<StepDurationLabels, Histogram>,
    attempts: Family<AttemptLabels, Counter>,
    ready: Gauge,
    released_attachments: Counter,
    release_failures: Counter,
    bridge_resources: Gauge,
    bridge_resource_failures: Counter,
}

/// Labels of the duration of steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepDurationLabels {
    kind: &'static str,
}

/// Labels of the number of steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    kind: &'static str,
    result: &'static str,
}

/// Labels of the number of attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    result: &'static str,
}

/// Returns buckets from a millisecond (writing a file) to four minutes (creating a hundred VFs).
fn step_buckets() -> Histogram {
    Histogram::new(exponential_buckets(1e-3, 4.0, 10))
}

impl Metrics {
    /// Returns new metrics. VFs are counted in the latest of the `snapshots`.
    pub fn new(snapshots: watch::Receiver<Arc<NodeSnapshot>>) -> Self {
        let (steps, attempts, ready) = (Family::default(), Family::default(), Gauge::default());
        let step_time: Family<StepDurationLabels, Histogram> = Family::new_with_constructor(step_buckets);
        let mut all = Registry::with_prefix("vfleet_agent");
        all.register("steps", "Steps executed on the machine, by kind", Family::clone(&steps));
        let text = "Duration of steps, by kind";
        all.register_with_unit("step", text, Unit::Seconds, Family::clone(&step_time));
        all.register_collector(Box::new(VfCollector(snapshots)));
        let text = "Attempts to configure the machine that led to a report";
        all.register("attempts", text, Family::clone(&attempts));
        all.register("ready", "1 when all cards are configured as the policies request", ready.clone());
        let (released_attachments, release_failures) = (Counter::default(), Counter::default());
        let text = "Devices that were released because their pod is gone";
        all.register("attachments_released", text, released_attachments.clone());
        let text = "Attempts to release a device whose pod is gone that failed";
        all.register("attachment_release_failures", text, release_failures.clone());
        let (bridge_resources, bridge_resource_failures) = (Gauge::default(), Counter::default());
        let text = "Open vSwitch bridges that the Node has as resources";
        all.register("bridge_resources", text, bridge_resources.clone());
        let text = "Attempts to write the resources of Open vSwitch bridges that failed";
        all.register("bridge_resource_failures", text, bridge_resource_failures.clone());
        Self {
            registry: all,
            steps,
            step_time,
            attempts,
            ready,
            released_attachments,
            release_failures,
            bridge_resources,
            bridge_resource_failures,
        }
    }

    /// Records devices that were released because their pod is gone.
    pub(crate) fn record_released_attachments(&self, count: usize) {
        self.released_attachments.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Records devices that were not released although their pod is gone.
    pub(crate) fn record_release_failures(&self, count: usize) {
        self.release_failures.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Records the number of Open vSwitch bridges that the Node has as resources.
    pub(crate) fn record_bridge_resources(&self, count: usize) {
        self.bridge_resources.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Records an attempt to write the resources of bridges that failed.
    pub(crate) fn record_bridge_resource_failure(&self) {
        self.bridge_resource_failures.inc();
    }

    /// Records an event of the execution of steps.
    pub(crate) fn record_event(&self, event: &ExecutionEvent<'_>) {
        if let ExecutionEvent::StepFinished { planned, duration, error } = event {
            let kind = planned.step.kind();
            let result = match error {
                None => "success",
                // The kernel still executes it, or the step waits for another one.
                Some(HostError::StillRunning { .. }) => "unfinished",
                Some(_) => "error",
            };
            self.steps.get_or_create(&StepLabels { kind, result }).inc();
            self.step_time.get_or_create(&StepDurationLabels { kind }).observe(duration.as_secs_f64());
        }
    }

    /// Records a phase of an attempt.
    pub(crate) fn record_phase(&self, phase: &AttemptPhase<'_>) {
        if let AttemptPhase::Done(failures) = phase {
            let result = if failures.is_empty() { "success" } else { "error" };
            self.attempts.get_or_create(&AttemptLabels { result }).inc();
        }
        self.ready.set(i64::from(matches!(phase, AttemptPhase::Done([]))));
    }

    pub(crate) fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Serves `/metrics` and `/healthz` on `listener` until `stop`.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, stop: CancellationToken) {
    let router = metrics_route(move || metrics.encode()).route("/healthz", get(async || "ok"));
    Server::new("metrics", router, ServerLimits::FEW_CLIENTS).serve(listener, stop.cancelled_owned()).await;
}
