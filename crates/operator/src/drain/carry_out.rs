//! What was decided for a node or a pool is done.

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::events::EventType;
use tokio::sync::mpsc;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_cluster::write::WriteError;
use vfleet_plan::drain::{Mark, Moment, NodeAction, Slot};

use super::evictions::{Evictions, Lost, Restarted};
use super::index::{Decided, Todo};
use super::mcp::MachineConfigPools;
use super::migration::Place;
use super::objects::{SeenNode, SeenState, Version};
use super::telling::{Herald, News, seconds_drained};
use super::writes::{DrainWriter, Fresh, NewStatus};
use crate::replica::context::Context;

type Work = BoxFuture<'static, Result<(), WriteError>>;

/// Does what was decided.
#[derive(Clone)]
pub(super) struct Hands {
    context: Context,
    writer: DrainWriter,
    herald: Herald,
    pub(super) mcps: MachineConfigPools,
}

impl Hands {
    pub(super) fn new(
        context: &Context,
        seen: mpsc::UnboundedSender<(String, Fresh)>,
        mcps: MachineConfigPools,
    ) -> Self {
        Self {
            context: context.clone(),
            writer: DrainWriter::new(context, seen),
            herald: Herald::new(context),
            mcps,
        }
    }

    /// Writes the pool's slots.
    pub(super) fn give_slots(&self, pool: String, version: Version, slots: Vec<Slot>) -> Work {
        let writer = self.writer.clone();
        Box::pin(async move { writer.set_slots(&pool, &version, &slots).await.map(drop) })
    }

    /// Does what was decided for the node; `None` when that is nothing.
    pub(super) fn carry_out(
        &self,
        node: &str,
        decided: &Decided<'_>,
        evictions: &Evictions,
        now: Moment,
    ) -> Option<Work> {
        let (name, writer) = (node.to_owned(), self.writer.clone());
        match &decided.todo {
            Todo::Conclude(request) => {
                let request = *request;
                let version = decided.node?.version.clone();
                Some(Box::pin(async move { writer.conclude(&name, &version, request).await.map(drop) }))
            }
            Todo::Migrate(migration) => {
                let (node, state) = (decided.node?.version.clone(), decided.state?.version.clone());
                let migration = migration.clone();
                Some(Box::pin(async move {
                    let at = Place { name: &name, node: &node, state: &state };
                    writer.migrate(at, &migration).await
                }))
            }
            Todo::Act(action) => match *action {
                NodeAction::Verify => Some(Box::pin(async move { writer.verify(&name).await })),
                NodeAction::Set { status, request, retry, puts_right } => {
                    let new = NewStatus { status, request, retry };
                    Some(self.set(name, decided.state?.clone(), new, puts_right, now))
                }
                NodeAction::Cordon(mark) => Some(self.cordon(name, decided.node?, mark)),
                NodeAction::Uncordon { request, stays_cordoned } => {
                    let version = decided.node?.version.clone();
                    Some(self.uncordon(name, version, decided, evictions, request, stays_cordoned))
                }
                NodeAction::PauseMcp => {
                    let (mcps, pool) = (self.mcps.clone(), self.mcps.pool_of(node)?);
                    Some(Box::pin(async move { mcps.pause(&pool).await }))
                }
                NodeAction::UnpauseMcp => {
                    let (mcps, pool) = (self.mcps.clone(), self.mcps.pool_of(node)?);
                    Some(Box::pin(async move { mcps.unpause(&pool).await }))
                }
                NodeAction::Rest | NodeAction::Wait(_) | NodeAction::Evict { .. } => None,
            },
        }
    }

    fn set(&self, node: String, state: SeenState, new: NewStatus, puts_right: bool, now: Moment) -> Work {
        let hands = self.clone();
        Box::pin(async move {
            if !hands.writer.set_status(&node, &state.version, new, now).await? {
                return Ok(());
            }
            tracing::info!(
                node,
                from = state.facts.status.as_str(),
                to = new.status.as_str(),
                "drain goes on"
            );
            if new.status == DrainStatus::DrainingComplete
                && let Some(seconds) = seconds_drained(&state.facts, now)
            {
                hands.context.metrics.drained(seconds);
            }
            if let Some((type_, reason, note)) = news(&state, new, puts_right) {
                hands.tell(&node, &state.uid, type_, reason, note);
            }
            Ok(())
        })
    }

    fn cordon(&self, node: String, seen: &SeenNode, mark: Mark) -> Work {
        let (writer, version) = (self.writer.clone(), seen.version.clone());
        Box::pin(async move { writer.cordon(&node, &version, mark).await.map(drop) })
    }

    /// Pods of DaemonSets that may have lost their VFs are started again first.
    fn uncordon(
        &self,
        node: String,
        version: Version,
        decided: &Decided<'_>,
        evictions: &Evictions,
        request: Moment,
        stays_cordoned: bool,
    ) -> Work {
        let hands = self.clone();
        let state = decided.state.cloned();
        let was_drained = |state: &&SeenState| state.facts.completed_at.is_some();
        let restart = state.as_ref().filter(was_drained).map(|state| {
            let lost = Lost { kept: state.kept_resources.clone(), until: state.status_written_at };
            evictions.restart_daemon_pods(&node, lost)
        });
        Box::pin(async move {
            let restarted = match restart {
                Some(restart) => restart.await?,
                None => Restarted::default(),
            };
            if !hands.writer.uncordon(&node, &version, request, stays_cordoned).await? {
                return Ok(());
            }
            tracing::info!(node, stays_cordoned, ?restarted, "the drain is over");
            if let Some(state) = state {
                hands.tell_end(&node, &state.uid, stays_cordoned, &restarted);
            }
            Ok(())
        })
    }

    fn tell_end(&self, node: &str, uid: &str, stays_cordoned: bool, restarted: &Restarted) {
        if !restarted.failed.is_empty() {
            let text = format!(
                "their VFs may have changed, but these pods of DaemonSets could not be started again; delete them by hand: {}",
                restarted.failed.join(", ")
            );
            self.tell(node, uid, EventType::Warning, "DaemonPodsNotRestarted", text);
        }
        if !restarted.pods.is_empty() {
            let text = format!(
                "their VFs may have changed, so these pods of DaemonSets were started again: {}",
                restarted.pods.join(", ")
            );
            self.tell(node, uid, EventType::Normal, "DaemonPodsRestarted", text);
        }
        let text = if stays_cordoned {
            "the drain is over; the node stays cordoned, as it was before"
        } else {
            "the drain is over; the node is uncordoned"
        };
        self.tell(node, uid, EventType::Normal, "Uncordoned", text.to_owned());
    }

    /// Writes an Event about the node state, some time soon.
    pub(super) fn tell(&self, node: &str, uid: &str, type_: EventType, reason: &'static str, text: String) {
        let about = ObjectReference {
            api_version: Some(SriovNetworkNodeState::api_version(&()).into_owned()),
            kind: Some(SriovNetworkNodeState::kind(&()).into_owned()),
            namespace: Some(self.context.config.namespace.clone()),
            name: Some(node.to_owned()),
            uid: Some(uid.to_owned()),
            ..Default::default()
        };
        self.herald.tell(News { about, type_, reason, note: text });
    }
}

/// What is worth an Event of a new drain status.
fn news(state: &SeenState, new: NewStatus, puts_right: bool) -> Option<(EventType, &'static str, String)> {
    let (from, to) = (state.facts.status.as_str(), new.status.as_str());
    if puts_right {
        let note = format!(
            "somebody else wrote the drain status {from}, which only the operator may; it is {to} again"
        );
        return Some((EventType::Warning, "DrainStatusPutRight", note));
    }
    let (reason, note) = match new.status {
        DrainStatus::DrainDisabled => (
            "DrainDisabled",
            "the node is not drained: disableDrain is set, or it is the only node".to_owned(),
        ),
        DrainStatus::Draining => {
            let whom = match state.facts.scope {
                DrainScope::Partial => "pods with VFs are evicted",
                DrainScope::Full => "all pods are evicted",
            };
            ("Draining", format!("the drain begins: the node is cordoned now, and {whom}"))
        }
        DrainStatus::DrainingComplete => ("Drained", "the pods are gone; the agent may go on".to_owned()),
        DrainStatus::DrainRequired if new.retry != state.facts.retry => {
            let retry = new.retry?;
            let note = format!(
                "the drain took too long and is given up for now (drainConfig.onTimeout: Release); it is tried again after {}",
                retry.not_before.text()
            );
            return Some((EventType::Warning, "DrainReleased", note));
        }
        _ => return None,
    };
    Some((EventType::Normal, reason, note))
}
