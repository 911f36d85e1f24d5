//! Restarts for the units' sake have an end.

use super::BootWish;
use crate::facts::{HostFacts, Reboots};
use crate::fingerprint::fingerprint;
use crate::node::{Cause, Problem, planned};
use crate::prelude::*;
use crate::step::{Disruption, Plan, PlannedStep, Step};

/// How often a machine is restarted for the same config.
const MOST_RESTARTS: u32 = 2;
/// What stands before the fingerprint of the config.
const PURPOSE: &str = "systemd mode with config";

/// Whether restarts for the units' sake are written down.
pub(super) fn is_counting(facts: &HostFacts) -> bool {
    facts.kernel.reboots.as_ref().is_some_and(|reboots| reboots.purpose.starts_with(PURPOSE))
}

/// `files`, and then a restart, unless that was tried often enough: without a result the units did not even start.
pub(super) fn restart(files: Vec<PlannedStep>, node: Plan, wish: &BootWish<'_>, facts: &HostFacts) -> Plan {
    let purpose = format!("{PURPOSE} {}", fingerprint([wish.config]));
    let kernel = &facts.kernel;
    let known = kernel.reboots.as_ref().filter(|reboots| reboots.purpose == purpose);
    let mut plan = Plan { steps: files, problems: node.problems };
    // Asked for in this very boot, and not happened: that try still stands.
    let is_due = known.is_some_and(|reboots| reboots.boot_id == kernel.boot_id);
    let count = known.map_or(0, |reboots| reboots.count);
    if !is_due && count >= MOST_RESTARTS {
        plan.problems.push(Problem::of_the_node(Cause::UnitsDidNotRun { restarts: count }));
        return plan;
    }
    if !is_due {
        let reboots = Reboots { purpose, count: count + 1, boot_id: kernel.boot_id.clone() };
        plan.steps.push(planned(
            Step::CountReboot { reboots },
            Disruption::None,
            "restarts must have an end",
        ));
    }
    let change = node.steps.iter().max_by_key(|planned| planned.disruption);
    let why = change.map_or_else(String::new, |planned| format!("at boot: {}", planned.step));
    plan.steps.push(planned(Step::Reboot, Disruption::Reboot, why));
    plan
}
