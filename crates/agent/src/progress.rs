//! Progress of the execution of a plan.

use std::collections::BTreeMap;

use vfleet_api::PciAddress;
use vfleet_host::HostError;
use vfleet_plan::{Disruption, Plan, PlannedStep, Problem, Step, Target};

use crate::apply::{ExecutionEvent, describe_failed_step, problem_target};

/// Progress of the execution of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExecutionProgress {
    disruption: Disruption,
    reboots: bool,
    all: StepCounter,
    /// Progress on each PF, which includes its VFs and its bridge, and on each bridge.
    parts: BTreeMap<Target, PartProgress>,
}

/// Progress on one PF or bridge.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartProgress {
    count: StepCounter,
    /// A step on the part was started.
    is_touched: bool,
    /// All steps on the part succeeded.
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
            for part in reported_parts(planned.step.target()) {
                let progress = self.parts.entry(part).or_default();
                progress.count.total += 1;
                progress.is_done = false;
            }
        }
        self.replace_problems(&plan.problems);
    }

    fn replace_problems(&mut self, problems: &[Problem]) {
        for progress in self.parts.values_mut() {
            progress.problem = None;
        }
        for problem in problems {
            for part in reported_parts(problem_target(problem)) {
                let without_steps = || PartProgress { is_done: true, ..PartProgress::default() };
                let progress = self.parts.entry(part).or_insert_with(without_steps);
                progress.problem = Some(match progress.problem.take() {
                    None => (problem.cause.reason(), problem.to_string()),
                    Some((reason, text)) => (reason, format!("{text}; {problem}")),
                });
            }
        }
    }

    /// Records an event of the execution.
    pub(crate) fn record(&mut self, event: &ExecutionEvent<'_>) {
        match event {
            ExecutionEvent::StepStarted(planned) => {
                self.update_counters(planned, |count, step| count.running.push(step));
                for part in reported_parts(planned.step.target()) {
                    self.parts.entry(part).or_default().is_touched = true;
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
                let failure = error.filter(|error| !(planned.step.is_trial() && error.is_refusal()));
                for part in reported_parts(planned.step.target()) {
                    let progress = self.parts.entry(part).or_default();
                    if let Some(error) = failure {
                        let text = || describe_failed_step(&planned.step.to_string(), error);
                        progress.failure.get_or_insert_with(|| (error.reason(), text()));
                    }
                    // Other steps of the lane may follow, which do not concern the bridge.
                    if matches!(part, Target::Bridge(_)) {
                        progress.is_done = progress.failure.is_none() && progress.count.has_ended();
                    }
                }
            }
            ExecutionEvent::LaneFinished { target, succeeded } => {
                if let Some(pf) = target.pf() {
                    self.parts.entry(Target::Pf(pf)).or_default().is_done = *succeeded;
                }
            }
            ExecutionEvent::PlanExtended(plan) => self.add_plan(plan),
        }
    }

    fn update_counters(&mut self, planned: &PlannedStep, update: impl Fn(&mut StepCounter, String)) {
        let step = planned.step.to_string();
        for part in reported_parts(planned.step.target()) {
            update(&mut self.parts.entry(part).or_default().count, step.clone());
        }
        update(&mut self.all, step);
    }

    /// Returns whether the plan ends with a reboot.
    pub(crate) fn reboots(&self) -> bool {
        self.reboots
    }

    /// Returns the PFs on which a step was started.
    pub(crate) fn touched_pfs(&self) -> impl Iterator<Item = PciAddress> {
        let touched = self.parts.iter().filter(|(_, progress)| progress.is_touched);
        touched.filter_map(|(part, _)| if let Target::Pf(pf) = part { Some(*pf) } else { None })
    }

    /// Returns the progress on `pf`; `None` if the PF has neither steps nor problems.
    pub(crate) fn pf(&self, pf: PciAddress) -> Option<&PartProgress> {
        self.parts.get(&Target::Pf(pf))
    }

    /// Returns the progress on the bridge of `pf`; `None` if the bridge has neither steps nor problems.
    pub(crate) fn bridge(&self, pf: PciAddress) -> Option<&PartProgress> {
        self.parts.get(&Target::Bridge(pf))
    }

    /// Returns the number of steps, the disruption and the running steps, in one line.
    pub(crate) fn text(&self) -> String {
        format!("{} (disruption: {})", self.all.text(), self.disruption.description())
    }
}

/// Returns the parts whose progress is reported and that `target` belongs to.
fn reported_parts(target: Target) -> impl Iterator<Item = Target> {
    let bridge = matches!(target, Target::Bridge(_)).then_some(target);
    target.pf().map(Target::Pf).into_iter().chain(bridge)
}

impl PartProgress {
    /// Returns the number of steps and the running steps, in one line.
    pub(crate) fn text(&self) -> String {
        self.count.text()
    }
}

impl StepCounter {
    const fn has_ended(&self) -> bool {
        self.ended == self.total
    }

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

    fn on_bridge(name: &str) -> PlannedStep {
        let (pf, name) = (PF.parse().unwrap(), name.to_owned());
        let step = Step::CreateLinuxBridge { pf, name, alias: String::new() };
        PlannedStep { step, disruption: Disruption::Pf, why: String::new() }
    }

    const PF: &str = "0000:01:00.0";

    fn end(progress: &mut ExecutionProgress, planned: &PlannedStep, error: Option<&HostError>) {
        progress.record(&ExecutionEvent::StepStarted(planned));
        progress.record(&ExecutionEvent::StepFinished { planned, duration: Duration::ZERO, error });
    }

    #[test]
    fn a_bridge_is_done_after_its_own_steps() {
        let (pf, others) = (set_up(PF), set_up(PF));
        let address = PF.parse().unwrap();
        let bridge = on_bridge("br-x");
        let plan = Plan { steps: vec![pf.clone(), bridge.clone(), others], problems: Vec::new() };
        let mut progress = ExecutionProgress::new(&plan);
        end(&mut progress, &pf, None);
        assert!(!progress.bridge(address).unwrap().is_done);
        end(&mut progress, &bridge, None);
        assert!(progress.bridge(address).unwrap().is_done);
        let of_pf = progress.pf(address).unwrap();
        assert_eq!((of_pf.text().as_str(), of_pf.is_done), ("2 of 3 steps done", false));
        progress.record(&ExecutionEvent::LaneFinished { target: Target::Pf(address), succeeded: false });
        assert!(progress.bridge(address).unwrap().is_done, "another step failed");
        assert!(progress.touched_pfs().eq([address]));
    }

    #[test]
    fn a_failed_step_is_named_once() {
        let bridge = on_bridge("br-x");
        let mut progress =
            ExecutionProgress::new(&Plan { steps: vec![bridge.clone()], problems: Vec::new() });
        let (attempt, socket) = (bridge.step.to_string(), "/run/db.sock".to_owned());
        end(&mut progress, &bridge, Some(&HostError::OvsNotRunning { attempt, socket }));
        for part in [progress.pf(PF.parse().unwrap()), progress.bridge(PF.parse().unwrap())] {
            let part = part.unwrap();
            let (_, text) = part.failure.clone().unwrap();
            assert_eq!(text.matches("cannot create Linux bridge br-x").count(), 1, "{text}");
            assert!(!part.is_done);
        }
    }
}
