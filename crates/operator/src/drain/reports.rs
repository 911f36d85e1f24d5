//! Reports of the drain controller: condition `Blocked` and Events about it.

use std::collections::BTreeSet;

use kube::runtime::events::EventType;
use vfleet_api::node_state::DrainStatus;
use vfleet_cluster::pace::READABLE_INTERVAL;
use vfleet_cluster::queue::WorkFailure;
use vfleet_plan::drain::{MigrationStep, Moment, NodeAction};

use super::DrainController;
use super::blocked;
use super::evictions::DrainHold;
use super::index::{NextAction, NodeDecision, now};
use super::migration::unknown_value_text;

/// Failures in a row after which a failure is reported: the first ones may be temporary.
const REPORTED_FAILURES: u32 = 3;

fn is_reported(failure: &WorkFailure) -> bool {
    failure.times >= REPORTED_FAILURES
}

impl DrainController {
    /// Reports once that an annotation of the Go operator has an unknown value.
    pub(super) fn report_unknown_annotation(&mut self, node: &str) {
        let step = self.index.plan_migration(node, self.mcp(node).is_some(), now());
        let (Some(MigrationStep::UnknownValue { key, value }), Some(uid)) =
            (step, self.index.state_uid(node))
        else {
            self.reported_annotations.remove(node);
            return;
        };
        let text = unknown_value_text(key, &value);
        if self.reported_annotations.insert(node.to_owned(), text.clone()).as_ref() != Some(&text) {
            self.effects.record_event(node, uid, EventType::Warning, "UnknownDrainState", text);
        }
    }

    /// Updates the metric of blocked nodes and schedules a report if the condition of the node changes.
    pub(super) fn update_hold(&mut self, node: &str, now: Moment) {
        let decision = self.index.decide(node, self.mcp(node), now);
        let Ok(hold) = self.find_hold(node, &decision) else { return };
        let current = decision.state.map(|state| state.blocked.as_ref());
        let needs_report = current.is_some_and(|current| blocked::needs_report(current, hold.as_ref()));
        self.blocked.set(node, hold.as_ref());
        if needs_report {
            self.pending_reports.add(node.to_owned(), READABLE_INTERVAL);
        }
    }

    /// Returns why the drain does not start or continue; `Err` if that is unknown at the moment.
    fn find_hold(&self, node: &str, decision: &NodeDecision<'_>) -> Result<Option<DrainHold>, ()> {
        let name = node.to_owned();
        let failure = self.nodes.failure(&name).or_else(|| self.finishing.failure(&name));
        let failure = failure.filter(|failure| is_reported(failure)).or_else(|| self.slot_failure(decision));
        if let Some(failure) = failure {
            return Ok(Some(blocked::write_failed(failure)));
        }
        let mcp_hold = || self.effects.mcps.find_hold(node);
        blocked::find_hold(decision, self.index.full_pool_of(node), mcp_hold)
    }

    /// Returns the failed write of slots that a waiting node needs.
    fn slot_failure(&self, decision: &NodeDecision<'_>) -> Option<&WorkFailure> {
        let is_requested = decision.state?.facts.status == DrainStatus::DrainRequired;
        let is_waiting = is_requested && decision.next == NextAction::Act(NodeAction::None);
        let pool = decision.pool.filter(|_| is_waiting)?;
        self.pools.failure(&pool.to_owned()).filter(|failure| is_reported(failure))
    }

    /// Processes the waiting nodes of pools whose slots cannot be written, and again when they can.
    pub(super) fn check_failing_pools(&mut self) {
        let failing = self.pools.failures().filter(|(_, failure)| is_reported(failure));
        let failing: BTreeSet<_> = failing.map(|(pool, _)| pool.clone()).collect();
        for pool in failing.symmetric_difference(&self.failing_pools) {
            self.nodes.add(self.index.waiting_nodes(pool).map(str::to_owned));
        }
        self.failing_pools = failing;
    }

    /// Reports all nodes that wait for a slot of the pool, because its slots may have changed.
    pub(super) fn report_waiting(&mut self, pool: &str) {
        self.reports.add(self.index.waiting_nodes(pool).map(str::to_owned));
    }

    /// Writes the condition of the node, if it changes.
    pub(super) fn report(&mut self, node: String) {
        let decision = self.index.decide(&node, self.mcp(&node), now());
        let (Ok(hold), Some(state)) = (self.find_hold(&node, &decision), decision.state) else {
            self.reports.mark_done(&node);
            return;
        };
        if !blocked::needs_update(state.blocked.as_ref(), hold.as_ref()) {
            self.reports.mark_done(&node);
            self.pending_reports.forget(&node);
            return;
        }
        let current = state.blocked.as_ref().filter(|current| current.status == "True");
        // A message that changes while the reason stays, such as a number of pods, gets no new Event.
        let is_new = |hold: &&DrainHold| current.is_none_or(|current| current.reason != hold.reason);
        if let Some(hold) = hold.as_ref().filter(|hold| hold.is_blocking()).filter(is_new) {
            let text = hold.message.clone();
            self.effects.record_event(&node, &state.uid, EventType::Warning, hold.reason, text);
        }
        let current = state.blocked.clone();
        let write = blocked::write_condition(self.context.clone(), node.clone(), current, hold);
        self.reports.start(node, write);
    }
}
