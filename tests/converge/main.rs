//! The planner's promises on random machines, random wishes and random mishaps.
//!
//! - plan, execute, plan again: nothing is left to do, whoever asks
//! - cut after any step and start over: the same machine in the end
//! - all that may be done at once, done at once: the same machine in the end
//! - no step touches a PF that is neither wanted nor recorded, nor a VF that nobody wants or that the node itself uses
//! - no step makes a PF that the node itself uses restart

#![allow(clippy::expect_used, clippy::panic, reason = "in a test a failed expectation is the point")]

mod course;
mod machine;
mod mishap;
mod unknown;
mod wish;

use std::fmt;

use proptest::prelude::*;
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec, VfRef};
use vfleet_host::sim::{CardFirmware, HexId, Machine, MachinePf};
use vfleet_host::{Host, SimHost};
use vfleet_plan::firmware::MELLANOX;
use vfleet_plan::{BootLoader, HostFacts, Plan, Processor, Step};
use vfleet_tests::contract::specs::{group, spec, with_groups};

use course::{Pace, converge, lasting, lines, plan, plan_after_drain};
use mishap::{Mishap, mishap};

/// How many scenarios are tried, or more where `PROPTEST_CASES` says so.
const CASES: u32 = 1000;

/// A machine with a past, and what is wanted of it now.
#[derive(Clone)]
struct Scenario {
    machine: Machine,
    /// What was wanted earlier, and after how many steps that was cut off.
    before: SriovNetworkNodeStateSpec,
    cut_before: usize,
    mishaps: Vec<(usize, u16, Mishap)>,
    wanted: SriovNetworkNodeStateSpec,
}

impl fmt::Debug for Scenario {
    /// In a few lines, to be read by people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pf in &self.machine.pfs {
            let MachinePf { address, total_vfs, num_vfs, mtu, max_mtu, up, autoprobe, driver, .. } = pf;
            let MachinePf { lone_vf, link_kind, firmware, host_use, .. } = pf;
            write!(f, "\n  {address} has {num_vfs} of {total_vfs} VFs, mtu {mtu} of {max_mtu:?}, up {up}, ")?;
            write!(f, "autoprobe {autoprobe}, driver {driver:?}, {link_kind:?}, lone {lone_vf}, ")?;
            write!(f, "firmware {firmware:?}, used for {host_use:?}")?;
        }
        let Machine { kernel, guid_file, userspace_drivers, .. } = &self.machine;
        write!(f, "\n  {kernel:?}, {userspace_drivers:?}, GUIDs {guid_file:?}")?;
        let print = |spec| serde_json::to_string(spec).map_err(|_| fmt::Error);
        write!(f, "\n  {} steps for {}", self.cut_before, print(&self.before)?)?;
        write!(f, "\n  then {:?}\n  then {}\n", self.mishaps, print(&self.wanted)?)
    }
}

fn scenario() -> impl Strategy<Value = Scenario> {
    machine::machine().prop_flat_map(|machine| {
        let cards = machine.pfs.len();
        let mishaps = prop::collection::vec((0..cards, 0_u16..9, mishap()), 0..6);
        (Just(machine), wish::spec(cards), 0_usize..60, mishaps, wish::spec(cards)).prop_map(
            |(machine, before, cut_before, mishaps, wanted)| Scenario {
                machine,
                before,
                cut_before,
                mishaps,
                wanted,
            },
        )
    })
}

/// The machine at the moment when it is looked at; always the same for the same scenario.
fn begin(scenario: &Scenario) -> SimHost {
    let host = SimHost::new(&scenario.machine, "converge").expect("a possible machine");
    let before = plan(&host, &scenario.before);
    for planned in before.steps.iter().take(scenario.cut_before) {
        host.execute(&planned.step).unwrap_or_else(|error| panic!("`{planned}`: {error}"));
    }
    for (card, index, mishap) in &scenario.mishaps {
        mishap.befall(&host, VfRef { pf: scenario.machine.pfs[*card].address, index: *index });
    }
    host.another()
}

fn is_ours(wanted: &SriovNetworkNodeStateSpec, host: &SimHost, pf: PciAddress) -> bool {
    let mut interfaces = wanted.interfaces.iter().flatten();
    interfaces.any(|interface| interface.pci_address.value() == Ok(&pf))
        || host.kernel().records.contains_key(&pf)
}

/// Whether a group asks for the VF.
fn is_wanted(wanted: &SriovNetworkNodeStateSpec, vf: VfRef) -> bool {
    let mut interfaces = wanted.interfaces.iter().flatten();
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

/// Whether a driver may restart the PF for it.
const fn restarts_pf(step: &Step) -> bool {
    use Step::{ResetFirmware, SetEswitchMode, SetPfMtu, SetSoftwareSteering};
    matches!(
        step,
        SetPfMtu { .. } | SetEswitchMode { .. } | SetSoftwareSteering { .. } | ResetFirmware { .. }
    )
}

/// VFs that are about to go, or whose switch changes, are touched all; a lone VF that was ours is given back.
fn is_about_all_vfs(plan: &Plan, facts: &HostFacts, pf: PciAddress) -> bool {
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
    fn a_plan_leaves_nothing_to_do(scenario in scenario()) {
        let host = begin(&scenario);
        let first = plan(&host, &scenario.wanted);
        let last = converge(&host, &scenario.wanted, Pace::OneByOne);
        let again = plan(&host.another(), &scenario.wanted);
        prop_assert_eq!(lines(&again), Vec::<String>::new(), "after {:#?}", lines(&first));
        prop_assert_eq!(again.problems, last.problems);
    }

    #[test]
    fn a_plan_that_is_cut_off_anywhere_ends_the_same(scenario in scenario()) {
        cut_anywhere(&scenario)?;
    }

    #[test]
    fn a_plan_touches_only_what_is_wanted_or_ours(scenario in scenario()) {
        let host = begin(&scenario);
        let facts = host.facts().expect("facts");
        let plan = plan(&host, &scenario.wanted);
        for planned in &plan.steps {
            let pf = planned.step.pf();
            prop_assert!(pf.is_none_or(|pf| is_ours(&scenario.wanted, &host, pf)), "{}", planned);
            let in_use = pf.and_then(|pf| facts.pf(pf)?.link.as_ref()?.host_use);
            prop_assert!(in_use.is_none() || !restarts_pf(&planned.step), "{:?}: {}", in_use, planned);
            if let Some(vf) = planned.step.vf() {
                let may_be_touched = is_wanted(&scenario.wanted, vf) || is_about_all_vfs(&plan, &facts, vf.pf);
                prop_assert!(may_be_touched, "nobody wants it: {}", planned);
                prop_assert!(!is_in_use(&facts, vf), "in use: {}", planned);
            }
            if let Step::SetNumVfs { pf, .. } | Step::SetEswitchMode { pf, .. } = planned.step {
                let is_free = |index| !is_in_use(&facts, VfRef { pf, index });
                prop_assert!((0..64).all(is_free), "a VF is in use: {}", planned);
            }
        }
    }
}

proptest! {
    #![proptest_config(config(CASES / 4))]

    #[test]
    fn a_plan_that_is_done_at_once_ends_the_same(scenario in scenario()) {
        let (slow, fast) = (begin(&scenario), begin(&scenario));
        converge(&slow, &scenario.wanted, Pace::OneByOne);
        converge(&fast, &scenario.wanted, Pace::AtOnce);
        prop_assert_eq!(lasting(&fast), lasting(&slow));
    }
}

/// The boot loader takes the arguments, and forgets them.
#[test]
fn a_machine_that_restarts_in_vain_restarts_twice() {
    let mut machine = Machine::lab();
    machine.kernel.boot_loader = Some(BootLoader::Grubby);
    machine.kernel.keeps_arguments = false;
    machine.kernel.processor = Processor::Intel;
    machine.kernel.iommu = false;
    let host = SimHost::new(&machine, "in vain").expect("a possible machine");
    let vfs = group("vfio-pci", (0, 1), None);
    let wanted = spec(vec![with_groups(machine.pfs[0].address, 2, None, vec![vfs])]);
    let mut restarts = 0;
    let problems = loop {
        let plan = plan(&host, &wanted);
        if !plan.steps.iter().any(|planned| planned.step == Step::Reboot) {
            break plan.problems;
        }
        restarts += 1;
        assert!(restarts < 10, "it restarts again and again");
        plan.steps.iter().for_each(|planned| host.execute(&planned.step).expect("a step"));
        host.restart();
    };
    assert_eq!(restarts, 2);
    assert!(problems.iter().any(|problem| problem.cause.reason() == "RebootsDidNotHelp"), "{problems:?}");
}

/// Two cards need new settings of their firmware. What one of them speaks stays unknown without a driver, so that its
/// restarts are remembered: how many those are depends on the cut.
#[test]
fn restarts_that_are_remembered_make_no_difference() {
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
    let [speaks_already, unknown] = [&machine.pfs[0], &machine.pfs[1]].map(|pf| pf.address);
    let mut wanted =
        vec![with_groups(speaks_already, 1, None, Vec::new()), with_groups(unknown, 5, None, Vec::new())];
    wanted[1].link_type = Some("ETH".to_owned());
    let before = SriovNetworkNodeStateSpec::default();
    let scenario = Scenario { machine, before, cut_before: 0, mishaps: Vec::new(), wanted: spec(wanted) };
    cut_anywhere(&scenario).expect("the same machine");
}

/// Cut after any step and start over: the same machine in the end.
fn cut_anywhere(scenario: &Scenario) -> Result<(), TestCaseError> {
    let host = begin(scenario);
    let first = plan_after_drain(&host, &scenario.wanted);
    converge(&host, &scenario.wanted, Pace::OneByOne);
    let whole = lasting(&host);
    for cut in 0..first.steps.len() {
        let cut_off = lasting(&cut_and_start_over(scenario, cut));
        prop_assert_eq!(&cut_off, &whole, "cut after {} of {:#?}", cut, lines(&first));
    }
    Ok(())
}

/// With the process killed before step number `cut`.
fn cut_and_start_over(scenario: &Scenario, cut: usize) -> SimHost {
    let host = begin(scenario);
    host.cut_at(cut);
    let plan = plan_after_drain(&host, &scenario.wanted);
    let refused = plan.steps.iter().position(|planned| host.execute(&planned.step).is_err());
    assert_eq!(refused, Some(cut));
    assert!(host.facts().is_err(), "a process that was killed does nothing");
    host.restart();
    converge(&host, &scenario.wanted, Pace::OneByOne);
    host
}
