//! Metrics of the operator in the Prometheus text format.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use vfleet_api::pool_config::PoolNodes;
use vfleet_cluster::queue::QueueMetrics;

/// All metrics of the operator.
pub(crate) struct Metrics {
    registry: Registry,
    reconciles: Family<ResultLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    queue_depth: Family<ControllerLabels, Gauge>,
    plan_duration: Histogram,
    nodes: Family<SyncStatusLabels, Gauge>,
    draining: Family<DrainStatusLabels, Gauge>,
    pool_nodes: Family<PoolLabels, Gauge>,
    leader: Gauge,
    drain_duration: Histogram,
    blocked: Family<BlockedLabels, Gauge>,
    evictions: Family<EvictionLabels, Counter>,
    admission_requests: Family<AdmissionLabels, Counter>,
    admission_duration: Histogram,
    certificate_expires: Family<NoLabels, Gauge>,
}

/// Kinds that admission reviews. All other kinds are counted as `other`, so that a client cannot create any number of
/// time series.
const REVIEWED_KINDS: [&str; 8] = [
    "SriovNetworkNodePolicy",
    "SriovNetworkPoolConfig",
    "SriovOperatorConfig",
    "SriovNetwork",
    "SriovIBNetwork",
    "OVSNetwork",
    "BridgeNetwork",
    "Pod",
];

/// Labels of admission requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AdmissionLabels {
    webhook: &'static str,
    kind: &'static str,
    verdict: &'static str,
}

/// Labels of blocked drains.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BlockedLabels {
    reason: &'static str,
}

/// Labels of evictions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvictionLabels {
    result: &'static str,
}

/// No labels: a family with at most one time series.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoLabels {}

/// Labels of work queues.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

/// Labels of reconciliations.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: &'static str,
    result: &'static str,
}

/// Labels of errors.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    controller: &'static str,
    reason: &'static str,
}

/// Labels of nodes by sync status.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SyncStatusLabels {
    sync_status: &'static str,
}

/// Labels of nodes by drain status.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DrainStatusLabels {
    drain_status: &'static str,
}

/// Labels of the nodes of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    pool: String,
    state: &'static str,
}

/// Returns the number of nodes of a pool for each value of the label `state`.
fn count_by_state(nodes: &PoolNodes) -> [(&'static str, Option<i64>); 5] {
    [
        ("total", nodes.total),
        ("waiting", nodes.waiting),
        ("draining", nodes.draining),
        ("done", nodes.done),
        ("blocked", nodes.blocked),
    ]
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let reconciles = Family::default();
        let errors = Family::default();
        let queue_depth = Family::default();
        // From 4 microseconds to a quarter of a second: planning one node needs no I/O.
        let plan_duration = Histogram::new(exponential_buckets(4e-6, 4.0, 9));
        let nodes = Family::default();
        let draining = Family::default();
        let pool_nodes = Family::default();
        let leader = Gauge::default();
        // From a tenth of a second to an hour and a half.
        let drain_duration = Histogram::new(exponential_buckets(0.1, 3.0, 11));
        let blocked = Family::default();
        let evictions = Family::default();
        let mut registry = Registry::with_prefix("vfleet");
        registry.register(
            "reconciles",
            "Reconciliations, by controller and result",
            Family::clone(&reconciles),
        );
        registry.register(
            "errors",
            "Failed reconciliations, by controller and reason",
            Family::clone(&errors),
        );
        registry.register(
            "queue_depth",
            "Objects that are queued or being reconciled, by controller",
            Family::clone(&queue_depth),
        );
        let text = "Duration of planning one node";
        registry.register_with_unit("plan_duration", text, Unit::Seconds, plan_duration.clone());
        registry.register("nodes", "Nodes with a node state, by sync status", Family::clone(&nodes));
        registry.register(
            "nodes_draining",
            "Nodes with a node state, by drain status",
            Family::clone(&draining),
        );
        let text = "Nodes of a pool, by state; blocked nodes are also counted as waiting or draining";
        registry.register("pool_nodes", text, Family::clone(&pool_nodes));
        registry.register("leader", "1 on the replica that leads, 0 on others", leader.clone());
        let text = "Duration of drains, until the last pod was gone";
        registry.register_with_unit("drain_duration", text, Unit::Seconds, drain_duration.clone());
        registry.register(
            "drains_blocked",
            "Nodes whose drain is blocked, by reason",
            Family::clone(&blocked),
        );
        registry.register("evictions", "Evictions of pods, by result", Family::clone(&evictions));
        let admission_requests = Family::default();
        let text = "Admission requests, by webhook, kind and verdict";
        registry.register("admission_requests", text, Family::clone(&admission_requests));
        // The budget for an answer is 5 milliseconds.
        let admission_duration =
            Histogram::new([5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 1e-1, 1.0]);
        let text = "Duration of admission reviews, without network";
        registry.register_with_unit("admission_duration", text, Unit::Seconds, admission_duration.clone());
        let certificate_expires = Family::default();
        let text = "Expiry of the webhook certificate that this replica serves";
        let name = "webhook_certificate_expires_timestamp";
        registry.register_with_unit(name, text, Unit::Seconds, Family::clone(&certificate_expires));
        Self {
            registry,
            reconciles,
            errors,
            queue_depth,
            plan_duration,
            nodes,
            draining,
            pool_nodes,
            leader,
            drain_duration,
            blocked,
            evictions,
            admission_requests,
            admission_duration,
            certificate_expires,
        }
    }

    /// Observes the duration of planning one node.
    pub(crate) fn observe_plan(&self, elapsed: Duration) {
        self.plan_duration.observe(elapsed.as_secs_f64());
    }

    /// Adds `by` (1 or -1) to the number of nodes with this sync status and drain status.
    pub(crate) fn count_node(&self, sync_status: &'static str, drain_status: &'static str, by: i64) {
        self.nodes.get_or_create(&SyncStatusLabels { sync_status }).inc_by(by);
        self.draining.get_or_create(&DrainStatusLabels { drain_status }).inc_by(by);
    }

    /// Observes the duration of a drain.
    pub(crate) fn observe_drain(&self, seconds: f64) {
        self.drain_duration.observe(seconds);
    }

    /// Adds `by` (1 or -1) to the number of nodes whose drain is blocked for this reason.
    pub(crate) fn count_blocked(&self, reason: &'static str, by: i64) {
        self.blocked.get_or_create(&BlockedLabels { reason }).inc_by(by);
    }

    /// Sets the numbers of nodes of a pool.
    pub(crate) fn set_pool_nodes(&self, pool: &str, nodes: &PoolNodes) {
        for (state, count) in count_by_state(nodes) {
            let labels = PoolLabels { pool: pool.to_owned(), state };
            self.pool_nodes.get_or_create(&labels).set(count.unwrap_or(0));
        }
    }

    /// Removes the time series of a deleted pool.
    pub(crate) fn remove_pool(&self, pool: &str) {
        for (state, _) in count_by_state(&PoolNodes::default()) {
            self.pool_nodes.remove(&PoolLabels { pool: pool.to_owned(), state });
        }
    }

    /// Removes the time series of all pools.
    pub(crate) fn clear_pools(&self) {
        self.pool_nodes.clear();
    }

    pub(crate) fn set_leader(&self, is_leader: bool) {
        self.leader.set(i64::from(is_leader));
    }

    /// Counts an eviction with its result: `evicted`, `refused` (by a disruption budget) or `failed`.
    pub(crate) fn count_eviction(&self, result: &'static str) {
        self.evictions.get_or_create(&EvictionLabels { result }).inc();
    }

    /// Counts an admission request with its verdict.
    pub(crate) fn count_admission_request(&self, webhook: &'static str, kind: &str, verdict: &'static str) {
        let kind = REVIEWED_KINDS.into_iter().find(|reviewed| *reviewed == kind).unwrap_or("other");
        self.admission_requests.get_or_create(&AdmissionLabels { webhook, kind, verdict }).inc();
    }

    /// Observes the duration of an admission review.
    pub(crate) fn observe_admission(&self, elapsed: Duration) {
        self.admission_duration.observe(elapsed.as_secs_f64());
    }

    /// Sets the expiry of the webhook certificate. With `None` (no certificate is served) the metric is removed.
    pub(crate) fn set_certificate_expiry(&self, time: Option<Timestamp>) {
        match time {
            Some(time) => drop(self.certificate_expires.get_or_create(&NoLabels {}).set(time.as_second())),
            None => self.certificate_expires.clear(),
        }
    }

    /// Returns all metrics in the Prometheus text format.
    pub(crate) fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl QueueMetrics for Metrics {
    fn count_result(&self, controller: &'static str, error: Option<&'static str>) {
        let result = if error.is_some() { "error" } else { "success" };
        self.reconciles.get_or_create(&ResultLabels { controller, result }).inc();
        if let Some(reason) = error {
            self.errors.get_or_create(&ErrorLabels { controller, reason }).inc();
        }
    }

    fn set_queue_depth(&self, controller: &'static str, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.queue_depth.get_or_create(&ControllerLabels { controller }).set(depth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expiry_of_a_certificate_is_shown_while_one_is_served() {
        const NAME: &str = "\nvfleet_webhook_certificate_expires_timestamp_seconds";
        let metrics = Metrics::new();
        let is_shown = |line: &str| metrics.encode().unwrap().contains(line);
        assert!(!is_shown(NAME), "{}", metrics.encode().unwrap());
        metrics.set_certificate_expiry(Timestamp::from_second(1_234).ok());
        assert!(is_shown(&format!("{NAME}{{}} 1234\n")), "{}", metrics.encode().unwrap());
        metrics.set_certificate_expiry(None);
        assert!(!is_shown(NAME));
    }

    #[test]
    fn the_nodes_of_a_pool_are_shown_until_the_pool_is_deleted() {
        let metrics = Metrics::new();
        let nodes = PoolNodes {
            total: Some(3),
            waiting: Some(1),
            draining: Some(2),
            done: Some(0),
            blocked: Some(1),
        };
        metrics.set_pool_nodes("a", &nodes);
        metrics.set_pool_nodes("b", &PoolNodes::default());
        let is_shown = |line: &str| metrics.encode().unwrap().contains(line);
        assert!(
            is_shown("vfleet_pool_nodes{pool=\"a\",state=\"draining\"} 2"),
            "{}",
            metrics.encode().unwrap()
        );
        assert!(is_shown("vfleet_pool_nodes{pool=\"a\",state=\"blocked\"} 1"));
        metrics.remove_pool("a");
        assert!(!is_shown("pool=\"a\"") && is_shown("vfleet_pool_nodes{pool=\"b\",state=\"total\"} 0"));
        metrics.clear_pools();
        assert!(!is_shown("pool=\"b\""));
    }
}
