//! How far the execution of a plan is.

use std::collections::BTreeMap;

use vfleet_api::PciAddress;
use vfleet_host::{HostError, with_causes};
use vfleet_plan::{Disruption, Plan, PlannedStep, Problem, Step};

use crate::apply::Happening;

/// How far the execution of a plan is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course {
    disruption: Disruption,
    reboots: bool,
    all: Count,
    pfs: BTreeMap<PciAddress, PfCourse>,
}

/// How far it is on one PF.
#[derive(Clone, Debug, Default)]
pub(crate) struct PfCourse {
    count: Count,
    /// A step on it was begun.
    is_touched: bool,
    /// All of its steps did what they should.
    pub(crate) is_done: bool,
    /// What failed first: its reason, and in a sentence.
    pub(crate) failure: Option<(&'static str, String)>,
    /// What of it cannot be, whatever the steps do: the first reason, and all in a sentence.
    pub(crate) problem: Option<(&'static str, String)>,
}

#[derive(Clone, Debug, Default)]
struct Count {
    total: usize,
    ended: usize,
    /// The steps that run now, in one line each.
    running: Vec<String>,
}

impl Course {
    /// Nothing of `plan` was done yet.
    pub(crate) fn begin(plan: &Plan) -> Self {
        let mut course = Self::default();
        course.add(plan);
        course
    }

    fn add(&mut self, plan: &Plan) {
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
            let without_steps = || PfCourse { is_done: true, ..PfCourse::default() };
            let of_pf = self.pfs.entry(pf).or_insert_with(without_steps);
            of_pf.problem = Some(match of_pf.problem.take() {
                None => (problem.cause.reason(), problem.to_string()),
                Some((reason, text)) => (reason, format!("{text}; {problem}")),
            });
        }
    }

    /// Takes in what happened.
    pub(crate) fn take(&mut self, happening: &Happening<'_>) {
        match happening {
            Happening::Begins(planned) => {
                self.counts(planned, |count, step| count.running.push(step));
                if let Some(pf) = planned.step.pf() {
                    self.pfs.entry(pf).or_default().is_touched = true;
                }
            }
            Happening::Ended { planned, error: Some(HostError::StillRunning { attempt }), .. } => {
                self.counts(planned, |count, step| {
                    count.running.retain(|running| *running != step && running != attempt);
                    count.running.push(attempt.clone());
                });
            }
            Happening::Ended { planned, error, .. } => {
                self.counts(planned, |count, step| {
                    count.ended += 1;
                    count.running.retain(|running| *running != step);
                });
                if let Some(error) = error.filter(|error| !(planned.step.is_trial() && error.is_refusal()))
                    && let Some(pf) = planned.step.pf()
                {
                    let text = || format!("cannot {}: {}", planned.step, with_causes(error));
                    let of_pf = self.pfs.entry(pf).or_default();
                    of_pf.failure.get_or_insert_with(|| (error.reason(), text()));
                }
            }
            Happening::LaneEnded { target, is_done } => {
                if let Some(pf) = target.pf() {
                    self.pfs.entry(pf).or_default().is_done = *is_done;
                }
            }
            Happening::More(plan) => self.add(plan),
        }
    }

    fn counts(&mut self, planned: &PlannedStep, change: impl Fn(&mut Count, String)) {
        let step = planned.step.to_string();
        if let Some(pf) = planned.step.pf() {
            change(&mut self.pfs.entry(pf).or_default().count, step.clone());
        }
        change(&mut self.all, step);
    }

    /// Whether the machine restarts at the end of it.
    pub(crate) fn reboots(&self) -> bool {
        self.reboots
    }

    /// The PFs on which a step was begun.
    pub(crate) fn touched(&self) -> impl Iterator<Item = PciAddress> {
        self.pfs.iter().filter(|(_, of_pf)| of_pf.is_touched).map(|(pf, _)| *pf)
    }

    /// How far it is on `pf`; `None` when nothing is done there and nothing is wrong.
    pub(crate) fn of(&self, pf: PciAddress) -> Option<&PfCourse> {
        self.pfs.get(&pf)
    }

    /// How much there is to do, whom it disturbs, and where it is now.
    pub(crate) fn text(&self) -> String {
        let now = self.all.text();
        format!("{} steps, disruption {}; {now}", self.all.total, self.disruption.as_str())
    }
}

impl PfCourse {
    /// Where it is now.
    pub(crate) fn text(&self) -> String {
        self.count.text()
    }
}

impl Count {
    fn text(&self) -> String {
        let (next, total) = ((self.ended + 1).min(self.total), self.total);
        match self.running.as_slice() {
            [] => format!("{} of {total} done", self.ended),
            [step] => format!("step {next} of {total}: {step}"),
            [step, others @ ..] => {
                format!("step {next} of {total}: {step}, and {} more at once", others.len())
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
    fn it_says_what_runs_and_which_card_is_done() {
        let (one, other) = (set_up("0000:01:00.0"), set_up("0000:02:00.0"));
        let [pf, other_pf] = [&one, &other].map(|planned| planned.step.pf().unwrap());
        let plan = Plan { steps: vec![one.clone(), other.clone()], problems: Vec::new() };
        let mut course = Course::begin(&plan);
        assert_eq!(course.text(), "2 steps, disruption Pf; 0 of 2 done");
        assert_eq!(course.touched().count(), 0);
        course.take(&Happening::Begins(&one));
        assert!(course.touched().eq([pf]));
        course.take(&Happening::Begins(&other));
        assert_eq!(
            course.text(),
            "2 steps, disruption Pf; step 1 of 2: set 0000:01:00.0 up, and 1 more at once"
        );
        course.take(&Happening::Ended { planned: &other, took: Duration::ZERO, error: None });
        course.take(&Happening::LaneEnded { target: Target::Pf(other_pf), is_done: true });
        assert!(course.of(other_pf).unwrap().is_done);
        assert_eq!(course.of(pf).unwrap().text(), "step 1 of 1: set 0000:01:00.0 up");
        let error = HostError::StillRunning { attempt: one.step.to_string() };
        course.take(&Happening::Ended { planned: &one, took: Duration::ZERO, error: Some(&error) });
        course.take(&Happening::LaneEnded { target: Target::Pf(pf), is_done: false });
        let of_pf = course.of(pf).unwrap();
        assert_eq!((of_pf.text().as_str(), of_pf.is_done), ("step 1 of 1: set 0000:01:00.0 up", false));
        assert_eq!(of_pf.failure, None, "it still runs");
        let error = HostError::NoSuchPf { pf };
        course.take(&Happening::Ended { planned: &one, took: Duration::ZERO, error: Some(&error) });
        let (reason, text) = course.of(pf).unwrap().failure.clone().unwrap();
        assert_eq!(reason, "NoSuchDevice");
        assert!(text.starts_with("cannot set 0000:01:00.0 up: there is no network card"), "{text}");
    }
}
