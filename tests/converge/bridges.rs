//! Software bridges: on random machines with random bridges, histories and disturbances
//!
//! - a second plan has no steps, also after an interruption before or within any step
//! - bridges, ports and keys of others are not changed
//! - a bridge with ports of others is removed only by a plan that requires a drain
//! - changes of bridges do not touch VFs
//!
//! Each kind of step occurs and is interrupted.

mod desired;
mod disturbance;
mod others;
mod scenario;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use vfleet_api::PciAddress;
use vfleet_host::sim::Kernel;
use vfleet_host::{Host, HostError, SimHost};
use vfleet_plan::{Disruption, HostFacts, LinuxBridgeFacts, PlannedStep, Step};

use super::convergence::{
    Desired, ExecutedLanes, Execution, converge, differences, heal, persistent_state, plan, plan_after_drain,
    step_texts,
};
use others::{other_keys, others, rows, stolen_ports, uplink_of};
use scenario::{Scenario, prepare_host, scenario};

const CASES: u32 = 1000;

/// All kinds of steps on bridges.
const KINDS: [&str; 10] = [
    "SetOvsBridge",
    "RemoveOvsBridge",
    "RemoveOvsPort",
    "CreateLinuxBridge",
    "SetLinuxBridge",
    "AttachUplink",
    "DetachUplink",
    "SetBridgePort",
    "RemoveLinuxBridge",
    "EnableOvsOffload",
];

/// Returns the kind of a step on bridges.
const fn kind(step: &Step) -> Option<&'static str> {
    Some(match step {
        Step::SetOvsBridge { .. } => "SetOvsBridge",
        Step::RemoveOvsBridge { .. } => "RemoveOvsBridge",
        Step::RemoveOvsPort { .. } => "RemoveOvsPort",
        Step::CreateLinuxBridge { .. } => "CreateLinuxBridge",
        Step::SetLinuxBridge { .. } => "SetLinuxBridge",
        Step::AttachUplink { .. } => "AttachUplink",
        Step::DetachUplink { .. } => "DetachUplink",
        Step::SetBridgePort { .. } => "SetBridgePort",
        Step::RemoveLinuxBridge { .. } => "RemoveLinuxBridge",
        Step::EnableOvsOffload => "EnableOvsOffload",
        _ => return None,
    })
}

/// Runs a property on random scenarios.
fn check(cases: u32, property: impl Fn(&Scenario) -> Result<(), TestCaseError>) {
    let mut runner = TestRunner::new(super::config(cases));
    let result = runner.run(&scenario(), |scenario| property(&scenario));
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn after_a_plan_for_bridges_no_step_is_left() {
    check(CASES, |scenario| {
        let host = prepare_host(scenario);
        let first = plan(&host, &scenario.desired);
        let last = converge(&host, &scenario.desired, Execution::Sequential);
        let again = plan(&host.new_process(), &scenario.desired);
        prop_assert_eq!(step_texts(&again), Vec::<String>::new(), "after {:#?}", step_texts(&first));
        prop_assert_eq!(again.problems, last.problems);
        Ok(())
    });
}

#[test]
fn a_plan_for_bridges_that_runs_in_parallel_has_the_same_result() {
    check(CASES / 4, |scenario| {
        let (sequential, parallel) = (prepare_host(scenario), prepare_host(scenario));
        converge(&sequential, &scenario.desired, Execution::Sequential);
        converge(&parallel, &scenario.desired, Execution::Parallel);
        for host in [&sequential, &parallel] {
            heal(host);
            converge(host, &scenario.desired, Execution::Sequential);
        }
        prop_assert_eq!(persistent_state(&parallel), persistent_state(&sequential));
        Ok(())
    });
}

#[test]
fn an_interruption_at_any_step_for_bridges_has_the_same_result() {
    let interrupted = RefCell::new(BTreeMap::<_, u32>::new());
    check(CASES, |scenario| {
        let host = prepare_host(scenario);
        let first = plan_after_drain(&host, &scenario.desired);
        converge(&host, &scenario.desired, Execution::Sequential);
        heal(&host);
        converge(&host, &scenario.desired, Execution::Sequential);
        let uninterrupted = persistent_state(&host);
        for kills in [SimHost::kill_at, SimHost::kill_within] {
            for number in 0.. {
                let host = prepare_host(scenario);
                kills(&host, number);
                let Some(killed_at) = execute_until_killed(&host, &scenario.desired) else { break };
                host.restart_process();
                converge(&host, &scenario.desired, Execution::Sequential);
                heal(&host);
                converge(&host, &scenario.desired, Execution::Sequential);
                let state = persistent_state(&host);
                if state != uninterrupted {
                    let (steps, differences) = (step_texts(&first), differences(&uninterrupted, &state));
                    prop_assert!(false, "killed at {number} of {steps:#?}:\n{differences}");
                }
                if let Some(kind) = kind(&killed_at) {
                    *interrupted.borrow_mut().entry(kind).or_default() += 1;
                }
            }
        }
        Ok(())
    });
    let counts = interrupted.into_inner();
    let missing: Vec<_> =
        KINDS.into_iter().filter(|kind| counts.get(kind).copied().unwrap_or(0) < 10).collect();
    assert!(missing.is_empty(), "steps that were interrupted less than 10 times: {missing:?} of {counts:?}");
}

/// Executes a plan until the process is killed. Returns the step at which it was, or `None` if it survived.
fn execute_until_killed(host: &SimHost, desired: &Desired) -> Option<Step> {
    let failed = ExecutedLanes::default();
    let plan = plan_after_drain(host, desired);
    for planned in &plan.steps {
        match failed.execute(host, planned) {
            Ok(()) => {}
            Err(HostError::ProcessKilled { .. }) => {
                return host.facts().is_err().then(|| planned.step.clone());
            }
            Err(error) => panic!("`{planned}`: {error}\nof {:#?}", step_texts(&plan)),
        }
    }
    None
}

#[test]
fn bridges_ports_and_keys_of_others_are_not_changed() {
    check(CASES, |scenario| {
        let host = prepare_host(scenario);
        let before = host.kernel();
        converge(&host, &scenario.desired, Execution::Sequential);
        let after = host.kernel();
        prop_assert_eq!(others(&after), others(&before));
        // Nobody knows the ports of Open vSwitch while it cannot be read.
        let is_readable = before.ovs.has_server && !before.ovs.is_unanswering;
        let stolen = stolen_ports(&after);
        prop_assert!(!is_readable || stolen.is_subset(&stolen_ports(&before)), "{:?}", stolen);
        let (keys, rows): (_, BTreeSet<_>) =
            (other_keys(&after), rows(&after).into_iter().cloned().collect());
        for ((row, column), value) in other_keys(&before) {
            let found = keys.get(&(row.clone(), column));
            prop_assert!(!rows.contains(&row) || found == Some(&value), "{} of {}: {:?}", column, row, found);
        }
        Ok(())
    });
}

#[test]
fn a_bridge_with_ports_of_others_is_removed_only_by_a_plan_with_a_drain() {
    let drained = RefCell::new(0_u32);
    check(CASES, |scenario| {
        let host = prepare_host(scenario);
        let kernel = host.kernel();
        let plan = plan(&host, &scenario.desired);
        for planned in &plan.steps {
            let Some(used_by) = ports_of_others(&kernel, &planned.step) else { continue };
            let removes_all =
                matches!(planned.step, Step::RemoveOvsBridge { .. } | Step::RemoveLinuxBridge { .. });
            prop_assert!(used_by.is_empty() || !removes_all, "{} with {:?}", planned, used_by);
            let is_drained = planned.disruption >= Disruption::Drain;
            prop_assert!(used_by.is_empty() || is_drained, "{} with {:?}", planned, used_by);
            *drained.borrow_mut() += u32::from(!used_by.is_empty());
        }
        Ok(())
    });
    assert!(drained.into_inner() > 10, "bridges in use were hardly ever removed");
}

/// Returns the ports other than the uplink of a bridge that the step removes or separates from its uplink; `None` if it
/// does not.
fn ports_of_others(kernel: &Kernel, step: &Step) -> Option<Vec<String>> {
    let pf = step.pf()?;
    let uplink = kernel.pf(pf).and_then(|pf| pf.link.as_ref()).map(|link| link.name.as_str());
    let ports: Vec<&str> = match step {
        Step::RemoveOvsBridge { observed, .. } | Step::RemoveOvsPort { observed, .. } => {
            let is_marked = |ids: &BTreeMap<String, String>| ids.contains_key(vfleet_api::keys::OVS_UPLINK);
            let bridge = kernel.ovs.bridge(&observed.name)?;
            let ports =
                bridge.ports.iter().filter(|port| port.name != bridge.name && !is_marked(&port.external_ids));
            ports.map(|port| port.name.as_str()).collect()
        }
        Step::RemoveLinuxBridge { name, .. } | Step::DetachUplink { bridge: name, .. } => {
            kernel.bridge(name)?.ports.keys().map(String::as_str).collect()
        }
        _ => return None,
    };
    Some(ports.into_iter().filter(|port| Some(*port) != uplink).map(str::to_owned).collect())
}

#[test]
fn steps_on_bridges_change_only_bridges_of_the_policy_and_our_own() {
    check(CASES, |scenario| {
        let host = prepare_host(scenario);
        let (kernel, facts) = (host.kernel(), host.facts().expect("facts"));
        for planned in plan(&host, &scenario.desired).steps {
            let Some(pf) = planned.step.pf().filter(|_| kind(&planned.step).is_some()) else { continue };
            let is_allowed = is_bridge_desired(&scenario.desired, pf) || has_own_bridge(&kernel, &facts, pf);
            prop_assert!(is_allowed, "{}", planned);
            prop_assert!(!is_external(&scenario.desired, pf), "{} is externally managed: {}", pf, planned);
        }
        Ok(())
    });
}

fn is_bridge_desired(desired: &Desired, pf: PciAddress) -> bool {
    let bridges = desired.spec.bridges.as_ref().filter(|_| desired.options.manage_bridges);
    let ovs = bridges.into_iter().flat_map(|bridges| bridges.ovs.iter().flatten());
    let ovs = ovs.flat_map(|bridge| bridge.uplinks.iter().flatten()).map(|uplink| &uplink.pci_address);
    let linux = bridges.into_iter().flat_map(|bridges| bridges.linux.iter().flatten());
    let linux = linux.flat_map(|bridge| bridge.uplinks.iter().flatten()).map(|uplink| &uplink.pci_address);
    ovs.chain(linux).any(|uplink| uplink.value() == Ok(&pf))
}

fn has_own_bridge(kernel: &Kernel, facts: &HostFacts, pf: PciAddress) -> bool {
    let is_begun = |bridge: &LinuxBridgeFacts| {
        let recorded = facts.record(pf).and_then(|record| record.bridge.as_ref());
        bridge.group == LinuxBridgeFacts::NEW_GROUP
            && recorded.is_some_and(|recorded| recorded.name == bridge.name)
    };
    kernel.ovs.bridges.iter().any(|bridge| uplink_of(kernel, bridge) == Some(pf))
        || facts.bridges.linux.iter().any(|bridge| bridge.marked_uplink() == Some(pf) || is_begun(bridge))
}

fn is_external(desired: &Desired, pf: PciAddress) -> bool {
    let mut interfaces = desired.spec.interfaces.iter().flatten();
    interfaces.any(|interface| {
        interface.pci_address.value() == Ok(&pf) && interface.externally_managed == Some(true)
    })
}

/// Only bridges, records, rules, and files change if VFs and PFs are configured.
#[test]
fn changes_of_bridges_do_not_touch_vfs() {
    let changed = RefCell::new(BTreeSet::new());
    check(CASES, |scenario| {
        // PFs and VFs are configured without bridges before, and nobody else changes them.
        let mut without = scenario.desired.clone();
        without.spec.bridges = None;
        let scenario = Scenario { before: without, executed_before: usize::MAX, ..scenario.clone() };
        let host = prepare_host(&Scenario { disturbances: Vec::new(), ..scenario.clone() });
        converge(&host, &scenario.before, Execution::Sequential);
        let vfs = |host: &SimHost| -> Vec<_> {
            host.kernel().pfs.into_iter().map(|pf| (pf.vfs, pf.eswitch)).collect()
        };
        let before = vfs(&host);
        for desired in [&scenario.desired, &scenario.before, &scenario.desired] {
            let plan = plan(&host, desired);
            for planned in &plan.steps {
                prop_assert!(is_about_bridges(planned), "{}", planned);
                changed.borrow_mut().extend(kind(&planned.step));
            }
            prop_assert!(plan.disruption() < Disruption::Drain, "{:#?}", step_texts(&plan));
            converge(&host, desired, Execution::Sequential);
            prop_assert_eq!(&vfs(&host), &before);
        }
        Ok(())
    });
    for kind in ["SetOvsBridge", "RemoveOvsBridge", "CreateLinuxBridge", "RemoveLinuxBridge"] {
        assert!(changed.borrow().contains(kind), "{kind} never occurred");
    }
}

fn is_about_bridges(planned: &PlannedStep) -> bool {
    kind(&planned.step).is_some()
        || matches!(planned.step, Step::WriteRecord { .. } | Step::WriteFile { .. } | Step::RemoveFile { .. })
            && planned.disruption == Disruption::None
}
