//! The execution of a plan, and reports of how far it is meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use vfleet_api::SriovNetworkNodeState;
use vfleet_host::{HostError, with_causes};
use vfleet_plan::{HostFacts, PlannedStep, Step, Target};

use super::{Agent, DueWork, Stop};
use crate::apply::{Failure, Happening, Outcome, Work, carry_out, is_bookkeeping};
use crate::course::Course;
use crate::status::Progress;

/// Who looks at a node state sees no more than that, and a fleet at work is a lot of writes.
const BETWEEN_REPORTS: Duration = Duration::from_secs(1);

impl Agent {
    /// Executes the plan and reads the machine again.
    pub(super) async fn execute(
        &mut self,
        state: &SriovNetworkNodeState,
        work: DueWork,
    ) -> Result<ExecutedPlan, Stop> {
        let begins = work.plan.steps.iter().any(|planned| !self.detached.blocks(&planned.step));
        // What is only written down is no news for people.
        if begins && !is_bookkeeping(&work.plan) {
            self.tell_beginning(state, &work.facts, &work.plan).await;
            self.hold_go_plugin_back(state, &work.plan).await;
        }
        // What is done is known again when it ended well.
        let drained = self.drained.take();
        let mut executed = self.carry_out(state, work).await?;
        self.drained = drained.map(|drained| drained.with(executed.course.touched()));
        self.done_without.append(&mut executed.outcome.done_without);
        Ok(executed)
    }

    /// Executes the plan in the background. Reports while it lasts: a card that hangs must not keep it from being known
    /// that others are done.
    async fn carry_out(
        &mut self,
        state: &SriovNetworkNodeState,
        work: DueWork,
    ) -> Result<ExecutedPlan, tokio::task::JoinError> {
        let DueWork { facts, plan, selection } = work;
        let (course, mut seen) = watch::channel(Course::begin(&plan));
        let (about_to_restart, mut restarts) = mpsc::channel(1);
        let before = facts.clone();
        let config = self.config.clone();
        let planner = self.planner(&state.spec, selection);
        let host = self.detached.attach(&config.host);
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
                    return Ok(ExecutedPlan { outcome, unfinished, course: seen.borrow().clone() });
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

/// Result of the execution of a plan.
pub(super) struct ExecutedPlan {
    pub(super) outcome: Outcome,
    /// Lanes in which the kernel still executes a step. The machine's own lane waits for all of them.
    pub(super) unfinished: BTreeSet<Target>,
    pub(super) course: Course,
}

impl ExecutedPlan {
    /// Returns whether nothing is wrong but that the kernel still executes a step. One that fails later is a failure then.
    pub(super) fn is_only_unfinished(&self) -> bool {
        let is_unfinished = |failure: &Failure| match failure {
            Failure::Step { target, source: HostError::StillRunning { .. }, .. } => {
                self.unfinished.contains(&target.lane())
            }
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
