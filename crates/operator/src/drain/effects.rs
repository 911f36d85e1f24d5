//! Execution of drain decisions.

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::events::EventType;
use tokio::sync::mpsc;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_cluster::write::WriteError;
use vfleet_plan::drain::{CordonMark, DrainRules, Moment, NodeAction, Slot, StateFacts};

use super::events::{DrainEvent, EventQueue};
use super::evictions::{Evictions, RestartFilter, RestartOutcome};
use super::index::{NextAction, NodeDecision};
use super::mcp::MachineConfigPools;
use super::migration::MigrationTarget;
use super::objects::{ResourceVersion, StoredNode, StoredNodeState};
use super::writes::{DrainWriter, FreshObject, NewDrainStatus};
use crate::replica::context::Context;

type Task = BoxFuture<'static, Result<(), WriteError>>;

/// Executes drain decisions: writes objects, pauses machine config pools and records Events.
#[derive(Clone)]
pub(super) struct DrainEffects {
    context: Context,
    writer: DrainWriter,
    events: EventQueue,
    pub(super) mcps: MachineConfigPools,
}

impl DrainEffects {
    pub(super) fn new(
        context: &Context,
        fresh: mpsc::UnboundedSender<(String, FreshObject)>,
        mcps: MachineConfigPools,
    ) -> Self {
        Self {
            context: context.clone(),
            writer: DrainWriter::new(context, fresh),
            events: EventQueue::new(context),
            mcps,
        }
    }

    /// Writes the slots of a pool.
    pub(super) fn write_slots(&self, pool: String, version: ResourceVersion, slots: Vec<Slot>) -> Task {
        let writer = self.writer.clone();
        Box::pin(async move { writer.set_slots(&pool, &version, &slots).await.map(drop) })
    }

    /// Returns the task that executes the decision; `None` if there is nothing to do.
    pub(super) fn execute(
        &self,
        node: &str,
        decision: &NodeDecision<'_>,
        evictions: &Evictions,
        now: Moment,
    ) -> Option<Task> {
        let (name, writer) = (node.to_owned(), self.writer.clone());
        match &decision.next {
            NextAction::RecordFinish(request) => {
                let request = *request;
                let version = decision.node?.version.clone();
                Some(Box::pin(async move { writer.record_finish(&name, &version, request).await.map(drop) }))
            }
            NextAction::Migrate(migration) => {
                let (node, state) = (decision.node?.version.clone(), decision.state?.version.clone());
                let migration = migration.clone();
                Some(Box::pin(async move {
                    let target = MigrationTarget { name: &name, node: &node, state: &state };
                    writer.migrate(target, &migration).await
                }))
            }
            NextAction::Act(action) => match *action {
                NodeAction::Verify => Some(Box::pin(async move { writer.verify(&name).await })),
                NodeAction::SetStatus { status, request, retry, is_correction } => {
                    let new = NewDrainStatus { status, request, retry };
                    let evicted = decision.progress.map_or(0, |progress| progress.evicted);
                    let change = StatusChange { new, is_correction, rules: decision.rules, evicted, now };
                    Some(self.set_status(name, decision.state?.clone(), change))
                }
                NodeAction::Cordon(mark) => Some(self.cordon(name, decision.node?, mark)),
                NodeAction::Uncordon { request, stays_cordoned } => {
                    let version = decision.node?.version.clone();
                    Some(self.uncordon(name, version, decision, evictions, request, stays_cordoned))
                }
                NodeAction::PauseMcp => {
                    let (mcps, pool) = (self.mcps.clone(), self.mcps.pool_of(node)?);
                    Some(Box::pin(async move { mcps.pause(&pool).await }))
                }
                NodeAction::UnpauseMcp => {
                    let (mcps, pool) = (self.mcps.clone(), self.mcps.pool_of(node)?);
                    Some(Box::pin(async move { mcps.unpause(&pool).await }))
                }
                NodeAction::None | NodeAction::Hold(_) | NodeAction::Evict { .. } => None,
            },
        }
    }

    fn set_status(&self, node: String, state: StoredNodeState, change: StatusChange) -> Task {
        let effects = self.clone();
        Box::pin(async move {
            let StatusChange { new, now, .. } = change;
            if !effects.writer.set_status(&node, &state.version, new, now).await? {
                return Ok(());
            }
            let (from, to) = (state.facts.status.as_str(), new.status.as_str());
            tracing::debug!(node, from, to, "drain status written");
            if new.status == DrainStatus::DrainingComplete
                && let Some(seconds) = drain_seconds(&state.facts, now)
            {
                effects.context.metrics.observe_drain(seconds);
            }
            if let Some((type_, reason, note)) = change.event(&state) {
                effects.record_event(&node, &state.uid, type_, reason, note);
            }
            Ok(())
        })
    }

    fn cordon(&self, node: String, stored: &StoredNode, mark: CordonMark) -> Task {
        let (writer, version) = (self.writer.clone(), stored.version.clone());
        Box::pin(async move { writer.cordon(&node, &version, mark).await.map(drop) })
    }

    /// Restarts DaemonSet pods that may have lost their VFs, then uncordons the node.
    fn uncordon(
        &self,
        node: String,
        version: ResourceVersion,
        decision: &NodeDecision<'_>,
        evictions: &Evictions,
        request: Moment,
        stays_cordoned: bool,
    ) -> Task {
        let effects = self.clone();
        let state = decision.state.cloned();
        let was_drained = |state: &&StoredNodeState| state.facts.completed_at.is_some();
        let restart = state.as_ref().filter(was_drained).map(|state| {
            let filter = RestartFilter {
                kept_resources: state.kept_resources.clone(),
                created_until: state.status_written_at,
            };
            evictions.restart_daemon_pods(&node, filter)
        });
        Box::pin(async move {
            let restarted = match restart {
                Some(restart) => restart.await?,
                None => RestartOutcome::default(),
            };
            if !effects.writer.uncordon(&node, &version, request, stays_cordoned).await? {
                return Ok(());
            }
            if let Some(state) = state {
                effects.record_finish(&node, &state.uid, stays_cordoned, &restarted);
            }
            Ok(())
        })
    }

    fn record_finish(&self, node: &str, uid: &str, stays_cordoned: bool, restarted: &RestartOutcome) {
        if !restarted.failed.is_empty() {
            let text = format!(
                "cannot restart DaemonSet pods whose VFs may have changed: {}: delete these pods",
                restarted.failed.join(", ")
            );
            self.record_event(node, uid, EventType::Warning, "DaemonPodsNotRestarted", text);
        }
        if !restarted.pods.is_empty() {
            let text =
                format!("restarted DaemonSet pods whose VFs may have changed: {}", restarted.pods.join(", "));
            self.record_event(node, uid, EventType::Normal, "DaemonPodsRestarted", text);
        }
        let (reason, text) = if stays_cordoned {
            (
                "DrainFinished",
                "drain finished, the node stays cordoned because it was cordoned before the drain",
            )
        } else {
            ("Uncordoned", "drain finished, node uncordoned")
        };
        self.record_event(node, uid, EventType::Normal, reason, text.to_owned());
    }

    /// Logs a message about the node and queues an Event about its node state.
    pub(super) fn record_event(
        &self,
        node: &str,
        uid: &str,
        type_: EventType,
        reason: &'static str,
        text: String,
    ) {
        match type_ {
            EventType::Normal => tracing::info!("{node}: {text}"),
            EventType::Warning => tracing::warn!("{node}: {text}"),
        }
        let about = ObjectReference {
            api_version: Some(SriovNetworkNodeState::api_version(&()).into_owned()),
            kind: Some(SriovNetworkNodeState::kind(&()).into_owned()),
            namespace: Some(self.context.config.namespace.clone()),
            name: Some(node.to_owned()),
            uid: Some(uid.to_owned()),
            ..Default::default()
        };
        self.events.push(DrainEvent { about, type_, reason, note: text });
    }
}

/// New drain status with what its Event needs.
#[derive(Clone, Copy)]
struct StatusChange {
    new: NewDrainStatus,
    /// The old status was written by another client without permission.
    is_correction: bool,
    rules: DrainRules,
    /// Number of evicted pods.
    evicted: usize,
    now: Moment,
}

impl StatusChange {
    /// Returns type, reason and note of the Event about the new status.
    fn event(&self, old: &StoredNodeState) -> Option<(EventType, &'static str, String)> {
        let Self { new, rules, evicted, .. } = self;
        let (from, to) = (old.facts.status.as_str(), new.status.as_str());
        if self.is_correction {
            let note = format!("drain status {from} was not written by the operator: reset to {to}");
            return Some((EventType::Warning, "DrainStatusCorrected", note));
        }
        let (reason, note) = match new.status {
            DrainStatus::DrainDisabled if rules.is_disabled => (
                "DrainDisabled",
                "node not drained: disableDrain is set in the SriovOperatorConfig".to_owned(),
            ),
            DrainStatus::DrainDisabled => {
                ("DrainDisabled", "node not drained: it is the only node of the cluster".to_owned())
            }
            DrainStatus::Draining => {
                let pods = match old.facts.scope {
                    DrainScope::Partial => "pods with VFs",
                    DrainScope::Full => "all pods",
                };
                ("Draining", format!("drain started: cordoning the node, evicting {pods}"))
            }
            DrainStatus::DrainingComplete => {
                // A replica that took over the drain knows only the pods that it evicted itself.
                let pods = match *evicted {
                    0 => String::new(),
                    1 => ", 1 pod evicted".to_owned(),
                    several => format!(", {several} pods evicted"),
                };
                let seconds = drain_seconds(&old.facts, self.now).unwrap_or_default();
                ("Drained", format!("drained in {seconds:.1} s{pods}"))
            }
            DrainStatus::DrainRequired if new.retry != old.facts.retry => {
                let note = format!(
                    "drain timed out (drainConfig.onTimeout: Release), uncordoning the node: next try after {}",
                    new.retry?.not_before.text()
                );
                return Some((EventType::Warning, "DrainReleased", note));
            }
            _ => return None,
        };
        Some((EventType::Normal, reason, note))
    }
}

/// Returns the duration of the eviction in seconds.
fn drain_seconds(state: &StateFacts, now: Moment) -> Option<f64> {
    let micros = now.0.saturating_sub(state.draining_since?.0);
    Some(std::time::Duration::from_micros(u64::try_from(micros).ok()?).as_secs_f64())
}
