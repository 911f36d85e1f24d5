//! Planning and executing until no step is left.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::sim::{Kernel, SimPf};
use vfleet_host::{Host, SimHost};
use vfleet_plan::{Disruption, ModuleState, Plan, PlannedStep, Record, Stage, Step, plan_node, schedule};

/// Order in which steps are executed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Execution {
    Sequential,
    /// Steps run in parallel where the schedule allows it, each in its own thread.
    Parallel,
}

/// Plans for the current state of the machine.
pub(crate) fn plan(host: &SimHost, desired: &SriovNetworkNodeStateSpec) -> Plan {
    plan_node(desired, &host.facts().expect("facts"))
}

/// Plans as the agent does: if the plan requires a drain, pods are evicted first and return their VFs.
pub(crate) fn plan_after_drain(host: &SimHost, desired: &SriovNetworkNodeStateSpec) -> Plan {
    let before = plan(host, desired);
    if before.disruption() < Disruption::Drain {
        return before;
    }
    host.modify_kernel(|kernel| {
        let vfs = kernel.pfs.iter_mut().flat_map(|pf| &mut pf.vfs);
        vfs.for_each(|vf| vf.is_in_other_namespace = false);
    });
    plan(host, desired)
}

/// Plans and executes until no step is left; returns the last plan. A machine reboots at most twice for one reason. One
/// plan is enough, except after a change of firmware, and for udev rules, whose content is known only later.
pub(crate) fn converge(host: &SimHost, desired: &SriovNetworkNodeStateSpec, execution: Execution) -> Plan {
    let mut reboots = 0;
    let mut is_second_plan = false;
    for _ in 0..10 {
        let plan = plan_after_drain(host, desired);
        if plan.steps.is_empty() {
            return plan;
        }
        assert!(
            !is_second_plan || plan.steps.iter().all(is_udev_step),
            "a second plan has steps: {:#?}",
            step_texts(&plan)
        );
        execute(host, &plan, execution);
        let has = |is: fn(&Step) -> bool| plan.steps.iter().any(|planned| is(&planned.step));
        if has(|step| *step == Step::Reboot) {
            reboots += 1;
            assert!(reboots <= 3, "too many reboots: {:#?}", step_texts(&plan));
            host.restart_process();
        } else {
            is_second_plan = !has(|step| matches!(step, Step::SetFirmware { .. }));
        }
    }
    panic!("no convergence: {:#?}", step_texts(&plan(host, desired)));
}

/// Returns whether a step is about udev rules, or records that udev events were replayed.
fn is_udev_step(planned: &PlannedStep) -> bool {
    match &planned.step {
        Step::WriteFile { .. } | Step::RemoveFile { .. } | Step::ReplayUdev { .. } => true,
        Step::WriteRecord { record } => !record.creating_vfs,
        _ => false,
    }
}

/// Executes a plan. No step may fail.
fn execute(host: &SimHost, plan: &Plan, execution: Execution) {
    let execute_step = |planned: &PlannedStep| {
        if let Err(error) = host.execute(&planned.step) {
            panic!("`{planned}`: {error}\nof {:#?}", step_texts(plan));
        }
    };
    match execution {
        Execution::Sequential => plan.steps.iter().for_each(execute_step),
        Execution::Parallel => execute_in_parallel(plan, &execute_step),
    }
}

fn execute_in_parallel(plan: &Plan, execute_step: &(impl Fn(&PlannedStep) + Sync)) {
    let schedule = schedule(&plan.steps);
    schedule.before.iter().for_each(|planned| execute_step(planned));
    thread::scope(|scope| {
        for lane in &schedule.lanes {
            scope.spawn(|| lane.stages.iter().for_each(|stage| execute_stage(stage, execute_step)));
        }
    });
    schedule.after.iter().for_each(|planned| execute_step(planned));
}

fn execute_stage(stage: &Stage<'_>, execute_step: &(impl Fn(&PlannedStep) + Sync)) {
    match stage {
        Stage::Whole(planned) => execute_step(planned),
        Stage::Parts(vfs) => thread::scope(|scope| {
            for (_, steps) in vfs {
                scope.spawn(|| steps.iter().for_each(|planned| execute_step(planned)));
            }
        }),
    }
}

pub(crate) fn step_texts(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(ToString::to_string).collect()
}

/// Persistent state of a machine, for comparisons.
#[derive(Debug, PartialEq)]
pub(crate) struct PersistentState {
    pfs: Vec<SimPf>,
    records: Vec<Record>,
    files: BTreeMap<String, String>,
    modules: BTreeMap<String, ModuleState>,
    units: BTreeSet<String>,
    arguments: [String; 2],
}

/// Returns the persistent state of the machine. Excludes the count of reboots, which depends on interruptions.
pub(crate) fn persistent_state(host: &SimHost) -> PersistentState {
    let Kernel { pfs, records, files, modules, enabled_units, .. } = host.kernel();
    let Kernel { command_line, next_command_line, .. } = host.kernel();
    PersistentState {
        pfs,
        records: records.into_values().collect(),
        files,
        modules,
        units: enabled_units,
        arguments: [command_line, next_command_line],
    }
}
