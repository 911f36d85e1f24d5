//! The execution of a plan, and reports of how far it is meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use vfleet_api::{PciAddress, SriovNetworkNodeState};
use vfleet_host::{HostError, with_causes};
use vfleet_plan::{HostFacts, PfFacts, Plan, PlannedStep, Step};

use super::{Agent, AttemptError, Next};
use crate::apply::{Failure, Happening, Outcome, Work, carry_out};
use crate::course::Course;
use crate::patience::Selection;
use crate::status::{Progress, message};

/// Who looks at a node state sees no more than that, and a fleet at work is a lot of writes.
const BETWEEN_REPORTS: Duration = Duration::from_secs(1);

impl Agent {
    /// Executes `plan` and looks at the machine again. Reports while it lasts: a card that hangs must not keep it from
    /// being known that others are done.
    pub(super) async fn carry_out(
        &mut self,
        state: &SriovNetworkNodeState,
        selection: Selection,
        facts: HostFacts,
        plan: Plan,
    ) -> Result<CarriedOut, tokio::task::JoinError> {
        let (course, mut seen) = watch::channel(Course::begin(&plan));
        let (about_to_restart, mut restarts) = mpsc::channel(1);
        let before = facts.clone();
        let config = self.config.clone();
        let planner = self.planner(&state.spec, selection);
        let host = self.under_way.oversee(&config.host);
        let mut done = tokio::task::spawn_blocking(move || {
            let metrics = Arc::clone(&config.metrics);
            let listener = move |happening: Happening<'_>| {
                metrics.take(&happening);
                course.send_modify(|course| course.take(&happening));
                if let Happening::Begins(planned @ PlannedStep { step: Step::Reboot, .. }) = happening {
                    wait_until_told(&about_to_restart, &planned.why);
                }
            };
            let work = Work {
                host: &host,
                node: &config.node,
                planner: &planner,
                one_card_at_a_time: config.settings.one_card_at_a_time,
                listener: &listener,
            };
            let outcome = carry_out(&work, facts, plan);
            (outcome, host.into_unfinished())
        });
        let mut last_report = Instant::now();
        loop {
            tokio::select! {
                done = &mut done => {
                    let (outcome, unfinished) = done?;
                    return Ok(CarriedOut { outcome, unfinished, course: seen.borrow().clone() });
                }
                Some(Restart { why, told }) = restarts.recv() => {
                    let course = seen.borrow_and_update().clone();
                    self.tell_restart(state, &before, &course, &why).await;
                    // Nobody waits any more when the work was broken off.
                    let _ = told.send(());
                }
                Some(course) = further(&mut seen, last_report) => {
                    self.tell_progress(state, &before, &course).await;
                    last_report = Instant::now();
                }
            }
        }
    }

    /// Goes on when the kernel is done with what it is still at. Others do not wait for that.
    pub(super) async fn leave_unfinished(
        &mut self,
        state: &SriovNetworkNodeState,
        carried_out: &CarriedOut,
    ) -> Result<Next, AttemptError> {
        let CarriedOut { outcome, unfinished, course } = carried_out;
        let why = message(&outcome.failures);
        tracing::warn!(node = self.config.node, why, "the others go on");
        let has_vfs_for_pods = |pf: &PfFacts| !pf.vfs.is_empty() && !unfinished.contains(&Some(pf.address));
        // One slow card must not keep the others from pods.
        self.plugin_may_start |= outcome.facts.iter().flat_map(|facts| &facts.pfs).any(has_vfs_for_pods);
        if self.failures == 0 {
            self.tell(state, outcome.facts.as_ref(), &Progress::Executing(course)).await?;
        }
        Ok(Next::StillAtIt)
    }

    /// Says how far it is. Not for another try of what failed: the failure stands until it is gone.
    pub(super) async fn tell_progress(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        course: &Course,
    ) {
        if self.failures == 0 {
            self.tell_course(state, facts, course).await;
        }
    }

    /// A cluster that cannot be told does not keep the machine from being repaired.
    pub(super) async fn tell_course(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        course: &Course,
    ) {
        if let Err(error) = self.tell(state, Some(facts), &Progress::Executing(course)).await {
            let error = with_causes(&error);
            tracing::warn!(node = self.config.node, error, "progress not reported");
        }
    }
}

/// What came of a plan.
pub(super) struct CarriedOut {
    pub(super) outcome: Outcome,
    /// The PFs on which the kernel is still at a step; `None` for the machine, which waits for that.
    unfinished: BTreeSet<Option<PciAddress>>,
    course: Course,
}

impl CarriedOut {
    /// The PFs that something was done to.
    pub(super) fn touched(&self) -> impl Iterator<Item = PciAddress> {
        self.course.touched()
    }

    /// Whether nothing is wrong but that the kernel is still at something. What fails in the end is a failure then.
    pub(super) fn is_only_unfinished(&self) -> bool {
        let is_unfinished = |failure: &Failure| match failure {
            Failure::Step { pf, source: HostError::StillRunning { .. }, .. } => self.unfinished.contains(pf),
            Failure::RestartPutOff { .. } => true,
            _ => false,
        };
        !self.unfinished.is_empty() && self.outcome.failures.iter().all(is_unfinished)
    }
}

/// The machine is about to restart, and whoever looks at the node shall know why first.
struct Restart {
    why: String,
    told: oneshot::Sender<()>,
}

fn wait_until_told(about_to_restart: &mpsc::Sender<Restart>, why: &str) {
    let (told, is_told) = oneshot::channel();
    if about_to_restart.blocking_send(Restart { why: why.to_owned(), told }).is_ok() {
        // An agent that is ended meanwhile does not tell it any more.
        let _ = is_told.blocking_recv();
    }
}

/// Waits until it is time for another report and there is something to report; `None` when nothing more comes.
async fn further(seen: &mut watch::Receiver<Course>, last_report: Instant) -> Option<Course> {
    tokio::time::sleep_until(last_report + BETWEEN_REPORTS).await;
    seen.changed().await.ok()?;
    Some(seen.borrow_and_update().clone())
}
