//! Last stages of an attempt: the result is verified, published and reported.

use std::sync::Arc;

use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec};
use vfleet_host::format_error_chain;
use vfleet_plan::release_delay::DueSteps;
use vfleet_plan::{HostFacts, NodeSnapshot, PfFacts, Plan, Target};

use super::execution::ExecutedPlan;
use super::{Agent, AttemptError, EarlyEnd, NextAction};
use crate::apply::{ApplyOutcome, Failure};
use crate::cluster_writer::ClusterWriteError;
use crate::status::{AttemptPhase, is_ready, join_failures};

impl Agent {
    /// Compares the machine, as it was read after the last step, with the desired state. Ends the attempt when the
    /// machine reboots, or when the kernel still executes a step.
    pub(super) async fn verify(
        &mut self,
        state: &SriovNetworkNodeState,
        executed: ExecutedPlan,
    ) -> Result<ApplyOutcome, EarlyEnd> {
        if executed.outcome.reboots {
            tracing::warn!(node = self.config.node, "the node reboots now");
            return Err(EarlyEnd::Finished(NextAction::Reboot));
        }
        match &executed.outcome.facts {
            Some(facts) => {
                self.note_protection(facts);
                let left = self.planner(&state.spec, DueSteps::default())(facts);
                self.publish(&state.spec, facts, &left);
            }
            None => self.publish_unreadable(),
        }
        if executed.is_only_unfinished() {
            return Err(EarlyEnd::Finished(self.report_unfinished(state, &executed).await?));
        }
        Ok(executed.outcome)
    }

    /// Reports that the rest has to wait until the kernel ends a step. Other lanes do not wait for that.
    async fn report_unfinished(
        &mut self,
        state: &SriovNetworkNodeState,
        executed: &ExecutedPlan,
    ) -> Result<NextAction, AttemptError> {
        let ExecutedPlan { outcome, unfinished, progress } = executed;
        let reason = join_failures(&outcome.failures);
        tracing::warn!(node = self.config.node, reason, "a step takes long; other cards do not wait for it");
        let has_vfs_for_pods =
            |pf: &PfFacts| !pf.vfs.is_empty() && !unfinished.contains(&Target::Pf(pf.address));
        // One slow card must not keep pods from the VFs of the others.
        self.go_plugin_may_start |= outcome.facts.iter().flat_map(|facts| &facts.pfs).any(has_vfs_for_pods);
        if self.failures == 0 {
            self.write_status(state, outcome.facts.as_ref(), &AttemptPhase::Executing(progress)).await?;
        }
        Ok(NextAction::StepRunning)
    }

    /// Reports the outcome, and returns the next action.
    pub(super) async fn report(
        &mut self,
        state: &SriovNetworkNodeState,
        mut outcome: ApplyOutcome,
    ) -> Result<NextAction, AttemptError> {
        // Also after a failure: one faulty card must not keep pods from the VFs of the others.
        self.go_plugin_may_start = true;
        let continues = outcome.failures.iter().any(Failure::keeps_node_drained);
        let is_over = !continues && !self.detached.is_any_running();
        let has_drainer = self.has_external_drainer(state);
        // Before the status is written, since a failure belongs to the status.
        if is_over && has_drainer {
            match self.settle_drain(state, None, false).await {
                Err(error @ ClusterWriteError::DrainerForbidden(_)) => {
                    outcome.failures.push(Failure::DrainerNotNotified(format_error_chain(&error)));
                }
                settled => _ = settled?,
            }
        }
        let phase = AttemptPhase::Done(&outcome.failures);
        if self.write_status(state, outcome.facts.as_ref(), &phase).await? {
            self.announce_outcome(state, &outcome).await;
        }
        if is_over && !has_drainer {
            self.settle_drain(state, None, false).await?;
        }
        self.recheck.update(outcome.failures.iter().any(Failure::needs_recheck));
        if outcome.failures.iter().any(Failure::needs_retry) {
            return Ok(self.retry());
        }
        if is_ready(state) && outcome.has_changed_machine {
            let repairs = self.repairs.count();
            self.announce_repair(state, repairs).await;
            return Ok(if repairs == 0 { NextAction::Wait } else { NextAction::HoldOff { repairs } });
        }
        Ok(NextAction::Wait)
    }

    /// Publishes the snapshot of a machine on which `left` is still to be done for `spec`.
    pub(super) fn publish(&self, spec: &SriovNetworkNodeStateSpec, facts: &HostFacts, left: &Plan) {
        self.publish_next(|last| last.next(facts, spec, left));
    }

    /// Publishes that the machine cannot be read, or is not read any more.
    pub(super) fn publish_unreadable(&self) {
        self.publish_next(NodeSnapshot::unreadable);
    }

    fn publish_next(&self, next: impl FnOnce(&NodeSnapshot) -> NodeSnapshot) {
        self.config.snapshots.send_if_modified(|snapshot| {
            let next = next(snapshot);
            let is_new = **snapshot != next;
            if is_new {
                *snapshot = Arc::new(next);
            }
            is_new
        });
    }
}
