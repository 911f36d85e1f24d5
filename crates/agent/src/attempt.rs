//! Attempts to make the machine what its node state desires, one after the other.

mod drain;
mod execution;
mod go_device_plugin;
mod intake;
mod outcome;
mod seen;
mod telling;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Instant;
use vfleet_api::node_state::DrainScope;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec};
use vfleet_host::with_causes;
use vfleet_plan::{HostFacts, NicIds, Plan, Question, Step, Unanswered};

use crate::Config;
use crate::alarm::pause_before_look;
use crate::apply::{Outcome, survey};
use crate::detached::DetachedSteps;
use crate::go_device_plugin::GoDevicePlugin;
use crate::patience::{Patience, Selection};
use crate::report::{ReportError, Speaker};
use crate::status::{Progress, ready_pfs};

use drain::Drained;
use seen::Seen;

/// Repairs that follow each other so quickly are answers to somebody who undoes them.
const REPAIRS_IN_A_ROW: Duration = Duration::from_mins(2);

/// udev is quick, and tells nobody who reads the machine when it has named an interface.
const UNTIL_NAMED: Duration = Duration::from_secs(1);
/// A cloud that did not answer is not asked again before this.
const UNTIL_ANSWERED: Duration = Duration::from_secs(61);
/// Step of the clock that protections are counted by.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// Returns after which pause facts are to be read again that are unknown now, and of which no event tells.
fn reread_after(facts: &HostFacts) -> Option<Duration> {
    let mut links = facts.pfs.iter().filter_map(|pf| pf.link.as_ref());
    let is_network = |unanswered: &Unanswered| unanswered.question == Question::Network;
    if links.any(|link| !link.is_named) {
        Some(UNTIL_NAMED)
    } else {
        facts.unanswered.iter().any(is_network).then_some(UNTIL_ANSWERED)
    }
}

/// Action that follows an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for a change.
    Rest,
    /// Try again: it failed so many times in a row.
    Again { times: u32 },
    /// Wait for a change, but not react too quickly: it was repaired so many times in a row.
    HoldOff { times: u32 },
    /// Wait for a change: the kernel still executes a step, and its end will be one.
    StillAtIt,
    /// Nothing any more: the machine is about to restart.
    End,
}

/// Reason for an attempt to break off.
#[derive(Debug, Error)]
enum AttemptError {
    #[error("cannot report")]
    Report(#[from] ReportError),
    #[error("the work on the machine ended in the middle")]
    Thread(#[from] tokio::task::JoinError),
}

/// Early end of an attempt.
enum Stop {
    /// The later stages are not needed, or have to wait.
    Ends(Next),
    /// The attempt broke off.
    Fails(AttemptError),
}

impl<E: Into<AttemptError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Fails(error.into())
    }
}

/// The machine as it was found, and everything that is to be done on it.
struct Survey {
    facts: HostFacts,
    plan: Plan,
}

/// The part of a survey's plan that is due now.
struct DueWork {
    facts: HostFacts,
    plan: Plan,
    selection: Selection,
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
    /// Why the node's platform is not known yet.
    node_unknown: Option<String>,
    failures: u32,
    repairs: Repairs,
    patience: Patience,
    look_again: Option<Instant>,
    /// When facts that nobody tells a change of are to be read again.
    reread: Option<Instant>,
    /// When the protection of what the node used ends, unless it is used again by then.
    protection_ends: Option<Instant>,
    repair_looks: RepairLooks,
    /// The external Go device plugin, where it is held back.
    go_plugin: Option<GoDevicePlugin>,
    /// Whether it may look for devices.
    go_plugin_may_start: bool,
    detached: DetachedSteps,
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

/// Looks at a machine on which something is wrong that people mend: module, firmware tool, file of GUIDs...
#[derive(Debug, Default)]
struct RepairLooks {
    in_vain: u32,
    next: Option<Instant>,
}

impl RepairLooks {
    /// Plans the next look after an attempt that found such a fault, or none.
    fn plan(&mut self, has_fault: bool) {
        self.in_vain = if has_fault { self.in_vain.saturating_add(1) } else { 0 };
        self.next = has_fault.then(|| Instant::now() + pause_before_look(self.in_vain));
    }
}

impl Agent {
    /// Returns an agent that has seen nothing yet. `wake` is notified when the machine is worth another look.
    pub(crate) fn new(client: &Client, config: Config, wake: &Arc<Notify>) -> Self {
        let wake = Arc::clone(wake);
        let go_plugin = config
            .holds_go_plugin_back
            .then(|| GoDevicePlugin::follow(client, &config.namespace, &config.node));
        let context = config.node_context.as_ref().map(|context| context.borrow().clone());
        let mut agent = Self {
            speaker: Speaker::new(client, &config.namespace, &config.node),
            state: None,
            seen: None,
            listed: false,
            narrow: None,
            knows_narrow: !config.follows_nic_ids,
            node_unknown: None,
            failures: 0,
            repairs: Repairs::default(),
            patience: Patience::default(),
            look_again: None,
            reread: None,
            protection_ends: None,
            repair_looks: RepairLooks::default(),
            go_plugin,
            go_plugin_may_start: false,
            detached: DetachedSteps::new(move || wake.notify_one()),
            waits_for: None,
            drained: None,
            done_without: Vec::new(),
            config,
        };
        if let Some(context) = context {
            agent.follow_node(&context);
        }
        agent
    }

    /// Makes one attempt to make the machine what is desired.
    pub(crate) async fn attempt(&mut self) -> Next {
        (self.look_again, self.reread, self.protection_ends) = (None, None, None);
        self.repair_looks.next = None;
        self.reap_steps();
        let Some(state) = self.state.clone().filter(|_| self.knows_narrow) else { return Next::Rest };
        self.waits_for = None;
        self.seen = Some(Seen::of(&state));
        match self.sync(&state).await {
            Ok(next) | Err(Stop::Ends(next)) => {
                // What was left alone for now may be all that was to be done.
                if !matches!(next, Next::Again { .. } | Next::StillAtIt) && self.look_again.is_none() {
                    self.failures = 0;
                }
                next
            }
            Err(Stop::Fails(error)) => {
                tracing::error!(node = self.config.node, error = with_causes(&error), "attempt broken off");
                self.again()
            }
        }
    }

    /// Brings the machine to the desired state, stage by stage. Each stage may end the attempt.
    async fn sync(&mut self, state: &SriovNetworkNodeState) -> Result<Next, Stop> {
        if let Some(why) = self.node_unknown.clone() {
            self.tell(state, None, &Progress::PlatformUnknown(&why)).await?;
            return Ok(Next::Rest);
        }
        let survey = self.survey(state).await?;
        let work = self.plan(state, survey).await?;
        self.drain(state, &work).await?;
        let executed = self.execute(state, work).await?;
        let outcome = self.verify(state, executed).await?;
        Ok(self.report(state, outcome).await?)
    }

    /// Reads the machine and works out everything that is to be done on it. Publishes the snapshot.
    async fn survey(&mut self, state: &SriovNetworkNodeState) -> Result<Survey, Stop> {
        let host = Arc::clone(&self.config.host);
        let planner = self.planner(&state.spec, Selection::default());
        let survey = tokio::task::spawn_blocking(move || survey(&*host, &planner)).await?;
        let (facts, plan) = match survey {
            Ok(survey) => survey,
            Err(error) => {
                self.publish_unreadable();
                let next = self.report(state, Outcome::unreadable(error)).await?;
                return Err(Stop::Ends(next));
            }
        };
        self.reread = reread_after(&facts).map(|pause| Instant::now() + pause);
        self.note_protection(&facts);
        self.publish(&state.spec, &facts, &plan);
        if state.spec.interfaces.is_none() {
            self.tell(state, Some(&facts), &Progress::NotPlanned).await?;
            self.settle_drain(state, None, false).await?;
            return Err(Stop::Ends(Next::Rest));
        }
        Ok(Survey { facts, plan })
    }

    /// Selects what is due now. Ends the attempt when that is nothing.
    async fn plan(&mut self, state: &SriovNetworkNodeState, survey: Survey) -> Result<DueWork, Stop> {
        let Survey { facts, plan } = survey;
        let (selection, look_again) = self.patience.select(&plan, ready_pfs(state));
        self.look_again = look_again;
        let plan = selection.of(plan);
        if !plan.steps.is_empty() {
            return Ok(DueWork { facts, plan, selection });
        }
        tracing::debug!(node = self.config.node, waits = look_again.is_some(), "nothing to do now");
        Err(Stop::Ends(match look_again {
            Some(_) => Next::Rest,
            None => self.report(state, Outcome::without_steps(facts, plan)).await?,
        }))
    }

    /// Returns the planner for `spec`, of the steps that `selection` admits.
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

    fn again(&mut self) -> Next {
        self.failures += 1;
        Next::Again { times: self.failures }
    }

    /// Takes in when what was refused for the sake of the node's own traffic may be done.
    fn note_protection(&mut self, facts: &HostFacts) {
        // A little later: clocks tick in steps, and a look too early would be one more.
        self.protection_ends = facts.protection_ends_in.map(|left| Instant::now() + left + CLOCK_TICK);
    }

    /// Returns when something that was left alone for now is to be looked at again.
    pub(crate) fn look_again(&self) -> Option<Instant> {
        let soon = [self.look_again, self.reread, self.protection_ends, self.repair_looks.next];
        soon.into_iter().chain([self.next_step_deadline()]).flatten().min()
    }

    /// Returns when the first of the steps that the kernel still executes becomes overdue; `None` when it executes none.
    pub(crate) fn next_step_deadline(&self) -> Option<Instant> {
        self.detached.next_deadline().map(Instant::from_std)
    }

    /// Forgets steps that the kernel has ended, or that are overdue.
    pub(crate) fn reap_steps(&self) {
        self.detached.reap();
    }
}
