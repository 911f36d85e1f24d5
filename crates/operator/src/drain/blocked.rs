//! Condition `Blocked` of a node state: the reason why its drain does not start or continue.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::{Api, Resource};
use serde_json::json;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::conditions::{BLOCKED, ConditionUpdate, update_conditions};
use vfleet_api::meta::Condition;
use vfleet_api::node_state::DrainStatus;
use vfleet_cluster::queue::WorkFailure;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::drain::{HoldReason, Moment, NodeAction};

use super::evictions::DrainHold;
use super::index::{FullPool, NextAction, NodeDecision};
use super::mcp::McpHold;
use crate::replica::context::Context;
use crate::replica::metrics::Metrics;

/// Reason of the condition while a node waits for a slot. The condition is `False` then: waiting is no error.
const WAITING_FOR_SLOT: &str = "WaitingForSlot";
/// Number of slot holders that a message names.
const NAMED_HOLDERS: usize = 3;

impl DrainHold {
    /// Returns whether the drain is blocked; otherwise the node only waits for its slot.
    pub(super) fn is_blocking(&self) -> bool {
        self.reason != WAITING_FOR_SLOT
    }
}

/// Returns why the drain does not start or continue; `Err` if that is unknown at the moment. `full_pool` is the pool of
/// a node that waits for a slot.
pub(super) fn find_hold(
    decision: &NodeDecision<'_>,
    full_pool: Option<FullPool<'_>>,
    mcp_hold: impl FnOnce() -> McpHold,
) -> Result<Option<DrainHold>, ()> {
    match &decision.next {
        NextAction::Act(NodeAction::Evict { is_late }) => {
            let hold = decision.progress.and_then(|progress| progress.hold.clone());
            Ok(if *is_late { Some(timed_out(decision, hold)) } else { hold })
        }
        NextAction::Act(NodeAction::Hold(reason)) => Ok(Some(describe(*reason, decision, mcp_hold))),
        NextAction::Act(NodeAction::None) => Ok(full_pool.map(|pool| waiting_for_slot(&pool))),
        // The condition is cleared after the drain status is written, so that the two writes do not conflict.
        NextAction::Act(NodeAction::SetStatus { .. }) if is_reported_as_waiting(decision) => Err(()),
        NextAction::Act(NodeAction::Verify) | NextAction::RecordFinish(_) | NextAction::Migrate(_) => Err(()),
        NextAction::Act(_) => Ok(None),
    }
}

fn is_reported_as_waiting(decision: &NodeDecision<'_>) -> bool {
    decision.state.is_some_and(|state| {
        state.facts.status == DrainStatus::DrainRequired
            && state.blocked.as_ref().is_some_and(|condition| condition.reason == WAITING_FOR_SLOT)
    })
}

fn waiting_for_slot(pool: &FullPool<'_>) -> DrainHold {
    let FullPool { name, limit, holders } = pool;
    if holders.is_empty() {
        let message = format!("waiting for a slot in pool {name} (limit {limit}, all slots are in use)");
        return DrainHold { reason: WAITING_FOR_SLOT, message };
    }
    let mut held_by = holders.iter().take(NAMED_HOLDERS).copied().collect::<Vec<_>>().join(", ");
    if let Some(more) = holders.len().checked_sub(NAMED_HOLDERS).filter(|more| *more > 0) {
        held_by = format!("{held_by} and {more} more");
    }
    let message = format!("waiting for a slot in pool {name} (limit {limit}, held by {held_by})");
    DrainHold { reason: WAITING_FOR_SLOT, message }
}

fn timed_out(decision: &NodeDecision<'_>, hold: Option<DrainHold>) -> DrainHold {
    let seconds = decision.rules.timeout_seconds.unwrap_or_default();
    let cause = hold.map_or_else(|| "its pods are still terminating".to_owned(), |hold| hold.message);
    let message = format!("the drain exceeds {seconds} s (drainConfig.timeoutSeconds of the pool): {cause}");
    DrainHold { reason: "TimedOut", message }
}

fn describe(
    reason: HoldReason,
    decision: &NodeDecision<'_>,
    mcp_hold: impl FnOnce() -> McpHold,
) -> DrainHold {
    let seconds = decision.rules.timeout_seconds.unwrap_or_default();
    let pool = decision.pool.unwrap_or_default();
    let (reason, message) = match reason {
        HoldReason::TimedOut => ("TimedOut", format!("the drain exceeds {seconds} s")),
        HoldReason::McpUpdating => describe_mcp(mcp_hold()),
        HoldReason::AgentNotFinished => ("AgentNotFinished", agent_not_finished(decision)),
        HoldReason::NoPool => (
            "NoPool",
            "the node belongs to no pool and is not drained: select it in a SriovNetworkPoolConfig, or let \
             SriovNetworkPoolConfig default select all nodes"
                .to_owned(),
        ),
        HoldReason::OtherInstallation => (
            "OtherInstallation",
            "the operator of another installation drains this node: configure only one installation for it"
                .to_owned(),
        ),
        HoldReason::LimitZero => (
            "MaxUnavailableZero",
            format!("pool {pool} allows no drain (maxUnavailable: 0): raise maxUnavailable"),
        ),
    };
    DrainHold { reason, message }
}

fn describe_mcp(hold: McpHold) -> (&'static str, String) {
    match hold {
        McpHold::Updating(pool) => (
            "MachineConfigPoolUpdating",
            format!("MachineConfigPool {pool} is rolling out a configuration: the drain starts afterwards"),
        ),
        McpHold::Unreadable(error) => (
            "MachineConfigPoolUnknown",
            format!(
                "cannot read the MachineConfigPools, which may drain the node too: {error}: if access is denied, apply \
                 deploy/rbac.yaml again"
            ),
        ),
        McpHold::UnknownOwner(config) => (
            "MachineConfigPoolUnknown",
            format!(
                "cannot find the MachineConfigPool of machine config {config}, which the node is to use: the drain \
                 starts when the pool is known"
            ),
        ),
    }
}

/// Returns the hold for a drain whose writes fail repeatedly.
pub(super) fn write_failed(failure: &WorkFailure) -> DrainHold {
    let message =
        format!("{} writes for the drain failed in a row, retrying: {}", failure.times, failure.text);
    DrainHold { reason: "WriteRefused", message }
}

fn agent_not_finished(decision: &NodeDecision<'_>) -> String {
    let state = decision.state;
    let since = state.and_then(|state| state.facts.completed_at).map(Moment::text).unwrap_or_default();
    let error = state.and_then(|state| state.last_error.as_deref());
    let error = error.map_or_else(String::new, |error| format!(" (last error: {error})"));
    format!(
        "the node is drained since {since}, but its agent has not finished{error}: check the log of the agent on the \
         node; the node stays cordoned and keeps its slot until the agent finishes"
    )
}

/// Returns whether the condition must be written.
pub(super) fn needs_update(current: Option<&Condition>, hold: Option<&DrainHold>) -> bool {
    let is_hold = |condition: &&Condition| condition.status == "True" || condition.reason == WAITING_FOR_SLOT;
    match (current.filter(is_hold), hold) {
        (None, None) => false,
        (Some(current), Some(hold)) => current.reason != hold.reason || current.message != hold.message,
        _ => true,
    }
}

/// Returns whether a change of the node needs a report. While the node waits, other holders of the slots are only
/// reported by [`super::DrainController::report_waiting`], at a limited rate.
pub(super) fn needs_report(current: Option<&Condition>, hold: Option<&DrainHold>) -> bool {
    let is_still_waiting =
        current.zip(hold).is_some_and(|(current, hold)| !hold.is_blocking() && current.reason == hold.reason);
    needs_update(current, hold) && !is_still_waiting
}

/// Writes the condition.
pub(super) async fn write_condition(
    context: Context,
    node: String,
    current: Option<Condition>,
    hold: Option<DrainHold>,
) -> Result<(), WriteError> {
    let update = ConditionUpdate {
        type_: BLOCKED,
        status: hold.as_ref().is_some_and(DrainHold::is_blocking),
        reason: hold.as_ref().map_or("NotBlocked", |hold| hold.reason),
        message: hold.map(|hold| hold.message).unwrap_or_default(),
    };
    let current: Vec<_> = current.into_iter().collect();
    let object = json!({
        "apiVersion": SriovNetworkNodeState::api_version(&()),
        "kind": SriovNetworkNodeState::kind(&()),
        "metadata": { "name": node },
        "status": { "conditions": update_conditions(&current, &[update], None, Timestamp::now()) },
    });
    let api: Api<SriovNetworkNodeState> = Api::namespaced(context.client.clone(), &context.config.namespace);
    match Writer::new(context.leadership.clone()).apply_status(&api, &node, &object).await {
        Err(error) if error.is_not_found() => Ok(()),
        result => result.map(drop),
    }
}

/// Metric of blocked nodes by reason.
pub(super) struct BlockedGauge {
    metrics: Arc<Metrics>,
    counted: HashMap<String, &'static str>,
}

impl BlockedGauge {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, counted: HashMap::new() }
    }

    pub(super) fn set(&mut self, node: &str, hold: Option<&DrainHold>) {
        let new = hold.filter(|hold| hold.is_blocking()).map(|hold| hold.reason);
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

    /// Resets the metric: only the leading replica reports it.
    pub(super) fn clear(&mut self) {
        for (_, reason) in self.counted.drain() {
            self.metrics.count_blocked(reason, -1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_node_names_the_holders_of_the_slots() {
        let message = |limit, holders: &[&'static str]| {
            waiting_for_slot(&FullPool { name: "pool1", limit, holders: holders.to_vec() }).message
        };
        assert_eq!(message(1, &["node-a"]), "waiting for a slot in pool pool1 (limit 1, held by node-a)");
        let held_by_five = "waiting for a slot in pool pool1 (limit 5, held by a, b, c and 2 more)";
        assert_eq!(message(5, &["a", "b", "c", "d", "e"]), held_by_five);
    }

    #[test]
    fn the_condition_is_written_when_status_reason_or_message_change() {
        let condition = |status: &str, reason: &str| -> Condition {
            let time = "2026-01-01T00:00:00Z";
            let condition = json!({
                "type": BLOCKED, "status": status, "reason": reason, "message": "m", "lastTransitionTime": time,
            });
            serde_json::from_value(condition).unwrap()
        };
        let waiting = DrainHold { reason: WAITING_FOR_SLOT, message: "m".to_owned() };
        let reported = condition("False", WAITING_FOR_SLOT);
        assert!(!waiting.is_blocking());
        assert!(!needs_update(None, None));
        assert!(!needs_update(Some(&condition("False", "NotBlocked")), None));
        assert!(needs_update(Some(&condition("False", "NotBlocked")), Some(&waiting)));
        assert!(!needs_update(Some(&reported), Some(&waiting)));
        assert!(needs_update(Some(&reported), None), "the node has its slot");
        let other = DrainHold { message: "other holders".to_owned(), ..waiting.clone() };
        assert!(needs_update(Some(&reported), Some(&other)) && !needs_report(Some(&reported), Some(&other)));
        assert!(needs_update(Some(&condition("True", "TimedOut")), None));
    }
}
