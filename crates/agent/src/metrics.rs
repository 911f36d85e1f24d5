//! Metrics of the agent, in Prometheus' text form.

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
use vfleet_cluster::server::{Limits, Server, metrics_route};
use vfleet_host::HostError;
use vfleet_plan::NodeSnapshot;

pub use self::port::serve_at;
use self::vfs::VfCollector;
use crate::apply::Happening;
use crate::status::Progress;

/// All metrics of an agent.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    steps: Family<ByKindAndResult, Counter>,
    step_time: Family<ByKind, Histogram>,
    attempts: Family<ByResult, Counter>,
    ready: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKindAndResult {
    kind: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

/// From a millisecond to four minutes: writing a file, and making a hundred VFs.
fn step_buckets() -> Histogram {
    Histogram::new(exponential_buckets(1e-3, 4.0, 10))
}

impl Metrics {
    /// Returns metrics in which nothing was counted yet. VFs are counted in the latest of the `snapshots`.
    pub fn new(snapshots: watch::Receiver<Arc<NodeSnapshot>>) -> Self {
        let (steps, attempts, ready) = (Family::default(), Family::default(), Gauge::default());
        let step_time: Family<ByKind, Histogram> = Family::new_with_constructor(step_buckets);
        let mut all = Registry::with_prefix("vfleet_agent");
        all.register("steps", "Steps executed on the machine, by kind", Family::clone(&steps));
        let text = "How long a step took, by kind";
        all.register_with_unit("step", text, Unit::Seconds, Family::clone(&step_time));
        all.register_collector(Box::new(VfCollector(snapshots)));
        let text = "Looks at the machine that led to something to report";
        all.register("attempts", text, Family::clone(&attempts));
        all.register("ready", "1 when the cards are as wanted", ready.clone());
        Self { registry: all, steps, step_time, attempts, ready }
    }

    /// Counts something that happened while steps are executed.
    pub(crate) fn take(&self, happening: &Happening<'_>) {
        if let Happening::Ended { planned, took, error } = happening {
            let kind = planned.step.kind();
            let result = match error {
                None => "success",
                // It ends later, or was not even begun.
                Some(HostError::StillRunning { .. }) => "unfinished",
                Some(_) => "error",
            };
            self.steps.get_or_create(&ByKindAndResult { kind, result }).inc();
            self.step_time.get_or_create(&ByKind { kind }).observe(took.as_secs_f64());
        }
    }

    /// Counts what an attempt reports.
    pub(crate) fn note(&self, progress: &Progress<'_>) {
        if let Progress::Done(failures) = progress {
            let result = if failures.is_empty() { "success" } else { "error" };
            self.attempts.get_or_create(&ByResult { result }).inc();
        }
        self.ready.set(i64::from(matches!(progress, Progress::Done([]))));
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Serves `/metrics` and `/healthz` at `listener` until `stop`.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, stop: CancellationToken) {
    let router = metrics_route(move || metrics.text()).route("/healthz", get(async || "ok"));
    Server::new("metrics", router, Limits::FEW_CLIENTS).serve(listener, stop.cancelled_owned()).await;
}
