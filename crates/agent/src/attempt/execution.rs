//! Execution of a plan, and reports of its progress.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use vfleet_api::SriovNetworkNodeState;
use vfleet_host::{HostError, format_error_chain};
use vfleet_plan::follow_up::only_writes_records;
use vfleet_plan::{HostFacts, PlannedStep, Step, Target};

use super::{Agent, DuePlan, EarlyEnd};
use crate::apply::{ApplyContext, ApplyOutcome, ExecutionEvent, Failure, apply_plan};
use crate::progress::ExecutionProgress;
use crate::status::AttemptPhase;

/// Pause between progress reports: a whole fleet that is configured at once makes a lot of writes.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

impl Agent {
    /// Executes the plan and reads the machine again.
    pub(super) async fn execute(
        &mut self,
        state: &SriovNetworkNodeState,
        due: DuePlan,
    ) -> Result<ExecutedPlan, EarlyEnd> {
        let starts_step = due.plan.steps.iter().any(|planned| !self.detached.blocks(&planned.step));
        // Records alone are not worth an Event.
        if starts_step && !only_writes_records(&due.plan) {
            self.report_start(state, &due.facts, &due.plan).await;
            self.hold_go_plugin_back(state, &due.plan).await;
        }
        // Unknown if the execution ends with an error.
        let drain_effects = self.drain_effects.take();
        let mut executed = self.execute_and_report(state, due).await?;
        self.drain_effects = drain_effects.map(|effects| effects.with(executed.progress.touched_pfs()));
        self.failed_optional_steps.append(&mut executed.outcome.failed_optional_steps);
        Ok(executed)
    }

    /// Executes the plan in the background, and reports the progress meanwhile: a card that hangs must not hide that
    /// others are done.
    async fn execute_and_report(
        &mut self,
        state: &SriovNetworkNodeState,
        due: DuePlan,
    ) -> Result<ExecutedPlan, tokio::task::JoinError> {
        let DuePlan { facts, plan, due } = due;
        let (progress_sender, mut progress) = watch::channel(ExecutionProgress::new(&plan));
        let (reboot_notices, mut reboots) = mpsc::channel(1);
        let facts_before = facts.clone();
        let config = self.config.clone();
        let planner = self.planner(&state.spec, due);
        let host = self.detached.attach(&config.host);
        let mut execution = tokio::task::spawn_blocking(move || {
            let metrics = Arc::clone(&config.metrics);
            let listener = move |event: ExecutionEvent<'_>| {
                metrics.record_event(&event);
                progress_sender.send_modify(|progress| progress.record(&event));
                if let ExecutionEvent::StepStarted(planned @ PlannedStep { step: Step::Reboot, .. }) = event {
                    wait_for_reboot_report(&reboot_notices, &planned.why);
                }
            };
            let context = ApplyContext {
                host: &host,
                node: &config.node,
                planner: &planner,
                one_card_at_a_time: config.settings.one_card_at_a_time,
                listener: &listener,
            };
            let outcome = apply_plan(&context, facts, plan);
            (outcome, host.into_unfinished())
        });
        let mut last_report = Instant::now();
        loop {
            tokio::select! {
                result = &mut execution => {
                    let (outcome, unfinished) = result?;
                    return Ok(ExecutedPlan { outcome, unfinished, progress: progress.borrow().clone() });
                }
                Some(RebootNotice { reason, reported }) = reboots.recv() => {
                    let current = progress.borrow_and_update().clone();
                    self.report_reboot(state, &facts_before, &current, &reason).await;
                    // The receiver is gone when the execution was aborted.
                    let _ = reported.send(());
                }
                Some(current) = next_progress(&mut progress, last_report) => {
                    self.report_progress_unless_retrying(state, &facts_before, &current).await;
                    last_report = Instant::now();
                }
            }
        }
    }

    /// Reports the progress, except during a retry: the failure stays reported until it is gone.
    pub(super) async fn report_progress_unless_retrying(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        progress: &ExecutionProgress,
    ) {
        if self.failures == 0 {
            self.report_progress(state, facts, progress).await;
        }
    }

    /// Reports the progress. A failure to do so does not keep the machine from being configured.
    pub(super) async fn report_progress(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        progress: &ExecutionProgress,
    ) {
        if let Err(error) = self.write_status(state, Some(facts), &AttemptPhase::Executing(progress)).await {
            let error = format_error_chain(&error);
            tracing::warn!(node = self.config.node, error, "cannot report the progress");
        }
    }
}

/// Result of the execution of a plan.
pub(super) struct ExecutedPlan {
    pub(super) outcome: ApplyOutcome,
    /// Lanes in which the kernel still executes a step. The machine's own lane waits for all of them.
    pub(super) unfinished: BTreeSet<Target>,
    pub(super) progress: ExecutionProgress,
}

impl ExecutedPlan {
    /// Returns whether the only failure is that the kernel still executes a step. If that step fails later, that is a
    /// failure of a later attempt.
    pub(super) fn is_only_unfinished(&self) -> bool {
        let is_unfinished = |failure: &Failure| match failure {
            Failure::Step { target, source: HostError::StillRunning { .. }, .. } => {
                self.unfinished.contains(&target.lane())
            }
            Failure::RebootPostponed { .. } => true,
            _ => false,
        };
        !self.unfinished.is_empty() && self.outcome.failures.iter().all(is_unfinished)
    }
}

/// Notice that the machine is about to reboot, so that the reason can be reported first.
struct RebootNotice {
    reason: String,
    reported: oneshot::Sender<()>,
}

fn wait_for_reboot_report(notices: &mpsc::Sender<RebootNotice>, reason: &str) {
    let (reported, is_reported) = oneshot::channel();
    if notices.blocking_send(RebootNotice { reason: reason.to_owned(), reported }).is_ok() {
        // An agent that is stopped meanwhile does not report it.
        let _ = is_reported.blocking_recv();
    }
}

/// Waits until another report is due and the progress changed; returns `None` when the execution has ended.
async fn next_progress(
    progress: &mut watch::Receiver<ExecutionProgress>,
    last_report: Instant,
) -> Option<ExecutionProgress> {
    tokio::time::sleep_until(last_report + REPORT_INTERVAL).await;
    progress.changed().await.ok()?;
    Some(progress.borrow_and_update().clone())
}
