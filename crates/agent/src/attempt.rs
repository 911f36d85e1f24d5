//! One attempt after the other to make the machine what its node state wants.

mod drain;
mod execution;
mod plugin_hold;
mod seen;
mod telling;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::watcher::Event;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Instant;
use vfleet_api::node_state::DrainScope;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec};
use vfleet_host::{HostError, with_causes};
use vfleet_plan::drain::need;
use vfleet_plan::{HostFacts, NicIds, Plan, Step};

use crate::Config;
use crate::apply::{Failure, Outcome, survey};
use crate::patience::{Patience, Selection};
use crate::plugin::Plugin;
use crate::report::{ReportError, Speaker};
use crate::status::{Progress, is_ready, ready_pfs};
use crate::under_way::UnderWay;

use drain::{Drained, Leave};
use seen::{Seen, is_older};

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
    /// Wait for a change: the kernel is still at a step, and its end will be one.
    StillAtIt,
    /// Nothing any more: the machine is about to restart.
    End,
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
    /// The node state as last seen, or written; `None` while there is none.
    state: Option<Arc<SriovNetworkNodeState>>,
    /// What counts of the one that was last worked on.
    seen: Option<Seen>,
    /// Whether the list that is under way has it.
    listed: bool,
    /// The kinds of cards that are reported; `None` for all.
    narrow: Option<NicIds>,
    /// Whether that is known.
    knows_narrow: bool,
    failures: u32,
    repairs: Repairs,
    patience: Patience,
    look_again: Option<Instant>,
    /// The separate device plugin, where it is held back.
    plugin: Option<Plugin>,
    /// Whether it may look for devices.
    plugin_may_start: bool,
    under_way: UnderWay,
    /// The drain that the last attempt waits for.
    waits_for: Option<DrainScope>,
    /// What was done since the node was drained; `None` when that is not known.
    drained: Option<Drained>,
    /// Steps that failed, and that the machine can do without: not tried again for the same wish.
    done_without: Vec<Step>,
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
    /// `wake` is told when the machine is worth another look.
    pub(crate) fn new(client: &Client, config: Config, wake: &Arc<Notify>) -> Self {
        let wake = Arc::clone(wake);
        let plugin =
            config.holds_plugin_back.then(|| Plugin::follow(client, &config.namespace, &config.node));
        Self {
            speaker: Speaker::new(client, &config.namespace, &config.node),
            state: None,
            seen: None,
            listed: false,
            narrow: None,
            knows_narrow: !config.follows_nic_ids,
            failures: 0,
            repairs: Repairs::default(),
            patience: Patience::default(),
            look_again: None,
            plugin,
            plugin_may_start: false,
            under_way: UnderWay::new(move || wake.notify_one()),
            waits_for: None,
            drained: None,
            done_without: Vec::new(),
            config,
        }
    }

    /// Takes in a change of the node state; tells whether it calls for an attempt.
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
            // From before one of our own writes, whose answer told all that is in it.
            Event::Apply(state) if self.state.as_ref().is_some_and(|known| is_older(&state, known)) => false,
            Event::Apply(state) => self.replace(state),
            Event::InitDone if self.listed => false,
            Event::InitDone | Event::Delete(_) => {
                let node = &self.config.node;
                tracing::info!(node, "there is no node state; waiting for the operator to create it");
                (self.state, self.seen) = (None, None);
                false
            }
        }
    }

    /// Our own writes come back here, and call for nothing: they are in what was seen. Nor does a drain that goes on,
    /// before it is complete.
    fn replace(&mut self, state: SriovNetworkNodeState) -> bool {
        let new = Seen::of(&state);
        let known = self.seen.as_ref();
        let is_news = known.is_none_or(|known| !self.is_waiting_still(known, &new, &state));
        if known.map(|known| &known.wish) != Some(&new.wish) {
            self.failures = 0;
            self.repairs = Repairs::default();
            self.done_without.clear();
        }
        self.remember(state);
        is_news
    }

    /// Without what nobody here asks for, and which is as long as all the rest: who owns which field.
    fn remember(&mut self, mut state: SriovNetworkNodeState) {
        state.metadata.managed_fields = None;
        self.state = Some(Arc::new(state));
    }

    /// Takes in which kinds of cards are reported; tells whether that is news.
    pub(crate) fn narrow(&mut self, narrow: Option<NicIds>) -> bool {
        let is_news = !self.knows_narrow || self.narrow != narrow;
        (self.narrow, self.knows_narrow) = (narrow, true);
        is_news
    }

    /// When something that was left alone for now is to be looked at again.
    pub(crate) fn look_again(&self) -> Option<Instant> {
        self.look_again
    }

    /// One attempt to make the machine what is wanted.
    pub(crate) async fn attempt(&mut self) -> Next {
        let Some(state) = self.state.clone().filter(|_| self.knows_narrow) else { return Next::Rest };
        self.look_again = None;
        self.waits_for = None;
        self.seen = Some(Seen::of(&state));
        match self.sync(&state).await {
            Ok(next @ (Next::Again { .. } | Next::StillAtIt)) => next,
            Ok(next) => {
                // What was left alone for now may be all that was to be done.
                if self.look_again.is_none() {
                    self.failures = 0;
                }
                next
            }
            Err(error) => {
                tracing::error!(node = self.config.node, error = with_causes(&error), "attempt broken off");
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
        let (facts, plan) = match self.survey(&state.spec).await? {
            Err(error) => return self.conclude(state, Outcome::unreadable(error)).await,
            Ok((facts, _)) if state.spec.interfaces.is_none() => {
                self.tell(state, Some(&facts), &Progress::NotPlanned).await?;
                self.settle_drain(state, None, false).await?;
                return Ok(Next::Rest);
            }
            Ok(seen) => seen,
        };
        let (selection, look_again) = self.patience.select(&plan, ready_pfs(state));
        self.look_again = look_again;
        let plan = selection.of(plan);
        if plan.steps.is_empty() {
            tracing::debug!(node = self.config.node, waits = look_again.is_some(), "nothing to do now");
            return match look_again {
                Some(_) => Ok(Next::Rest),
                None => self.conclude(state, Outcome::without_steps(facts, plan)).await,
            };
        }
        match self.may_begin(state, &facts, &plan).await {
            Ok(Leave::Granted) => {}
            Ok(Leave::NotYet) => {
                self.waits_for = need(&plan);
                self.wait_for_drain(state, &facts, &plan).await?;
                return Ok(Next::Rest);
            }
            Ok(Leave::Outdated) => return Ok(Next::Rest),
            Err(error @ ReportError::DrainerForbidden(_)) => {
                self.tell_not_asked(state, &facts, &plan, &error).await?;
                return Ok(self.again());
            }
            Err(error) => return Err(error.into()),
        }
        if plan.steps.iter().any(|planned| !self.under_way.is_in_the_way_of(&planned.step)) {
            self.tell_beginning(state, &facts, &plan).await;
            self.hold_plugin_back(state, &plan).await;
        }
        // What is done is known again when it ended well.
        let drained = self.drained.take();
        let mut carried_out = self.carry_out(state, selection, facts, plan).await?;
        self.drained = drained.map(|drained| drained.with(carried_out.touched()));
        self.done_without.append(&mut carried_out.outcome.done_without);
        if carried_out.outcome.reboots {
            tracing::warn!(node = self.config.node, "the machine restarts now");
            return Ok(Next::End);
        }
        if carried_out.is_only_unfinished() {
            return self.leave_unfinished(state, &carried_out).await;
        }
        self.conclude(state, carried_out.outcome).await
    }

    /// Whether the kernel is still at a step that nobody waits for any more.
    pub(crate) fn is_still_at_it(&self) -> bool {
        self.under_way.is_any()
    }

    /// Reports what came of it, and decides how to go on.
    async fn conclude(
        &mut self,
        state: &SriovNetworkNodeState,
        mut outcome: Outcome,
    ) -> Result<Next, AttemptError> {
        // Also when something failed: one bad card must not keep the others from pods.
        self.plugin_may_start = true;
        let goes_on = outcome.failures.iter().any(Failure::keeps_the_node_drained);
        let is_over = !goes_on && !self.under_way.is_any();
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
        if outcome.failures.iter().any(Failure::is_worth_a_retry) {
            return Ok(self.again());
        }
        if is_ready(state) && outcome.executed > 0 {
            let times = self.repairs.another();
            self.announce_repair(state, times).await;
            return Ok(if times == 0 { Next::Rest } else { Next::HoldOff { times } });
        }
        Ok(Next::Rest)
    }

    async fn survey(
        &self,
        spec: &SriovNetworkNodeStateSpec,
    ) -> Result<Result<(HostFacts, Plan), HostError>, tokio::task::JoinError> {
        let host = Arc::clone(&self.config.host);
        let planner = self.planner(spec, Selection::default());
        tokio::task::spawn_blocking(move || survey(&*host, &planner)).await
    }

    /// What is to be done for `spec`, as far as it is selected.
    fn planner(
        &self,
        spec: &SriovNetworkNodeStateSpec,
        selection: Selection,
    ) -> impl Fn(&HostFacts) -> Plan + Send + Sync + use<> {
        let (spec, settings, mode) = (spec.clone(), self.config.settings.clone(), self.config.mode);
        let done_without = self.done_without.clone();
        move |facts| {
            let mut plan = selection.of(mode.plan(&spec, facts, &settings));
            plan.steps.retain(|planned| !done_without.contains(&planned.step));
            plan
        }
    }
}
