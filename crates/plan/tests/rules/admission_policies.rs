//! Rules of policies, where one case is not enough: what holds for any policies on any nodes, and what the API server
//! refuses before it asks.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{SriovNetworkNodePolicySpec, SriovNetworkNodeStateSpec};
use vfleet_plan::admission::{
    Classes, Finding, Findings, Installation, NodeClass, Operation, PolicyFacts, Request, check_policy,
    largest_classes,
};
use vfleet_plan::{NamedPolicy, NicIds, NodeInput, PfVerdict, plan_node_spec, why_not_node};

use crate::any_policies::{cards, policy};

const HOME: Installation<'_> = Installation { namespace: "home", dev_mode: false };

type Labels = BTreeMap<String, String>;

fn spec(changes: &Value) -> SriovNetworkNodePolicySpec {
    let mut spec = json!({
        "resourceName": "r", "nodeSelector": {}, "numVfs": 4, "nicSelector": {"pfNames": ["ens1f0"]},
    });
    json_patch::merge(&mut spec, changes);
    serde_json::from_value(spec).unwrap()
}

fn found(name: &str, spec: &SriovNetworkNodePolicySpec, facts: Option<&PolicyFacts<'_>>) -> Findings {
    check_policy(&Request::creation(HOME.namespace, name, spec), &HOME, facts)
}

fn rules(findings: &Findings) -> BTreeSet<&'static str> {
    findings.iter().map(|finding| finding.rule).collect()
}

/// Nobody asks the API server's schema where there is no API server.
#[test]
fn what_the_schema_refuses_is_refused_here_too() {
    let bridge = json!({"ovs": {}});
    let cases = [
        (
            "P17",
            "spec.nicSelector.rootDevices[1]",
            json!({"nicSelector": {"rootDevices": ["0000:3b:00.0", "3b:00.0"]}}),
        ),
        ("P18", "spec.nicSelector.pfNames[0]", json!({"nicSelector": {"pfNames": ["ens1f0#0-1#2-3"]}})),
        ("P18", "spec.nicSelector.pfNames[0]", json!({"nicSelector": {"pfNames": ["ens1f0#3"]}})),
        ("P18", "spec.nicSelector.pfNames[1]", json!({"nicSelector": {"pfNames": ["ens1f0", "ens1f0#a-b"]}})),
        ("P18", "spec.nicSelector.pfNames[0]", json!({"nicSelector": {"pfNames": ["ens1f0#3-1"]}})),
        ("P23", "spec.numVfs", json!({"numVfs": -1})),
        ("P26", "spec.vdpaType", json!({"vdpaType": "virtio"})),
        (
            "P26",
            "spec.vdpaType",
            json!({"vdpaType": "virtio", "eSwitchMode": "switchdev", "deviceType": "vfio-pci"}),
        ),
        ("P27", "spec.bridge", json!({"eSwitchMode": "switchdev", "bridge": {"ovs": {}, "linux": {}}})),
        ("P28", "spec.bridge", json!({ "bridge": bridge })),
        (
            "P29",
            "spec.bridge",
            json!({"eSwitchMode": "switchdev", "externallyManaged": true, "bridge": bridge}),
        ),
    ];
    for (rule, field, changes) in cases {
        let findings = found("x", &spec(&changes), None);
        let errors: Vec<_> = findings.errors().map(|error| (error.rule, error.field.as_str())).collect();
        assert_eq!(errors, [(rule, field)], "{changes}: {:?}", findings.refusal());
    }
}

#[test]
fn every_entry_of_a_list_is_judged() {
    let changes =
        json!({"nicSelector": {"pfNames": ["a#x", "b#0-1", "c#0-4"], "rootDevices": ["x"], "vendor": "y"}});
    let findings = found("x", &spec(&changes), None);
    let fields: Vec<_> = findings.errors().map(|error| error.field.as_str()).collect();
    let expected = ["vendor", "rootDevices[0]", "pfNames[0]", "pfNames[2]"];
    assert_eq!(fields, expected.map(|field| format!("spec.nicSelector.{field}")));
}

#[test]
fn a_change_that_leaves_the_spec_as_it_is_is_not_judged() {
    let bad = spec(&json!({"numVfs": 0}));
    let (namespace, name, operation) = (HOME.namespace, "x", Operation::Update);
    let update = Request { operation, namespace, name, new: Some(&bad), old: Some(&bad) };
    assert_eq!(check_policy(&update, &HOME, None), Findings::default());
    let delete = Request { operation: Operation::Delete, namespace, name, new: None, old: Some(&bad) };
    assert_eq!(check_policy(&delete, &HOME, None), Findings::default());
}

#[test]
fn one_named_default_elsewhere_is_judged_by_itself() {
    let bad = spec(&json!({"numVfs": 0}));
    let facts = Classes::new([]).facts_of("default", false, None);
    let request = Request::creation("elsewhere", "default", &bad);
    assert_eq!(rules(&check_policy(&request, &HOME, Some(&facts))), BTreeSet::from(["P02", "P21"]));
}

#[test]
fn a_list_of_cards_without_entries_lists_all() {
    let policy = spec(&json!({"nicSelector": {"vendor": "1137"}}));
    let ids = |text: &str| NicIds::parse(&BTreeMap::from([("a".to_owned(), text.to_owned())])).0;
    let found = |ids: &NicIds| {
        let facts = Classes::new([]).facts_of("x", false, Some(ids));
        rules(&found("x", &policy, Some(&facts)))
    };
    assert_eq!(found(&ids("not three ids")), BTreeSet::from(["D02"]));
    assert_eq!(found(&ids("8086 158b 154c")), BTreeSet::from(["P14", "D02"]));
}

#[test]
fn what_was_not_looked_at_is_said() {
    let policy = spec(&json!({"nicSelector": {"pfNames": ["ens9"]}}));
    let labels = Labels::new();
    let cards: Vec<InterfaceExt> = (0..300)
        .map(|mtu| {
            serde_json::from_value(json!({"pciAddress": "0000:01:00.0", "name": "a", "mtu": mtu})).unwrap()
        })
        .collect();
    let mut classes = Classes::new([NamedPolicy { name: "x", spec: &policy }]);
    for card in cards.chunks(1) {
        classes.add("node", &labels, true, Some(card));
    }
    let mut facts = classes.facts_of("x", false, None);
    (facts.classes, facts.classes_left_out) = largest_classes(facts.classes);
    let findings = found("x", &policy, Some(&facts));
    assert_eq!(
        findings.warnings(),
        ["spec.nodeSelector: checked on 256 of 300 kinds of nodes: see the status for the others"]
    );
}

/// A node: its name, the rack that it is in, whether it runs an agent, and its cards, if it has reported them.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    labels: Labels,
    runs_agent: bool,
    cards: Option<Vec<InterfaceExt>>,
}

type Others = Vec<(String, SriovNetworkNodePolicySpec)>;

fn others() -> impl Strategy<Value = Others> {
    vec(policy(), 0..4).prop_map(|specs| {
        let names = ["a", "m", "z", "candidate"].into_iter().map(str::to_owned);
        names.zip(specs).collect()
    })
}

/// A policy; more often than others one that says something of what is there already.
fn candidate() -> impl Strategy<Value = SriovNetworkNodePolicySpec> {
    (policy(), prop::bool::weighted(0.4), prop::option::weighted(0.4, select(vec!["eth", "IB"]))).prop_map(
        |(policy, is_outside, link_type)| SriovNetworkNodePolicySpec {
            externally_managed: is_outside.then_some(true).or(policy.externally_managed),
            link_type: link_type
                .map(|kind| serde_json::from_value(json!(kind)).unwrap())
                .or(policy.link_type),
            ..policy
        },
    )
}

/// What cards of one node have and those of another may not.
fn peculiarity() -> impl Strategy<Value = Value> {
    select(vec![
        json!({}),
        json!({"name": "ens2"}),
        json!({"altNames": ["alt1"]}),
        json!({"vendor": "15b3"}),
        json!({"deviceID": "101b"}),
        json!({"netFilter": "aws/NetworkID:a"}),
        json!({"mtu": 9000}),
        json!({"numVfs": 8}),
        json!({"totalvfs": 4}),
        json!({"linkType": "ETH"}),
        json!({"linkType": "IB"}),
        json!({"eSwitchMode": "switchdev"}),
    ])
}

/// Nodes of a few kinds, which are much alike. What is different on each node of a kind is nothing that rules look at.
fn fleet() -> impl Strategy<Value = Vec<Node>> {
    let kinds = (cards(), vec(peculiarity(), 3)).prop_map(|(cards, peculiarities)| {
        let change = |card: &InterfaceExt, peculiarity: &Value| {
            let mut card = json!(card);
            json_patch::merge(&mut card, peculiarity);
            serde_json::from_value(card).unwrap()
        };
        let kind = |peculiarity: &Value| cards.iter().map(|card| change(card, peculiarity)).collect();
        peculiarities.iter().map(kind).collect::<Vec<Vec<InterfaceExt>>>()
    });
    let node = (select(vec!["a", "b"]), 0..3_usize, prop::bool::weighted(0.9), prop::bool::weighted(0.9));
    (kinds, vec(node, 0..9), any::<bool>()).prop_map(|(kinds, nodes, is_reversed)| {
        let node = |(at, (rack, kind, runs_agent, has_reported)): (usize, (&str, usize, bool, bool))| {
            let with_mac = |card: &InterfaceExt| InterfaceExt {
                mac: Some(format!("02:00:00:00:00:{at:02x}")),
                ..card.clone()
            };
            Node {
                name: format!("n{at}"),
                labels: BTreeMap::from([("rack".to_owned(), rack.to_owned())]),
                runs_agent,
                cards: has_reported.then(|| kinds[kind].iter().map(with_mac).collect()),
            }
        };
        let mut nodes: Vec<_> = nodes.into_iter().enumerate().map(node).collect();
        if is_reversed {
            nodes.reverse();
        }
        nodes
    })
}

fn named(policies: &Others) -> Vec<NamedPolicy<'_>> {
    policies.iter().map(|(name, spec)| NamedPolicy { name, spec }).collect()
}

fn by_classes<'a>(
    candidate: &'a SriovNetworkNodePolicySpec,
    others: &'a Others,
    nodes: &'a [Node],
    gate: bool,
) -> PolicyFacts<'a> {
    let mut classes = Classes::among(NamedPolicy { name: "candidate", spec: candidate }, &named(others));
    for node in nodes {
        classes.add(&node.name, &node.labels, node.runs_agent, node.cards.as_deref());
    }
    classes.facts_of("candidate", gate, None)
}

/// The same, with every node as a class of its own.
fn by_nodes<'a>(
    candidate: &'a SriovNetworkNodePolicySpec,
    others: &'a Others,
    nodes: &'a [Node],
    gate: bool,
) -> PolicyFacts<'a> {
    let selects = |policy: NamedPolicy<'_>, node: &Node| why_not_node(&policy, &node.labels).is_none();
    let own = NamedPolicy { name: "candidate", spec: candidate };
    let selected: Vec<_> = nodes.iter().filter(|node| selects(own, node)).collect();
    let with_agent = || selected.iter().filter(|node| node.runs_agent);
    let class = |node: &&'a Node| {
        let others =
            named(others).into_iter().filter(|other| other.name != own.name && selects(*other, node));
        Some(NodeClass {
            example: &node.name,
            count: 1,
            labels: &node.labels,
            cards: node.cards.as_deref()?,
            others: others.collect(),
        })
    };
    PolicyFacts {
        manage_software_bridges: gate,
        nic_ids: None,
        nodes: selected.len(),
        without_agent: selected.len() - with_agent().count(),
        without_cards: with_agent().filter(|node| node.cards.is_none()).count(),
        classes: with_agent().filter_map(class).collect(),
        classes_left_out: 0,
    }
}

/// What an error is about, without the nodes that it is on.
fn kind_of(finding: &Finding) -> (&'static str, String) {
    (finding.rule, finding.field.clone())
}

proptest! {
    #![proptest_config(crate::config(500))]

    #[test]
    fn classes_say_what_all_their_nodes_say(
        candidate in candidate(), others in others(), nodes in fleet(), gate in any::<bool>(),
    ) {
        let by_classes = found("candidate", &candidate, Some(&by_classes(&candidate, &others, &nodes, gate)));
        let all_nodes = found("candidate", &candidate, Some(&by_nodes(&candidate, &others, &nodes, gate)));
        prop_assert_eq!(&by_classes, &all_nodes);

        let alone = nodes.chunks(1).flat_map(|node| {
            let findings = found("candidate", &candidate, Some(&by_nodes(&candidate, &others, node, gate)));
            findings.errors().map(kind_of).collect::<Vec<_>>()
        });
        let by_itself = found("candidate", &candidate, None);
        let gate_is_off = by_classes.errors().filter(|error| error.rule == "P30").map(kind_of);
        let expected: BTreeSet<_> =
            alone.chain(by_itself.errors().map(kind_of)).chain(gate_is_off).collect();
        prop_assert_eq!(by_classes.errors().map(kind_of).collect::<BTreeSet<_>>(), expected);
    }

    /// Admission and status agree: what people are to settle between two policies, and which of them outranks the other.
    #[test]
    fn two_policies_are_told_what_the_planner_tells_them(
        candidate in policy(), other in policy(), cards in cards(), gate in any::<bool>(), is_later in any::<bool>(),
    ) {
        let labels = BTreeMap::from([("rack".to_owned(), "a".to_owned())]);
        let others = vec![((if is_later { "z" } else { "a" }).to_owned(), other)];
        let nodes =
            [Node { name: "n".to_owned(), labels: labels.clone(), runs_agent: true, cards: Some(cards.clone()) }];
        let findings = found("candidate", &candidate, Some(&by_classes(&candidate, &others, &nodes, gate)));
        let said = |wanted: &[&str]| findings.iter().any(|finding| wanted.contains(&finding.rule));

        let mut both = named(&others);
        both.push(NamedPolicy { name: "candidate", spec: &candidate });
        let current = SriovNetworkNodeStateSpec::default();
        let input = NodeInput {
            labels: &labels, cards: &cards, current: &current, rdma_mode: vfleet_plan::Fact::None, manage_software_bridges: gate,
        };
        let plan = plan_node_spec(&both, &BTreeSet::new(), &input);
        // Where the candidate does not select the node, it is not judged beside the other.
        let is_there = plan.answers.iter().any(|answer| answer.policy == "candidate");
        let any = |is_it: fn(&PfVerdict) -> bool| {
            is_there && plan.answers.iter().any(|answer| answer.pfs.iter().any(|pf| is_it(&pf.verdict)))
        };
        let (is_conflict, is_outranked) = (any(PfVerdict::is_conflict), any(PfVerdict::is_outranked));
        let names_pf = |spec: &SriovNetworkNodePolicySpec| {
            let nic = &spec.nic_selector;
            nic.pf_names.iter().flatten().count() + nic.root_devices.iter().flatten().count() > 0
        };
        let other = &others[0].1;
        let differ = candidate.priority.unwrap_or(99) != other.priority.unwrap_or(99);
        if differ && names_pf(&candidate) && names_pf(other) {
            // There priorities settle nothing about VFs that both want.
            prop_assert!(!said(&["D14", "D15", "D21", "D23"]));
            prop_assert_eq!(said(&["D13", "D16", "D17", "D22", "D24"]), is_conflict || is_outranked);
        } else {
            prop_assert_eq!(said(&["D13", "D15", "D17", "D21", "D23"]), is_conflict);
            prop_assert_eq!(said(&["D14", "D16", "D22", "D24"]), is_outranked);
        }
    }
}
