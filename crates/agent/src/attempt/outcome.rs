//! The last stages of an attempt: the result is verified, published and reported.

use std::sync::Arc;

use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec};
use vfleet_host::with_causes;
use vfleet_plan::{HostFacts, NodeSnapshot, PfFacts, Plan, Target};

use super::execution::ExecutedPlan;
use super::{Agent, AttemptError, Next, Stop};
use crate::apply::{Failure, Outcome};
use crate::patience::Selection;
use crate::report::ReportError;
use crate::status::{Progress, is_ready, message};

impl Agent {
    /// Compares the machine, as it was read after the last step, with what is desired. Ends the attempt when the machine
    /// restarts, or when the kernel has still to finish a step.
    pub(super) async fn verify(
        &mut self,
        state: &SriovNetworkNodeState,
        executed: ExecutedPlan,
    ) -> Result<Outcome, Stop> {
        if executed.outcome.reboots {
            tracing::warn!(node = self.config.node, "the machine restarts now");
            return Err(Stop::Ends(Next::End));
        }
        match &executed.outcome.facts {
            Some(facts) => {
                self.note_protection(facts);
                let left = self.planner(&state.spec, Selection::default())(facts);
                self.publish(&state.spec, facts, &left);
            }
            None => self.publish_unreadable(),
        }
        if executed.is_only_unfinished() {
            return Err(Stop::Ends(self.leave_unfinished(state, &executed).await?));
        }
        Ok(executed.outcome)
    }

    /// Reports that the rest has to wait for the kernel to finish a step. Other lanes do not wait for that.
    async fn leave_unfinished(
        &mut self,
        state: &SriovNetworkNodeState,
        executed: &ExecutedPlan,
    ) -> Result<Next, AttemptError> {
        let ExecutedPlan { outcome, unfinished, course } = executed;
        let why = message(&outcome.failures);
        tracing::warn!(node = self.config.node, why, "the others go on");
        let has_vfs_for_pods =
            |pf: &PfFacts| !pf.vfs.is_empty() && !unfinished.contains(&Target::Pf(pf.address));
        // One slow card must not keep the others from pods.
        self.go_plugin_may_start |= outcome.facts.iter().flat_map(|facts| &facts.pfs).any(has_vfs_for_pods);
        if self.failures == 0 {
            self.tell(state, outcome.facts.as_ref(), &Progress::Executing(course)).await?;
        }
        Ok(Next::StillAtIt)
    }

    /// Reports the outcome, and returns what follows.
    pub(super) async fn report(
        &mut self,
        state: &SriovNetworkNodeState,
        mut outcome: Outcome,
    ) -> Result<Next, AttemptError> {
        // Also when something failed: one bad card must not keep the others from pods.
        self.go_plugin_may_start = true;
        let goes_on = outcome.failures.iter().any(Failure::keeps_the_node_drained);
        let is_over = !goes_on && !self.detached.is_any_running();
        let has_drainer = self.has_external_drainer(state);
        // Whether that could be done belongs to what is reported.
        if is_over && has_drainer {
            match self.settle_drain(state, None, false).await {
                Err(error @ ReportError::DrainerForbidden(_)) => {
                    outcome.failures.push(Failure::DrainerNotTold(with_causes(&error)));
                }
                settled => _ = settled?,
            }
        }
        if self.tell(state, outcome.facts.as_ref(), &Progress::Done(&outcome.failures)).await? {
            self.announce(state, &outcome).await;
        }
        if is_over && !has_drainer {
            self.settle_drain(state, None, false).await?;
        }
        self.repair_looks.plan(outcome.failures.iter().any(Failure::is_worth_a_look));
        if outcome.failures.iter().any(Failure::is_worth_a_retry) {
            return Ok(self.again());
        }
        if is_ready(state) && outcome.changes {
            let times = self.repairs.another();
            self.announce_repair(state, times).await;
            return Ok(if times == 0 { Next::Rest } else { Next::HoldOff { times } });
        }
        Ok(Next::Rest)
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
