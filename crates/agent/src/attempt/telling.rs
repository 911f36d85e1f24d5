//! What an attempt tells the cluster and the log.

use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::events::EventType;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::node_state::SUCCEEDED;
use vfleet_plan::{HostFacts, Plan};

use super::Agent;
use crate::apply::Outcome;
use crate::course::Course;
use crate::report::ReportError;
use crate::status::{Progress, is_news, message, result, status, with_standing};

/// The machine waits for this.
const BEGINNING_WITHIN: Duration = Duration::from_secs(3);

impl Agent {
    /// Says that the machine is about to be changed. An API server that does not answer soon is not waited for.
    pub(super) async fn tell_beginning(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        plan: &Plan,
    ) {
        let (count, disruption) = (plan.steps.len(), plan.disruption().as_str());
        tracing::info!(node = self.config.node, steps = count, disruption, "the machine is to be changed");
        if self.failures > 0 {
            return;
        }
        let steps: Vec<_> = plan.steps.iter().map(|planned| planned.step.to_string()).collect();
        let note = format!("{count} steps, disruption {disruption}: {}", steps.join("; "));
        let telling = async {
            self.tell_course(state, facts, &Course::begin(plan)).await;
            self.speaker.event(state, EventType::Normal, "Configuring", &note).await;
        };
        if tokio::time::timeout(BEGINNING_WITHIN, telling).await.is_err() {
            tracing::warn!(node = self.config.node, "the API server does not answer; going on without it");
        }
    }

    /// Says that the machine restarts now, and what for.
    pub(super) async fn tell_restart(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        course: &Course,
        why: &str,
    ) {
        self.tell_course(state, facts, course).await;
        let note = format!("the machine restarts: {why}");
        self.speaker.event(state, EventType::Warning, "RebootNode", &note).await;
    }

    /// Writes the status if it is news; tells whether the sync status or error changed with it.
    pub(super) async fn tell(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: Option<&HostFacts>,
        progress: &Progress<'_>,
    ) -> Result<bool, ReportError> {
        self.config.metrics.note(progress);
        // The latest status seen, so that transition times are kept; the spec is the one worked on.
        let latest = self.state.as_deref().filter(|latest| latest.uid() == state.uid()).unwrap_or(state);
        let base = SriovNetworkNodeState { status: latest.status.clone(), ..state.clone() };
        let new = status(&base, facts, self.narrow.as_ref(), progress);
        let new = with_standing(new, &self.config.standing.borrow(), state.metadata.generation);
        if !is_news(&base, &new) {
            return Ok(false);
        }
        let changed = base.status.as_ref().map(result) != Some(result(&new));
        let written = self.speaker.status(&self.config.node, &new).await?;
        if self.state.as_ref().is_some_and(|latest| latest.uid() == written.uid()) {
            self.remember(written);
        }
        Ok(changed)
    }

    pub(super) async fn announce(&self, state: &SriovNetworkNodeState, outcome: &Outcome) {
        let name = &self.config.node;
        match outcome.failures.as_slice() {
            [] => {
                tracing::info!(node = name, executed = outcome.executed, "the cards are as wanted");
                let note = "the cards are as the policies want";
                self.speaker.event(state, EventType::Normal, SUCCEEDED, note).await;
            }
            failures @ [first, ..] => {
                let note = message(failures);
                tracing::error!(node = name, error = note, "the cards are not as wanted");
                self.speaker.event(state, EventType::Warning, first.reason(), &note).await;
            }
        }
    }

    pub(super) async fn announce_repair(&self, state: &SriovNetworkNodeState, times: u32) {
        let name = &self.config.node;
        tracing::warn!(node = name, times, "somebody changed the cards; they are as wanted again");
        let note = "somebody else changed the cards; they are as the policies want again";
        self.speaker.event(state, EventType::Normal, "Repaired", note).await;
    }
}
