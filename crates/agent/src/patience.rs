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

/// What of a plan is done now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Selection {
    /// All of it.
    All,
    /// What is about these VFs, and nothing else of their PFs.
    Vfs(BTreeSet<VfRef>),
}

impl Patience {
    /// What of `plan` is done now, and when to look again for the rest. `was_as_wanted`: nothing was wanted anew.
    pub(crate) fn select(&mut self, plan: &Plan, was_as_wanted: bool) -> (Selection, Option<Instant>) {
        let is_small =
            |planned: &PlannedStep| planned.step.vf().is_some() || planned.disruption <= Disruption::Vf;
        if !was_as_wanted || !plan.problems.is_empty() || !plan.steps.iter().all(is_small) {
            self.since.clear();
            return (Selection::All, None);
        }
        let now = Instant::now();
        let wrong: BTreeSet<VfRef> = plan.steps.iter().filter_map(|planned| planned.step.vf()).collect();
        self.since.retain(|vf, _| wrong.contains(vf));
        for vf in wrong {
            self.since.entry(vf).or_insert(now);
        }
        let is_ripe = |since: Instant| since + PATIENCE <= now;
        let ripe = self.since.iter().filter(|(_, since)| is_ripe(**since)).map(|(vf, _)| *vf).collect();
        let next = self.since.values().copied().filter(|since| !is_ripe(*since)).min();
        match next {
            None => (Selection::All, None),
            Some(since) => (Selection::Vfs(ripe), Some(since + PATIENCE)),
        }
    }
}

impl Selection {
    /// `plan` without what is not done now. What is about all of a PF goes with its VFs.
    pub(crate) fn of(&self, mut plan: Plan) -> Plan {
        let Self::Vfs(ripe) = self else { return plan };
        let wrong: BTreeSet<VfRef> = plan.steps.iter().filter_map(|planned| planned.step.vf()).collect();
        let waits = |pf: PciAddress| {
            let mut of_pf = wrong.iter().filter(|vf| vf.pf == pf).peekable();
            of_pf.peek().is_some() && !of_pf.any(|vf| ripe.contains(vf))
        };
        plan.steps.retain(|planned| match (planned.step.vf(), planned.step.pf()) {
            (Some(vf), _) => ripe.contains(&vf),
            (None, Some(pf)) => !waits(pf),
            (None, None) => true,
        });
        plan
    }
}

#[cfg(test)]
mod tests {
    use vfleet_plan::{Step, VfDriver};

    use super::*;

    fn vf(index: u16) -> VfRef {
        VfRef { pf: "0000:01:00.0".parse().unwrap(), index }
    }

    fn record() -> PlannedStep {
        let step = Step::SetAutoprobe { pf: vf(0).pf, on: true };
        PlannedStep { step, disruption: Disruption::None, why: String::new() }
    }

    fn heal(indexes: &[u16]) -> Plan {
        let bind = |index: &u16| {
            let step = Step::BindVf { vf: vf(*index), driver: VfDriver::Kernel };
            PlannedStep { step, disruption: Disruption::Vf, why: String::new() }
        };
        Plan {
            steps: std::iter::once(record()).chain(indexes.iter().map(bind)).collect(),
            problems: Vec::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_vf_is_healed_when_it_stays_wrong_for_a_while() {
        let mut patience = Patience::default();
        let (selection, again) = patience.select(&heal(&[1]), true);
        assert_eq!(selection.of(heal(&[1])).steps, [], "nothing at once");
        assert_eq!(again, Some(Instant::now() + PATIENCE));

        tokio::time::advance(PATIENCE).await;
        // Another one was given back a moment ago.
        let (selection, again) = patience.select(&heal(&[1, 2]), true);
        assert_eq!(selection.of(heal(&[1, 2])), heal(&[1]));
        assert_eq!(again, Some(Instant::now() + PATIENCE));
        assert_eq!(selection.of(heal(&[2])).steps, [], "the other one is not missed in the end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_vf_that_is_right_again_is_forgotten() {
        let mut patience = Patience::default();
        patience.select(&heal(&[1]), true);
        tokio::time::advance(PATIENCE / 2).await;
        assert_eq!(patience.select(&Plan::default(), true), (Selection::All, None));
        tokio::time::advance(PATIENCE).await;
        let (selection, _) = patience.select(&heal(&[1]), true);
        assert_eq!(selection.of(heal(&[1])).steps, []);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_wanted_anew_does_not_wait() {
        let mut patience = Patience::default();
        assert_eq!(patience.select(&heal(&[1]), false), (Selection::All, None));
        let mut more = heal(&[1]);
        more.steps[0].disruption = Disruption::Pf;
        assert_eq!(patience.select(&more, true), (Selection::All, None));
    }
}
