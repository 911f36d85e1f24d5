//! Restarts for the units' sake have an end.

use super::{BootFault, BootWish};
use crate::facts::HostFacts;
use crate::fingerprint::fingerprint;
use crate::node::{Problem, restart_for};
use crate::prelude::*;
use crate::step::{Plan, PlannedStep};

/// What stands before the fingerprint of the config.
const PURPOSE: &str = "systemd mode with config";

/// Whether restarts for the units' sake are written down.
pub(super) fn is_counting(facts: &HostFacts) -> bool {
    facts.kernel.reboots.as_ref().is_some_and(|reboots| reboots.purpose.starts_with(PURPOSE))
}

/// `files`, and then a restart, unless that was tried often enough: without a result the units did not even start.
pub(super) fn restart(files: Vec<PlannedStep>, node: Plan, wish: &BootWish<'_>, facts: &HostFacts) -> Plan {
    let purpose = format!("{PURPOSE} {}", fingerprint([wish.config]));
    let change = node.steps.iter().max_by_key(|planned| planned.disruption);
    let why = change.map_or_else(String::new, |planned| format!("at boot: {}", planned.step));
    let mut plan = Plan { steps: files, problems: node.problems };
    match restart_for(&purpose, &why, &facts.kernel) {
        Ok(restart) => plan.steps.extend(restart),
        Err(restarts) => plan.problems.push(Problem::of_the_node(BootFault::UnitsDidNotRun { restarts })),
    }
    plan
}
