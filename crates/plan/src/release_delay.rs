//! Delay before a VF that a pod released is repaired.
//!
//! For a moment after a pod ended, a VF differs from the desired state: the CNI plugin restores its name, MTU and
//! driver. The agent must not take that for a change by another program.

use core::time::Duration;

use vfleet_api::{PciAddress, VfRef};

use crate::prelude::*;
use crate::step::{Disruption, Plan, PlannedStep};

/// Delay before a VF is repaired. A CNI plugin restores a VF in well under a second; the rest is for a busy machine.
pub const RELEASE_DELAY: Duration = Duration::from_secs(2);

/// VFs that differ from the desired state of PFs that were ready, and since when.
///
/// Times are durations since any fixed moment, the same one in all calls.
#[derive(Debug, Default)]
pub struct ReleasedVfs {
    since: BTreeMap<VfRef, Duration>,
}

/// Filter for the steps of a plan that are due now. The default filter lets all steps pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DueSteps {
    /// PFs that were ready for the present desired state. Of their steps, only those of `due_vfs` pass.
    ready_pfs: BTreeSet<PciAddress>,
    /// VFs that differ for longer than the delay.
    due_vfs: BTreeSet<VfRef>,
}

impl ReleasedVfs {
    /// Returns which steps of `plan` are due at `now`, and when the next VF becomes due. `ready_pfs` are the PFs that
    /// were ready for the present desired state. A PF with a larger difference than a VF, or with a problem, is not
    /// delayed.
    pub fn select(
        &mut self,
        plan: &Plan,
        mut ready_pfs: BTreeSet<PciAddress>,
        now: Duration,
    ) -> (DueSteps, Option<Duration>) {
        let is_small =
            |planned: &PlannedStep| planned.step.vf().is_some() || planned.disruption <= Disruption::Vf;
        for planned in plan.steps.iter().filter(|planned| !is_small(planned)) {
            match planned.step.pf() {
                Some(pf) => ready_pfs.remove(&pf),
                None => return self.without_delay(),
            };
        }
        for pf in plan.problems.iter().filter_map(|problem| problem.pf) {
            ready_pfs.remove(&pf);
        }
        let different = plan.steps.iter().filter_map(|planned| planned.step.vf());
        let different: BTreeSet<VfRef> = different.filter(|vf| ready_pfs.contains(&vf.pf)).collect();
        self.since.retain(|vf, _| different.contains(vf));
        for vf in different {
            self.since.entry(vf).or_insert(now);
        }
        let is_due = |since: Duration| since + RELEASE_DELAY <= now;
        let due_vfs = self.since.iter().filter(|(_, since)| is_due(**since)).map(|(vf, _)| *vf).collect();
        let next = self.since.values().copied().filter(|since| !is_due(*since)).min();
        (DueSteps { ready_pfs, due_vfs }, next.map(|since| since + RELEASE_DELAY))
    }

    fn without_delay(&mut self) -> (DueSteps, Option<Duration>) {
        self.since.clear();
        (DueSteps::default(), None)
    }
}

impl DueSteps {
    /// Returns `plan` without the steps that are not due. Steps of a whole PF pass together with those of its VFs.
    #[must_use]
    pub fn filter(&self, mut plan: Plan) -> Plan {
        let different: BTreeSet<VfRef> = plan.steps.iter().filter_map(|planned| planned.step.vf()).collect();
        let is_delayed = |pf: PciAddress| {
            let mut of_pf = different.iter().filter(|vf| vf.pf == pf).peekable();
            of_pf.peek().is_some() && !of_pf.any(|vf| self.due_vfs.contains(vf))
        };
        plan.steps.retain(|planned| match (planned.step.vf(), planned.step.pf()) {
            (_, Some(pf)) if !self.ready_pfs.contains(&pf) => true,
            (Some(vf), _) => self.due_vfs.contains(&vf),
            (None, Some(pf)) => !is_delayed(pf),
            (None, None) => true,
        });
        plan
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::HostFacts;
    use crate::node::{Problem, plan_node};
    use crate::step::{Step, VfDriver};

    const START: Duration = Duration::from_secs(100);

    fn vf(index: u16) -> VfRef {
        VfRef { pf: "0000:01:00.0".parse().unwrap(), index }
    }

    fn other_pf() -> PciAddress {
        "0000:02:00.0".parse().unwrap()
    }

    fn both_ready() -> BTreeSet<PciAddress> {
        [vf(0).pf, other_pf()].into()
    }

    fn set_autoprobe(pf: PciAddress) -> PlannedStep {
        let step = Step::SetAutoprobe { pf, on: true };
        PlannedStep { step, disruption: Disruption::None, why: String::new() }
    }

    fn repair(indexes: &[u16]) -> Plan {
        let bind = |index: &u16| {
            let step = Step::BindVf { vf: vf(*index), driver: VfDriver::Kernel };
            PlannedStep { step, disruption: Disruption::Vf, why: String::new() }
        };
        Plan {
            steps: core::iter::once(set_autoprobe(vf(0).pf)).chain(indexes.iter().map(bind)).collect(),
            problems: Vec::new(),
        }
    }

    fn problem(pf: PciAddress) -> Problem {
        let spec = json!({ "interfaces": [{ "pciAddress": pf, "numVfs": 1 }] });
        let without_cards = plan_node(&serde_json::from_value(spec).unwrap(), &HostFacts::default());
        without_cards.problems.into_iter().next().unwrap()
    }

    #[test]
    fn a_vf_is_repaired_when_it_differs_for_longer_than_the_delay() {
        let mut released = ReleasedVfs::default();
        let (due, next) = released.select(&repair(&[1]), both_ready(), START);
        assert_eq!(due.filter(repair(&[1])).steps, [], "nothing at once");
        assert_eq!(next, Some(START + RELEASE_DELAY));

        let now = START + RELEASE_DELAY;
        // A pod released another VF a moment ago.
        let (due, next) = released.select(&repair(&[1, 2]), both_ready(), now);
        assert_eq!(due.filter(repair(&[1, 2])), repair(&[1]));
        assert_eq!(next, Some(now + RELEASE_DELAY));
        assert_eq!(due.filter(repair(&[2])).steps, [], "VF 2 is not due when the plan is verified");
    }

    #[test]
    fn a_vf_that_was_restored_is_forgotten() {
        let mut released = ReleasedVfs::default();
        released.select(&repair(&[1]), both_ready(), START);
        let restored = START + RELEASE_DELAY / 2;
        assert_eq!(released.select(&Plan::default(), both_ready(), restored).1, None);
        let (due, _) = released.select(&repair(&[1]), both_ready(), restored + RELEASE_DELAY);
        assert_eq!(due.filter(repair(&[1])).steps, []);
    }

    #[test]
    fn a_new_desired_state_is_not_delayed() {
        let mut released = ReleasedVfs::default();
        let (due, next) = released.select(&repair(&[1]), BTreeSet::new(), START);
        assert_eq!((due.filter(repair(&[1])), next), (repair(&[1]), None));
        let mut larger = repair(&[1]);
        larger.steps[0].disruption = Disruption::Pf;
        let (due, next) = released.select(&larger, both_ready(), START);
        assert_eq!((due.filter(larger.clone()), next), (larger, None));
        let mut with_problem = repair(&[1]);
        with_problem.problems.push(problem(vf(0).pf));
        let (due, next) = released.select(&with_problem, both_ready(), START);
        assert_eq!((due.filter(with_problem.clone()), next), (with_problem, None));
    }

    #[test]
    fn a_problem_of_another_card_does_not_end_the_delay() {
        let mut released = ReleasedVfs::default();
        let mut plan = repair(&[1]);
        plan.problems.push(problem(other_pf()));
        let larger = PlannedStep { disruption: Disruption::Pf, ..set_autoprobe(other_pf()) };
        plan.steps.push(larger.clone());
        for ready in [both_ready(), [vf(0).pf].into()] {
            let (due, next) = released.select(&plan, ready, START);
            assert_eq!(due.filter(plan.clone()).steps, core::slice::from_ref(&larger));
            assert_eq!(next, Some(START + RELEASE_DELAY));
        }
    }
}
