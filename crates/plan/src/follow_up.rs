//! Follow-up plans: the plan that is left after another one was executed.

use crate::facts::HostFacts;
use crate::prelude::*;
use crate::step::{Plan, Step};

/// Returns whether `plan` changes nothing but records.
pub fn only_writes_records(plan: &Plan) -> bool {
    plan.steps.iter().all(|planned| matches!(planned.step, Step::WriteRecord { .. }))
}

/// Returns whether `left` may be executed right after `plan`: it has other steps, and no worse disruption.
pub fn may_follow(plan: &Plan, left: &Plan) -> bool {
    !left.steps.is_empty() && left.steps != plan.steps && left.disruption() <= plan.disruption()
}

/// Returns whether `step` only records new names of a card, which may change at any time.
pub fn is_identity_update(step: &Step, facts: &HostFacts) -> bool {
    let Step::WriteRecord { record } = step else { return false };
    facts.record(record.pf).is_some_and(|written| written.differs_only_in_identity(record))
}

/// Removes the reboot, and the steps that only make sense before it, from `left`. Returns the reason of the reboot.
pub fn remove_reboot(left: &mut Plan) -> Option<String> {
    let at = left.steps.iter().position(|planned| planned.step == Step::Reboot)?;
    let why = left.steps.remove(at).why;
    left.steps.retain(|planned| !planned.step.leads_to_reboot());
    Some(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{Disruption, PlannedStep};

    fn plan(steps: &[(Step, Disruption)]) -> Plan {
        let planned = |(step, disruption): &(Step, Disruption)| PlannedStep {
            step: step.clone(),
            disruption: *disruption,
            why: "a test".to_owned(),
        };
        Plan { steps: steps.iter().map(planned).collect(), problems: Vec::new() }
    }

    fn set_up() -> Step {
        Step::SetLinkUp { pf: "0000:01:00.0".parse().unwrap() }
    }

    #[test]
    fn only_other_steps_without_more_disruption_may_follow() {
        let first = plan(&[(set_up(), Disruption::Pf)]);
        assert!(!may_follow(&first, &first));
        assert!(!may_follow(&first, &Plan::default()));
        assert!(may_follow(&first, &plan(&[(Step::ForgetReboots, Disruption::None)])));
        assert!(!may_follow(&first, &plan(&[(Step::Reboot, Disruption::Reboot)])));
    }

    #[test]
    fn a_reboot_is_removed_with_its_reason() {
        let mut left = plan(&[(set_up(), Disruption::Pf), (Step::Reboot, Disruption::Reboot)]);
        assert_eq!(remove_reboot(&mut left).as_deref(), Some("a test"));
        assert_eq!(left, plan(&[(set_up(), Disruption::Pf)]));
        assert_eq!(remove_reboot(&mut left), None);
    }
}
