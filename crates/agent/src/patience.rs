//! A VF that a pod just gave back is not as it was for a moment: whoever took it puts its name, MTU and driver right
//! again. That is not taken for somebody's change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::{Disruption, Plan, PlannedStep};

/// A CNI plugin puts a VF back in well under a second; twice that and more is left for a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);

/// VFs that are not as wanted although nothing was wanted anew, and since when.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    since: BTreeMap<VfRef, Instant>,
}

/// What of a plan is done now: all of it by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Selection {
    /// PFs of which nothing was wanted anew: of those nothing is done but what follows.
    resting: BTreeSet<PciAddress>,
    /// What is about these VFs, and about their PFs.
    ripe: BTreeSet<VfRef>,
}

impl Patience {
    /// What of `plan` is done now, and when to look again for the rest. `were_as_wanted`: the PFs that were as is still
    /// wanted. One that something more is wrong with than a VF is not waited for.
    pub(crate) fn select(
        &mut self,
        plan: &Plan,
        mut were_as_wanted: BTreeSet<PciAddress>,
    ) -> (Selection, Option<Instant>) {
        let is_small =
            |planned: &PlannedStep| planned.step.vf().is_some() || planned.disruption <= Disruption::Vf;
        for planned in plan.steps.iter().filter(|planned| !is_small(planned)) {
            match planned.step.pf() {
                Some(pf) => were_as_wanted.remove(&pf),
                None => return self.without_waiting(),
            };
        }
        for pf in plan.problems.iter().filter_map(|problem| problem.pf) {
            were_as_wanted.remove(&pf);
        }
        let now = Instant::now();
        let wrong = plan.steps.iter().filter_map(|planned| planned.step.vf());
        let wrong: BTreeSet<VfRef> = wrong.filter(|vf| were_as_wanted.contains(&vf.pf)).collect();
        self.since.retain(|vf, _| wrong.contains(vf));
        for vf in wrong {
            self.since.entry(vf).or_insert(now);
        }
        let is_ripe = |since: Instant| since + PATIENCE <= now;
        let ripe = self.since.iter().filter(|(_, since)| is_ripe(**since)).map(|(vf, _)| *vf).collect();
        let next = self.since.values().copied().filter(|since| !is_ripe(*since)).min();
        (Selection { resting: were_as_wanted, ripe }, next.map(|since| since + PATIENCE))
    }

    fn without_waiting(&mut self) -> (Selection, Option<Instant>) {
        self.since.clear();
        (Selection::default(), None)
    }
}

impl Selection {
    /// `plan` without what is not done now. What is about all of a PF goes with its VFs.
    pub(crate) fn of(&self, mut plan: Plan) -> Plan {
        let wrong: BTreeSet<VfRef> = plan.steps.iter().filter_map(|planned| planned.step.vf()).collect();
        let waits = |pf: PciAddress| {
            let mut of_pf = wrong.iter().filter(|vf| vf.pf == pf).peekable();
            of_pf.peek().is_some() && !of_pf.any(|vf| self.ripe.contains(vf))
        };
        plan.steps.retain(|planned| match (planned.step.vf(), planned.step.pf()) {
            (_, Some(pf)) if !self.resting.contains(&pf) => true,
            (Some(vf), _) => self.ripe.contains(&vf),
            (None, Some(pf)) => !waits(pf),
            (None, None) => true,
        });
        plan
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vfleet_plan::{HostFacts, Problem, Step, VfDriver, plan_node};

    use super::*;

    fn vf(index: u16) -> VfRef {
        VfRef { pf: "0000:01:00.0".parse().unwrap(), index }
    }

    fn elsewhere() -> PciAddress {
        "0000:02:00.0".parse().unwrap()
    }

    /// Both cards were as wanted.
    fn both() -> BTreeSet<PciAddress> {
        [vf(0).pf, elsewhere()].into()
    }

    fn autoprobe(pf: PciAddress) -> PlannedStep {
        let step = Step::SetAutoprobe { pf, on: true };
        PlannedStep { step, disruption: Disruption::None, why: String::new() }
    }

    fn heal(indexes: &[u16]) -> Plan {
        let bind = |index: &u16| {
            let step = Step::BindVf { vf: vf(*index), driver: VfDriver::Kernel };
            PlannedStep { step, disruption: Disruption::Vf, why: String::new() }
        };
        Plan {
            steps: std::iter::once(autoprobe(vf(0).pf)).chain(indexes.iter().map(bind)).collect(),
            problems: Vec::new(),
        }
    }

    fn problem(pf: PciAddress) -> Problem {
        let spec = json!({ "interfaces": [{ "pciAddress": pf, "numVfs": 1 }] });
        let on_no_machine = plan_node(&serde_json::from_value(spec).unwrap(), &HostFacts::default());
        on_no_machine.problems.into_iter().next().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_vf_is_healed_when_it_stays_wrong_for_a_while() {
        let mut patience = Patience::default();
        let (selection, again) = patience.select(&heal(&[1]), both());
        assert_eq!(selection.of(heal(&[1])).steps, [], "nothing at once");
        assert_eq!(again, Some(Instant::now() + PATIENCE));

        tokio::time::advance(PATIENCE).await;
        // Another one was given back a moment ago.
        let (selection, again) = patience.select(&heal(&[1, 2]), both());
        assert_eq!(selection.of(heal(&[1, 2])), heal(&[1]));
        assert_eq!(again, Some(Instant::now() + PATIENCE));
        assert_eq!(selection.of(heal(&[2])).steps, [], "the other one is not missed in the end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_vf_that_is_right_again_is_forgotten() {
        let mut patience = Patience::default();
        patience.select(&heal(&[1]), both());
        tokio::time::advance(PATIENCE / 2).await;
        assert_eq!(patience.select(&Plan::default(), both()).1, None);
        tokio::time::advance(PATIENCE).await;
        let (selection, _) = patience.select(&heal(&[1]), both());
        assert_eq!(selection.of(heal(&[1])).steps, []);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_wanted_anew_does_not_wait() {
        let mut patience = Patience::default();
        let (selection, again) = patience.select(&heal(&[1]), BTreeSet::new());
        assert_eq!((selection.of(heal(&[1])), again), (heal(&[1]), None));
        let mut more = heal(&[1]);
        more.steps[0].disruption = Disruption::Pf;
        let (selection, again) = patience.select(&more, both());
        assert_eq!((selection.of(more.clone()), again), (more, None));
        let mut cannot_be = heal(&[1]);
        cannot_be.problems.push(problem(vf(0).pf));
        let (selection, again) = patience.select(&cannot_be, both());
        assert_eq!((selection.of(cannot_be.clone()), again), (cannot_be, None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_wrong_with_another_card_does_not_hurry_it() {
        let mut patience = Patience::default();
        let mut plan = heal(&[1]);
        plan.problems.push(problem(elsewhere()));
        let more = PlannedStep { disruption: Disruption::Pf, ..autoprobe(elsewhere()) };
        plan.steps.push(more.clone());
        for were_as_wanted in [both(), [vf(0).pf].into()] {
            let (selection, again) = patience.select(&plan, were_as_wanted);
            assert_eq!(selection.of(plan.clone()).steps, std::slice::from_ref(&more));
            assert_eq!(again, Some(Instant::now() + PATIENCE));
        }
    }
}
