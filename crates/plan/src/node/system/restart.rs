//! Restarts of the machine, and their end: two that do not help are enough. Each need has tries of its own, so that one
//! that comes and goes does not give new ones to another.

use super::{Needs, SystemFault, SystemPlan, problem};
use crate::facts::{HostFacts, KernelFacts, Reboots, Tries};
use crate::kernel_arguments::{contrary, missing};
use crate::node::planned;
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

const TRIES: u32 = 2;

pub(super) fn plan(needs: &Needs, facts: &HostFacts, plan: &mut SystemPlan) {
    let kernel = &facts.kernel;
    let all: BTreeSet<&str> = needs.names().collect();
    let (hopeful, in_vain): (Vec<_>, Vec<_>) =
        all.iter().copied().partition(|need| is_worth_it(need, kernel));
    for need in in_vain {
        let fault = SystemFault::RebootsDidNotHelp { count: tried(need, kernel), need: need.to_owned() };
        match needs.cards.get(need) {
            Some(ports) => plan.of_pfs.extend(ports.iter().map(|pf| (*pf, fault.clone().into()))),
            None => plan.problems.push(problem(fault, Vec::new())),
        }
    }
    let mut known = kernel.reboots.clone().unwrap_or_default();
    known.needs.retain(|need, _| all.contains(need.as_str()) || needs.open.contains(need));
    if hopeful.is_empty() {
        plan.before.extend(forget_others(known, kernel));
    } else {
        plan.after.extend(set_arguments(needs, kernel));
        plan.after.extend(restart(&hopeful, known, &hopeful.join("; "), kernel));
        plan.reboots = true;
    }
}

/// The steps that restart the machine for one more need; or how often that was tried, which was often enough.
pub(crate) fn restart_for(need: &str, why: &str, kernel: &KernelFacts) -> Result<Vec<PlannedStep>, u32> {
    let known = kernel.reboots.clone().unwrap_or_default();
    if is_worth_it(need, kernel) {
        Ok(restart(&[need], known, why, kernel))
    } else {
        Err(tried(need, kernel))
    }
}

fn restart(needs: &[&str], known: Reboots, why: &str, kernel: &KernelFacts) -> Vec<PlannedStep> {
    let mut reboots = known;
    for need in needs.iter().filter(|need| !is_due(need, kernel)) {
        let count = tried(need, kernel).saturating_add(1);
        let tries = Tries { count, boot_id: kernel.boot_id.clone() };
        reboots.needs.insert((*need).to_owned(), tries);
    }
    let mut steps = Vec::new();
    if kernel.reboots.as_ref() != Some(&reboots) {
        steps.push(planned(Step::CountReboot { reboots }, Disruption::None, "restarts must have an end"));
    }
    steps.push(planned(Step::Reboot, Disruption::Reboot, why));
    steps
}

/// None is needed, or none helps: those that are needed no more are forgotten.
fn forget_others(known: Reboots, kernel: &KernelFacts) -> Option<PlannedStep> {
    let found = kernel.reboots.as_ref()?;
    let step = match &known {
        known if known.needs.is_empty() => Step::ForgetReboots,
        known if known == found => return None,
        _ => Step::CountReboot { reboots: known },
    };
    Some(planned(step, Disruption::None, "no restart is needed"))
}

fn tries<'a>(need: &str, kernel: &'a KernelFacts) -> Option<&'a Tries> {
    kernel.reboots.as_ref()?.needs.get(need)
}

fn tried(need: &str, kernel: &KernelFacts) -> u32 {
    tries(need, kernel).map_or(0, |tries| tries.count)
}

fn is_worth_it(need: &str, kernel: &KernelFacts) -> bool {
    tried(need, kernel) < TRIES || is_due(need, kernel)
}

/// Asked for in this very boot: it has not happened yet.
fn is_due(need: &str, kernel: &KernelFacts) -> bool {
    !kernel.boot_id.is_empty() && tries(need, kernel).is_some_and(|tries| tries.boot_id == kernel.boot_id)
}

fn set_arguments(needs: &Needs, kernel: &KernelFacts) -> Option<PlannedStep> {
    let wanted: Vec<_> = needs.arguments.iter().flat_map(|need| need.with.iter().copied()).collect();
    let add = missing(&wanted, &kernel.command_line);
    let without = needs.arguments.iter().flat_map(|need| need.without.iter().cloned());
    let remove: Vec<_> = contrary(&wanted, &kernel.command_line).into_iter().chain(without).collect();
    let loader = kernel.boot_loader.filter(|_| !add.is_empty() || !remove.is_empty())?;
    let step = Step::SetKernelArguments { loader, add, remove };
    Some(planned(step, Disruption::None, "the kernel must be started with them"))
}
