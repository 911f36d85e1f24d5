//! Open vSwitch bridges as resources of the Node.

use std::collections::{BTreeMap, BTreeSet};

use vfleet_plan::bridge_resources::BridgeResourceMode::{Ignored, Reported, Withdrawn};
use vfleet_plan::bridge_resources::{
    BRIDGE_QUANTITY, BridgeCapacity, BridgeResourceFault, BridgeResourceMode, BridgeResourcePlan,
    CapacityChange, plan_bridge_resources,
};
use vfleet_plan::{OvsBridgeFacts, OvsDatabase, OvsFacts};

const DOMAIN: &str = "ovs-cni.network.kubevirt.io";

fn resources(bridges: &[&str]) -> BTreeSet<String> {
    bridges.iter().map(|bridge| format!("{DOMAIN}/{bridge}")).collect()
}

fn running(bridges: &[&str]) -> OvsFacts {
    let bridge = |name: &&str| OvsBridgeFacts { name: (*name).to_owned(), ..OvsBridgeFacts::default() };
    OvsFacts::Database(OvsDatabase {
        bridges: bridges.iter().map(bridge).collect(),
        ..OvsDatabase::default()
    })
}

fn not_running() -> OvsFacts {
    OvsFacts::NotRunning { socket: "/run/openvswitch/db.sock".to_owned() }
}

fn unreadable() -> OvsFacts {
    OvsFacts::Unreadable { error: "no answer".to_owned(), reason: "OvsTimeout" }
}

/// Capacity of a Node, with the writers of each resource: `a` is the agent, `m` the marker of ovs-cni, `k` the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node(BTreeMap<String, (String, BTreeSet<char>)>);

impl Node {
    fn new(bridges: &[(&str, &str, &str)]) -> Self {
        let entry = |(bridge, quantity, writers): &(&str, &str, &str)| {
            (format!("{DOMAIN}/{bridge}"), ((*quantity).to_owned(), writers.chars().collect()))
        };
        let others = [("cpu", "8"), ("openshift.io/nics", "4"), ("x.ovs-cni.network.kubevirt.io/br9", "1")];
        let others = others.map(|(name, quantity)| (name.to_owned(), (quantity.to_owned(), ['k'].into())));
        Self(bridges.iter().map(entry).chain(others).collect())
    }

    fn capacity(&self) -> BridgeCapacity {
        let owned = self.0.iter().filter(|(_, (_, writers))| writers.contains(&'a'));
        let owned: Vec<_> = owned.map(|(name, _)| name.clone()).collect();
        BridgeCapacity::new(
            self.0.iter().map(|(name, (quantity, _))| (name.clone(), quantity.clone())),
            owned,
        )
    }

    /// Changes the capacity like the API server.
    fn apply(&mut self, change: &CapacityChange) {
        match change {
            CapacityChange::Apply(names) => {
                for (name, (_, writers)) in &mut self.0 {
                    if !names.contains(name) {
                        writers.remove(&'a');
                    }
                }
                self.0.retain(|_, (_, writers)| !writers.is_empty());
                for name in names {
                    let entry = self.0.entry(name.clone()).or_default();
                    if entry.0 != BRIDGE_QUANTITY {
                        *entry = (BRIDGE_QUANTITY.to_owned(), BTreeSet::new());
                    }
                    entry.1.insert('a');
                }
            }
            CapacityChange::Remove(names) => self.0.retain(|name, _| !names.contains(name)),
        }
    }

    /// Plans and writes until nothing is left, and returns the number of writes and the fault that remains.
    fn settle(&mut self, mode: BridgeResourceMode, ovs: &OvsFacts) -> (usize, Option<BridgeResourceFault>) {
        for writes in 0..=2 {
            let BridgeResourcePlan { change, fault } = plan_bridge_resources(mode, ovs, &self.capacity());
            match change {
                Some(change) => self.apply(&change),
                None => return (writes, fault),
            }
        }
        panic!("more than two writes: {self:?}");
    }

    fn bridges(&self) -> BTreeSet<&str> {
        let start = format!("{DOMAIN}/");
        self.0.keys().filter_map(|name| name.strip_prefix(&start)).collect()
    }
}

#[test]
fn each_bridge_is_a_resource_of_which_there_are_a_thousand() {
    let plan = plan_bridge_resources(Reported, &running(&["br-int", "br0"]), &BridgeCapacity::default());
    assert_eq!(plan.change, Some(CapacityChange::Apply(resources(&["br-int", "br0"]))));
    assert_eq!((plan.fault, BRIDGE_QUANTITY), (None, "1k"));
}

#[test]
fn a_resource_without_a_bridge_is_removed_whoever_wrote_it() {
    let others = Node::new(&[]);
    for (writers, writes) in [("a", 1), ("m", 1), ("am", 2)] {
        let mut node = Node::new(&[("old", "1k", writers), ("br0", "1k", "a")]);
        assert_eq!(node.settle(Reported, &running(&["br0"])), (writes, None), "{writers}");
        assert_eq!(node, Node::new(&[("br0", "1k", "a")]), "{writers}");
        assert_eq!(node.settle(Reported, &running(&[])), (1, None));
        assert_eq!(node, others, "resources of others stay");
    }
}

#[test]
fn resources_that_match_the_bridges_are_not_written_again() {
    for writers in ["a", "m", "am"] {
        let mut node = Node::new(&[("br0", "1k", writers)]);
        assert_eq!(node.settle(Reported, &running(&["br0"])), (0, None));
    }
}

#[test]
fn a_quantity_that_the_kubelet_reset_is_repaired() {
    let mut node = Node::new(&[("br0", "0", "k"), ("br1", "1k", "a")]);
    assert_eq!(node.settle(Reported, &running(&["br0", "br1"])), (1, None));
    assert_eq!(node, Node::new(&[("br0", "1k", "a"), ("br1", "1k", "a")]));
}

#[test]
fn bridges_that_are_unknown_are_not_absent() {
    let before = Node::new(&[("br0", "1k", "a"), ("br1", "1k", "m")]);
    for ovs in [not_running(), unreadable(), OvsFacts::NotRead] {
        let mut node = before.clone();
        let (writes, fault) = node.settle(Reported, &ovs);
        assert_eq!((writes, &node), (0, &before), "{ovs:?}");
        let reason = fault.as_ref().map(BridgeResourceFault::reason);
        match ovs {
            OvsFacts::NotRunning { .. } => {
                let text = fault.unwrap().to_string();
                assert!(
                    text.contains("/run/openvswitch/db.sock") && text.contains("kubevirt.io/br1"),
                    "{text}"
                );
                assert_eq!(reason, Some("OvsNotRunning"));
            }
            OvsFacts::Unreadable { .. } => assert_eq!(reason, Some("OvsTimeout")),
            _ => assert_eq!(reason, None, "the machine is read soon"),
        }
    }
}

#[test]
fn a_node_without_open_vswitch_has_nothing_to_report() {
    assert_eq!(Node::new(&[]).settle(Reported, &not_running()), (0, None));
    let (_, fault) = Node::new(&[]).settle(Reported, &unreadable());
    assert_eq!(fault.unwrap().reason(), "OvsTimeout", "it may have bridges");
}

#[test]
fn a_bridge_whose_name_is_invalid_in_a_resource_is_left_out_and_named() {
    let long = "b".repeat(64);
    let bridges = ["br0", "_br", "br:1", "br-", "a/b", "", &long, "B.r_1-x"];
    let mut node = Node::new(&[]);
    let (writes, fault) = node.settle(Reported, &running(&bridges));
    assert_eq!((writes, node.bridges()), (1, ["br0", "B.r_1-x"].into()));
    let fault = fault.unwrap();
    assert_eq!(fault.reason(), "InvalidName");
    let text = fault.to_string();
    for name in ["\"_br\"", "\"br:1\"", "\"br-\"", "\"a/b\"", "\"\"", &long] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(!text.contains("br0") && !text.contains("B.r"), "{text}");
}

#[test]
fn without_the_gate_only_resources_that_the_agent_wrote_are_removed() {
    for ovs in [running(&["br0", "br1", "br2"]), not_running(), OvsFacts::NotRead] {
        let mut node = Node::new(&[("br0", "1k", "a"), ("br1", "1k", "m"), ("br2", "1k", "am")]);
        assert_eq!(node.settle(Withdrawn, &ovs), (1, None));
        assert_eq!(node, Node::new(&[("br1", "1k", "m"), ("br2", "1k", "m")]));
        assert_eq!(node.settle(Withdrawn, &ovs), (0, None));
    }
}

#[test]
fn an_agent_without_a_machine_changes_nothing() {
    let mut node = Node::new(&[("br0", "0", "a")]);
    assert_eq!(node.settle(Ignored, &running(&["br1"])), (0, None));
}
