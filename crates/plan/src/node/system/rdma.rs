//! Whether network namespaces share RDMA devices. The kernel decides that when its module is loaded.

use vfleet_api::pool_config::RdmaMode;

use super::{ArgumentNeed, Needs, SystemFault, SystemPlan, problem};
use crate::facts::{HostFacts, ModuleState};
use crate::files::MODULE_OPTIONS;
use crate::kernel_arguments::{Wanted, about_rdma_mode};
use crate::node::planned;
use crate::prelude::*;
use crate::step::{Disruption, HostFile, PlannedStep, Step};

const MODULE: &str = "ib_core";

pub(super) fn plan(mode: Option<RdmaMode>, facts: &HostFacts, plan: &mut SystemPlan, needs: &mut Needs) {
    let Some(mode) = mode else {
        plan.after.extend(forget(facts));
        return;
    };
    let is_loadable = facts.kernel.modules.get(MODULE) == Some(&ModuleState::Loadable);
    match facts.kernel.rdma_mode {
        None if !is_loadable => plan.problems.push(problem(SystemFault::NoRdma, Vec::new())),
        None => {
            plan.before.extend(write_options(mode, facts));
            let step = Step::LoadModule { module: MODULE.to_owned(), options: vec![option(mode)] };
            plan.before.push(planned(step, Disruption::None, why(mode)));
        }
        Some(found) => {
            plan.before.extend(write_options(mode, facts));
            if found != mode {
                change(mode, facts, plan, needs);
            }
        }
    }
}

fn change(mode: RdmaMode, facts: &HostFacts, plan: &mut SystemPlan, needs: &mut Needs) {
    let need = ArgumentNeed::new(&[Wanted::RdmaShared(mode == RdmaMode::Shared)], Vec::new());
    match need.by_hand(&facts.kernel.command_line) {
        Some(how) if facts.kernel.boot_loader.is_none() => {
            plan.problems.push(problem(SystemFault::KernelArgumentsByHand { how }, Vec::new()));
        }
        _ => needs.arguments.push(need),
    }
}

/// The file counts where the module is loaded late, the kernel's argument where it is loaded early.
fn write_options(mode: RdmaMode, facts: &HostFacts) -> Option<PlannedStep> {
    let text = format!("options {MODULE} {}\n", option(mode));
    if facts.files.get(MODULE_OPTIONS) == Some(&text) {
        return None;
    }
    let file = HostFile { path: MODULE_OPTIONS.to_owned(), text, is_program: false };
    Some(planned(Step::WriteFile { pf: None, file }, Disruption::None, why(mode)))
}

/// Nobody wants a mode any more: the next restart, whenever it comes, brings the kernel's own. The file goes last, as
/// it tells that the arguments are ours.
fn forget(facts: &HostFacts) -> Vec<PlannedStep> {
    let mut steps = Vec::new();
    let is_ours =
        |text: &String| [RdmaMode::Shared, RdmaMode::Exclusive].into_iter().any(|mode| sets(text, mode));
    if !facts.files.get(MODULE_OPTIONS).is_some_and(is_ours) {
        return steps;
    }
    let remove = about_rdma_mode(&facts.kernel.command_line);
    if let (Some(loader), false) = (facts.kernel.boot_loader, remove.is_empty()) {
        let step = Step::SetKernelArguments { loader, add: Vec::new(), remove };
        steps.push(planned(step, Disruption::None, "no RDMA mode is wanted any more"));
    }
    let step = Step::RemoveFile { pf: None, path: MODULE_OPTIONS.to_owned() };
    steps.push(planned(step, Disruption::None, "no RDMA mode is wanted any more"));
    steps
}

/// Whether a file says this and nothing else, in whatever spacing.
fn sets(text: &str, mode: RdmaMode) -> bool {
    text.split_whitespace().eq(["options", MODULE, &option(mode)])
}

fn option(mode: RdmaMode) -> String {
    format!("netns_mode={}", u8::from(mode == RdmaMode::Shared))
}

fn why(mode: RdmaMode) -> String {
    let word = match mode {
        RdmaMode::Shared => "shared",
        RdmaMode::Exclusive => "exclusive",
    };
    format!("RDMA mode {word} is wanted")
}
