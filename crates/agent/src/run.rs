//! The agent's loop.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::events::EventType;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, ResourceExt};
use thiserror::Error;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use vfleet_api::node_state::SUCCEEDED;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec};
use vfleet_host::HostError;
use vfleet_plan::{HostFacts, Plan};

use crate::Config;
use crate::alarm::Alarm;
use crate::apply::{Failure, Outcome, carry_out, chain, survey};
use crate::report::Speaker;
use crate::status::{Progress, is_news, message, status};

/// Why the agent, or one of its attempts, ended.
#[derive(Debug, Error)]
pub enum AgentError {
    /// Changes of the machine cannot be followed.
    #[error("cannot follow the machine's changes")]
    Host(#[from] HostError),
    /// The API server refused a write.
    #[error("cannot write the node state's status")]
    Api(#[from] kube::Error),
    /// The stream of changes ended, which it never should.
    #[error("the API server's changes cannot be followed any more")]
    WatchEnded,
    /// A thread died.
    #[error("the work on the machine ended in the middle")]
    Thread(#[from] tokio::task::JoinError),
}

/// Runs until `stop`.
pub async fn run(client: Client, config: Config, stop: CancellationToken) -> Result<(), AgentError> {
    tracing::info!(node = config.node, namespace = config.namespace, "agent starts");
    let machine_changed = Arc::new(Notify::new());
    let wake = Arc::clone(&machine_changed);
    let _watch = config.host.on_change(Box::new(move || wake.notify_one()))?;

    let states: Api<SriovNetworkNodeState> = Api::namespaced(client.clone(), &config.namespace);
    let only_ours = watcher::Config::default().fields(&format!("metadata.name={}", config.node));
    let mut changes = pin!(watch(states, only_ours).default_backoff());
    let mut agent = Agent {
        speaker: Speaker::new(&client, &config.namespace, &config.node),
        config,
        state: None,
        failures_in_a_row: 0,
    };
    let mut alarm = Alarm::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => match change.ok_or(AgentError::WatchEnded)? {
                Ok(event) => if agent.take(event) { alarm.now() },
                Err(error) => tracing::warn!(%error, "watching is interrupted, will go on"),
            },
            () = machine_changed.notified() => alarm.soon(),
            () = alarm.rings() => {
                alarm = Alarm::default();
                // An attempt under way is finished also on `stop`: half-made VFs are worse than a short wait.
                if agent.attempt().await { alarm.after_failure(agent.failures_in_a_row) }
            }
        }
    }
    tracing::info!("agent stops");
    Ok(())
}

struct Agent {
    config: Config,
    speaker: Speaker,
    /// The node state as last seen; `None` while there is none.
    state: Option<SriovNetworkNodeState>,
    failures_in_a_row: u32,
}

impl Agent {
    /// Takes in a change of the node state; tells whether there is something to do.
    fn take(&mut self, event: Event<SriovNetworkNodeState>) -> bool {
        match event {
            Event::Apply(state) | Event::InitApply(state) => {
                let old = self.state.replace(state);
                let new = self.state.as_ref();
                // Our own status writes come back here, and call for nothing.
                old.as_ref().map(|old| (old.uid(), &old.spec)) != new.map(|new| (new.uid(), &new.spec))
            }
            Event::Delete(_) => {
                self.state = None;
                false
            }
            Event::Init | Event::InitDone => false,
        }
    }

    /// One attempt to make the machine what is wanted; tells whether to try again although nothing changes.
    async fn attempt(&mut self) -> bool {
        let Some(state) = self.state.clone() else { return false };
        let retry = self.sync(state).await.unwrap_or_else(|error| {
            tracing::error!(node = self.config.node, error = chain(&error), "attempt failed");
            true
        });
        self.failures_in_a_row = if retry { self.failures_in_a_row + 1 } else { 0 };
        retry
    }

    /// Facts, plan, execute, verify, report; tells whether it should be tried again.
    async fn sync(&mut self, state: SriovNetworkNodeState) -> Result<bool, AgentError> {
        let outcome = match self.survey(&state.spec).await? {
            Err(error) => Outcome { facts: None, executed: 0, failures: vec![Failure::Unreadable(error)] },
            Ok((facts, _)) if state.spec.interfaces.is_none() => {
                self.tell(&state, Some(&facts), &Progress::NotPlanned).await?;
                return Ok(false);
            }
            Ok((facts, plan)) if plan.steps.is_empty() => Outcome {
                facts: Some(facts),
                executed: 0,
                failures: plan.problems.into_iter().map(Failure::Impossible).collect(),
            },
            Ok((facts, plan)) => {
                let (steps, disruption) = (plan.steps.len(), plan.disruption());
                tracing::info!(node = self.config.node, steps, ?disruption, "the machine is to be changed");
                self.tell(&state, Some(&facts), &Progress::Executing(&plan)).await?;
                self.carry_out(&state.spec, plan).await?
            }
        };
        let end = Progress::Done(&outcome.failures);
        if self.tell(&state, outcome.facts.as_ref(), &end).await? {
            self.announce(&state, &outcome).await;
        }
        Ok(outcome.failures.iter().any(Failure::is_worth_a_retry))
    }

    async fn survey(
        &self,
        spec: &SriovNetworkNodeStateSpec,
    ) -> Result<Result<(HostFacts, Plan), HostError>, AgentError> {
        let (host, spec) = (Arc::clone(&self.config.host), spec.clone());
        Ok(tokio::task::spawn_blocking(move || survey(&*host, &spec)).await?)
    }

    async fn carry_out(&self, spec: &SriovNetworkNodeStateSpec, plan: Plan) -> Result<Outcome, AgentError> {
        let (host, spec) = (Arc::clone(&self.config.host), spec.clone());
        Ok(tokio::task::spawn_blocking(move || carry_out(&*host, &spec, &plan)).await?)
    }

    /// Writes the status if it is news; tells whether the sync status or error changed with it.
    async fn tell(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: Option<&HostFacts>,
        progress: &Progress<'_>,
    ) -> Result<bool, AgentError> {
        // The latest status seen, so that transition times are kept; the spec is the one worked on.
        let latest = self.state.as_ref().filter(|latest| latest.uid() == state.uid()).unwrap_or(state);
        let base = SriovNetworkNodeState { status: latest.status.clone(), ..state.clone() };
        let new = status(&base, facts, progress);
        if !is_news(&base, &new) {
            return Ok(false);
        }
        let result = |status: &vfleet_api::SriovNetworkNodeStateStatus| {
            (status.sync_status.clone(), status.last_sync_error.clone())
        };
        let changed = base.status.as_ref().map(result) != Some(result(&new));
        let written = self.speaker.status(&self.config.node, &new).await?;
        if let Some(latest) = &mut self.state
            && latest.uid() == written.uid()
        {
            latest.status = written.status;
        }
        Ok(changed)
    }

    async fn announce(&self, state: &SriovNetworkNodeState, outcome: &Outcome) {
        match outcome.failures.as_slice() {
            [] => {
                tracing::info!(
                    node = self.config.node,
                    executed = outcome.executed,
                    "the cards are as wanted"
                );
                let note = "the cards are as the policies want";
                self.speaker.event(state, EventType::Normal, SUCCEEDED, note).await;
            }
            failures @ [first, ..] => {
                let note = message(failures);
                tracing::error!(node = self.config.node, error = note, "the cards are not as wanted");
                self.speaker.event(state, EventType::Warning, first.reason(), &note).await;
            }
        }
    }
}
