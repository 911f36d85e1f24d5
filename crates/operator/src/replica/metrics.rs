//! What can be measured from outside, in Prometheus' text form.

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
    reconciles: Family<ByResult, Counter>,
    errors: Family<ByReason, Counter>,
    queue_depth: Family<ByController, Gauge>,
    plan_duration: Histogram,
    nodes: Family<BySyncStatus, Gauge>,
    draining: Family<ByDrainStatus, Gauge>,
    pool_nodes: Family<ByPool, Gauge>,
    leader: Gauge,
    drain_duration: Histogram,
    blocked: Family<ByBlockedReason, Gauge>,
    evictions: Family<ByAnswer, Counter>,
    admission_requests: Family<ByVerdict, Counter>,
    admission_duration: Histogram,
    certificate_expires: Family<Nothing, Gauge>,
}

/// Kinds that admission is asked about. Whoever asks about others must not fill the memory with them.
const ASKED_ABOUT: [&str; 8] = [
    "SriovNetworkNodePolicy",
    "SriovNetworkPoolConfig",
    "SriovOperatorConfig",
    "SriovNetwork",
    "SriovIBNetwork",
    "OVSNetwork",
    "BridgeNetwork",
    "Pod",
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByVerdict {
    webhook: &'static str,
    kind: &'static str,
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByBlockedReason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByAnswer {
    result: &'static str,
}

/// There is only one, or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Nothing {}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByController {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    controller: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BySyncStatus {
    sync_status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDrainStatus {
    drain_status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPool {
    pool: String,
    state: &'static str,
}

/// The nodes of a pool by state, each state with its count.
fn by_state(nodes: &PoolNodes) -> [(&'static str, Option<i64>); 5] {
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
        // From 4 microseconds to a quarter of a second: planning one node is pure computing.
        let plan_duration = Histogram::new(exponential_buckets(4e-6, 4.0, 9));
        let nodes = Family::default();
        let draining = Family::default();
        let pool_nodes = Family::default();
        let leader = Gauge::default();
        // From a tenth of a second to an hour and a half.
        let drain_duration = Histogram::new(exponential_buckets(0.1, 3.0, 11));
        let blocked = Family::default();
        let evictions = Family::default();
        let mut all = Registry::with_prefix("vfleet");
        all.register("reconciles", "Objects worked on", Family::clone(&reconciles));
        all.register("errors", "Work that failed, by reason", Family::clone(&errors));
        all.register("queue_depth", "Objects that wait or are worked on", Family::clone(&queue_depth));
        let text = "Working out what one node shall be like";
        all.register_with_unit("plan_duration", text, Unit::Seconds, plan_duration.clone());
        all.register("nodes", "Nodes with a node state, by sync status", Family::clone(&nodes));
        all.register("nodes_draining", "Nodes with a node state, by drain status", Family::clone(&draining));
        let text = "Nodes of a pool, by state; blocked ones are waiting or draining, too";
        all.register("pool_nodes", text, Family::clone(&pool_nodes));
        all.register("leader", "1 on the replica that leads", leader.clone());
        let text = "From a drain's beginning until its pods were gone";
        all.register_with_unit("drain_duration", text, Unit::Seconds, drain_duration.clone());
        all.register("drains_blocked", "Nodes whose drain is blocked, by reason", Family::clone(&blocked));
        all.register("evictions", "Evictions of pods, by what came of them", Family::clone(&evictions));
        let admission_requests = Family::default();
        let text = "Questions of the API server about objects, by what it was answered";
        all.register("admission_requests", text, Family::clone(&admission_requests));
        // Five milliseconds is what an answer may take.
        let admission_duration =
            Histogram::new([5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 1e-1, 1.0]);
        let text = "Judging an object, without the network";
        all.register_with_unit("admission_duration", text, Unit::Seconds, admission_duration.clone());
        let certificate_expires = Family::default();
        let text = "When the certificate of the webhooks ends that this replica serves";
        let name = "webhook_certificate_expires_timestamp";
        all.register_with_unit(name, text, Unit::Seconds, Family::clone(&certificate_expires));
        Self {
            registry: all,
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

    /// Something was worked on; `error` is the reason why it failed.
    pub(crate) fn planned(&self, took: Duration) {
        self.plan_duration.observe(took.as_secs_f64());
    }

    /// One node more (or less, with -1) has this sync status and drain status.
    pub(crate) fn count_node(&self, sync_status: &'static str, drain_status: &'static str, by: i64) {
        self.nodes.get_or_create(&BySyncStatus { sync_status }).inc_by(by);
        self.draining.get_or_create(&ByDrainStatus { drain_status }).inc_by(by);
    }

    /// A node's pods were gone after so many seconds.
    pub(crate) fn drained(&self, seconds: f64) {
        self.drain_duration.observe(seconds);
    }

    /// One node more (or less, with -1) is blocked for this reason.
    pub(crate) fn count_blocked(&self, reason: &'static str, by: i64) {
        self.blocked.get_or_create(&ByBlockedReason { reason }).inc_by(by);
    }

    /// The pool has so many nodes.
    pub(crate) fn pool_nodes(&self, pool: &str, nodes: &PoolNodes) {
        for (state, count) in by_state(nodes) {
            let labels = ByPool { pool: pool.to_owned(), state };
            self.pool_nodes.get_or_create(&labels).set(count.unwrap_or(0));
        }
    }

    /// The pool is gone.
    pub(crate) fn forget_pool(&self, pool: &str) {
        for (state, _) in by_state(&PoolNodes::default()) {
            self.pool_nodes.remove(&ByPool { pool: pool.to_owned(), state });
        }
    }

    /// Nobody counts pools any more.
    pub(crate) fn forget_pools(&self) {
        self.pool_nodes.clear();
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// An eviction was answered: `evicted`, `refused` (by a budget) or `failed`.
    pub(crate) fn evicted(&self, result: &'static str) {
        self.evictions.get_or_create(&ByAnswer { result }).inc();
    }

    /// The API server asked, and was answered so.
    pub(crate) fn asked(&self, webhook: &'static str, kind: &str, verdict: &'static str) {
        let kind = ASKED_ABOUT.into_iter().find(|known| *known == kind).unwrap_or("other");
        self.admission_requests.get_or_create(&ByVerdict { webhook, kind, verdict }).inc();
    }

    /// An answer took so long.
    pub(crate) fn admission_took(&self, took: Duration) {
        self.admission_duration.observe(took.as_secs_f64());
    }

    /// The certificate of the webhooks ends then. There is no such line while none is served.
    pub(crate) fn certificate_expires(&self, time: Option<Timestamp>) {
        match time {
            Some(time) => drop(self.certificate_expires.get_or_create(&Nothing {}).set(time.as_second())),
            None => self.certificate_expires.clear(),
        }
    }

    /// All of them, in Prometheus' text form.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl QueueMetrics for Metrics {
    fn worked(&self, controller: &'static str, error: Option<&'static str>) {
        let result = if error.is_some() { "error" } else { "success" };
        self.reconciles.get_or_create(&ByResult { controller, result }).inc();
        if let Some(reason) = error {
            self.errors.get_or_create(&ByReason { controller, reason }).inc();
        }
    }

    fn queue_depth(&self, controller: &'static str, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.queue_depth.get_or_create(&ByController { controller }).set(depth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_shown_while_one_is_served() {
        const NAME: &str = "\nvfleet_webhook_certificate_expires_timestamp_seconds";
        let metrics = Metrics::new();
        let shown = |line: &str| metrics.text().unwrap().contains(line);
        assert!(!shown(NAME), "{}", metrics.text().unwrap());
        metrics.certificate_expires(Timestamp::from_second(1_234).ok());
        assert!(shown(&format!("{NAME}{{}} 1234\n")), "{}", metrics.text().unwrap());
        metrics.certificate_expires(None);
        assert!(!shown(NAME));
    }

    #[test]
    fn the_nodes_of_a_pool_are_shown_until_it_is_gone() {
        let metrics = Metrics::new();
        let nodes = PoolNodes {
            total: Some(3),
            waiting: Some(1),
            draining: Some(2),
            done: Some(0),
            blocked: Some(1),
        };
        metrics.pool_nodes("a", &nodes);
        metrics.pool_nodes("b", &PoolNodes::default());
        let shown = |line: &str| metrics.text().unwrap().contains(line);
        assert!(shown("vfleet_pool_nodes{pool=\"a\",state=\"draining\"} 2"), "{}", metrics.text().unwrap());
        assert!(shown("vfleet_pool_nodes{pool=\"a\",state=\"blocked\"} 1"));
        metrics.forget_pool("a");
        assert!(!shown("pool=\"a\"") && shown("vfleet_pool_nodes{pool=\"b\",state=\"total\"} 0"));
        metrics.forget_pools();
        assert!(!shown("pool=\"b\""));
    }
}
