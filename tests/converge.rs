//! The planner's promises on random machines, random wishes and random mishaps.
//!
//! - plan, execute, plan again: nothing is left to do, whoever asks
//! - cut after any step and start over: the same machine in the end
//! - no step touches a PF that is neither wanted nor recorded

#![allow(clippy::expect_used, clippy::panic, reason = "in a test a failed expectation is the point")]

use std::fmt;

use proptest::prelude::*;
use vfleet_api::node_state::{Interface, VfGroup};
use vfleet_api::{MacAddr, PciAddress, SriovNetworkNodeStateSpec, VfRange, VfRef};
use vfleet_host::sim::{Kernel, Machine, MachinePf, Pf};
use vfleet_host::{Host, SimHost};
use vfleet_plan::{Plan, Record, plan_node};

/// How many scenarios are tried, unless CONVERGE_CASES says so.
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
            write!(f, "\n  {address} has {num_vfs} of {total_vfs} VFs, mtu {mtu} of {max_mtu:?}, up {up}, ")?;
            write!(f, "autoprobe {autoprobe}, driver {driver:?}")?;
        }
        let print = |spec| serde_json::to_string(spec).map_err(|_| fmt::Error);
        write!(f, "\n  {} steps for {}", self.cut_before, print(&self.before)?)?;
        write!(f, "\n  then {:?}\n  then {}\n", self.mishaps, print(&self.wanted)?)
    }
}

/// What somebody else did to a VF, or to its PF.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    Unbound,
    BoundToVfio,
    OverrideLeft,
    AddressTaken,
    AddressGiven,
    HeldElsewhere,
    VfsRemoved,
    PfDown,
    AutoprobeOff,
    PfMtu,
}

fn machine() -> impl Strategy<Value = Machine> {
    prop::collection::vec(card(), 1..=4).prop_map(|cards| {
        let mut machine = Machine { pfs: cards, ..Machine::lab() };
        for (pf, number) in machine.pfs.iter_mut().zip(1..) {
            pf.name = format!("ens{number}");
            pf.address = address(number);
        }
        machine
    })
}

/// The address of a card; far from the others, so that its VFs fit in between.
fn address(number: u8) -> PciAddress {
    PciAddress::new(0, number * 16, 0, 0).expect("a possible address")
}

fn card() -> impl Strategy<Value = MachinePf> {
    let basics = (prop_oneof![4 => Just(8_u16), 1 => 1_u16..=8], 0_u16..=8, 1_u16..=2, 1_u16..=200);
    let switches = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.95));
    let mtus = (prop::sample::select(vec![1500, 9000]), prop::option::of(Just(9216)));
    (basics, switches, mtus).prop_map(|((total, vfs, stride, offset), (up, autoprobe, driver), mtus)| {
        MachinePf {
            total_vfs: total,
            num_vfs: if driver { vfs.min(total) } else { 0 },
            vf_stride: stride,
            vf_offset: offset,
            up,
            autoprobe,
            driver: driver.then(|| "igb".to_owned()),
            mtu: mtus.0,
            max_mtu: mtus.1,
            ..Machine::lab().pfs.remove(0)
        }
    })
}

/// What may be wanted of a machine with so many cards, possible or not.
fn spec(cards: usize) -> impl Strategy<Value = SriovNetworkNodeStateSpec> {
    let one_for_each: Vec<_> =
        (1_u8..).take(cards).map(|number| prop::option::weighted(0.7, interface(number))).collect();
    let interfaces = prop::option::weighted(0.95, one_for_each);
    interfaces.prop_map(|interfaces| SriovNetworkNodeStateSpec {
        interfaces: interfaces.map(|list| list.into_iter().flatten().collect()),
        ..SriovNetworkNodeStateSpec::default()
    })
}

/// Mostly possible: with what is impossible nothing is done, and nothing is learnt.
fn interface(number: u8) -> impl Strategy<Value = Interface> {
    let num_vfs = prop_oneof![18 => 0_u8..=6, 1 => Just(9)];
    let card = prop_oneof![20 => Just(number), 1 => Just(15)];
    (card, num_vfs).prop_flat_map(|(card, num_vfs)| {
        let link_type =
            prop::option::weighted(0.2, prop::sample::select(vec!["ETH", "eth", "ETH", "eth", "IB"]));
        let external = prop::option::weighted(0.3, any::<bool>());
        let groups = prop::collection::vec(group(num_vfs.into()), 0..=3);
        (mtu(), link_type, external, groups).prop_map(move |(mtu, link_type, external, groups)| Interface {
            pci_address: address(card).into(),
            // 200 is more than any card has.
            num_vfs: Some(if num_vfs == 9 { 200 } else { num_vfs.into() }),
            mtu,
            name: None,
            link_type: link_type.map(str::to_owned),
            e_switch_mode: None,
            vf_groups: Some(groups).filter(|groups| !groups.is_empty()),
            externally_managed: external,
        })
    })
}

/// VFs of `num_vfs`, or a little beyond them.
fn group(num_vfs: u16) -> impl Strategy<Value = VfGroup> {
    let kind = prop_oneof![15 => Just("netdevice"), 12 => Just("vfio-pci"), 1 => Just("toaster")];
    let beyond = prop_oneof![15 => Just(0_u16), 1 => Just(1)];
    let range = prop::option::weighted(0.8, (0..num_vfs.max(1), 0_u16..=6, beyond));
    (kind, range, mtu()).prop_map(move |(kind, range, mtu)| VfGroup {
        device_type: Some(kind.to_owned()),
        vf_range: range
            .and_then(|(first, more, beyond)| {
                VfRange::new(first, (first + more).min(num_vfs.saturating_sub(1)) + beyond)
            })
            .map(Into::into),
        policy_name: Some("policy".to_owned()),
        mtu,
        ..VfGroup::default()
    })
}

fn mtu() -> impl Strategy<Value = Option<i64>> {
    let possible = prop::sample::select(vec![None, None, Some(0), Some(1500), Some(3000), Some(9000)]);
    prop_oneof![20 => possible, 1 => Just(Some(20_000))]
}

fn mishap() -> impl Strategy<Value = Mishap> {
    use Mishap::{
        AddressGiven, AddressTaken, AutoprobeOff, BoundToVfio, HeldElsewhere, OverrideLeft, PfDown, PfMtu,
        Unbound, VfsRemoved,
    };
    prop::sample::select(vec![
        Unbound,
        BoundToVfio,
        OverrideLeft,
        AddressTaken,
        AddressGiven,
        HeldElsewhere,
        VfsRemoved,
        PfDown,
        AutoprobeOff,
        PfMtu,
    ])
}

fn scenario() -> impl Strategy<Value = Scenario> {
    machine().prop_flat_map(|machine| {
        let cards = machine.pfs.len();
        let mishaps = prop::collection::vec((0..cards, 0_u16..9, mishap()), 0..6);
        (Just(machine), spec(cards), 0_usize..60, mishaps, spec(cards)).prop_map(
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

impl Mishap {
    /// What the kernel refuses did not happen.
    fn befall(self, kernel: &mut Kernel, vf: VfRef) {
        let _ = match self {
            Self::Unbound => kernel.unbind(vf),
            Self::BoundToVfio => kernel
                .set_override(vf, Some("vfio-pci"))
                .and_then(|()| kernel.unbind(vf))
                .and_then(|()| kernel.probe(vf))
                .and_then(|()| kernel.set_override(vf, None)),
            Self::OverrideLeft => kernel.set_override(vf, Some("vfio-pci")),
            Self::AddressTaken => kernel.set_vf_mac(vf, MacAddr::ZERO),
            Self::AddressGiven => kernel.set_vf_mac(vf, MacAddr([2, 0, 0, 0, 7, 7])),
            Self::HeldElsewhere => kernel.hold_elsewhere(vf, true),
            Self::VfsRemoved => kernel.set_num_vfs(vf.pf, 0),
            Self::PfDown => kernel.set_up(vf.pf, false),
            Self::AutoprobeOff => kernel.set_autoprobe(vf.pf, false),
            Self::PfMtu => kernel.set_pf_mtu(vf.pf, 2000),
        };
    }
}

/// The machine at the moment when it is looked at; always the same for the same scenario.
fn begin(scenario: &Scenario) -> SimHost {
    let host = SimHost::new(&scenario.machine, "converge").expect("a possible machine");
    carry_out(&host, &scenario.before, scenario.cut_before);
    for (card, index, mishap) in &scenario.mishaps {
        let vf = VfRef { pf: scenario.machine.pfs[*card].address, index: *index };
        host.behind_its_back(|kernel| mishap.befall(kernel, vf));
    }
    host.another()
}

/// Plans and executes `limit` steps at most. A step of the planner never fails here.
fn carry_out(host: &SimHost, wanted: &SriovNetworkNodeStateSpec, limit: usize) -> Plan {
    let plan = plan_node(wanted, &host.facts().expect("facts"));
    for planned in plan.steps.iter().take(limit) {
        if let Err(error) = host.execute(&planned.step) {
            panic!("`{planned}`: {error}\nof {:#?}", lines(&plan));
        }
    }
    plan
}

fn lines(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(ToString::to_string).collect()
}

/// All that lasts of the machine.
fn lasting(host: &SimHost) -> (Vec<Pf>, Vec<Record>) {
    let Kernel { pfs, records, .. } = host.kernel();
    (pfs, records.into_values().collect())
}

fn is_ours(wanted: &SriovNetworkNodeStateSpec, host: &SimHost, pf: PciAddress) -> bool {
    let mut interfaces = wanted.interfaces.iter().flatten();
    interfaces.any(|interface| interface.pci_address.value() == Ok(&pf))
        || host.kernel().records.contains_key(&pf)
}

fn config() -> ProptestConfig {
    let cases = std::env::var("CONVERGE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES);
    ProptestConfig { failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_plan_leaves_nothing_to_do(scenario in scenario()) {
        let host = begin(&scenario);
        let plan = carry_out(&host, &scenario.wanted, usize::MAX);
        let again = plan_node(&scenario.wanted, &host.another().facts().expect("facts"));
        prop_assert_eq!(lines(&again), Vec::<String>::new(), "after {:#?}", lines(&plan));
        prop_assert_eq!(again.problems, plan.problems);
    }

    #[test]
    fn a_plan_that_is_cut_off_anywhere_ends_the_same(scenario in scenario()) {
        let host = begin(&scenario);
        let plan = carry_out(&host, &scenario.wanted, usize::MAX);
        let whole = lasting(&host);
        for cut in 0..plan.steps.len() {
            let cut_off = lasting(&cut_and_start_over(&scenario, cut));
            prop_assert_eq!(&cut_off, &whole, "cut after {} of {:#?}", cut, lines(&plan));
        }
    }

    #[test]
    fn a_plan_touches_only_what_is_wanted_or_ours(scenario in scenario()) {
        let host = begin(&scenario);
        let plan = plan_node(&scenario.wanted, &host.facts().expect("facts"));
        for planned in plan.steps {
            let pf = planned.step.pf();
            prop_assert!(pf.is_none_or(|pf| is_ours(&scenario.wanted, &host, pf)), "{}", planned);
        }
    }
}

/// With the process killed before step number `cut`.
fn cut_and_start_over(scenario: &Scenario, cut: usize) -> SimHost {
    let host = begin(scenario);
    host.cut_at(cut);
    let plan = plan_node(&scenario.wanted, &host.facts().expect("facts"));
    let refused = plan.steps.iter().position(|planned| host.execute(&planned.step).is_err());
    assert_eq!(refused, Some(cut));
    assert!(host.facts().is_err(), "a process that was killed does nothing");
    host.restart();
    carry_out(&host, &scenario.wanted, usize::MAX);
    host
}
