//! Unknown is not absent: whatever facts cannot be read, on the node or by the operator, nothing is taken away for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{SriovNetworkNodePolicySpec, SriovNetworkNodeStateSpec};
use vfleet_host::sim::{Machine, MachinePf};
use vfleet_host::{Host, SimHost};
use vfleet_plan::drain::Moment;
use vfleet_plan::report::{self, View};
use vfleet_plan::{
    ClockReading, Disruption, Fact, HostFacts, NamedPolicy, NodeInput, PROTECTION, Plan, Question, Step,
    Unanswered, Unread, UseMemory, plan_node, plan_node_spec,
};

use super::machine;

/// How a policy selects its card.
#[derive(Clone, Copy, Debug)]
enum Selects {
    Name,
    AltName,
    Kind,
    Address,
    Network,
}

/// Something that cannot be read for a while.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// All of a card.
    Card,
    /// The interface of a card, which is away or elsewhere.
    Interface,
    /// The names of an interface, which udev has not given yet.
    Names,
    /// The network of a card.
    Network,
    /// The mode of a card's embedded switch.
    Eswitch,
    /// The settings of a card's firmware.
    Firmware,
}

/// What the operator does not know for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blindness {
    Nothing,
    /// The node reports no card.
    EmptyReport,
    /// A policy cannot be read.
    Policy,
    /// The node state was deleted, and is new.
    NodeState,
    /// The pool of the node cannot be read.
    Pool,
}

#[derive(Clone, Debug)]
struct Round {
    outages: Vec<(usize, Outage)>,
    blindness: Blindness,
    /// The agent starts anew, with nothing but what is on the machine and in the cluster.
    restarts: bool,
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    use Outage::{Card, Eswitch, Firmware, Interface, Names, Network};
    let outage = prop::sample::select(vec![Card, Interface, Names, Network, Eswitch, Firmware]);
    let blindness = prop::sample::select(vec![
        Blindness::Nothing,
        Blindness::Nothing,
        Blindness::EmptyReport,
        Blindness::Policy,
        Blindness::NodeState,
        Blindness::Pool,
    ]);
    let round = (prop::collection::vec((0_usize..4, outage), 0..6), blindness, any::<bool>());
    let round = round.prop_map(|(outages, blindness, restarts)| Round { outages, blindness, restarts });
    prop::collection::vec(round, 1..5)
}

fn selects() -> impl Strategy<Value = Selects> {
    use Selects::{Address, AltName, Kind, Name, Network};
    prop::sample::select(vec![Name, AltName, Kind, Address, Network])
}

/// Cards with other names and networks, as clouds and udev give them.
fn with_names(mut machine: Machine) -> Machine {
    for (number, pf) in machine.pfs.iter_mut().enumerate() {
        pf.alt_names = vec![format!("other{number}")];
        pf.net_filter = Some(format!("openstack/NetworkID:net{number}"));
    }
    machine
}

fn policy(pf: &MachinePf, selects: Selects, vfio: bool, switchdev: bool) -> SriovNetworkNodePolicySpec {
    let nic_selector = match selects {
        Selects::Name => json!({ "pfNames": [pf.name] }),
        Selects::AltName => json!({ "pfNames": pf.alt_names }),
        Selects::Kind => json!({ "vendor": pf.vendor, "rootDevices": [pf.address] }),
        Selects::Address => json!({ "rootDevices": [pf.address] }),
        Selects::Network => json!({ "netFilter": pf.net_filter }),
    };
    let num_vfs = if pf.lone_vf { 1 } else { pf.total_vfs.min(2) };
    let mut spec = json!({
        "resourceName": format!("r{}", pf.name), "nodeSelector": {}, "numVfs": num_vfs,
        "nicSelector": nic_selector, "deviceType": if vfio { "vfio-pci" } else { "netdevice" },
    });
    if switchdev && pf.eswitch.is_some() {
        spec["eSwitchMode"] = json!("switchdev");
    }
    serde_json::from_value(spec).expect("a policy")
}

/// A cluster with one node, as far as decisions go.
struct Cluster {
    host: SimHost,
    /// Uses of cards by the node, as a host remembers them.
    uses: UseMemory,
    policies: BTreeMap<String, SriovNetworkNodePolicySpec>,
    spec: SriovNetworkNodeStateSpec,
    report: Vec<InterfaceExt>,
}

impl Cluster {
    /// Reports `facts`, plans the node's spec, and returns what is to be done on the node.
    fn turn(&mut self, facts: &HostFacts, blindness: Blindness) -> Plan {
        if blindness == Blindness::NodeState {
            (self.spec, self.report) = (SriovNetworkNodeStateSpec::default(), Vec::new());
        }
        self.report = report::interfaces(facts, &View { known: &self.report, narrow: None });
        let mut policies: Vec<_> =
            self.policies.iter().map(|(name, spec)| NamedPolicy { name, spec }).collect();
        let mut unreadable = BTreeSet::new();
        if let (Blindness::Policy, Some(policy)) = (blindness, policies.pop()) {
            unreadable.insert(policy.name.to_owned());
        }
        let nodes_cards: &[InterfaceExt] =
            if blindness == Blindness::EmptyReport { &[] } else { &self.report };
        let input = NodeInput {
            labels: &BTreeMap::new(),
            cards: nodes_cards,
            current: &self.spec,
            rdma_mode: if blindness == Blindness::Pool { Fact::Unknown } else { Fact::None },
            manage_software_bridges: false,
        };
        let plan = plan_node_spec(&policies, &unreadable, &input);
        if !plan.is_guesswork(&input, &unreadable) {
            self.spec = plan.spec;
        }
        plan_node(&self.spec, facts)
    }

    /// Does all that is to be done while everything can be read.
    fn settle(&mut self) {
        for _ in 0..12 {
            let facts = self.host.facts().expect("facts");
            let plan = self.turn(&facts, Blindness::Nothing);
            if plan.steps.is_empty() {
                return;
            }
            for planned in plan.steps {
                self.host.execute(&planned.step).unwrap_or_else(|error| panic!("`{planned}`: {error}"));
                if planned.step == Step::Reboot {
                    self.host = self.host.another();
                    break;
                }
            }
        }
        panic!("it does not settle");
    }
}

fn without(mut facts: HostFacts, outages: &[(usize, Outage)]) -> HostFacts {
    for (card, outage) in outages {
        let Some(pf) = facts.pfs.get_mut(*card) else { continue };
        let address = pf.address;
        let unanswered = |question| Unanswered {
            pf: address,
            question,
            error: "it does not answer".to_owned(),
            reason: "Deadline",
        };
        match outage {
            Outage::Card => {
                facts.pfs.remove(*card);
                let error = "it hangs".to_owned();
                facts.unread.push(Unread { pf: address, error, reason: "Deadline" });
            }
            // What the PF keeps for its VFs is told by its interface.
            Outage::Interface => {
                pf.link = None;
                pf.vfs.iter_mut().for_each(|vf| (vf.admin_mac, vf.admin_guid) = (None, None));
                if pf.is_lone_vf {
                    pf.vfs.iter_mut().for_each(|vf| vf.link = None);
                }
                pf.net_filter = Fact::Unknown;
            }
            Outage::Names => {
                if let Some(link) = &mut pf.link {
                    (link.name, link.is_named) = ("eth0".to_owned(), false);
                    link.alt_names.clear();
                }
            }
            Outage::Network => {
                pf.net_filter = Fact::Unknown;
                facts.unanswered.push(unanswered(Question::Network));
            }
            Outage::Eswitch => pf.eswitch = Fact::Unknown,
            Outage::Firmware => {
                pf.firmware = None;
                facts.unanswered.push(unanswered(Question::Firmware));
            }
        }
    }
    facts
}

/// Time stands still: all of it happens within a moment.
fn now() -> ClockReading {
    ClockReading { boot_id: "boot".to_owned(), since_boot: Duration::from_secs(100), wall: Moment(0) }
}

/// Whether a step takes something away, or could.
fn takes_away(step: &Step, disruption: Disruption) -> bool {
    disruption > Disruption::None || matches!(step, Step::RemoveRecord { .. } | Step::RemoveFile { .. })
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 3000, ..super::config(400) })]

    #[test]
    fn a_fact_that_went_missing_takes_nothing_away(
        machine in machine::machine().prop_map(with_names),
        choices in prop::collection::vec((selects(), any::<bool>(), any::<bool>()), 4),
        rounds in rounds(),
    ) {
        let host = SimHost::new(&machine, "unknown").expect("a possible machine");
        let policies = machine.pfs.iter().zip(&choices).map(|(pf, (selects, vfio, switchdev))| {
            (format!("p-{}", pf.name), policy(pf, *selects, *vfio, *switchdev))
        });
        let mut cluster = Cluster {
            host,
            uses: UseMemory::default(),
            policies: policies.collect(),
            spec: SriovNetworkNodeStateSpec::default(),
            report: Vec::new(),
        };
        cluster.settle();
        let settled = cluster.spec.clone();
        for round in &rounds {
            if round.restarts {
                cluster.host = cluster.host.another();
            }
            let whole = cluster.host.facts().expect("facts");
            cluster.uses.observe(&whole, true, &now(), PROTECTION);
            let mut facts = without(whole, &round.outages);
            cluster.uses.observe(&facts, true, &now(), PROTECTION);
            cluster.uses.recall(&mut facts, &now(), PROTECTION);
            let plan = cluster.turn(&facts, round.blindness);
            for planned in &plan.steps {
                let is_taken = takes_away(&planned.step, planned.disruption);
                prop_assert!(!is_taken, "`{}` in {:?}\n{:?}", planned, round, facts);
            }
            let addresses = |spec: &SriovNetworkNodeStateSpec| -> BTreeSet<String> {
                spec.interfaces.iter().flatten().map(|entry| entry.pci_address.to_string()).collect()
            };
            if cluster.spec.interfaces.is_some() && round.blindness != Blindness::NodeState {
                prop_assert_eq!(addresses(&cluster.spec), addresses(&settled), "{:?}", round);
            }
            // All can be read again.
            cluster.settle();
            prop_assert_eq!(&cluster.spec, &settled);
        }
    }
}
