//! Properties of the planner on random machines with random desired states and random disturbances:
//!
//! - after planning and executing, a second plan of any process has no steps
//! - a plan that is interrupted after any step and started again has the same result
//! - steps that run in parallel have the same result as in sequence
//! - no step changes a PF that is neither desired nor recorded, nor a VF that is not desired or that the node uses
//! - no step restarts a PF that the node uses
//! - software bridges, ports and keys of others are not changed (`bridges`)
//! - attachments of pods leave nothing behind (`cni`)

#![allow(clippy::expect_used, clippy::panic, reason = "in a test a failed expectation is the point")]

mod bridges;
mod cni;
mod convergence;
mod desired_spec;
mod disturbance;
mod machine;
mod unknown;

use std::fmt;

use proptest::prelude::*;
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec, VfRef};
use vfleet_host::sim::{CardFirmware, HexId, Machine, MachinePf};
use vfleet_host::{Host, SimHost};
use vfleet_plan::firmware::MELLANOX;
use vfleet_plan::{BootLoader, HostFacts, Plan, Processor, Step};
use vfleet_tests::contract::specs::{group, spec, with_groups};

use convergence::{Desired, Execution, converge, persistent_state, plan, plan_after_drain, step_texts};
use disturbance::{Disturbance, disturbance};

/// Minimum number of scenarios; `PROPTEST_CASES` can raise it.
const CASES: u32 = 1000;

/// Machine with a history, and its desired state.
#[derive(Clone)]
struct Scenario {
    machine: Machine,
    /// Earlier desired state, of which only the first `executed_before` steps were executed.
    before: Desired,
    executed_before: usize,
    disturbances: Vec<(usize, u16, Disturbance)>,
    desired: Desired,
}

impl fmt::Debug for Scenario {
    /// Prints the scenario in a few lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pf in &self.machine.pfs {
            let MachinePf { address, total_vfs, num_vfs, mtu, max_mtu, up, autoprobe, driver, .. } = pf;
            let MachinePf { lone_vf, link_kind, firmware, host_use, .. } = pf;
            write!(f, "\n  {address} has {num_vfs} of {total_vfs} VFs, mtu {mtu} of {max_mtu:?}, up {up}, ")?;
            write!(f, "autoprobe {autoprobe}, driver {driver:?}, {link_kind:?}, lone {lone_vf}, ")?;
            write!(f, "firmware {firmware:?}, host use {host_use:?}")?;
        }
        let Machine { kernel, guid_file, userspace_drivers, .. } = &self.machine;
        write!(f, "\n  {kernel:?}, {userspace_drivers:?}, GUIDs {guid_file:?}")?;
        let print = |spec| serde_json::to_string(spec).map_err(|_| fmt::Error);
        write!(f, "\n  {} steps for {}", self.executed_before, print(&self.before.spec)?)?;
        write!(f, "\n  then {:?}\n  then {}\n", self.disturbances, print(&self.desired.spec)?)
    }
}

fn scenario() -> impl Strategy<Value = Scenario> {
    machine::machine().prop_flat_map(|machine| {
        let cards = machine.pfs.len();
        let disturbances = prop::collection::vec((0..cards, 0_u16..9, disturbance()), 0..6);
        (Just(machine), desired_spec::spec(cards), 0_usize..60, disturbances, desired_spec::spec(cards))
            .prop_map(|(machine, before, executed_before, disturbances, desired)| Scenario {
                machine,
                before: before.into(),
                executed_before,
                disturbances,
                desired: desired.into(),
            })
    })
}

/// Creates the machine of a scenario and applies its history. The result is deterministic.
fn prepare_host(scenario: &Scenario) -> SimHost {
    let host = SimHost::new(&scenario.machine, "converge").expect("a possible machine");
    let before = plan(&host, &scenario.before);
    for planned in before.steps.iter().take(scenario.executed_before) {
        host.execute(&planned.step).unwrap_or_else(|error| panic!("`{planned}`: {error}"));
    }
    for (card, index, disturbance) in &scenario.disturbances {
        disturbance.apply(&host, VfRef { pf: scenario.machine.pfs[*card].address, index: *index });
    }
    host.new_process()
}

fn is_managed(desired: &SriovNetworkNodeStateSpec, host: &SimHost, pf: PciAddress) -> bool {
    let mut interfaces = desired.interfaces.iter().flatten();
    interfaces.any(|interface| interface.pci_address.value() == Ok(&pf))
        || host.kernel().records.contains_key(&pf)
}

/// Returns whether a group contains the VF.
fn is_in_group(desired: &SriovNetworkNodeStateSpec, vf: VfRef) -> bool {
    let mut interfaces = desired.interfaces.iter().flatten();
    interfaces.any(|interface| {
        let mut groups = interface.vf_groups.iter().flatten();
        interface.pci_address.value() == Ok(&vf.pf)
            && groups.any(|group| match &group.vf_range {
                Some(range) => range.value().is_ok_and(|range| range.contains(vf.index)),
                None => true,
            })
    })
}

fn is_in_use(facts: &HostFacts, vf: VfRef) -> bool {
    let found = facts.pf(vf.pf).and_then(|pf| pf.vfs.get(usize::from(vf.index)));
    found.and_then(|vf| vf.link.as_ref()).is_some_and(|link| link.host_use.is_some())
}

/// Returns whether a driver may restart the PF for the step.
const fn restarts_pf(step: &Step) -> bool {
    use Step::{ResetFirmware, SetEswitchMode, SetPfMtu, SetSoftwareSteering};
    matches!(
        step,
        SetPfMtu { .. } | SetEswitchMode { .. } | SetSoftwareSteering { .. } | ResetFirmware { .. }
    )
}

/// Returns whether a plan may change all VFs of a PF: VFs are removed, the eswitch mode changes, or a lone VF is reset.
fn changes_all_vfs(plan: &Plan, facts: &HostFacts, pf: PciAddress) -> bool {
    let is_lone = facts.pf(pf).is_some_and(|found| found.is_lone_vf) && facts.record(pf).is_some();
    is_lone
        || plan.steps.iter().any(|planned| match planned.step {
            Step::SetNumVfs { pf: of, .. } | Step::SetEswitchMode { pf: of, .. } => of == pf,
            _ => false,
        })
}

fn config(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = default.cases.max(cases);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 4000, ..default }
}

proptest! {
    #![proptest_config(config(CASES))]

    #[test]
    fn after_a_plan_no_step_is_left(scenario in scenario()) {
        let host = prepare_host(&scenario);
        let first = plan(&host, &scenario.desired);
        let last = converge(&host, &scenario.desired, Execution::Sequential);
        let again = plan(&host.new_process(), &scenario.desired);
        prop_assert_eq!(step_texts(&again), Vec::<String>::new(), "after {:#?}", step_texts(&first));
        prop_assert_eq!(again.problems, last.problems);
    }

    #[test]
    fn an_interrupted_plan_has_the_same_result(scenario in scenario()) {
        check_interruptions(&scenario)?;
    }

    #[test]
    fn a_plan_changes_only_desired_or_recorded_pfs_and_vfs(scenario in scenario()) {
        let host = prepare_host(&scenario);
        let facts = host.facts().expect("facts");
        let plan = plan(&host, &scenario.desired);
        for planned in &plan.steps {
            let pf = planned.step.pf();
            prop_assert!(pf.is_none_or(|pf| is_managed(&scenario.desired.spec, &host, pf)), "{}", planned);
            let in_use = pf.and_then(|pf| facts.pf(pf)?.link.as_ref()?.host_use);
            prop_assert!(in_use.is_none() || !restarts_pf(&planned.step), "{:?}: {}", in_use, planned);
            if let Some(vf) = planned.step.vf() {
                let may_be_changed = is_in_group(&scenario.desired.spec, vf) || changes_all_vfs(&plan, &facts, vf.pf);
                prop_assert!(may_be_changed, "the VF is not desired: {}", planned);
                prop_assert!(!is_in_use(&facts, vf), "the node uses the VF: {}", planned);
            }
            if let Step::SetNumVfs { pf, .. } | Step::SetEswitchMode { pf, .. } = planned.step {
                let is_free = |index| !is_in_use(&facts, VfRef { pf, index });
                prop_assert!((0..64).all(is_free), "the node uses a VF: {}", planned);
            }
        }
    }
}

proptest! {
    #![proptest_config(config(CASES / 4))]

    #[test]
    fn a_plan_that_runs_in_parallel_has_the_same_result(scenario in scenario()) {
        let (sequential, parallel) = (prepare_host(&scenario), prepare_host(&scenario));
        converge(&sequential, &scenario.desired, Execution::Sequential);
        converge(&parallel, &scenario.desired, Execution::Parallel);
        prop_assert_eq!(persistent_state(&parallel), persistent_state(&sequential));
    }
}

/// The boot loader accepts the kernel arguments, but does not keep them.
#[test]
fn a_machine_reboots_only_twice_without_effect() {
    let mut machine = Machine::lab();
    machine.kernel.boot_loader = Some(BootLoader::Grubby);
    machine.kernel.keeps_arguments = false;
    machine.kernel.processor = Processor::Intel;
    machine.kernel.iommu = false;
    let host = SimHost::new(&machine, "ineffective").expect("a possible machine");
    let vfs = group("vfio-pci", (0, 1), None);
    let desired = spec(vec![with_groups(machine.pfs[0].address, 2, None, vec![vfs])]).into();
    let mut reboots = 0;
    let problems = loop {
        let plan = plan(&host, &desired);
        if !plan.steps.iter().any(|planned| planned.step == Step::Reboot) {
            break plan.problems;
        }
        reboots += 1;
        assert!(reboots < 10, "too many reboots");
        plan.steps.iter().for_each(|planned| host.execute(&planned.step).expect("a step"));
        host.restart_process();
    };
    assert_eq!(reboots, 2);
    assert!(problems.iter().any(|problem| problem.cause.reason() == "RebootLimitReached"), "{problems:?}");
}

/// Two cards need new firmware settings. The link type of one card stays unknown without a driver, so its reboots stay
/// in the count, which depends on the interruption.
#[test]
fn recorded_reboots_do_not_change_the_result() {
    let mut machine = Machine::lab();
    let card = machine.pfs.remove(0);
    let with_firmware = |number, driver: Option<&str>, sriov, num_vfs| MachinePf {
        name: format!("ens{number}"),
        address: machine::address(number),
        vendor: HexId(MELLANOX),
        driver: driver.map(str::to_owned),
        num_vfs: 0,
        firmware: Some(CardFirmware { sriov: Some(sriov), num_vfs: Some(num_vfs), link_types: Vec::new() }),
        ..card.clone()
    };
    machine.pfs = vec![with_firmware(1, Some("mlx5_core"), false, 3), with_firmware(2, None, true, 3)];
    let [known, unknown] = [&machine.pfs[0], &machine.pfs[1]].map(|pf| pf.address);
    let mut desired =
        vec![with_groups(known, 1, None, Vec::new()), with_groups(unknown, 5, None, Vec::new())];
    desired[1].link_type = Some("ETH".to_owned());
    let scenario = Scenario {
        machine,
        before: Desired::default(),
        executed_before: 0,
        disturbances: Vec::new(),
        desired: spec(desired).into(),
    };
    check_interruptions(&scenario).expect("the same result");
}

/// Checks that an interruption after any step does not change the result.
fn check_interruptions(scenario: &Scenario) -> Result<(), TestCaseError> {
    let host = prepare_host(scenario);
    let first = plan_after_drain(&host, &scenario.desired);
    converge(&host, &scenario.desired, Execution::Sequential);
    let uninterrupted = persistent_state(&host);
    for interrupted_at in 0..first.steps.len() {
        let interrupted = persistent_state(&interrupt_and_restart(scenario, interrupted_at));
        prop_assert_eq!(
            &interrupted,
            &uninterrupted,
            "interrupted after {} of {:#?}",
            interrupted_at,
            step_texts(&first)
        );
    }
    Ok(())
}

/// Kills the process before step number `step`, restarts it and converges.
fn interrupt_and_restart(scenario: &Scenario, step: usize) -> SimHost {
    let host = prepare_host(scenario);
    host.kill_at(step);
    let plan = plan_after_drain(&host, &scenario.desired);
    let refused = plan.steps.iter().position(|planned| host.execute(&planned.step).is_err());
    assert_eq!(refused, Some(step));
    assert!(host.facts().is_err(), "a killed process reads no facts");
    host.restart_process();
    converge(&host, &scenario.desired, Execution::Sequential);
    host
}
