//! Drain of the node: requested before steps that need it, and settled afterwards.
//!
//! Each write is based on the node state that it was decided on. After a conflict, the decision is made again.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use vfleet_api::keys::{DESIRED_DRAIN_STATE, USE_EXTERNAL_DRAINER, drain_request};
use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_api::{PciAddress, SriovNetworkNodeState};
use vfleet_host::format_error_chain;
use vfleet_plan::drain::{
    AgentAction, AgentDrainStep, ExternalFacts, ExternalProgress, Moment, StateFacts, kept_before_request,
    kept_resources, plan_agent_step, required_scope,
};
use vfleet_plan::summary::{count_steps, summarize_disruptive_changes};
use vfleet_plan::{HostFacts, Plan};

use super::digest::{NodeStateDigest, SpecVersion, blocked_condition};
use super::{Agent, DuePlan, EarlyEnd, NextAction};
use crate::cluster_writer::ClusterWriteError;
use crate::progress::ExecutionProgress;
use crate::status::AttemptPhase;

/// Largest number of writes about one drain. The way from one drain to a wider one takes four writes with an external
/// drainer; the others are for conflicts.
const MAX_WRITES: usize = 10;

/// Permission to change the machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DrainPermission {
    /// The machine may be changed.
    Granted,
    /// The node has to be drained first.
    Pending,
    /// The desired state changed meanwhile: that change calls for the next attempt.
    Outdated,
}

/// PFs that were changed since the node was drained.
#[derive(Debug)]
pub(super) struct DrainEffects {
    request: Option<Moment>,
    touched_pfs: BTreeSet<PciAddress>,
}

impl DrainEffects {
    /// Returns the effects, extended by changes of `pfs`.
    pub(super) fn with(mut self, pfs: impl IntoIterator<Item = PciAddress>) -> Self {
        self.touched_pfs.extend(pfs);
        self
    }
}

impl Agent {
    /// Ensures that the node is drained as far as the plan needs it. Ends the attempt when it is not yet.
    pub(super) async fn drain(
        &mut self,
        state: &SriovNetworkNodeState,
        due: &DuePlan,
    ) -> Result<(), EarlyEnd> {
        match self.request_permission(state, &due.facts, &due.plan).await {
            Ok(DrainPermission::Granted) => Ok(()),
            Ok(DrainPermission::Pending) => {
                self.awaited_drain = required_scope(&due.plan);
                self.wait_for_drain(state, &due.facts, &due.plan).await?;
                Err(EarlyEnd::Finished(NextAction::Wait))
            }
            Ok(DrainPermission::Outdated) => Err(EarlyEnd::Finished(NextAction::Wait)),
            Err(error @ ClusterWriteError::DrainerForbidden(_)) => {
                self.report_request_error(state, &due.facts, &due.plan, &error).await?;
                Err(EarlyEnd::Finished(self.retry()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether `plan` may be executed now. Requests a drain if the plan needs one.
    async fn request_permission(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        plan: &Plan,
    ) -> Result<DrainPermission, ClusterWriteError> {
        let need = required_scope(plan);
        let latest = self.state.as_deref().unwrap_or(state);
        match self.plan_drain_step(latest, need, true) {
            AgentDrainStep::Act(AgentAction::Proceed) => return Ok(DrainPermission::Granted),
            // Before the request: a later write would conflict with the response of the drainer.
            AgentDrainStep::Act(AgentAction::Request { .. }) => {
                self.report_waiting(state, facts, plan, true, None).await?;
            }
            _ => {}
        }
        match self.settle_drain(state, need, true).await {
            // The drainer can be notified later that the last drain is not needed any more.
            Err(error) if need.is_none() => {
                let error = format_error_chain(&error);
                tracing::warn!(
                    node = self.config.node,
                    error,
                    "cannot withdraw the request for a drain, will be retried"
                );
                Ok(DrainPermission::Granted)
            }
            settled => settled,
        }
    }

    /// Returns whether an agent that waits for a drain still has to wait after the update to `state`.
    pub(super) fn is_still_waiting(
        &self,
        previous: &NodeStateDigest,
        new: &NodeStateDigest,
        state: &SriovNetworkNodeState,
    ) -> bool {
        let must_wait = || {
            self.plan_drain_step(state, self.awaited_drain, true) == AgentDrainStep::Act(AgentAction::Wait)
        };
        previous == new
            || (self.awaited_drain.is_some() && previous.differs_by_drain_only(new) && must_wait())
    }

    /// Writes everything about the drain that is due. `has_steps`: there are steps to execute on the machine.
    pub(super) async fn settle_drain(
        &mut self,
        state: &SriovNetworkNodeState,
        need: Option<DrainScope>,
        has_steps: bool,
    ) -> Result<DrainPermission, ClusterWriteError> {
        for _ in 0..MAX_WRITES {
            let spec = SpecVersion::of(state);
            let Some(latest) = self.state.clone().filter(|latest| SpecVersion::of(latest) == spec) else {
                return Ok(DrainPermission::Outdated);
            };
            self.digest = Some(NodeStateDigest::of(&latest));
            self.update_drain_effects(&StateFacts::of(&*latest));
            let step = self.plan_drain_step(&latest, need, has_steps);
            if let Some(permission) = self.permission(&latest, step) {
                return Ok(permission);
            }
            let current = match self.write_drain_step(state, &latest, step).await {
                Err(error) if error.is_conflict() => self.writer.read_node_state(&self.config.node).await?,
                written => written?,
            };
            self.store_state(current);
        }
        Err(ClusterWriteError::Contended)
    }

    fn plan_drain_step(
        &self,
        latest: &SriovNetworkNodeState,
        need: Option<DrainScope>,
        has_steps: bool,
    ) -> AgentDrainStep {
        let (facts, external) = (StateFacts::of(latest), ExternalFacts::of(latest));
        let use_external = self.config.uses_external_drainer;
        plan_agent_step(&facts, &external, use_external, need, has_steps, Timestamp::now().into())
    }

    /// Returns whether the machine may be changed; `None` while there is something to write first.
    fn permission(&self, latest: &SriovNetworkNodeState, step: AgentDrainStep) -> Option<DrainPermission> {
        match step {
            AgentDrainStep::Act(AgentAction::Wait) => Some(DrainPermission::Pending),
            // The kernel still executes a step that the node was drained for.
            AgentDrainStep::Act(AgentAction::SetIdle)
                if self.detached.is_any_running() && is_granted(latest) =>
            {
                Some(DrainPermission::Pending)
            }
            // `Idle` is also written to a new node state, unless it has annotations of the Go operator.
            AgentDrainStep::Act(AgentAction::Proceed) if has_drain_status(latest) => {
                Some(DrainPermission::Granted)
            }
            _ => None,
        }
    }

    async fn write_drain_step(
        &self,
        state: &SriovNetworkNodeState,
        latest: &SriovNetworkNodeState,
        step: AgentDrainStep,
    ) -> Result<SriovNetworkNodeState, ClusterWriteError> {
        let node = &self.config.node;
        match step {
            AgentDrainStep::Act(AgentAction::Request { scope, request }) => {
                let scope_name = match scope {
                    DrainScope::Partial => "partial",
                    DrainScope::Full => "full",
                };
                tracing::info!(node, scope = scope_name, request = request.text(), "requesting a drain");
                self.writer.write_drain(latest, &self.request_fields(latest, scope, request).await).await
            }
            AgentDrainStep::Act(_) => {
                let previous = StateFacts::of(latest).status.as_str();
                tracing::debug!(node, previous, "drain status set to Idle");
                self.writer.write_drain(latest, &self.idle_fields(state, latest)).await
            }
            AgentDrainStep::SetUseExternal(is_used) => {
                let value = is_used.then_some("true");
                self.writer.annotate(latest, &json!({ USE_EXTERNAL_DRAINER: value })).await
            }
            AgentDrainStep::AnnotateRequest(scope) => {
                let request = match scope {
                    None => drain_request::IDLE,
                    Some(DrainScope::Partial) => drain_request::DRAIN,
                    Some(DrainScope::Full) => drain_request::REBOOT,
                };
                // The node first: an annotation of the node state then implies that of the node.
                self.writer.annotate_node(node, request).await?;
                self.writer.annotate(latest, &json!({ DESIRED_DRAIN_STATE: request })).await
            }
        }
    }

    async fn request_fields(
        &self,
        latest: &SriovNetworkNodeState,
        scope: DrainScope,
        request: Moment,
    ) -> Value {
        let last = StateFacts::of(latest);
        let is_over = match last.request {
            Some(last_request) if !last.is_external => self.is_drain_over(last_request).await,
            _ => true,
        };
        let mut fields = json!({
            "drainStatus": DrainStatus::DrainRequired,
            "drainScope": scope,
            "drainRequestedAt": request.to_time(),
            "drainRetry": null,
            "keptResources": kept_before_request(kept_resources_of(latest), is_over),
        });
        if is_over {
            // The machine was not changed since.
            fields["drainCompletedAt"] = Value::Null;
        }
        fields
    }

    /// Returns whether the Node object says that the drain of `request` is over; `false` if it cannot be read.
    async fn is_drain_over(&self, request: Moment) -> bool {
        match self.writer.read_last_drain(&self.config.node).await {
            Ok(last) => last.is_some_and(|last| last >= request),
            Err(error) => {
                let error = format_error_chain(&error);
                tracing::warn!(
                    node = self.config.node,
                    error,
                    "cannot read whether the last drain is over; assuming that it is not"
                );
                false
            }
        }
    }

    fn idle_fields(&self, state: &SriovNetworkNodeState, latest: &SriovNetworkNodeState) -> Value {
        let effects = self.drain_effects.as_ref().filter(|_| has_drain_status(latest));
        let touched = effects.map(|effects| &effects.touched_pfs);
        let kept = kept_resources(&state.spec, touched, kept_resources_of(latest));
        json!({ "drainStatus": DrainStatus::Idle, "keptResources": kept })
    }

    /// Starts to collect the effects of a drain. They are only known if the drain was observed before it was complete.
    fn update_drain_effects(&mut self, facts: &StateFacts) {
        let is_complete = matches!(facts.status, DrainStatus::DrainingComplete | DrainStatus::DrainDisabled);
        let effects = self.drain_effects.take().filter(|effects| effects.request == facts.request);
        self.drain_effects = match effects {
            _ if facts.is_external => None,
            effects if is_complete => effects,
            _ => Some(DrainEffects { request: facts.request, touched_pfs: BTreeSet::new() }),
        };
    }

    /// Returns whether an external drainer drains the node, or did so until now.
    pub(super) fn has_external_drainer(&self, state: &SriovNetworkNodeState) -> bool {
        self.config.uses_external_drainer || StateFacts::of(state).is_external
    }

    /// Reports what the agent waits for. A change of it in the node state calls for the next attempt.
    async fn wait_for_drain(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        plan: &Plan,
    ) -> Result<(), ClusterWriteError> {
        let latest = self.state.as_deref().filter(|latest| latest.uid() == state.uid()).unwrap_or(state);
        let is_requested = StateFacts::of(latest).status != DrainStatus::Idle;
        let obstacle =
            blocked_condition(latest).map(|blocked| format!("the drain is blocked: {}", blocked.message));
        self.report_waiting(state, facts, plan, is_requested, obstacle).await
    }

    /// Reports why a drain could not be requested.
    async fn report_request_error(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        plan: &Plan,
        error: &ClusterWriteError,
    ) -> Result<(), ClusterWriteError> {
        self.report_waiting(state, facts, plan, true, Some(format_error_chain(error))).await
    }

    /// Reports that the plan waits for a drain, or (if no drain is requested) for the end of the previous one.
    async fn report_waiting(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        plan: &Plan,
        is_requested: bool,
        obstacle: Option<String>,
    ) -> Result<(), ClusterWriteError> {
        let drainer = if self.has_external_drainer(state) { "the external drainer" } else { "the operator" };
        let (changes, steps) = (summarize_disruptive_changes(plan, facts), count_steps(plan));
        let mut text = if is_requested {
            format!("waiting for {drainer} to drain the node: pods must leave before {changes} ({steps})")
        } else {
            format!("waiting for {drainer} to end the previous drain of the node before {changes} ({steps})")
        };
        if let Some(obstacle) = obstacle {
            text = format!("{text}; {obstacle}");
        }
        tracing::info!(node = self.config.node, "{text}");
        let progress = ExecutionProgress::new(plan);
        let phase = AttemptPhase::Waiting { progress: &progress, text: &text };
        self.write_status(state, Some(facts), &phase).await?;
        Ok(())
    }
}

/// Returns whether a drainer granted the last request.
fn is_granted(state: &SriovNetworkNodeState) -> bool {
    matches!(StateFacts::of(state).status, DrainStatus::DrainingComplete | DrainStatus::DrainDisabled)
        || ExternalFacts::of(state).progress == ExternalProgress::Complete
}

/// Returns whether the node state has a drain status, in its status or in annotations of an external drainer.
fn has_drain_status(state: &SriovNetworkNodeState) -> bool {
    let status = state.status.as_ref().and_then(|status| status.drain_status);
    status.is_some() || !ExternalFacts::of(state).is_idle()
}

fn kept_resources_of(state: &SriovNetworkNodeState) -> Option<&[String]> {
    state.status.as_ref()?.kept_resources.as_deref()
}
