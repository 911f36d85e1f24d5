//! Reboots of the machine, limited to two per need. Each need has its own count, so that a need that comes and goes
//! does not extend the limit of another.

use super::{RebootNeeds, SystemFault, SystemPlan, problem};
use crate::facts::{HostFacts, KernelFacts, RebootCount, Reboots};
use crate::kernel_arguments::{contradicting_arguments, missing_arguments};
use crate::node::planned;
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

const MAX_REBOOTS: u32 = 2;

pub(super) fn plan(needs: &RebootNeeds, facts: &HostFacts, plan: &mut SystemPlan) {
    let kernel = &facts.kernel;
    let all: BTreeSet<&str> = needs.names().collect();
    let (allowed, exhausted): (Vec<_>, Vec<_>) =
        all.iter().copied().partition(|need| is_allowed(need, kernel));
    for need in exhausted {
        let fault =
            SystemFault::RebootLimitReached { count: reboots_so_far(need, kernel), need: need.to_owned() };
        match needs.cards.get(need) {
            Some(ports) => plan.pf_causes.extend(ports.iter().map(|pf| (*pf, fault.clone().into()))),
            None => plan.problems.push(problem(fault, Vec::new())),
        }
    }
    let mut counts = kernel.reboots.clone().unwrap_or_default();
    counts.needs.retain(|need, _| all.contains(need.as_str()) || needs.open.contains(need));
    if allowed.is_empty() {
        plan.before.extend(remove_ended(counts, kernel));
    } else {
        plan.after.extend(set_arguments(needs, kernel));
        plan.after.extend(reboot(&allowed, counts, &allowed.join("; "), kernel));
        plan.reboots = true;
    }
}

/// Returns the steps that reboot the machine for one more need; an error with the number of reboots if the limit is
/// reached.
pub(crate) fn reboot_for(need: &str, why: &str, kernel: &KernelFacts) -> Result<Vec<PlannedStep>, u32> {
    let counts = kernel.reboots.clone().unwrap_or_default();
    if is_allowed(need, kernel) {
        Ok(reboot(&[need], counts, why, kernel))
    } else {
        Err(reboots_so_far(need, kernel))
    }
}

fn reboot(needs: &[&str], counts: Reboots, why: &str, kernel: &KernelFacts) -> Vec<PlannedStep> {
    let mut reboots = counts;
    for need in needs.iter().filter(|need| !is_pending(need, kernel)) {
        let count = reboots_so_far(need, kernel).saturating_add(1);
        let reboot_count = RebootCount { count, boot_id: kernel.boot_id.clone() };
        reboots.needs.insert((*need).to_owned(), reboot_count);
    }
    let mut steps = Vec::new();
    if kernel.reboots.as_ref() != Some(&reboots) {
        steps.push(planned(Step::CountReboot { reboots }, Disruption::None, "reboots are limited"));
    }
    steps.push(planned(Step::Reboot, Disruption::Reboot, why));
    steps
}

/// Returns the step that removes counts of needs that ended, if no reboot follows.
fn remove_ended(counts: Reboots, kernel: &KernelFacts) -> Option<PlannedStep> {
    let current = kernel.reboots.as_ref()?;
    let step = match &counts {
        counts if counts.needs.is_empty() => Step::ForgetReboots,
        counts if counts == current => return None,
        _ => Step::CountReboot { reboots: counts },
    };
    Some(planned(step, Disruption::None, "no reboot is needed"))
}

fn count_of<'a>(need: &str, kernel: &'a KernelFacts) -> Option<&'a RebootCount> {
    kernel.reboots.as_ref()?.needs.get(need)
}

fn reboots_so_far(need: &str, kernel: &KernelFacts) -> u32 {
    count_of(need, kernel).map_or(0, |reboots| reboots.count)
}

fn is_allowed(need: &str, kernel: &KernelFacts) -> bool {
    reboots_so_far(need, kernel) < MAX_REBOOTS || is_pending(need, kernel)
}

/// Returns whether the reboot was requested in this boot and has not happened yet.
fn is_pending(need: &str, kernel: &KernelFacts) -> bool {
    !kernel.boot_id.is_empty()
        && count_of(need, kernel).is_some_and(|reboots| reboots.boot_id == kernel.boot_id)
}

fn set_arguments(needs: &RebootNeeds, kernel: &KernelFacts) -> Option<PlannedStep> {
    let arguments: Vec<_> = needs.arguments.iter().flat_map(|need| need.with.iter().copied()).collect();
    let add = missing_arguments(&arguments, &kernel.command_line);
    let without = needs.arguments.iter().flat_map(|need| need.without.iter().cloned());
    let remove: Vec<_> =
        contradicting_arguments(&arguments, &kernel.command_line).into_iter().chain(without).collect();
    let loader = kernel.boot_loader.filter(|_| !add.is_empty() || !remove.is_empty())?;
    let step = Step::SetKernelArguments { loader, add, remove };
    Some(planned(step, Disruption::None, "required at the next boot"))
}
