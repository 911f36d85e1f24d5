//! Restarts for the units' sake have an end.

use super::{BootFault, BootWish};
use crate::facts::{HostFacts, Reboots, Tries};
use crate::fingerprint::fingerprint;
use crate::node::restart_for;
use crate::prelude::*;
use crate::step::{Plan, PlannedStep, Step};

/// What stands before the fingerprint of the config.
const PURPOSE: &str = "systemd mode with config";

/// Restarts for the units' sake that are written down.
fn counted(facts: &HostFacts) -> impl Iterator<Item = (&String, &Tries)> {
    let needs = facts.kernel.reboots.as_ref().map(|reboots| &reboots.needs);
    needs.into_iter().flatten().filter(|(need, _)| need.starts_with(PURPOSE))
}

/// Whether restarts for the units' sake are written down.
pub(super) fn is_counting(facts: &HostFacts) -> bool {
    counted(facts).next().is_some()
}

/// The planner of nodes forgets restarts that it has no need for. Those for the units are not its own, and stay.
pub(super) fn with_our_count(mut node: Plan, facts: &HostFacts) -> Plan {
    if !is_counting(facts) {
        return node;
    }
    for planned in &mut node.steps {
        let kept = match &planned.step {
            Step::ForgetReboots => Reboots::default(),
            Step::CountReboot { reboots } => reboots.clone(),
            _ => continue,
        };
        let ours = counted(facts).map(|(need, tries)| (need.clone(), tries.clone()));
        let reboots = Reboots { needs: kept.needs.into_iter().chain(ours).collect() };
        planned.step = Step::CountReboot { reboots };
    }
    let is_news = |planned: &PlannedStep| match &planned.step {
        Step::CountReboot { reboots } => facts.kernel.reboots.as_ref() != Some(reboots),
        _ => true,
    };
    node.steps.retain(is_news);
    node
}

/// A restart for what waits for one, unless that was tried often enough: without a result the units did not even start.
pub(super) fn restart(
    waiting: &[PlannedStep],
    wish: &BootWish<'_>,
    facts: &HostFacts,
) -> Result<Vec<PlannedStep>, BootFault> {
    let purpose = format!("{PURPOSE} {}", fingerprint([wish.config]));
    let change = waiting.iter().max_by_key(|planned| planned.disruption);
    let why = change.map_or_else(String::new, |planned| format!("at boot: {}", planned.step));
    restart_for(&purpose, &why, &facts.kernel).map_err(|restarts| BootFault::UnitsDidNotRun { restarts })
}
