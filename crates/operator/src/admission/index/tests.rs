//! Facts of the index compared with a check of every node.

use std::collections::BTreeMap;

use kube::core::{ObjectMeta, PartialObjectMetaExt};
use serde_json::{Value, json};
use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::SriovOperatorConfig;
use vfleet_plan::admission::{NodeClasses, PolicyFacts};

use super::*;

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn labels(&mut self) -> Labels {
        let mut labels = Labels::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
        if self.below(8) > 0 {
            labels.insert("node-role.kubernetes.io/worker".to_owned(), String::new());
        }
        for key in ["rack", "zone"] {
            if self.below(4) > 0 {
                labels.insert(key.to_owned(), self.below(3).to_string());
            }
        }
        labels
    }

    fn selector(&mut self) -> Labels {
        let keys = ["rack", "zone"].into_iter().filter(|_| self.below(2) == 0).collect::<Vec<_>>();
        keys.into_iter().map(|key| (key.to_owned(), self.below(3).to_string())).collect()
    }
}

/// Cluster as plain maps.
#[derive(Default)]
struct PlainCluster {
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

fn list<K>(update: &mut impl FnMut(Event<K>)) {
    update(Event::Init);
    update(Event::InitDone);
}

pub(super) fn config(spec: SriovOperatorConfigSpec) -> OperatorConfigState {
    OperatorConfigState::Config(Box::new(SriovOperatorConfig::new("default", spec)))
}

pub(super) fn empty() -> ClusterIndex {
    let mut cluster = ClusterIndex::default();
    assert!(!cluster.is_complete());
    list(&mut |event| cluster.update_node(event));
    list(&mut |event| cluster.update_state(event));
    list(&mut |event| cluster.update_policy(event));
    list(&mut |event| cluster.update_pool(event));
    cluster.update_nic_ids(None);
    cluster.update_config(&OperatorConfigState::Unknown);
    assert!(!cluster.is_complete());
    cluster.update_nic_ids(Some(NicIds::default()));
    cluster.update_config(&OperatorConfigState::Missing);
    assert!(cluster.is_complete());
    cluster
}

/// Makes one random change in both.
fn change(random: &mut Random, cluster: &mut ClusterIndex, plain: &mut PlainCluster) {
    let name = format!("n{}", random.below(30));
    let other = ["a", "b", "c", "default"][usize::try_from(random.below(4)).unwrap()].to_owned();
    match random.below(16) {
        0..6 => {
            let labels = random.labels();
            cluster.update_node(Event::Apply(node(&name, &labels)));
            plain.nodes.insert(name, labels);
        }
        6 => {
            cluster.update_node(Event::Delete(node(&name, &Labels::new())));
            plain.nodes.remove(&name);
        }
        7..12 => {
            let mac = format!("02:00:00:00:00:{:02x}", random.below(256));
            let card = json!({ "pciAddress": "0000:01:00.0", "mtu": 1500 + random.below(2), "mac": mac });
            let cards = (random.below(6) > 0).then(|| vec![card]);
            cluster.update_state(Event::Apply(object(&name, &json!({}), &json!({ "interfaces": cards }))));
            plain.cards.insert(name, cards);
        }
        12 => {
            cluster.update_state(Event::Delete(object(&name, &json!({}), &json!({}))));
            plain.cards.remove(&name);
        }
        13 => {
            let spec = json!({ "resourceName": "r", "numVfs": 1, "nicSelector": {}, "nodeSelector": random.selector() });
            if random.below(4) == 0 {
                cluster.update_policy(Event::Delete(object(&other, &spec, &json!({}))));
                plain.policies.remove(&other);
            } else {
                cluster.update_policy(Event::Apply(object(&other, &spec, &json!({}))));
                plain.policies.insert(other, spec);
            }
        }
        14 => {
            let spec =
                json!({ "nodeSelector": { "matchLabels": random.selector() }, "priority": random.below(2) });
            if random.below(4) == 0 {
                cluster.update_pool(Event::Delete(object(&other, &spec, &json!({}))));
                plain.pools.remove(&other);
            } else {
                cluster.update_pool(Event::Apply(object(&other, &spec, &json!({}))));
                plain.pools.insert(other, spec);
            }
        }
        _ => {
            plain.config = random.selector();
            let spec = SriovOperatorConfigSpec {
                config_daemon_node_selector: Some(plain.config.clone()),
                ..Default::default()
            };
            cluster.update_config(&config(spec));
        }
    }
}

/// Node class: example, number of nodes, MTUs of the cards, and other policies.
type ClassSummary = (String, usize, Vec<Option<i64>>, Vec<String>);

/// Returns the classes in a fixed order.
fn classes(facts: &PolicyFacts<'_>) -> Vec<ClassSummary> {
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

fn compare_policies(random: &mut Random, cluster: &ClusterIndex, plain: &PlainCluster) {
    let spec =
        json!({ "resourceName": "r", "numVfs": 1, "nicSelector": {}, "nodeSelector": random.selector() });
    let spec = serde_json::from_value(spec).unwrap();
    let candidate =
        NamedPolicy { name: ["a", "new"][usize::try_from(random.below(2)).unwrap()], spec: &spec };
    let policies: BTreeMap<String, SriovNetworkNodePolicySpec> = plain
        .policies
        .iter()
        .map(|(name, spec)| (name.clone(), serde_json::from_value(spec.clone()).unwrap()))
        .collect();
    let named: Vec<_> = policies.iter().map(|(name, spec)| NamedPolicy { name, spec }).collect();
    // Only the fields that rules check.
    let cards: BTreeMap<&String, Option<Vec<_>>> = plain
        .cards
        .iter()
        .map(|(name, cards)| {
            let read = |cards: &Vec<Value>| serde_json::from_value(json!(cards)).unwrap();
            (name, cards.as_ref().map(|cards| Cards::new(read(cards)).list))
        })
        .collect();
    let mut expected_classes = NodeClasses::with_candidate(candidate, &named);
    for (name, labels) in &plain.nodes {
        let cards = cards.get(name).and_then(|cards| cards.as_deref());
        expected_classes.add(name, labels, runs_agent(&plain.config, labels), cards);
    }
    let (found, expected) =
        (cluster.policy_facts(candidate), expected_classes.collect_facts(candidate.name, false, None));
    let counts = |facts: &PolicyFacts<'_>| (facts.nodes, facts.without_agent, facts.without_cards);
    assert_eq!(counts(&found), counts(&expected));
    assert_eq!(classes(&found), classes(&expected));
}

fn compare_pools(random: &mut Random, cluster: &ClusterIndex, plain: &PlainCluster) {
    let spec = json!({ "nodeSelector": { "matchLabels": random.selector() }, "priority": random.below(2) });
    let read = |spec: &Value| -> vfleet_api::pool_config::SriovNetworkPoolConfigSpec {
        serde_json::from_value(spec.clone()).unwrap()
    };
    let spec = read(&spec);
    let candidate =
        NamedPool { name: ["a", "new", "default"][usize::try_from(random.below(3)).unwrap()], spec: &spec };
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
fn the_index_gives_the_same_facts_as_checking_every_node() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let (mut cluster, mut plain) = (empty(), PlainCluster::default());
        for _ in 0..300 {
            change(&mut random, &mut cluster, &mut plain);
            compare_policies(&mut random, &cluster, &plain);
            compare_pools(&mut random, &cluster, &plain);
        }
    }
}

#[test]
fn facts_about_the_operator_config() {
    let mut cluster = empty();
    let labels: Labels = serde_json::from_value(json!({
        "kubernetes.io/os": "linux", "node-role.kubernetes.io/worker": "", "rack": "a",
    }))
    .unwrap();
    for name in ["n2", "n1"] {
        cluster.update_node(Event::Apply(node(name, &labels)));
        let spec = json!({ "interfaces": [{
            "pciAddress": "0000:01:00.0", "numVfs": 1,
            "vfGroups": [{ "resourceName": "r", "vfRange": "0-0" }],
        }] });
        cluster.update_state(Event::Apply(object(name, &spec, &json!({ "syncStatus": "InProgress" }))));
    }
    let bridge = json!({
        "resourceName": "r", "numVfs": 1, "nicSelector": {}, "nodeSelector": {}, "bridge": { "ovs": {} },
    });
    for name in ["with-bridge", "default"] {
        cluster.update_policy(Event::Apply(object(name, &bridge, &json!({}))));
    }
    let with = |selector: Value| SriovOperatorConfigSpec {
        config_daemon_node_selector: serde_json::from_value(selector).unwrap(),
        ..Default::default()
    };
    let facts = cluster.config_facts(None);
    assert_eq!(facts.in_progress, ["n1", "n2"]);
    assert_eq!((facts.policies, facts.with_bridge), (vec!["with-bridge"], vec!["with-bridge"]));
    assert!(cluster.config_facts(Some(&with(json!({ "rack": "a" })))).losing_agent.is_empty());
    assert_eq!(cluster.config_facts(Some(&with(json!({ "rack": "b" })))).losing_agent, ["n1", "n2"]);
    let offered: Vec<_> = cluster.resource_facts("r").offered_by.iter().map(|policy| policy.name).collect();
    assert_eq!(offered, ["default", "with-bridge"]);
    assert!(cluster.resource_facts("other").offered_by.is_empty());
}
