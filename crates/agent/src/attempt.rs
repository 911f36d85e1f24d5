//! Attempts to bring the machine to the desired state, one after the other.

mod digest;
mod drain;
mod events;
mod execution;
mod go_device_plugin;
mod outcome;
#[cfg(test)]
mod tests;
mod updates;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Instant;
use vfleet_api::node_state::DrainScope;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec};
use vfleet_host::{HostError, NodeContext, format_error_chain};
use vfleet_plan::cni::programs::InstalledProgram;
use vfleet_plan::release_delay::{DueSteps, ReleasedVfs};
use vfleet_plan::{HostFacts, NicIds, Plan, Step, reread_after};

use crate::apply::{ApplyOutcome, survey};
use crate::cluster_writer::{ClusterWriteError, ClusterWriter};
use crate::detached::DetachedSteps;
use crate::go_device_plugin::GoDevicePlugin;
use crate::status::{AttemptPhase, ready_pfs};
use crate::wake_timer::recheck_pause;
use crate::{Config, GoPlugin};

use digest::NodeStateDigest;
use drain::DrainEffects;

/// Longest time between two repairs that count as consecutive: another program undoes what the agent does.
const CONSECUTIVE_REPAIRS: Duration = Duration::from_mins(2);
/// Resolution of the clock that protections are measured by.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// Action that follows an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextAction {
    /// Wait for a change.
    Wait,
    /// Try again: the last `failures` attempts failed.
    Retry { failures: u32 },
    /// Wait for a change, and react to it with a delay: the machine was repaired so many times in a row.
    HoldOff { repairs: u32 },
    /// Wait for a change: the kernel still executes a step, and the end of that step is a change.
    StepRunning,
    /// Do nothing more: the machine is about to reboot.
    Reboot,
}

/// Error that aborts an attempt.
#[derive(Debug, Error)]
enum AttemptError {
    #[error("cannot write to the cluster")]
    Write(#[from] ClusterWriteError),
    #[error("the thread that changes the machine ended unexpectedly")]
    Thread(#[from] tokio::task::JoinError),
}

/// Early end of an attempt.
enum EarlyEnd {
    /// The later stages are not needed, or have to wait.
    Finished(NextAction),
    /// An error aborted the attempt.
    Failed(AttemptError),
}

impl<E: Into<AttemptError>> From<E> for EarlyEnd {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Facts of the machine, and all steps to the desired state.
struct Survey {
    facts: HostFacts,
    plan: Plan,
}

/// Part of a survey's plan that is due now.
struct DuePlan {
    facts: HostFacts,
    plan: Plan,
    due: DueSteps,
}

/// Agent of one node.
pub(crate) struct Agent {
    config: Config,
    writer: ClusterWriter,
    /// Node state as it was last read or written; `None` while there is none.
    state: Option<Arc<SriovNetworkNodeState>>,
    /// Digest of the node state of the last attempt.
    digest: Option<NodeStateDigest>,
    /// The list that is being received contains the node state.
    is_listed: bool,
    /// Kinds of cards that are reported; `None` for all.
    nic_filter: Option<NicIds>,
    /// `nic_filter` was read.
    nic_filter_known: bool,
    /// Reason why the node's platform is not known yet.
    node_unknown_reason: Option<String>,
    /// Platform and addresses of the node, once they are known.
    node_context: Option<NodeContext>,
    /// Programs with the names of our CNI plugins; `None` while they cannot be read.
    cni_programs: Option<Vec<InstalledProgram>>,
    failures: u32,
    repairs: RepairCounter,
    /// Origin of the times in `released_vfs`.
    started: Instant,
    released_vfs: ReleasedVfs,
    /// Time when a VF that a pod released is due for repair.
    release_due_at: Option<Instant>,
    /// Time when unknown facts are to be read again.
    reread_at: Option<Instant>,
    /// Time when the protection of cards that the node used ends, unless it uses them again.
    protection_ends_at: Option<Instant>,
    recheck: RecheckSchedule,
    /// External Go device plugin, where the agent holds it back.
    go_plugin: Option<GoDevicePlugin>,
    /// The Go device plugin may discover devices.
    go_plugin_may_start: bool,
    detached: DetachedSteps,
    /// Drain that the last attempt waits for.
    awaited_drain: Option<DrainScope>,
    /// PFs that were changed since the node was drained; `None` when that is not known.
    drain_effects: Option<DrainEffects>,
    /// Optional steps that failed. They are not tried again for the same desired state.
    failed_optional_steps: Vec<Step>,
}

/// Number of repairs that closely follow each other.
#[derive(Debug, Default)]
pub(crate) struct RepairCounter {
    consecutive: u32,
    last: Option<Instant>,
}

impl RepairCounter {
    /// Counts a repair, and returns how many preceded it in a row.
    pub(crate) fn count(&mut self) -> u32 {
        let now = Instant::now();
        let is_consecutive = self.last.is_some_and(|last| now.duration_since(last) < CONSECUTIVE_REPAIRS);
        self.consecutive = if is_consecutive { self.consecutive + 1 } else { 0 };
        self.last = Some(now);
        self.consecutive
    }
}

/// Schedule of checks whether an administrator fixed the machine: module, firmware tool, file of GUIDs...
#[derive(Debug, Default)]
struct RecheckSchedule {
    checks: u32,
    next: Option<Instant>,
}

impl RecheckSchedule {
    /// Sets the next check after an attempt that found such a problem, or none.
    fn update(&mut self, has_problem: bool) {
        self.checks = if has_problem { self.checks.saturating_add(1) } else { 0 };
        self.next = has_problem.then(|| Instant::now() + recheck_pause(self.checks));
    }
}

impl Agent {
    /// Creates an agent without a node state. `wake` is notified when the machine is to be read again.
    pub(crate) fn new(client: &Client, config: Config, wake: &Arc<Notify>) -> Self {
        let wake = Arc::clone(wake);
        let go_plugin = (config.go_plugin == GoPlugin::HeldBack)
            .then(|| GoDevicePlugin::watch(client, &config.namespace, &config.node));
        let context = config.node_context.as_ref().map(|context| context.borrow().clone());
        let mut agent = Self {
            writer: ClusterWriter::new(client, &config.namespace, &config.node),
            state: None,
            digest: None,
            is_listed: false,
            nic_filter: None,
            nic_filter_known: !config.follows_nic_ids,
            node_unknown_reason: None,
            node_context: None,
            cni_programs: None,
            failures: 0,
            repairs: RepairCounter::default(),
            started: Instant::now(),
            released_vfs: ReleasedVfs::default(),
            release_due_at: None,
            reread_at: None,
            protection_ends_at: None,
            recheck: RecheckSchedule::default(),
            go_plugin,
            go_plugin_may_start: false,
            detached: DetachedSteps::new(move || wake.notify_one()),
            awaited_drain: None,
            drain_effects: None,
            failed_optional_steps: Vec::new(),
            config,
        };
        if let Some(context) = context {
            agent.set_node_context(&context);
        }
        agent
    }

    /// Makes one attempt to bring the machine to the desired state.
    pub(crate) async fn attempt(&mut self) -> NextAction {
        (self.release_due_at, self.reread_at, self.protection_ends_at) = (None, None, None);
        self.recheck.next = None;
        self.reap_steps();
        let Some(state) = self.state.clone().filter(|_| self.nic_filter_known) else {
            return NextAction::Wait;
        };
        self.awaited_drain = None;
        self.digest = Some(NodeStateDigest::of(&state));
        match self.sync(&state).await {
            Ok(next) | Err(EarlyEnd::Finished(next)) => {
                // A delayed repair may be the retry of what failed.
                let is_over = !matches!(next, NextAction::Retry { .. } | NextAction::StepRunning);
                if is_over && self.release_due_at.is_none() {
                    self.failures = 0;
                }
                next
            }
            Err(EarlyEnd::Failed(error)) => {
                let error = format_error_chain(&error);
                tracing::error!(node = self.config.node, error, "attempt aborted, will be retried");
                self.retry()
            }
        }
    }

    /// Brings the machine to the desired state, stage by stage. Each stage may end the attempt.
    async fn sync(&mut self, state: &SriovNetworkNodeState) -> Result<NextAction, EarlyEnd> {
        if let Some(reason) = self.node_unknown_reason.clone() {
            self.write_status(state, None, &AttemptPhase::PlatformUnknown(&reason)).await?;
            return Ok(NextAction::Wait);
        }
        let survey = self.survey(state).await?;
        let due = self.plan(state, survey).await?;
        self.drain(state, &due).await?;
        let executed = self.execute(state, due).await?;
        let outcome = self.verify(state, executed).await?;
        Ok(self.report(state, outcome).await?)
    }

    /// Reads the machine, plans all steps to the desired state and publishes the snapshot.
    async fn survey(&mut self, state: &SriovNetworkNodeState) -> Result<Survey, EarlyEnd> {
        self.pass_node_context(&state.spec);
        let host = Arc::clone(&self.config.host);
        let planner = self.planner(&state.spec, DueSteps::default());
        let read = move || (survey(&*host, &planner), host.cni_programs());
        let (survey, cni_programs) = tokio::task::spawn_blocking(read).await?;
        let warn = |error: &HostError| {
            let error = format_error_chain(error);
            tracing::warn!(node = self.config.node, error, "cannot read the CNI plugins of the node");
        };
        self.cni_programs = cni_programs.inspect_err(warn).ok();
        let (facts, plan) = match survey {
            Ok(survey) => survey,
            Err(error) => {
                self.publish_unreadable();
                let next = self.report(state, ApplyOutcome::unreadable(error)).await?;
                return Err(EarlyEnd::Finished(next));
            }
        };
        self.reread_at = reread_after(&facts).map(|pause| Instant::now() + pause);
        self.note_protection(&facts);
        self.publish(&state.spec, &facts, &plan);
        if state.spec.interfaces.is_none() {
            self.write_status(state, Some(&facts), &AttemptPhase::NotPlanned).await?;
            self.settle_drain(state, None, false).await?;
            return Err(EarlyEnd::Finished(NextAction::Wait));
        }
        Ok(Survey { facts, plan })
    }

    /// Selects the steps that are due now. Ends the attempt when there are none.
    async fn plan(&mut self, state: &SriovNetworkNodeState, survey: Survey) -> Result<DuePlan, EarlyEnd> {
        let Survey { facts, plan } = survey;
        let (due, next_due) = self.released_vfs.select(&plan, ready_pfs(state), self.started.elapsed());
        self.release_due_at = next_due.map(|time| self.started + time);
        let plan = due.filter(plan);
        if !plan.steps.is_empty() {
            return Ok(DuePlan { facts, plan, due });
        }
        tracing::debug!(node = self.config.node, is_delayed = next_due.is_some(), "nothing to do now");
        Err(EarlyEnd::Finished(match next_due {
            Some(_) => NextAction::Wait,
            None => self.report(state, ApplyOutcome::without_steps(facts, plan)).await?,
        }))
    }

    /// Returns the planner for `spec`, restricted to the steps that are `due`.
    fn planner(
        &self,
        spec: &SriovNetworkNodeStateSpec,
        due: DueSteps,
    ) -> impl Fn(&HostFacts) -> Plan + Send + Sync + use<> {
        let (spec, settings, mode) = (spec.clone(), self.config.settings.clone(), self.config.mode);
        let failed_optional_steps = self.failed_optional_steps.clone();
        move |facts| {
            let mut plan = due.filter(mode.plan(&spec, facts, &settings));
            plan.steps.retain(|planned| !failed_optional_steps.contains(&planned.step));
            plan
        }
    }

    fn retry(&mut self) -> NextAction {
        self.failures += 1;
        NextAction::Retry { failures: self.failures }
    }

    /// Notes when the protection of cards that the node uses ends.
    fn note_protection(&mut self, facts: &HostFacts) {
        // A little later: clocks tick in steps, and an attempt that is too early would be followed by another one.
        self.protection_ends_at = facts.protection_ends_in.map(|left| Instant::now() + left + CLOCK_TICK);
    }

    /// Returns the time of the next attempt that no change announces.
    pub(crate) fn next_attempt_at(&self) -> Option<Instant> {
        let times = [self.release_due_at, self.reread_at, self.protection_ends_at, self.recheck.next];
        times.into_iter().chain([self.next_step_deadline()]).flatten().min()
    }

    /// Returns when the first of the steps that the kernel still executes becomes overdue; `None` when it executes
    /// none.
    pub(crate) fn next_step_deadline(&self) -> Option<Instant> {
        self.detached.next_deadline().map(Instant::from_std)
    }

    /// Removes detached steps that have ended or are overdue.
    pub(crate) fn reap_steps(&self) {
        self.detached.reap();
    }
}
