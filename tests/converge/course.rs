//! From facts to steps to facts, until nothing is left to do.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::sim::{Kernel, Pf};
use vfleet_host::{Host, SimHost};
use vfleet_plan::{Disruption, ModuleState, Plan, PlannedStep, Record, Stage, Step, plan_node, schedule};

/// How steps are executed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    OneByOne,
    /// All that may be, each in a thread of its own.
    AtOnce,
}

/// Plans for the machine as it is now.
pub(crate) fn plan(host: &SimHost, wanted: &SriovNetworkNodeStateSpec) -> Plan {
    plan_node(wanted, &host.facts().expect("facts"))
}

/// Plans as the agent does: when pods would be disturbed they go first, and give back the VFs that they hold.
pub(crate) fn plan_after_drain(host: &SimHost, wanted: &SriovNetworkNodeStateSpec) -> Plan {
    let before = plan(host, wanted);
    if before.disruption() < Disruption::Drain {
        return before;
    }
    host.behind_its_back(|kernel| {
        let vfs = kernel.pfs.iter_mut().flat_map(|pf| &mut pf.vfs);
        vfs.for_each(|vf| vf.is_held_elsewhere = false);
    });
    plan(host, wanted)
}

/// Plans and executes until there is nothing to do, and gives the last plan. A machine restarts twice at most for one
/// purpose. One plan is enough, but after a change of firmware, and for rules of udev: what they are about is known
/// only later.
pub(crate) fn converge(host: &SimHost, wanted: &SriovNetworkNodeStateSpec, pace: Pace) -> Plan {
    let mut restarts = 0;
    let mut is_second = false;
    for _ in 0..10 {
        let plan = plan_after_drain(host, wanted);
        if plan.steps.is_empty() {
            return plan;
        }
        assert!(!is_second || plan.steps.iter().all(is_about_udev), "a second round: {:#?}", lines(&plan));
        execute(host, &plan, pace);
        let has = |is: fn(&Step) -> bool| plan.steps.iter().any(|planned| is(&planned.step));
        if has(|step| *step == Step::Reboot) {
            restarts += 1;
            assert!(restarts <= 3, "it restarts again and again: {:#?}", lines(&plan));
            host.restart();
        } else {
            is_second = !has(|step| matches!(step, Step::SetFirmware { .. }));
        }
    }
    panic!("it never ends: {:#?}", lines(&plan(host, wanted)));
}

/// Rules, and the note in a record that udev was told of them.
fn is_about_udev(planned: &PlannedStep) -> bool {
    match &planned.step {
        Step::WriteFile { .. } | Step::RemoveFile { .. } | Step::ReplayUdev { .. } => true,
        Step::WriteRecord { record } => !record.making,
        _ => false,
    }
}

/// A step of the planner never fails here.
fn execute(host: &SimHost, plan: &Plan, pace: Pace) {
    let one = |planned: &PlannedStep| {
        if let Err(error) = host.execute(&planned.step) {
            panic!("`{planned}`: {error}\nof {:#?}", lines(plan));
        }
    };
    match pace {
        Pace::OneByOne => plan.steps.iter().for_each(one),
        Pace::AtOnce => at_once(plan, &one),
    }
}

fn at_once(plan: &Plan, one: &(impl Fn(&PlannedStep) + Sync)) {
    let schedule = schedule(&plan.steps);
    schedule.before.iter().for_each(|planned| one(planned));
    thread::scope(|scope| {
        for lane in &schedule.lanes {
            scope.spawn(|| lane.stages.iter().for_each(|stage| do_stage(stage, one)));
        }
    });
    schedule.after.iter().for_each(|planned| one(planned));
}

fn do_stage(stage: &Stage<'_>, one: &(impl Fn(&PlannedStep) + Sync)) {
    match stage {
        Stage::Whole(planned) => one(planned),
        Stage::Parts(vfs) => thread::scope(|scope| {
            for (_, steps) in vfs {
                scope.spawn(|| steps.iter().for_each(|planned| one(planned)));
            }
        }),
    }
}

pub(crate) fn lines(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(ToString::to_string).collect()
}

/// All that lasts of a machine.
#[derive(Debug, PartialEq)]
pub(crate) struct Lasting {
    pfs: Vec<Pf>,
    records: Vec<Record>,
    files: BTreeMap<String, String>,
    modules: BTreeMap<String, ModuleState>,
    units: BTreeSet<String>,
    arguments: [String; 2],
}

/// All that lasts of the machine, but its past: restarts that are still remembered, because it is not known whether they
/// helped, were more or fewer from one course to another.
pub(crate) fn lasting(host: &SimHost) -> Lasting {
    let Kernel { pfs, records, files, modules, enabled_units, .. } = host.kernel();
    let Kernel { command_line, next_command_line, .. } = host.kernel();
    Lasting {
        pfs,
        records: records.into_values().collect(),
        files,
        modules,
        units: enabled_units,
        arguments: [command_line, next_command_line],
    }
}
