//! RDMA mode: network namespaces share RDMA devices or not. The kernel sets it when its module is loaded.

use vfleet_api::pool_config::RdmaMode;

use super::{ArgumentNeed, RebootNeeds, SystemFault, SystemPlan, problem};
use crate::facts::{HostFacts, ModuleState};
use crate::files::MODULE_OPTIONS;
use crate::kernel_arguments::{KernelArgument, rdma_mode_arguments};
use crate::node::planned;
use crate::prelude::*;
use crate::step::{Disruption, HostFile, PlannedStep, Step};

const MODULE: &str = "ib_core";

pub(super) fn plan(
    mode: Option<RdmaMode>,
    facts: &HostFacts,
    plan: &mut SystemPlan,
    needs: &mut RebootNeeds,
) {
    let Some(mode) = mode else {
        plan.after.extend(remove_mode(facts));
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
        Some(current) => {
            plan.before.extend(write_options(mode, facts));
            if current != mode {
                plan_change(mode, facts, plan, needs);
            }
        }
    }
}

fn plan_change(mode: RdmaMode, facts: &HostFacts, plan: &mut SystemPlan, needs: &mut RebootNeeds) {
    let need = ArgumentNeed::new(&[KernelArgument::RdmaShared(mode == RdmaMode::Shared)], Vec::new());
    match need.manual_changes(&facts.kernel.command_line) {
        Some(how) if facts.kernel.boot_loader.is_none() => {
            plan.problems.push(problem(SystemFault::KernelArgumentsRequired { how }, Vec::new()));
        }
        _ => needs.arguments.push(need),
    }
}

/// Returns the step that writes the module options. They apply if the module is loaded late, kernel arguments if early.
fn write_options(mode: RdmaMode, facts: &HostFacts) -> Option<PlannedStep> {
    let text = format!("options {MODULE} {}\n", option(mode));
    if facts.files.get(MODULE_OPTIONS) == Some(&text) {
        return None;
    }
    let file = HostFile { path: MODULE_OPTIONS.to_owned(), text, is_program: false };
    Some(planned(Step::WriteFile { pf: None, file }, Disruption::None, why(mode)))
}

/// Returns the steps that remove the RDMA mode, so that the next boot has the default of the kernel. The file is
/// removed last, since it shows that vfleet set the kernel arguments.
fn remove_mode(facts: &HostFacts) -> Vec<PlannedStep> {
    let mut steps = Vec::new();
    let is_ours = |text: &String| {
        [RdmaMode::Shared, RdmaMode::Exclusive].into_iter().any(|mode| has_option(text, mode))
    };
    if !facts.files.get(MODULE_OPTIONS).is_some_and(is_ours) {
        return steps;
    }
    let remove = rdma_mode_arguments(&facts.kernel.command_line);
    if let (Some(loader), false) = (facts.kernel.boot_loader, remove.is_empty()) {
        let step = Step::SetKernelArguments { loader, add: Vec::new(), remove };
        steps.push(planned(step, Disruption::None, "no RDMA mode is requested anymore"));
    }
    let step = Step::RemoveFile { pf: None, path: MODULE_OPTIONS.to_owned() };
    steps.push(planned(step, Disruption::None, "no RDMA mode is requested anymore"));
    steps
}

/// Returns whether the file has exactly this option, in any spacing.
fn has_option(text: &str, mode: RdmaMode) -> bool {
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
    format!("RDMA mode {word} is requested")
}
