//! Restarts of the machine, and their end: two that do not help are enough.

use super::{Needs, SystemFault, SystemPlan, problem};
use crate::facts::{HostFacts, KernelFacts, Reboots};
use crate::kernel_arguments::{contrary, missing};
use crate::node::planned;
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

const TRIES: u32 = 2;

pub(super) fn plan(needs: &Needs, facts: &HostFacts, plan: &mut SystemPlan) {
    let kernel = &facts.kernel;
    let Some(purpose) = purpose(needs) else {
        if kernel.reboots.is_some() {
            let step = planned(Step::ForgetReboots, Disruption::None, "no restart is needed");
            plan.before.push(step);
        }
        return;
    };
    match restart_for(&purpose, &purpose, kernel) {
        Ok(restart) => {
            plan.after.extend(set_arguments(needs, kernel));
            plan.after.extend(restart);
            plan.reboots = true;
        }
        Err(count) => {
            let fault = SystemFault::RebootsDidNotHelp { count, purpose };
            plan.problems.push(problem(fault, Vec::new()));
        }
    }
}

/// The steps that restart the machine; or how often that was tried, which was often enough.
pub(crate) fn restart_for(purpose: &str, why: &str, kernel: &KernelFacts) -> Result<Vec<PlannedStep>, u32> {
    let before = kernel.reboots.as_ref().filter(|reboots| reboots.purpose == purpose);
    let tried = before.map_or(0, |reboots| reboots.count);
    // Asked for in this very boot: it has not happened yet.
    let is_due =
        before.is_some_and(|reboots| !kernel.boot_id.is_empty() && reboots.boot_id == kernel.boot_id);
    if tried >= TRIES && !is_due {
        return Err(tried);
    }
    let mut steps = Vec::new();
    if !is_due {
        let boot_id = kernel.boot_id.clone();
        let reboots = Reboots { purpose: purpose.to_owned(), count: tried.saturating_add(1), boot_id };
        let step = Step::CountReboot { reboots };
        steps.push(planned(step, Disruption::None, "restarts must have an end"));
    }
    steps.push(planned(Step::Reboot, Disruption::Reboot, why));
    Ok(steps)
}

/// The same text for the same needs, as long as they are not met.
fn purpose(needs: &Needs) -> Option<String> {
    let arguments: BTreeSet<&str> = needs.arguments.iter().map(|wanted| wanted.argument()).collect();
    let cards: BTreeSet<&str> = needs.cards.iter().map(String::as_str).collect();
    let parts: Vec<String> = [("kernel arguments", arguments), ("firmware of", cards)]
        .into_iter()
        .filter(|(_, what)| !what.is_empty())
        .map(|(title, what)| format!("{title} {}", Vec::from_iter(what).join(" ")))
        .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn set_arguments(needs: &Needs, kernel: &KernelFacts) -> Option<PlannedStep> {
    let add = missing(&needs.arguments, &kernel.command_line);
    let remove = contrary(&needs.arguments, &kernel.command_line);
    let loader = kernel.boot_loader.filter(|_| !add.is_empty() || !remove.is_empty())?;
    let step = Step::SetKernelArguments { loader, add, remove };
    Some(planned(step, Disruption::None, "the kernel must be started with them"))
}
