//! The execution of a plan, and reports of how far it is meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use vfleet_api::SriovNetworkNodeState;
use vfleet_plan::{HostFacts, Plan, PlannedStep, Step};

use super::Agent;
use crate::apply::{Happening, Outcome, Work, carry_out};
use crate::course::Course;
use crate::patience::Selection;
use crate::status::Progress;

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
    ) -> Result<Outcome, tokio::task::JoinError> {
        let (course, mut seen) = watch::channel(Course::begin(&plan));
        let (about_to_restart, mut restarts) = mpsc::channel(1);
        let before = facts.clone();
        let config = self.config.clone();
        let planner = self.planner(&state.spec, selection);
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
                host: &*config.host,
                node: &config.node,
                planner: &planner,
                one_card_at_a_time: config.settings.one_card_at_a_time,
                listener: &listener,
            };
            carry_out(&work, facts, plan)
        });
        let mut last_report = Instant::now();
        loop {
            tokio::select! {
                outcome = &mut done => return outcome,
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
            let error = crate::apply::chain(&error);
            tracing::warn!(node = self.config.node, error, "progress not reported");
        }
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
