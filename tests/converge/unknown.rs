//! Unknown facts: if a fact cannot be read, on the node or by the operator, nothing is removed because of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{SriovNetworkNodePolicySpec, SriovNetworkNodeStateSpec};
use vfleet_host::sim::{Machine, MachinePf};
use vfleet_host::{Host, SimHost};
use vfleet_plan::drain::Moment;
use vfleet_plan::report::{self, ReportContext};
use vfleet_plan::{
    ClockReading, DEFAULT_PROTECTION_TIME, Disruption, ExternalQuery, Fact, FailedQuery, HostFacts,
    NamedPolicy, NodeInput, NodeOptions, OvsFacts, Plan, Step, UnreadAttachments, UnreadableCard, UseHistory,
    plan_node_spec, plan_node_with,
};

use super::machine;

/// Software bridges are managed.
const OPTIONS: NodeOptions =
    NodeOptions { firmware_reset: false, mellanox: true, manage_bridges: true, ovs_offload: true };

/// Selector by which a policy selects its card.
#[derive(Clone, Copy, Debug)]
enum CardSelector {
    Name,
    AltName,
    Kind,
    Address,
    Network,
}

/// Fact that cannot be read temporarily.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// All facts of a card.
    Card,
    /// The interface of a card, which is missing or in another network namespace.
    Interface,
    /// The names of an interface, which udev has not set yet.
    Names,
    /// The network of a card.
    Network,
    /// The eswitch mode of a card.
    Eswitch,
    /// The firmware settings of a card.
    Firmware,
    /// The database of Open vSwitch.
    OvsDatabase,
    /// Open vSwitch is not running.
    OvsDaemons,
    /// The files of CNI plugins.
    Attachments,
}

/// Object that the operator cannot read temporarily.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissingInput {
    Nothing,
    /// The node reports no card.
    EmptyReport,
    /// A policy cannot be read.
    Policy,
    /// The node state was deleted and created again.
    NodeState,
    /// The pool of the node cannot be read.
    Pool,
}

#[derive(Clone, Debug)]
struct Round {
    outages: Vec<(usize, Outage)>,
    missing_input: MissingInput,
    /// The agent is restarted, and has only data from the machine and the cluster.
    restarts: bool,
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    use Outage::{Attachments, Card, Eswitch, Firmware, Interface, Names, Network, OvsDaemons, OvsDatabase};
    let all = vec![Card, Interface, Names, Network, Eswitch, Firmware, OvsDatabase, OvsDaemons, Attachments];
    let outage = prop::sample::select(all);
    let missing_input = prop::sample::select(vec![
        MissingInput::Nothing,
        MissingInput::Nothing,
        MissingInput::EmptyReport,
        MissingInput::Policy,
        MissingInput::NodeState,
        MissingInput::Pool,
    ]);
    let round = (prop::collection::vec((0_usize..4, outage), 0..6), missing_input, any::<bool>());
    let round =
        round.prop_map(|(outages, missing_input, restarts)| Round { outages, missing_input, restarts });
    prop::collection::vec(round, 1..5)
}

fn card_selector() -> impl Strategy<Value = CardSelector> {
    use CardSelector::{Address, AltName, Kind, Name, Network};
    prop::sample::select(vec![Name, AltName, Kind, Address, Network])
}

/// Adds alternative names and networks to cards, as udev and clouds do.
fn with_names(mut machine: Machine) -> Machine {
    for (number, pf) in machine.pfs.iter_mut().enumerate() {
        pf.alt_names = vec![format!("other{number}")];
        pf.net_filter = Some(format!("openstack/NetworkID:net{number}"));
    }
    machine
}

/// Software bridge that a policy requests.
#[derive(Clone, Copy, Debug)]
enum RequestedBridge {
    None,
    Ovs,
    Linux,
}

fn requested_bridge() -> impl Strategy<Value = RequestedBridge> {
    prop::sample::select(vec![RequestedBridge::None, RequestedBridge::Ovs, RequestedBridge::Linux])
}

fn policy(
    pf: &MachinePf,
    selector: CardSelector,
    vfio: bool,
    switchdev: bool,
    bridge: RequestedBridge,
) -> SriovNetworkNodePolicySpec {
    let nic_selector = match selector {
        CardSelector::Name => json!({ "pfNames": [pf.name] }),
        CardSelector::AltName => json!({ "pfNames": pf.alt_names }),
        CardSelector::Kind => json!({ "vendor": pf.vendor, "rootDevices": [pf.address] }),
        CardSelector::Address => json!({ "rootDevices": [pf.address] }),
        CardSelector::Network => json!({ "netFilter": pf.net_filter }),
    };
    let num_vfs = if pf.lone_vf { 1 } else { pf.total_vfs.min(2) };
    let mut spec = json!({
        "resourceName": format!("r{}", pf.name), "nodeSelector": {}, "numVfs": num_vfs,
        "nicSelector": nic_selector, "deviceType": if vfio { "vfio-pci" } else { "netdevice" },
    });
    if switchdev && pf.eswitch.is_some() {
        spec["eSwitchMode"] = json!("switchdev");
        match bridge {
            RequestedBridge::None => {}
            RequestedBridge::Ovs => {
                spec["bridge"] = json!({ "ovs": { "bridge": { "externalIDs": { "a": "b" } } } });
            }
            RequestedBridge::Linux => {
                spec["bridge"] = json!({ "linux": { "uplink": { "learning": "off" } } });
            }
        }
    }
    serde_json::from_value(spec).expect("a policy")
}

/// Decision logic of a cluster with one node.
struct Cluster {
    host: SimHost,
    /// History of host uses, as a host keeps it.
    uses: UseHistory,
    policies: BTreeMap<String, SriovNetworkNodePolicySpec>,
    spec: SriovNetworkNodeStateSpec,
    report: Vec<InterfaceExt>,
}

impl Cluster {
    /// Reports `facts`, plans the spec of the node, and returns the plan of the node.
    fn plan(&mut self, facts: &HostFacts, missing_input: MissingInput) -> Plan {
        if missing_input == MissingInput::NodeState {
            (self.spec, self.report) = (SriovNetworkNodeStateSpec::default(), Vec::new());
        }
        self.report =
            report::interfaces(facts, &ReportContext { last_reported: &self.report, nic_ids: None });
        let mut policies: Vec<_> =
            self.policies.iter().map(|(name, spec)| NamedPolicy { name, spec }).collect();
        let mut unreadable = BTreeSet::new();
        if let (MissingInput::Policy, Some(policy)) = (missing_input, policies.pop()) {
            unreadable.insert(policy.name.to_owned());
        }
        let reported_cards: &[InterfaceExt] =
            if missing_input == MissingInput::EmptyReport { &[] } else { &self.report };
        let input = NodeInput {
            labels: &BTreeMap::new(),
            cards: reported_cards,
            current: &self.spec,
            rdma_mode: if missing_input == MissingInput::Pool { Fact::Unknown } else { Fact::None },
            manage_software_bridges: true,
        };
        let plan = plan_node_spec(&policies, &unreadable, &input);
        if !plan.could_lose_vfs(&input, &unreadable) {
            self.spec = plan.spec;
        }
        plan_node_with(&self.spec, facts, &OPTIONS)
    }

    /// Plans and executes until no step is left, while all facts can be read.
    fn settle(&mut self) {
        for _ in 0..12 {
            let facts = self.host.facts().expect("facts");
            let plan = self.plan(&facts, MissingInput::Nothing);
            if plan.steps.is_empty() {
                return;
            }
            for planned in plan.steps {
                self.host.execute(&planned.step).unwrap_or_else(|error| panic!("`{planned}`: {error}"));
                if planned.step == Step::Reboot {
                    self.host = self.host.new_process();
                    break;
                }
            }
        }
        panic!("no convergence");
    }
}

fn with_outages(mut facts: HostFacts, outages: &[(usize, Outage)]) -> HostFacts {
    for (card, outage) in outages {
        match outage {
            Outage::OvsDatabase => {
                let error = "no answer".to_owned();
                facts.bridges.ovs = OvsFacts::Unreadable { error, reason: "OvsTimeout" };
            }
            Outage::OvsDaemons => {
                facts.bridges.ovs = OvsFacts::NotRunning { socket: "/run/openvswitch/db.sock".to_owned() };
            }
            Outage::Attachments => {
                let vfs = facts.pfs.iter_mut().flat_map(|pf| &mut pf.vfs);
                vfs.for_each(|vf| vf.attachment = Fact::Unknown);
                let error = "not a directory".to_owned();
                facts.unread_attachments = Some(UnreadAttachments { error, reason: "HostFileFailed" });
            }
            _ => {}
        }
        let Some(pf) = facts.pfs.get_mut(*card) else { continue };
        let address = pf.address;
        let failed_query =
            |query| FailedQuery { pf: address, query, error: "no answer".to_owned(), reason: "Deadline" };
        match outage {
            Outage::Card => {
                facts.pfs.remove(*card);
                let error = "the card hangs".to_owned();
                facts.unreadable.push(UnreadableCard { pf: address, error, reason: "Deadline" });
            }
            // Admin MACs and GUIDs of VFs are read through the interface of the PF.
            Outage::Interface => {
                let name = pf.link.take().map(|link| link.name);
                let ports = facts.bridges.linux.iter_mut().map(|bridge| &mut bridge.ports);
                ports.for_each(|ports| ports.retain(|port| Some(&port.name) != name.as_ref()));
                pf.vfs.iter_mut().for_each(|vf| (vf.admin_mac, vf.admin_guid) = (None, None));
                if pf.is_lone_vf {
                    pf.vfs.iter_mut().for_each(|vf| vf.link = None);
                }
                pf.net_filter = Fact::Unknown;
            }
            Outage::Names => {
                if let Some(link) = &mut pf.link {
                    let ports = facts.bridges.linux.iter_mut().flat_map(|bridge| &mut bridge.ports);
                    ports
                        .filter(|port| port.name == link.name)
                        .for_each(|port| "eth0".clone_into(&mut port.name));
                    (link.name, link.is_named) = ("eth0".to_owned(), false);
                    link.alt_names.clear();
                }
            }
            Outage::Network => {
                pf.net_filter = Fact::Unknown;
                facts.failed_queries.push(failed_query(ExternalQuery::Network));
            }
            Outage::Eswitch => pf.eswitch = Fact::Unknown,
            Outage::Firmware => {
                pf.firmware = None;
                facts.failed_queries.push(failed_query(ExternalQuery::Firmware));
            }
            Outage::OvsDatabase | Outage::OvsDaemons | Outage::Attachments => {}
        }
    }
    facts
}

/// Returns a constant time.
fn now() -> ClockReading {
    ClockReading { boot_id: "boot".to_owned(), since_boot: Duration::from_secs(100), wall: Moment(0) }
}

/// Returns whether a step may disrupt or remove something.
fn is_disruptive(step: &Step, disruption: Disruption) -> bool {
    disruption > Disruption::None || matches!(step, Step::RemoveRecord { .. } | Step::RemoveFile { .. })
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 3000, ..super::config(400) })]

    #[test]
    fn a_fact_that_cannot_be_read_causes_no_disruption(
        machine in machine::machine().prop_map(with_names),
        choices in prop::collection::vec(
            (card_selector(), any::<bool>(), any::<bool>(), requested_bridge()),
            4,
        ),
        rounds in rounds(),
    ) {
        let host = SimHost::new(&machine, "unknown").expect("a possible machine");
        let policies = machine.pfs.iter().zip(&choices).map(|(pf, (selector, vfio, switchdev, bridge))| {
            (format!("p-{}", pf.name), policy(pf, *selector, *vfio, *switchdev, *bridge))
        });
        let mut cluster = Cluster {
            host,
            uses: UseHistory::default(),
            policies: policies.collect(),
            spec: SriovNetworkNodeStateSpec::default(),
            report: Vec::new(),
        };
        cluster.settle();
        let settled = cluster.spec.clone();
        for round in &rounds {
            if round.restarts {
                cluster.host = cluster.host.new_process();
            }
            let whole = cluster.host.facts().expect("facts");
            cluster.uses.update(&whole, true, &now(), DEFAULT_PROTECTION_TIME);
            let mut facts = with_outages(whole, &round.outages);
            cluster.uses.update(&facts, true, &now(), DEFAULT_PROTECTION_TIME);
            cluster.uses.add_lingering_uses(&mut facts, &now(), DEFAULT_PROTECTION_TIME);
            let plan = cluster.plan(&facts, round.missing_input);
            for planned in &plan.steps {
                let is_disruptive = is_disruptive(&planned.step, planned.disruption);
                prop_assert!(!is_disruptive, "`{}` in {:?}\n{:?}", planned, round, facts);
            }
            let addresses = |spec: &SriovNetworkNodeStateSpec| -> BTreeSet<String> {
                spec.interfaces.iter().flatten().map(|entry| entry.pci_address.to_string()).collect()
            };
            if cluster.spec.interfaces.is_some() && round.missing_input != MissingInput::NodeState {
                prop_assert_eq!(addresses(&cluster.spec), addresses(&settled), "{:?}", round);
            }
            // All facts can be read again.
            cluster.settle();
            prop_assert_eq!(&cluster.spec, &settled);
        }
    }

    /// A policy gives up its bridges, the gate is switched off, or all policies are removed, while Open vSwitch cannot be
    /// read: neither is an Open vSwitch bridge removed, nor is it forgotten.
    #[test]
    fn an_open_vswitch_that_cannot_be_read_loses_no_bridge_and_no_vf(
        machine in machine::machine().prop_map(with_names),
        selectors in prop::collection::vec((card_selector(), any::<bool>()), 4),
        outage in prop::sample::select(vec![Outage::OvsDatabase, Outage::OvsDaemons]),
        (gate, keeps_policies) in any::<(bool, bool)>(),
    ) {
        let policies = machine.pfs.iter().zip(&selectors).map(|(pf, (selector, vfio))| {
            (format!("p-{}", pf.name), policy(pf, *selector, *vfio, true, RequestedBridge::Ovs))
        });
        let mut cluster = Cluster {
            host: SimHost::new(&machine, "unknown").expect("a possible machine"),
            uses: UseHistory::default(),
            policies: policies.collect(),
            spec: SriovNetworkNodeStateSpec::default(),
            report: Vec::new(),
        };
        cluster.settle();
        let before = cluster.host.kernel();
        let mut desired = cluster.spec.clone();
        desired.bridges = None;
        if !keeps_policies {
            desired.interfaces = Some(Vec::new());
        }
        let options = NodeOptions { manage_bridges: gate, ..OPTIONS };
        let facts = with_outages(cluster.host.facts().expect("facts"), &[(0, outage)]);
        let plan = plan_node_with(&desired, &facts, &options);
        for planned in &plan.steps {
            let removes_vfs = matches!(planned.step, Step::SetNumVfs { .. });
            prop_assert!(!(keeps_policies && removes_vfs), "{}", planned);
            cluster.host.execute(&planned.step).unwrap_or_else(|error| panic!("`{planned}`: {error}"));
        }
        prop_assert_eq!(&cluster.host.kernel().ovs.bridges, &before.ovs.bridges);
        // When Open vSwitch can be read again, our bridges are removed and nothing else is.
        let facts = cluster.host.facts().expect("facts");
        for planned in plan_node_with(&desired, &facts, &options).steps {
            cluster.host.execute(&planned.step).unwrap_or_else(|error| panic!("`{planned}`: {error}"));
        }
        prop_assert_eq!(cluster.host.kernel().ovs.bridges, Vec::new());
    }
}
