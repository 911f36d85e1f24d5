//! Progress of the execution of a plan.

use std::collections::BTreeMap;

use vfleet_api::PciAddress;
use vfleet_host::{HostError, format_error_chain};
use vfleet_plan::{Disruption, Plan, PlannedStep, Problem, Step};

use crate::apply::ExecutionEvent;

/// Progress of the execution of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExecutionProgress {
    disruption: Disruption,
    reboots: bool,
    all: StepCounter,
    pfs: BTreeMap<PciAddress, PfProgress>,
}

/// Progress on one PF.
#[derive(Clone, Debug, Default)]
pub(crate) struct PfProgress {
    count: StepCounter,
    /// A step on the PF was started.
    is_touched: bool,
    /// All steps on the PF succeeded.
    pub(crate) is_done: bool,
    /// First failure: its reason and its text.
    pub(crate) failure: Option<(&'static str, String)>,
    /// Problems that no step solves: the reason of the first one, and the text of all.
    pub(crate) problem: Option<(&'static str, String)>,
}

/// Number of steps, and those that run now.
#[derive(Clone, Debug, Default)]
struct StepCounter {
    total: usize,
    ended: usize,
    /// Steps that run now, in one line each.
    running: Vec<String>,
}

impl ExecutionProgress {
    /// Returns the progress of a plan that was not started.
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut progress = Self::default();
        progress.add_plan(plan);
        progress
    }

    fn add_plan(&mut self, plan: &Plan) {
        self.disruption = self.disruption.max(plan.disruption());
        self.all.total += plan.steps.len();
        for planned in &plan.steps {
            self.reboots |= planned.step == Step::Reboot;
            if let Some(pf) = planned.step.pf() {
                let of_pf = self.pfs.entry(pf).or_default();
                of_pf.count.total += 1;
                of_pf.is_done = false;
            }
        }
        self.replace_problems(&plan.problems);
    }

    fn replace_problems(&mut self, problems: &[Problem]) {
        for of_pf in self.pfs.values_mut() {
            of_pf.problem = None;
        }
        for (pf, problem) in problems.iter().filter_map(|problem| Some((problem.pf?, problem))) {
            let without_steps = || PfProgress { is_done: true, ..PfProgress::default() };
            let of_pf = self.pfs.entry(pf).or_insert_with(without_steps);
            of_pf.problem = Some(match of_pf.problem.take() {
                None => (problem.cause.reason(), problem.to_string()),
                Some((reason, text)) => (reason, format!("{text}; {problem}")),
            });
        }
    }

    /// Records an event of the execution.
    pub(crate) fn record(&mut self, event: &ExecutionEvent<'_>) {
        match event {
            ExecutionEvent::StepStarted(planned) => {
                self.update_counters(planned, |count, step| count.running.push(step));
                if let Some(pf) = planned.step.pf() {
                    self.pfs.entry(pf).or_default().is_touched = true;
                }
            }
            ExecutionEvent::StepFinished {
                planned,
                error: Some(HostError::StillRunning { attempt }),
                ..
            } => {
                self.update_counters(planned, |count, step| {
                    count.running.retain(|running| *running != step && running != attempt);
                    count.running.push(attempt.clone());
                });
            }
            ExecutionEvent::StepFinished { planned, error, .. } => {
                self.update_counters(planned, |count, step| {
                    count.ended += 1;
                    count.running.retain(|running| *running != step);
                });
                if let Some(error) = error.filter(|error| !(planned.step.is_trial() && error.is_refusal()))
                    && let Some(pf) = planned.step.pf()
                {
                    let text = || format!("cannot {}: {}", planned.step, format_error_chain(error));
                    let of_pf = self.pfs.entry(pf).or_default();
                    of_pf.failure.get_or_insert_with(|| (error.reason(), text()));
                }
            }
            ExecutionEvent::LaneFinished { target, succeeded } => {
                if let Some(pf) = target.pf() {
                    self.pfs.entry(pf).or_default().is_done = *succeeded;
                }
            }
            ExecutionEvent::PlanExtended(plan) => self.add_plan(plan),
        }
    }

    fn update_counters(&mut self, planned: &PlannedStep, update: impl Fn(&mut StepCounter, String)) {
        let step = planned.step.to_string();
        if let Some(pf) = planned.step.pf() {
            update(&mut self.pfs.entry(pf).or_default().count, step.clone());
        }
        update(&mut self.all, step);
    }

    /// Returns whether the plan ends with a reboot.
    pub(crate) fn reboots(&self) -> bool {
        self.reboots
    }

    /// Returns the PFs on which a step was started.
    pub(crate) fn touched_pfs(&self) -> impl Iterator<Item = PciAddress> {
        self.pfs.iter().filter(|(_, of_pf)| of_pf.is_touched).map(|(pf, _)| *pf)
    }

    /// Returns the progress on `pf`; `None` if the PF has neither steps nor problems.
    pub(crate) fn pf(&self, pf: PciAddress) -> Option<&PfProgress> {
        self.pfs.get(&pf)
    }

    /// Returns the number of steps, the disruption and the running steps, in one line.
    pub(crate) fn text(&self) -> String {
        format!("{} (disruption: {})", self.all.text(), self.disruption.description())
    }
}

impl PfProgress {
    /// Returns the number of steps and the running steps, in one line.
    pub(crate) fn text(&self) -> String {
        self.count.text()
    }
}

impl StepCounter {
    fn text(&self) -> String {
        let (next, total) = ((self.ended + 1).min(self.total), self.total);
        match self.running.as_slice() {
            [] => format!("{} of {total} steps done", self.ended),
            [step] => format!("step {next} of {total}: {step}"),
            [step, others @ ..] => {
                format!("step {next} of {total}: {step}, and {} more in parallel", others.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vfleet_plan::Target;

    use super::*;

    fn set_up(pf: &str) -> PlannedStep {
        let step = Step::SetLinkUp { pf: pf.parse().unwrap() };
        PlannedStep { step, disruption: Disruption::Pf, why: String::new() }
    }

    #[test]
    fn the_text_names_running_steps_and_each_card_knows_whether_it_is_done() {
        let (one, other) = (set_up("0000:01:00.0"), set_up("0000:02:00.0"));
        let [pf, other_pf] = [&one, &other].map(|planned| planned.step.pf().unwrap());
        let plan = Plan { steps: vec![one.clone(), other.clone()], problems: Vec::new() };
        let mut progress = ExecutionProgress::new(&plan);
        assert_eq!(progress.text(), "0 of 2 steps done (disruption: brief link loss)");
        assert_eq!(progress.touched_pfs().count(), 0);
        progress.record(&ExecutionEvent::StepStarted(&one));
        assert!(progress.touched_pfs().eq([pf]));
        progress.record(&ExecutionEvent::StepStarted(&other));
        assert_eq!(
            progress.text(),
            "step 1 of 2: set 0000:01:00.0 up, and 1 more in parallel (disruption: brief link loss)"
        );
        progress.record(&ExecutionEvent::StepFinished {
            planned: &other,
            duration: Duration::ZERO,
            error: None,
        });
        progress.record(&ExecutionEvent::LaneFinished { target: Target::Pf(other_pf), succeeded: true });
        assert!(progress.pf(other_pf).unwrap().is_done);
        assert_eq!(progress.pf(pf).unwrap().text(), "step 1 of 1: set 0000:01:00.0 up");
        let error = HostError::StillRunning { attempt: one.step.to_string() };
        progress.record(&ExecutionEvent::StepFinished {
            planned: &one,
            duration: Duration::ZERO,
            error: Some(&error),
        });
        progress.record(&ExecutionEvent::LaneFinished { target: Target::Pf(pf), succeeded: false });
        let of_pf = progress.pf(pf).unwrap();
        assert_eq!((of_pf.text().as_str(), of_pf.is_done), ("step 1 of 1: set 0000:01:00.0 up", false));
        assert_eq!(of_pf.failure, None, "it still runs");
        let error = HostError::PfNotFound { pf };
        progress.record(&ExecutionEvent::StepFinished {
            planned: &one,
            duration: Duration::ZERO,
            error: Some(&error),
        });
        let (reason, text) = progress.pf(pf).unwrap().failure.clone().unwrap();
        assert_eq!(reason, "NoSuchDevice");
        assert!(text.starts_with("cannot set 0000:01:00.0 up: this node has no network card"), "{text}");
    }
}
