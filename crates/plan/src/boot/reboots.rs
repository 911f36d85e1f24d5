//! Limit of reboots for the systemd units.

use super::{BootFault, BootRequest};
use crate::facts::{HostFacts, RebootCount, Reboots};
use crate::fingerprint::fingerprint;
use crate::node::reboot_for;
use crate::prelude::*;
use crate::step::{Plan, PlannedStep, Step};

/// Prefix of the reboot need, before the fingerprint of the config. Stored on disk.
const NEED: &str = "systemd mode with config";

/// Returns the reboot counts for the units.
fn unit_counts(facts: &HostFacts) -> impl Iterator<Item = (&String, &RebootCount)> {
    let needs = facts.kernel.reboots.as_ref().map(|reboots| &reboots.needs);
    needs.into_iter().flatten().filter(|(need, _)| need.starts_with(NEED))
}

/// Returns whether there are reboot counts for the units.
pub(super) fn has_unit_counts(facts: &HostFacts) -> bool {
    unit_counts(facts).next().is_some()
}

/// Returns `node` with the reboot counts for the units kept: the planner of nodes would remove them, since it does not
/// know the need.
pub(super) fn keep_unit_counts(mut node: Plan, facts: &HostFacts) -> Plan {
    if !has_unit_counts(facts) {
        return node;
    }
    for planned in &mut node.steps {
        let kept = match &planned.step {
            Step::ForgetReboots => Reboots::default(),
            Step::CountReboot { reboots } => reboots.clone(),
            _ => continue,
        };
        let own = unit_counts(facts).map(|(need, count)| (need.clone(), count.clone()));
        let reboots = Reboots { needs: kept.needs.into_iter().chain(own).collect() };
        planned.step = Step::CountReboot { reboots };
    }
    let is_changed = |planned: &PlannedStep| match &planned.step {
        Step::CountReboot { reboots } => facts.kernel.reboots.as_ref() != Some(reboots),
        _ => true,
    };
    node.steps.retain(is_changed);
    node
}

/// Returns the steps of a reboot for the waiting steps; an error if the limit is reached: without a result the units
/// did not even start.
pub(super) fn plan_reboot(
    waiting: &[PlannedStep],
    request: &BootRequest<'_>,
    facts: &HostFacts,
) -> Result<Vec<PlannedStep>, BootFault> {
    let need = format!("{NEED} {}", fingerprint([request.config]));
    let worst = waiting.iter().max_by_key(|planned| planned.disruption);
    let why = worst.map_or_else(String::new, |planned| format!("apply at boot: {}", planned.step));
    reboot_for(&need, &why, &facts.kernel).map_err(|reboots| BootFault::UnitsDidNotRun { reboots })
}
