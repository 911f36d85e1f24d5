//! Planning and executing until no step is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::sim::{Kernel, SimBridge, SimPf};
use vfleet_host::{Host, HostError, SimHost};
use vfleet_plan::files::MANAGED_OVS_BRIDGES;
use vfleet_plan::{
    BridgeFault, Cause, Disruption, LaneProgress, Master, ModuleState, NodeOptions, OvsBridgeFacts, Plan,
    PlannedStep, Problem, Record, Stage, Step, Target, needs_ovs, plan_node_with, schedule,
};

/// Owner in the error of a Linux bridge whose name an interface of Open vSwitch has.
const OTHER_KIND: &str = "an interface of another kind";

/// Desired state of a node, with the options of its agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Desired {
    pub(crate) spec: SriovNetworkNodeStateSpec,
    pub(crate) options: NodeOptions,
}

impl From<SriovNetworkNodeStateSpec> for Desired {
    fn from(spec: SriovNetworkNodeStateSpec) -> Self {
        Self { spec, options: NodeOptions::default() }
    }
}

/// Order in which steps are executed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Execution {
    Sequential,
    /// Steps run in parallel where the schedule allows it, each in its own thread.
    Parallel,
}

/// Start of the names of interfaces of pods, which are removed by a drain.
pub(crate) const POD_INTERFACE: &str = "pod";

/// Plans for the current state of the machine. Open vSwitch is read only if the agent reads it: if its content is needed,
/// or the Go daemon created bridges.
pub(crate) fn plan(host: &SimHost, desired: &Desired) -> Plan {
    let has_go_bridges = host.kernel().files.contains_key(MANAGED_OVS_BRIDGES);
    host.set_reads_ovs(has_go_bridges || needs_ovs(&desired.spec, &desired.options));
    plan_node_with(&desired.spec, &host.facts().expect("facts"), &desired.options)
}

/// Plans as the agent does: if the plan requires a drain, pods are evicted first, return their VFs, and their ports are
/// removed from bridges. Ports that only the datapath of Open vSwitch has are removed if a problem asks for it, as it
/// does not end without an administrator.
pub(crate) fn plan_after_drain(host: &SimHost, desired: &Desired) -> Plan {
    let mut before = plan(host, desired);
    if before.problems.iter().any(is_stale_datapath) {
        host.modify_kernel(|kernel| kernel.ovs.remove_stale_datapath());
        before = plan(host, desired);
    }
    if before.disruption() < Disruption::Drain {
        return before;
    }
    host.modify_kernel(evict_pods);
    plan(host, desired)
}

fn is_stale_datapath(problem: &Problem) -> bool {
    matches!(&problem.cause, Cause::Bridge(fault) if matches!(**fault, BridgeFault::StaleDatapath { .. }))
}

fn evict_pods(kernel: &mut Kernel) {
    let vfs = kernel.pfs.iter_mut().flat_map(|pf| &mut pf.vfs);
    for vf in vfs {
        vf.namespace = None;
    }
    let is_of_pod = |name: &String| name.starts_with(POD_INTERFACE);
    let ovs_ports = kernel.ovs.bridges.iter().flat_map(|bridge| &bridge.ports).map(|port| port.name.clone());
    let ovs_ports: Vec<String> = ovs_ports.filter(is_of_pod).collect();
    for port in ovs_ports {
        kernel.ovs.remove_port(&port);
    }
    kernel.bridges.iter_mut().for_each(|bridge| bridge.ports.retain(|port, _| !is_of_pod(port)));
    kernel.other_links.retain(|name| !is_of_pod(name));
}

/// Plans and executes until no step is left; returns the last plan. A machine reboots at most twice for one reason. One
/// plan is enough, except after a change of firmware, for udev rules, whose content is known only later, and for
/// settings of bridge ports that depend on the carrier. Open vSwitch is repaired when steps fail again.
pub(crate) fn converge(host: &SimHost, desired: &Desired, execution: Execution) -> Plan {
    let mut reboots = 0;
    let mut failures = 0;
    let mut is_second_plan = false;
    for _ in 0..10 {
        let plan = plan_after_drain(host, desired);
        if plan.steps.is_empty() {
            return plan;
        }
        assert!(
            !is_second_plan || plan.steps.iter().all(may_follow),
            "a second plan has steps: {:#?}",
            step_texts(&plan)
        );
        let failed = execute(host, &plan, execution);
        failures += usize::from(failed);
        if failures > 1 {
            heal(host);
        }
        let has = |is: fn(&Step) -> bool| plan.steps.iter().any(|planned| is(&planned.step));
        if has(|step| *step == Step::Reboot) {
            reboots += 1;
            assert!(reboots <= 3, "too many reboots: {:#?}", step_texts(&plan));
            host.restart_process();
        } else {
            is_second_plan = !failed && !has(|step| matches!(step, Step::SetFirmware { .. }));
        }
    }
    panic!("no convergence: {:#?}", step_texts(&plan(host, desired)));
}

/// Ends all faults of Open vSwitch, as an administrator does. Interfaces of a datapath that no bridge uses may have the
/// name of a Linux bridge.
pub(crate) fn heal(host: &SimHost) {
    host.modify_kernel(|kernel| {
        let ovs = &mut kernel.ovs;
        (ovs.has_server, ovs.has_switch, ovs.is_unanswering) = (ovs.is_installed, ovs.is_installed, false);
        ovs.refusal = None;
        ovs.remove_stale_datapath();
    });
}

/// Returns whether a second plan may have the step: it is about udev rules, records that udev events were replayed, or sets
/// the state or the default cost of a port that has a carrier since the first plan.
fn may_follow(planned: &PlannedStep) -> bool {
    match &planned.step {
        Step::WriteFile { .. } | Step::RemoveFile { .. } | Step::ReplayUdev { .. } => true,
        Step::WriteRecord { record } => !record.creating_vfs,
        Step::SetBridgePort { settings, .. } => {
            settings.keys().all(|name| ["state", "cost"].contains(&name.as_str()))
        }
        _ => false,
    }
}

/// Executes a plan. Only steps that change Open vSwitch may fail, for reasons that only others can end. Returns whether
/// one failed.
fn execute(host: &SimHost, plan: &Plan, execution: Execution) -> bool {
    let failed = ExecutedLanes::default();
    let execute_step = |planned: &PlannedStep| {
        if let Err(error) = failed.execute(host, planned) {
            panic!("`{planned}`: {error}\nof {:#?}", step_texts(plan));
        }
    };
    match execution {
        Execution::Sequential => plan.steps.iter().for_each(execute_step),
        Execution::Parallel => execute_in_parallel(plan, &execute_step),
    }
    failed.has_any()
}

/// Lanes with executed steps.
#[derive(Debug, Default)]
pub(crate) struct ExecutedLanes(Mutex<BTreeMap<Target, LaneProgress>>);

impl ExecutedLanes {
    /// Executes a step, unless a failed one of its lane prevents it. Fails if the step fails for other reasons than the state of
    /// Open vSwitch, or an interface of Open vSwitch that has the name of a Linux bridge and cannot be read.
    pub(crate) fn execute(&self, host: &SimHost, planned: &PlannedStep) -> Result<(), HostError> {
        let lane = planned.step.target().lane();
        let new = || LaneProgress::new(lane, &host.facts().unwrap_or_default());
        let progress = self.lanes().entry(lane).or_insert_with(new).clone();
        let Some(planned) = progress.next_step(planned) else { return Ok(()) };
        let result = host.execute(&planned.step);
        let mut lanes = self.lanes();
        let progress = lanes.entry(lane).or_insert(progress);
        match result {
            Ok(()) => progress.record_success(&planned.step),
            Err(
                HostError::OvsRefused { .. }
                | HostError::OvsNotApplied { .. }
                | HostError::OvsInterfaceFailed { .. },
            ) => progress.record_failure(&planned.step, false),
            Err(HostError::LinuxBridgeNotOurs { found, .. }) if found == OTHER_KIND => {
                progress.record_failure(&planned.step, false);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn has_any(&self) -> bool {
        self.lanes().values().any(LaneProgress::has_failed)
    }

    fn lanes(&self) -> MutexGuard<'_, BTreeMap<Target, LaneProgress>> {
        self.0.lock().expect("no step panics")
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
    bridges: Vec<SimBridge>,
    ovs: Vec<OvsBridgeFacts>,
    ovs_settings: BTreeMap<String, String>,
    masters: Vec<Option<Master>>,
}

/// Returns the persistent state of the machine. Excludes the count of reboots, the UUIDs of rows, and the default cost of
/// ports, which depend on interruptions: the cost is that of the speed at the time.
pub(crate) fn persistent_state(host: &SimHost) -> PersistentState {
    let kernel = host.kernel();
    let links = kernel.pfs.iter().map(|pf| pf.link.as_ref());
    let masters = links.map(|link| kernel.master_of(&link?.name)).collect();
    let mut bridges = kernel.bridges;
    let ports = bridges.iter_mut().flat_map(|bridge| bridge.ports.values_mut());
    ports.for_each(|settings| drop(settings.remove("cost")));
    let mut rows = kernel.ovs.bridges;
    for bridge in &mut rows {
        bridge.uuid.clear();
        for port in &mut bridge.ports {
            port.uuid.clear();
            port.interfaces.iter_mut().for_each(|interface| interface.uuid.clear());
        }
    }
    let Kernel { pfs, records, files, modules, enabled_units, command_line, next_command_line, .. } = kernel;
    PersistentState {
        pfs,
        records: records.into_values().collect(),
        files,
        modules,
        units: enabled_units,
        arguments: [command_line, next_command_line],
        bridges,
        ovs: rows,
        ovs_settings: kernel.ovs.other_config,
        masters,
    }
}

/// Returns the lines in which two states differ, for messages.
pub(crate) fn differences(one: &PersistentState, other: &PersistentState) -> String {
    let (one, other) = (format!("{one:#?}"), format!("{other:#?}"));
    let missing = |from: &str, in_: &str, sign: char| -> Vec<String> {
        let lines: BTreeSet<&str> = in_.lines().collect();
        from.lines().filter(|line| !lines.contains(line)).map(|line| format!("{sign}{line}")).collect()
    };
    [missing(&one, &other, '-'), missing(&other, &one, '+')].concat().join("\n")
}
