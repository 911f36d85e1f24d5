//! Properties of the admission rules of policies, for any policies on any nodes, and rules that the schema has too.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{SriovNetworkNodePolicySpec, SriovNetworkNodeStateSpec};
use vfleet_plan::admission::{
    Finding, Findings, Installation, NodeClass, NodeClasses, Operation, PolicyFacts, Request, check_policy,
    keep_largest_classes,
};
use vfleet_plan::{NamedPolicy, NicIds, NodeInput, PfOutcome, find_node_mismatch, plan_node_spec};

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

fn check(name: &str, spec: &SriovNetworkNodePolicySpec, facts: Option<&PolicyFacts<'_>>) -> Findings {
    check_policy(&Request::creation(HOME.namespace, name, spec), &HOME, facts)
}

fn rules(findings: &Findings) -> BTreeSet<&'static str> {
    findings.iter().map(|finding| finding.rule).collect()
}

/// `vfleet node` works without an API server and its schema.
#[test]
fn rules_of_the_schema_are_checked_too() {
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
        let findings = check("x", &spec(&changes), None);
        let errors: Vec<_> = findings.errors().map(|error| (error.rule, error.field.as_str())).collect();
        assert_eq!(errors, [(rule, field)], "{changes}: {:?}", findings.error_message());
    }
}

#[test]
fn every_entry_of_a_list_is_checked() {
    let changes =
        json!({"nicSelector": {"pfNames": ["a#x", "b#0-1", "c#0-4"], "rootDevices": ["x"], "vendor": "y"}});
    let findings = check("x", &spec(&changes), None);
    let fields: Vec<_> = findings.errors().map(|error| error.field.as_str()).collect();
    let expected = ["vendor", "rootDevices[0]", "pfNames[0]", "pfNames[2]"];
    assert_eq!(fields, expected.map(|field| format!("spec.nicSelector.{field}")));
}

#[test]
fn an_update_without_a_change_of_the_spec_is_not_checked() {
    let bad = spec(&json!({"numVfs": 0}));
    let (namespace, name, operation) = (HOME.namespace, "x", Operation::Update);
    let update = Request { operation, namespace, name, new: Some(&bad), old: Some(&bad) };
    assert_eq!(check_policy(&update, &HOME, None), Findings::default());
    let delete = Request { operation: Operation::Delete, namespace, name, new: None, old: Some(&bad) };
    assert_eq!(check_policy(&delete, &HOME, None), Findings::default());
}

#[test]
fn a_policy_named_default_in_another_namespace_is_checked_without_nodes() {
    let bad = spec(&json!({"numVfs": 0}));
    let facts = NodeClasses::new([]).collect_facts("default", false, None);
    let request = Request::creation("elsewhere", "default", &bad);
    assert_eq!(rules(&check_policy(&request, &HOME, Some(&facts))), BTreeSet::from(["P02", "P21"]));
}

#[test]
fn an_empty_list_of_card_ids_allows_all_cards() {
    let policy = spec(&json!({"nicSelector": {"vendor": "1137"}}));
    let ids = |text: &str| NicIds::parse(&BTreeMap::from([("a".to_owned(), text.to_owned())])).0;
    let rules_with = |ids: &NicIds| {
        let facts = NodeClasses::new([]).collect_facts("x", false, Some(ids));
        rules(&check("x", &policy, Some(&facts)))
    };
    assert_eq!(rules_with(&ids("not three ids")), BTreeSet::from(["D02"]));
    assert_eq!(rules_with(&ids("8086 158b 154c")), BTreeSet::from(["P14", "D02"]));
}

#[test]
fn node_classes_that_were_not_checked_are_reported() {
    let policy = spec(&json!({"nicSelector": {"pfNames": ["ens9"]}}));
    let labels = Labels::new();
    let cards: Vec<InterfaceExt> = (0..300)
        .map(|mtu| {
            serde_json::from_value(json!({"pciAddress": "0000:01:00.0", "name": "a", "mtu": mtu})).unwrap()
        })
        .collect();
    let mut classes = NodeClasses::new([NamedPolicy { name: "x", spec: &policy }]);
    for card in cards.chunks(1) {
        classes.add("node", &labels, true, Some(card));
    }
    let mut facts = classes.collect_facts("x", false, None);
    (facts.classes, facts.classes_left_out) = keep_largest_classes(facts.classes);
    let findings = check("x", &policy, Some(&facts));
    assert_eq!(
        findings.warnings(),
        ["spec.nodeSelector: checked on 256 of 300 kinds of nodes: see condition Valid for the others"]
    );
}

/// Node with its labels, and its cards if it has reported them.
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

/// Policies, often with fields that are compared with the observed state.
fn candidate() -> impl Strategy<Value = SriovNetworkNodePolicySpec> {
    (policy(), prop::bool::weighted(0.4), prop::option::weighted(0.4, select(vec!["eth", "IB"]))).prop_map(
        |(policy, is_external, link_type)| SriovNetworkNodePolicySpec {
            externally_managed: is_external.then_some(true).or(policy.externally_managed),
            link_type: link_type
                .map(|kind| serde_json::from_value(json!(kind)).unwrap())
                .or(policy.link_type),
            ..policy
        },
    )
}

/// Fields in which the cards of node kinds differ.
fn variation() -> impl Strategy<Value = Value> {
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

/// Nodes of a few similar kinds. Nodes of one kind differ only in fields that rules do not check.
fn fleet() -> impl Strategy<Value = Vec<Node>> {
    let kinds = (cards(), vec(variation(), 3)).prop_map(|(cards, variations)| {
        let change = |card: &InterfaceExt, variation: &Value| {
            let mut card = json!(card);
            json_patch::merge(&mut card, variation);
            serde_json::from_value(card).unwrap()
        };
        let kind = |variation: &Value| cards.iter().map(|card| change(card, variation)).collect();
        variations.iter().map(kind).collect::<Vec<Vec<InterfaceExt>>>()
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
    let mut classes =
        NodeClasses::with_candidate(NamedPolicy { name: "candidate", spec: candidate }, &named(others));
    for node in nodes {
        classes.add(&node.name, &node.labels, node.runs_agent, node.cards.as_deref());
    }
    classes.collect_facts("candidate", gate, None)
}

/// Facts with every node as a class of its own.
fn by_nodes<'a>(
    candidate: &'a SriovNetworkNodePolicySpec,
    others: &'a Others,
    nodes: &'a [Node],
    gate: bool,
) -> PolicyFacts<'a> {
    let selects = |policy: NamedPolicy<'_>, node: &Node| find_node_mismatch(&policy, &node.labels).is_none();
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

/// Rule and field of a finding, without the nodes.
fn kind_of(finding: &Finding) -> (&'static str, String) {
    (finding.rule, finding.field.clone())
}

proptest! {
    #![proptest_config(crate::config(500))]

    #[test]
    fn classes_give_the_same_findings_as_single_nodes(
        candidate in candidate(), others in others(), nodes in fleet(), gate in any::<bool>(),
    ) {
        let by_classes = check("candidate", &candidate, Some(&by_classes(&candidate, &others, &nodes, gate)));
        let all_nodes = check("candidate", &candidate, Some(&by_nodes(&candidate, &others, &nodes, gate)));
        prop_assert_eq!(&by_classes, &all_nodes);

        let alone = nodes.chunks(1).flat_map(|node| {
            let findings = check("candidate", &candidate, Some(&by_nodes(&candidate, &others, node, gate)));
            findings.errors().map(kind_of).collect::<Vec<_>>()
        });
        let by_itself = check("candidate", &candidate, None);
        let gate_is_off = by_classes.errors().filter(|error| error.rule == "P30").map(kind_of);
        let expected: BTreeSet<_> =
            alone.chain(by_itself.errors().map(kind_of)).chain(gate_is_off).collect();
        prop_assert_eq!(by_classes.errors().map(kind_of).collect::<BTreeSet<_>>(), expected);
    }

    /// Admission and status agree on conflicts between two policies, and on which policy outranks the other.
    #[test]
    fn conflicts_are_the_same_in_admission_and_in_the_planner(
        candidate in policy(), other in policy(), cards in cards(), gate in any::<bool>(), is_later in any::<bool>(),
    ) {
        let labels = BTreeMap::from([("rack".to_owned(), "a".to_owned())]);
        let others = vec![((if is_later { "z" } else { "a" }).to_owned(), other)];
        let nodes =
            [Node { name: "n".to_owned(), labels: labels.clone(), runs_agent: true, cards: Some(cards.clone()) }];
        let findings = check("candidate", &candidate, Some(&by_classes(&candidate, &others, &nodes, gate)));
        let has_any = |rules: &[&str]| findings.iter().any(|finding| rules.contains(&finding.rule));

        let mut both = named(&others);
        both.push(NamedPolicy { name: "candidate", spec: &candidate });
        let current = SriovNetworkNodeStateSpec::default();
        let input = NodeInput {
            labels: &labels, cards: &cards, current: &current, rdma_mode: vfleet_plan::Fact::None, manage_software_bridges: gate,
        };
        let plan = plan_node_spec(&both, &BTreeSet::new(), &input);
        // A candidate that does not select the node has no conflict there.
        let is_selected = plan.evaluations.iter().any(|evaluation| evaluation.policy == "candidate");
        let any = |is_it: fn(&PfOutcome) -> bool| {
            is_selected && plan.evaluations.iter().any(|evaluation| evaluation.pfs.iter().any(|pf| is_it(&pf.outcome)))
        };
        let (is_conflict, is_outranked) = (any(PfOutcome::is_conflict), any(PfOutcome::is_outranked));
        let names_pf = |spec: &SriovNetworkNodePolicySpec| {
            let nic = &spec.nic_selector;
            nic.pf_names.iter().flatten().count() + nic.root_devices.iter().flatten().count() > 0
        };
        let other = &others[0].1;
        let differ = candidate.priority.unwrap_or(99) != other.priority.unwrap_or(99);
        if differ && names_pf(&candidate) && names_pf(other) {
            // Priorities do not resolve an overlap of two policies that name the PF.
            prop_assert!(!has_any(&["D14", "D15", "D21", "D23", "D25"]));
            prop_assert_eq!(has_any(&["D13", "D16", "D17", "D22", "D24", "D26"]), is_conflict || is_outranked);
        } else {
            prop_assert_eq!(has_any(&["D13", "D15", "D17", "D21", "D23", "D25"]), is_conflict);
            prop_assert_eq!(has_any(&["D14", "D16", "D22", "D24", "D26"]), is_outranked);
        }
    }
}
