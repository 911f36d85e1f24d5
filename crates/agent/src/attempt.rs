//! One attempt after the other to make the machine what its node state wants.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::events::EventType;
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt};
use thiserror::Error;
use tokio::time::Instant;
use vfleet_api::node_state::SUCCEEDED;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec};
use vfleet_host::HostError;
use vfleet_plan::{HostFacts, Plan, plan_node};

use crate::Config;
use crate::apply::{Failure, Happening, Outcome, Work, carry_out, chain, survey};
use crate::report::{ReportError, Speaker};
use crate::status::{Progress, is_news, is_ready, message, result, status};

/// Repairs that follow each other so quickly are answers to somebody who undoes them.
const REPAIRS_IN_A_ROW: Duration = Duration::from_mins(2);

/// What to do after an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for a change.
    Rest,
    /// Try again: it failed so many times in a row.
    Again { times: u32 },
    /// Wait for a change, but not react too quickly: it was repaired so many times in a row.
    HoldOff { times: u32 },
}

/// Why an attempt was broken off.
#[derive(Debug, Error)]
enum AttemptError {
    #[error("cannot report")]
    Report(#[from] ReportError),
    #[error("the work on the machine ended in the middle")]
    Thread(#[from] tokio::task::JoinError),
}

/// The agent of one node.
pub(crate) struct Agent {
    config: Config,
    speaker: Speaker,
    /// The node state as last seen; `None` while there is none.
    state: Option<SriovNetworkNodeState>,
    /// Whether the list that is under way has it.
    listed: bool,
    failures: u32,
    repairs: Repairs,
}

#[derive(Debug, Default)]
struct Repairs {
    in_a_row: u32,
    last: Option<Instant>,
}

impl Repairs {
    fn another(&mut self) -> u32 {
        let now = Instant::now();
        let quick = self.last.is_some_and(|last| now.duration_since(last) < REPAIRS_IN_A_ROW);
        self.in_a_row = if quick { self.in_a_row + 1 } else { 0 };
        self.last = Some(now);
        self.in_a_row
    }
}

impl Agent {
    pub(crate) fn new(client: &Client, config: Config) -> Self {
        let speaker = Speaker::new(client, &config.namespace, &config.node);
        Self { speaker, config, state: None, listed: false, failures: 0, repairs: Repairs::default() }
    }

    /// Takes in a change of the node state; tells whether something else is wanted.
    pub(crate) fn take(&mut self, event: Event<SriovNetworkNodeState>) -> bool {
        match event {
            Event::Init => {
                self.listed = false;
                false
            }
            Event::InitApply(state) => {
                self.listed = true;
                self.replace(state)
            }
            Event::Apply(state) => self.replace(state),
            Event::InitDone if self.listed => false,
            Event::InitDone | Event::Delete(_) => {
                let node = &self.config.node;
                tracing::info!(node, "there is no node state; waiting for the operator to create it");
                self.state = None;
                false
            }
        }
    }

    /// Our own status writes come back here, and call for nothing: they change neither.
    fn replace(&mut self, state: SriovNetworkNodeState) -> bool {
        let wish = |state: &SriovNetworkNodeState| (state.uid(), state.metadata.generation);
        let new = wish(&state);
        let another = self.state.replace(state).as_ref().map(wish) != Some(new);
        if another {
            self.failures = 0;
            self.repairs = Repairs::default();
        }
        another
    }

    /// One attempt to make the machine what is wanted.
    pub(crate) async fn attempt(&mut self) -> Next {
        let Some(state) = self.state.clone() else { return Next::Rest };
        match self.sync(&state).await {
            Ok(next @ Next::Again { .. }) => next,
            Ok(next) => {
                self.failures = 0;
                next
            }
            Err(error) => {
                tracing::error!(node = self.config.node, error = chain(&error), "attempt broken off");
                self.again()
            }
        }
    }

    fn again(&mut self) -> Next {
        self.failures += 1;
        Next::Again { times: self.failures }
    }

    /// Facts, plan, execute, verify, report.
    async fn sync(&mut self, state: &SriovNetworkNodeState) -> Result<Next, AttemptError> {
        let outcome = match self.survey(&state.spec).await? {
            Err(error) => Outcome::unreadable(error),
            Ok((facts, _)) if state.spec.interfaces.is_none() => {
                self.tell(state, Some(&facts), &Progress::NotPlanned).await?;
                return Ok(Next::Rest);
            }
            Ok((facts, plan)) if plan.steps.is_empty() => {
                tracing::debug!(node = self.config.node, "nothing to do");
                Outcome::without_steps(facts, plan)
            }
            Ok((facts, plan)) => {
                self.tell_beginning(state, &facts, &plan).await;
                self.carry_out(&state.spec, facts, plan).await?
            }
        };
        let was_as_wanted = is_ready(state);
        if self.tell(state, outcome.facts.as_ref(), &Progress::Done(&outcome.failures)).await? {
            self.announce(state, &outcome).await;
        }
        if outcome.failures.iter().any(Failure::is_worth_a_retry) {
            return Ok(self.again());
        }
        if was_as_wanted && outcome.executed > 0 {
            return Ok(self.repaired(state).await);
        }
        Ok(Next::Rest)
    }

    async fn repaired(&mut self, state: &SriovNetworkNodeState) -> Next {
        let times = self.repairs.another();
        tracing::warn!(
            node = self.config.node,
            times,
            "somebody changed the cards; they are as wanted again"
        );
        let note = "somebody else changed the cards; they are as the policies want again";
        self.speaker.event(state, EventType::Normal, "Repaired", note).await;
        if times == 0 { Next::Rest } else { Next::HoldOff { times } }
    }

    async fn survey(
        &self,
        spec: &SriovNetworkNodeStateSpec,
    ) -> Result<Result<(HostFacts, Plan), HostError>, tokio::task::JoinError> {
        let (host, spec) = (Arc::clone(&self.config.host), spec.clone());
        tokio::task::spawn_blocking(move || survey(&*host, &|facts| plan_node(&spec, facts))).await
    }

    async fn carry_out(
        &self,
        spec: &SriovNetworkNodeStateSpec,
        facts: HostFacts,
        plan: Plan,
    ) -> Result<Outcome, tokio::task::JoinError> {
        let (host, spec, node) = (Arc::clone(&self.config.host), spec.clone(), self.config.node.clone());
        tokio::task::spawn_blocking(move || {
            let planner = |facts: &HostFacts| plan_node(&spec, facts);
            let listener = |_: Happening<'_>| {};
            let work = Work {
                host: &*host,
                node: &node,
                planner: &planner,
                one_card_at_a_time: false,
                listener: &listener,
            };
            carry_out(&work, facts, plan)
        })
        .await
    }

    /// Says that the machine is about to be changed. Not for another try of what failed: the failure stands until it
    /// is gone. A cluster that cannot be told does not keep the machine from being repaired.
    async fn tell_beginning(&mut self, state: &SriovNetworkNodeState, facts: &HostFacts, plan: &Plan) {
        let (steps, disruption) = (plan.steps.len(), plan.disruption());
        tracing::info!(node = self.config.node, steps, ?disruption, "the machine is to be changed");
        if self.failures > 0 {
            return;
        }
        if let Err(error) = self.tell(state, Some(facts), &Progress::Executing(plan)).await {
            tracing::warn!(node = self.config.node, error = chain(&error), "progress not reported");
        }
    }

    /// Writes the status if it is news; tells whether the sync status or error changed with it.
    async fn tell(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: Option<&HostFacts>,
        progress: &Progress<'_>,
    ) -> Result<bool, ReportError> {
        // The latest status seen, so that transition times are kept; the spec is the one worked on.
        let latest = self.state.as_ref().filter(|latest| latest.uid() == state.uid()).unwrap_or(state);
        let base = SriovNetworkNodeState { status: latest.status.clone(), ..state.clone() };
        let new = status(&base, facts, progress);
        if !is_news(&base, &new) {
            return Ok(false);
        }
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
