//! Status updates, Events and log lines of an attempt.

use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::events::EventType;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::node_state::SUCCEEDED;
use vfleet_plan::summary::{count_steps, summarize_plan};
use vfleet_plan::{HostFacts, Plan};

use super::Agent;
use crate::GoPlugin;
use crate::apply::ApplyOutcome;
use crate::cluster_writer::ClusterWriteError;
use crate::progress::ExecutionProgress;
use crate::status::{
    AttemptPhase, StatusContext, add_process_conditions, build_status, join_failures, needs_write,
    sync_result,
};

/// Longest time that the machine waits for the API server before it is changed.
const START_REPORT_TIMEOUT: Duration = Duration::from_secs(3);

impl Agent {
    /// Reports that the machine is about to be changed. Does not wait for an API server that does not respond soon.
    pub(super) async fn report_start(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        plan: &Plan,
    ) {
        let summary = summarize_plan(plan, &state.spec, facts);
        let disruption = plan.disruption().description();
        let steps = plan.steps.len();
        tracing::info!(node = self.config.node, steps, disruption, "configuring the node: {summary}");
        if self.failures > 0 {
            return;
        }
        let note = format!(
            "{summary} ({}; disruption: {disruption}; see the agent's log, with logLevel 1 for steps of VFs)",
            count_steps(plan)
        );
        let report = async {
            self.report_progress(state, facts, &ExecutionProgress::new(plan)).await;
            self.writer.emit_event(state, EventType::Normal, "Configuring", &note).await;
        };
        if tokio::time::timeout(START_REPORT_TIMEOUT, report).await.is_err() {
            tracing::warn!(
                node = self.config.node,
                "the API server does not respond; configuring the machine without a report"
            );
        }
    }

    /// Reports that the machine reboots now, and the reason.
    pub(super) async fn report_reboot(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        progress: &ExecutionProgress,
        reason: &str,
    ) {
        self.report_progress(state, facts, progress).await;
        let note = format!("rebooting the node: {reason}");
        self.writer.emit_event(state, EventType::Warning, "RebootNode", &note).await;
    }

    /// Writes the status unless it is the same. Returns whether the sync status or error changed.
    pub(super) async fn write_status(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: Option<&HostFacts>,
        phase: &AttemptPhase<'_>,
    ) -> Result<bool, ClusterWriteError> {
        self.config.metrics.record_phase(phase);
        // The latest status, so that transition times are kept, with the spec of this attempt.
        let latest = self.state.as_deref().filter(|latest| latest.uid() == state.uid()).unwrap_or(state);
        let base = SriovNetworkNodeState { status: latest.status.clone(), ..state.clone() };
        let context = StatusContext {
            nic_filter: self.nic_filter.as_ref(),
            manages_bridges: self.config.settings.options.manage_bridges,
            has_go_plugin: self.config.go_plugin != GoPlugin::Absent,
            cni_programs: self.cni_programs.as_deref(),
        };
        let new = build_status(&base, facts, &context, phase);
        let conditions = &self.config.process_conditions;
        let new = add_process_conditions(new, &conditions.borrow(), state.metadata.generation);
        if !needs_write(&base, &new) {
            return Ok(false);
        }
        let has_new_result = base.status.as_ref().map(sync_result) != Some(sync_result(&new));
        let written = self.writer.write_status(&self.config.node, &new).await?;
        if self.state.as_ref().is_some_and(|latest| latest.uid() == written.uid()) {
            self.store_state(written);
        }
        Ok(has_new_result)
    }

    /// Logs the outcome of an attempt and emits an Event about it.
    pub(super) async fn announce_outcome(&self, state: &SriovNetworkNodeState, outcome: &ApplyOutcome) {
        let node = &self.config.node;
        match outcome.failures.as_slice() {
            [] => {
                tracing::info!(node, steps = outcome.executed, "all cards are configured");
                let message = "all cards are configured as the policies request";
                self.writer.emit_event(state, EventType::Normal, SUCCEEDED, message).await;
            }
            failures @ [first, ..] => {
                let error = join_failures(failures);
                tracing::error!(node, reason = first.reason(), error, "not all cards are configured");
                self.writer.emit_event(state, EventType::Warning, first.reason(), &error).await;
            }
        }
    }

    /// Logs a repair and emits an Event about it. `repairs` is the number of repairs that preceded it in a row.
    pub(super) async fn announce_repair(&self, state: &SriovNetworkNodeState, repairs: u32) {
        let node = &self.config.node;
        tracing::warn!(node, repairs, "another program changed the cards; they were configured again");
        let message = "another program changed the cards; they were configured again as the policies request";
        self.writer.emit_event(state, EventType::Normal, "Repaired", message).await;
    }
}
