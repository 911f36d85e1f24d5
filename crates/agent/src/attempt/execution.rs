//! The execution of a plan, and reports of how far it is meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use vfleet_api::SriovNetworkNodeState;
use vfleet_plan::{HostFacts, Plan};

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
        let before = facts.clone();
        let config = self.config.clone();
        let planner = self.planner(&state.spec, selection);
        let mut done = tokio::task::spawn_blocking(move || {
            let metrics = Arc::clone(&config.metrics);
            let listener = move |happening: Happening<'_>| {
                metrics.take(&happening);
                course.send_modify(|course| course.take(&happening));
            };
            let work = Work {
                host: &*config.host,
                node: &config.node,
                planner: &planner,
                one_card_at_a_time: config.one_card_at_a_time,
                listener: &listener,
            };
            carry_out(&work, facts, plan)
        });
        let mut last_report = Instant::now();
        loop {
            tokio::select! {
                outcome = &mut done => return outcome,
                Some(course) = further(&mut seen, last_report) => {
                    self.tell_progress(state, &before, &course).await;
                    last_report = Instant::now();
                }
            }
        }
    }

    /// Says how far it is. Not for another try of what failed: the failure stands until it is gone. A cluster that
    /// cannot be told does not keep the machine from being repaired.
    pub(super) async fn tell_progress(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        course: &Course,
    ) {
        if self.failures > 0 && !course.reboots() {
            return;
        }
        if let Err(error) = self.tell(state, Some(facts), &Progress::Executing(course)).await {
            let error = crate::apply::chain(&error);
            tracing::warn!(node = self.config.node, error, "progress not reported");
        }
    }
}

/// Waits until it is time for another report and there is something to report; `None` when nothing more comes.
async fn further(seen: &mut watch::Receiver<Course>, last_report: Instant) -> Option<Course> {
    tokio::time::sleep_until(last_report + BETWEEN_REPORTS).await;
    seen.changed().await.ok()?;
    Some(seen.borrow_and_update().clone())
}
