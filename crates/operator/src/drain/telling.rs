//! What is said about a node's drain: the condition `Blocked` of its node state, and Events.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{PollNext, select_with_strategy};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::EventType;
use kube::{Api, Resource};
use serde_json::json;
use tokio::sync::mpsc;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::conditions::{BLOCKED, Verdict, updated};
use vfleet_api::meta::Condition;
use vfleet_cluster::queue::Failure;
use vfleet_cluster::watch;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::drain::{Blocked, Moment, NodeAction, StateFacts};

use super::evictions::Obstacle;
use super::index::{Decided, Todo};
use super::mcp::AtWork;
use crate::replica::context::Context;
use crate::replica::metrics::Metrics;

/// Few: drains come first. Warnings do not wait for the others.
const EVENTS_AT_ONCE: usize = 8;

/// What blocks the drain; `Err` when that cannot be told now.
pub(super) fn obstacle(
    decided: &Decided<'_>,
    at_work: impl FnOnce() -> AtWork,
) -> Result<Option<Obstacle>, ()> {
    match &decided.todo {
        Todo::Act(NodeAction::Evict { is_late }) => {
            let found = decided.sighting.and_then(|sighting| sighting.obstacle.clone());
            Ok(if *is_late { Some(timed_out(decided, found)) } else { found })
        }
        Todo::Act(NodeAction::Wait(blocked)) => Ok(Some(waits(*blocked, decided, at_work))),
        Todo::Act(NodeAction::Verify) | Todo::Conclude(_) | Todo::Migrate(_) => Err(()),
        Todo::Act(_) => Ok(None),
    }
}

fn timed_out(decided: &Decided<'_>, found: Option<Obstacle>) -> Obstacle {
    let seconds = decided.rules.timeout_seconds.unwrap_or_default();
    let why =
        found.map_or_else(|| "; its pods take their time".to_owned(), |found| format!(": {}", found.message));
    let message =
        format!("the drain takes longer than {seconds} s (drainConfig.timeoutSeconds of the pool){why}");
    Obstacle { reason: "TimedOut", message }
}

fn waits(blocked: Blocked, decided: &Decided<'_>, at_work: impl FnOnce() -> AtWork) -> Obstacle {
    let seconds = decided.rules.timeout_seconds.unwrap_or_default();
    let pool = decided.pool.unwrap_or_default();
    let (reason, message) = match blocked {
        Blocked::TimedOut => ("TimedOut", format!("the drain takes longer than {seconds} s")),
        Blocked::McpUpdates => mcp_waits(at_work()),
        Blocked::AgentSilent => ("AgentSilent", silence(decided)),
        Blocked::NoPool => (
            "NoPool",
            "the node belongs to no pool, so that it is not drained; have a SriovNetworkPoolConfig select it, or let \
             the one named default select all nodes again"
                .to_owned(),
        ),
        Blocked::AnotherDrains => (
            "AnotherDrains",
            "the operator of another installation drains this node right now; only one of them should look after it"
                .to_owned(),
        ),
        Blocked::NeverDrained => (
            "NeverDrained",
            format!("pool {pool} lets no node be drained (maxUnavailable: 0); raise it to let the change through"),
        ),
    };
    Obstacle { reason, message }
}

fn mcp_waits(at_work: AtWork) -> (&'static str, String) {
    match at_work {
        AtWork::Updates(pool) => (
            "MachineConfigPoolUpdates",
            format!(
                "MachineConfigPool {pool} brings a new configuration to its nodes; the drain begins when that is done"
            ),
        ),
        AtWork::Refused(why) => (
            "MachineConfigPoolUnknown",
            format!(
                "the operator cannot see the MachineConfigPools, which may drain the node, too; the drain begins when it \
                 can. If it may not read them, apply deploy/rbac.yaml again: {why}"
            ),
        ),
        AtWork::Unknown(config) => (
            "MachineConfigPoolUnknown",
            format!(
                "the node shall have machine config {config}, of which it is not known to which MachineConfigPool it \
                 belongs; the drain begins when it is"
            ),
        ),
    }
}

/// What is to be written for the drain is refused again and again.
pub(super) fn not_written(failure: &Failure) -> Obstacle {
    let message = format!(
        "what is to be written for the drain was refused {} times in a row; put that right, it is tried again: {}",
        failure.times, failure.text
    );
    Obstacle { reason: "WriteRefused", message }
}

fn silence(decided: &Decided<'_>) -> String {
    let state = decided.state;
    let since = state.and_then(|state| state.facts.completed_at).map(Moment::text).unwrap_or_default();
    let error = state.and_then(|state| state.last_error.as_deref());
    let error = error.map_or_else(String::new, |error| format!("; its last error: {error}"));
    format!(
        "the node is drained since {since}, and its agent has not said that it is done; look at the agent's log and at \
         the node. It stays cordoned and keeps its slot until then{error}"
    )
}

/// Whether the condition says something else.
pub(super) fn is_news(said: Option<&Condition>, obstacle: Option<&Obstacle>) -> bool {
    match (said.filter(|said| said.status == "True"), obstacle) {
        (None, None) => false,
        (Some(said), Some(obstacle)) => said.reason != obstacle.reason || said.message != obstacle.message,
        _ => true,
    }
}

/// Writes the condition.
pub(super) async fn write_condition(
    context: Context,
    node: String,
    said: Option<Condition>,
    obstacle: Option<Obstacle>,
) -> Result<(), WriteError> {
    let verdict = Verdict {
        type_: BLOCKED,
        holds: obstacle.is_some(),
        reason: obstacle.as_ref().map_or("NotBlocked", |obstacle| obstacle.reason),
        message: obstacle.map(|obstacle| obstacle.message).unwrap_or_default(),
    };
    let old: Vec<_> = said.into_iter().collect();
    let object = json!({
        "apiVersion": SriovNetworkNodeState::api_version(&()),
        "kind": SriovNetworkNodeState::kind(&()),
        "metadata": { "name": node },
        "status": { "conditions": updated(&old, &[verdict], None, Timestamp::now()) },
    });
    let api: Api<SriovNetworkNodeState> = Api::namespaced(context.client.clone(), &context.config.namespace);
    match Writer::new(context.leadership.clone()).apply_status(&api, &node, &object).await {
        Err(error) if error.is_not_found() => Ok(()),
        result => result.map(drop),
    }
}

/// Something worth an Event on a node state.
pub(super) struct News {
    pub(super) about: ObjectReference,
    pub(super) type_: EventType,
    pub(super) reason: &'static str,
    pub(super) note: String,
}

/// Has Events written, so that no node waits for them.
#[derive(Clone)]
pub(super) struct Herald {
    warnings: mpsc::UnboundedSender<News>,
    others: mpsc::UnboundedSender<News>,
}

impl Herald {
    /// Begins to write them. It may be cut off at any time.
    pub(super) fn new(context: &Context) -> Self {
        let (warnings, told_warnings) = watch::channel::<News>();
        let (others, told_others) = watch::channel();
        let announcer = context.announcer.clone();
        let both = select_with_strategy(told_warnings, told_others, |(): &mut ()| PollNext::Left);
        tokio::spawn(both.for_each_concurrent(EVENTS_AT_ONCE, move |news| {
            let announcer = announcer.clone();
            async move { announcer.announce(&news.about, news.type_, "Drain", news.reason, &news.note).await }
        }));
        Self { warnings, others }
    }

    /// Has this written, some time soon.
    pub(super) fn tell(&self, news: News) {
        let way = if news.type_ == EventType::Warning { &self.warnings } else { &self.others };
        // When nobody listens any more, the whole process is about to stop.
        let _ = way.send(news);
    }
}

/// How long the pods took to go.
pub(super) fn seconds_drained(state: &StateFacts, now: Moment) -> Option<f64> {
    let micros = now.0.saturating_sub(state.draining_since?.0);
    Some(std::time::Duration::from_micros(u64::try_from(micros).ok()?).as_secs_f64())
}

/// Keeps the metric about blocked nodes.
pub(super) struct BlockedCount {
    metrics: Arc<Metrics>,
    counted: HashMap<String, &'static str>,
}

impl BlockedCount {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, counted: HashMap::new() }
    }

    pub(super) fn count(&mut self, node: &str, obstacle: Option<&Obstacle>) {
        let new = obstacle.map(|obstacle| obstacle.reason);
        let old = match new {
            Some(reason) => self.counted.insert(node.to_owned(), reason),
            None => self.counted.remove(node),
        };
        if old != new {
            for (reason, by) in [(old, -1), (new, 1)] {
                if let Some(reason) = reason {
                    self.metrics.count_blocked(reason, by);
                }
            }
        }
    }

    /// A replica that does not lead counts nothing.
    pub(super) fn forget_all(&mut self) {
        for (_, reason) in self.counted.drain() {
            self.metrics.count_blocked(reason, -1);
        }
    }
}
