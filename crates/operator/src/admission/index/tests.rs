//! What the index says, beside what is found by looking at every node.

use std::collections::BTreeMap;

use kube::core::{ObjectMeta, PartialObjectMetaExt};
use serde_json::{Value, json};
use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::SriovOperatorConfig;
use vfleet_plan::admission::{Classes, PolicyFacts};

use super::*;

/// Numbers that look like chance, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn labels(&mut self) -> Labels {
        let mut labels = Labels::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
        if self.roll(8) > 0 {
            labels.insert("node-role.kubernetes.io/worker".to_owned(), String::new());
        }
        for key in ["rack", "zone"] {
            if self.roll(4) > 0 {
                labels.insert(key.to_owned(), self.roll(3).to_string());
            }
        }
        labels
    }

    fn selector(&mut self) -> Labels {
        let keys = ["rack", "zone"].into_iter().filter(|_| self.roll(2) == 0).collect::<Vec<_>>();
        keys.into_iter().map(|key| (key.to_owned(), self.roll(3).to_string())).collect()
    }
}

/// A cluster as plain lists.
#[derive(Default)]
struct Plain {
    nodes: BTreeMap<String, Labels>,
    cards: BTreeMap<String, Option<Vec<Value>>>,
    policies: BTreeMap<String, Value>,
    pools: BTreeMap<String, Value>,
    config: Labels,
}

fn node(name: &str, labels: &Labels) -> PartialObjectMeta<NodeObject> {
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), labels: Some(labels.clone()), ..Default::default() };
    metadata.into_response_partial()
}

fn object<K: serde::de::DeserializeOwned>(name: &str, spec: &Value, status: &Value) -> Guarded<K> {
    let object = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "any", "metadata": { "name": name },
        "spec": spec, "status": status,
    });
    Guarded(Ok(serde_json::from_value(object).unwrap()))
}

fn list<K>(see: &mut impl FnMut(Event<K>)) {
    see(Event::Init);
    see(Event::InitDone);
}

pub(super) fn config(spec: SriovOperatorConfigSpec) -> Seen {
    Seen::Config(Box::new(SriovOperatorConfig::new("default", spec)))
}

pub(super) fn empty() -> Cluster {
    let mut cluster = Cluster::default();
    assert!(!cluster.is_complete());
    list(&mut |event| cluster.see_node(event));
    list(&mut |event| cluster.see_state(event));
    list(&mut |event| cluster.see_policy(event));
    list(&mut |event| cluster.see_pool(event));
    cluster.see_nic_ids(None);
    cluster.see_config(&Seen::Unknown);
    assert!(!cluster.is_complete());
    cluster.see_nic_ids(Some(NicIds::default()));
    cluster.see_config(&Seen::Missing);
    assert!(cluster.is_complete());
    cluster
}

/// One change, in both.
fn change(dice: &mut Dice, cluster: &mut Cluster, plain: &mut Plain) {
    let name = format!("n{}", dice.roll(30));
    let other = ["a", "b", "c", "default"][usize::try_from(dice.roll(4)).unwrap()].to_owned();
    match dice.roll(16) {
        0..6 => {
            let labels = dice.labels();
            cluster.see_node(Event::Apply(node(&name, &labels)));
            plain.nodes.insert(name, labels);
        }
        6 => {
            cluster.see_node(Event::Delete(node(&name, &Labels::new())));
            plain.nodes.remove(&name);
        }
        7..12 => {
            let mac = format!("02:00:00:00:00:{:02x}", dice.roll(256));
            let card = json!({ "pciAddress": "0000:01:00.0", "mtu": 1500 + dice.roll(2), "mac": mac });
            let cards = (dice.roll(6) > 0).then(|| vec![card]);
            cluster.see_state(Event::Apply(object(&name, &json!({}), &json!({ "interfaces": cards }))));
            plain.cards.insert(name, cards);
        }
        12 => {
            cluster.see_state(Event::Delete(object(&name, &json!({}), &json!({}))));
            plain.cards.remove(&name);
        }
        13 => {
            let spec = json!({ "resourceName": "r", "numVfs": 1, "nicSelector": {}, "nodeSelector": dice.selector() });
            if dice.roll(4) == 0 {
                cluster.see_policy(Event::Delete(object(&other, &spec, &json!({}))));
                plain.policies.remove(&other);
            } else {
                cluster.see_policy(Event::Apply(object(&other, &spec, &json!({}))));
                plain.policies.insert(other, spec);
            }
        }
        14 => {
            let spec =
                json!({ "nodeSelector": { "matchLabels": dice.selector() }, "priority": dice.roll(2) });
            if dice.roll(4) == 0 {
                cluster.see_pool(Event::Delete(object(&other, &spec, &json!({}))));
                plain.pools.remove(&other);
            } else {
                cluster.see_pool(Event::Apply(object(&other, &spec, &json!({}))));
                plain.pools.insert(other, spec);
            }
        }
        _ => {
            plain.config = dice.selector();
            let spec = SriovOperatorConfigSpec {
                config_daemon_node_selector: Some(plain.config.clone()),
                ..Default::default()
            };
            cluster.see_config(&config(spec));
        }
    }
}

/// A class: the example, how many there are, the MTUs of its cards, and its policies.
type Sight = (String, usize, Vec<Option<i64>>, Vec<String>);

/// What is said of classes, in any order.
fn classes(facts: &PolicyFacts<'_>) -> Vec<Sight> {
    let mut all: Vec<_> = facts
        .classes
        .iter()
        .map(|class| {
            let mut others: Vec<_> = class.others.iter().map(|other| other.name.to_owned()).collect();
            others.sort();
            let cards = class.cards.iter().map(|card| card.mtu).collect();
            (class.example.to_owned(), class.count, cards, others)
        })
        .collect();
    all.sort();
    all
}

fn same_for_policies(dice: &mut Dice, cluster: &Cluster, plain: &Plain) {
    let spec =
        json!({ "resourceName": "r", "numVfs": 1, "nicSelector": {}, "nodeSelector": dice.selector() });
    let spec = serde_json::from_value(spec).unwrap();
    let candidate = NamedPolicy { name: ["a", "new"][usize::try_from(dice.roll(2)).unwrap()], spec: &spec };
    let policies: BTreeMap<String, SriovNetworkNodePolicySpec> = plain
        .policies
        .iter()
        .map(|(name, spec)| (name.clone(), serde_json::from_value(spec.clone()).unwrap()))
        .collect();
    let named: Vec<_> = policies.iter().map(|(name, spec)| NamedPolicy { name, spec }).collect();
    // As rules see them: without what is different on each node.
    let cards: BTreeMap<&String, Option<Vec<_>>> = plain
        .cards
        .iter()
        .map(|(name, cards)| {
            let read = |cards: &Vec<Value>| serde_json::from_value(json!(cards)).unwrap();
            (name, cards.as_ref().map(|cards| Cards::new(read(cards)).list))
        })
        .collect();
    let mut by_looking = Classes::among(candidate, &named);
    for (name, labels) in &plain.nodes {
        let cards = cards.get(name).and_then(|cards| cards.as_deref());
        by_looking.add(name, labels, runs_agent(&plain.config, labels), cards);
    }
    let (found, expected) =
        (cluster.policy_facts(candidate), by_looking.facts_of(candidate.name, false, None));
    let counts = |facts: &PolicyFacts<'_>| (facts.nodes, facts.without_agent, facts.without_cards);
    assert_eq!(counts(&found), counts(&expected));
    assert_eq!(classes(&found), classes(&expected));
}

fn same_for_pools(dice: &mut Dice, cluster: &Cluster, plain: &Plain) {
    let spec = json!({ "nodeSelector": { "matchLabels": dice.selector() }, "priority": dice.roll(2) });
    let read = |spec: &Value| -> vfleet_api::pool_config::SriovNetworkPoolConfigSpec {
        serde_json::from_value(spec.clone()).unwrap()
    };
    let spec = read(&spec);
    let candidate =
        NamedPool { name: ["a", "new", "default"][usize::try_from(dice.roll(3)).unwrap()], spec: &spec };
    let of = |pool: &NamedPool<'_>| -> Vec<&String> {
        let nodes = plain.nodes.iter().filter(|(name, labels)| {
            pool::selects(pool, vfleet_plan::NodeIdentity { name, labels }) == Ok(true)
        });
        nodes.map(|(name, _)| name).collect()
    };
    let own = of(&candidate);
    let rival = plain.pools.iter().find_map(|(name, other)| {
        let other = read(other);
        let is_rival = ![candidate.name, "default"].contains(&name.as_str())
            && candidate.name != "default"
            && other.priority == spec.priority;
        let theirs = of(&NamedPool { name, spec: &other });
        let node = own.iter().find(|node| theirs.contains(node)).filter(|_| is_rival)?;
        Some((name.as_str(), node.as_str()))
    });
    let found = cluster.pool_facts(&candidate);
    assert_eq!(found.selected, own.len());
    assert_eq!(found.rival.map(|rival| (rival.name, rival.node)), rival);
}

#[test]
fn it_says_the_same_as_looking_at_every_node() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let (mut cluster, mut plain) = (empty(), Plain::default());
        for _ in 0..300 {
            change(&mut dice, &mut cluster, &mut plain);
            same_for_policies(&mut dice, &cluster, &plain);
            same_for_pools(&mut dice, &cluster, &plain);
        }
    }
}

#[test]
fn what_a_config_would_do_is_known() {
    let mut cluster = empty();
    let labels: Labels = serde_json::from_value(json!({
        "kubernetes.io/os": "linux", "node-role.kubernetes.io/worker": "", "rack": "a",
    }))
    .unwrap();
    for name in ["n2", "n1"] {
        cluster.see_node(Event::Apply(node(name, &labels)));
        let spec = json!({ "interfaces": [{
            "pciAddress": "0000:01:00.0", "numVfs": 1,
            "vfGroups": [{ "resourceName": "r", "vfRange": "0-0" }],
        }] });
        cluster.see_state(Event::Apply(object(name, &spec, &json!({ "syncStatus": "InProgress" }))));
    }
    let bridge = json!({
        "resourceName": "r", "numVfs": 1, "nicSelector": {}, "nodeSelector": {}, "bridge": { "ovs": {} },
    });
    for name in ["with-bridge", "default"] {
        cluster.see_policy(Event::Apply(object(name, &bridge, &json!({}))));
    }
    let with = |selector: Value| SriovOperatorConfigSpec {
        config_daemon_node_selector: serde_json::from_value(selector).unwrap(),
        ..Default::default()
    };
    let facts = cluster.config_facts(None);
    assert_eq!(facts.in_progress, ["n1", "n2"]);
    assert_eq!((facts.policies, facts.with_bridge), (vec!["with-bridge"], vec!["with-bridge"]));
    assert!(cluster.config_facts(Some(&with(json!({ "rack": "a" })))).left_out.is_empty());
    assert_eq!(cluster.config_facts(Some(&with(json!({ "rack": "b" })))).left_out, ["n1", "n2"]);
    let offered: Vec<_> = cluster.resource_facts("r").offered_by.iter().map(|policy| policy.name).collect();
    assert_eq!(offered, ["default", "with-bridge"]);
    assert!(cluster.resource_facts("other").offered_by.is_empty());
}
