//! Node classes: nodes with equal cards (in all fields that rules check) that the same policies select. A policy is
//! checked once for each class, however many nodes it has.

use vfleet_api::node_state::InterfaceExt;

use crate::policy::{SelectorFacts, selects_node};
use crate::prelude::*;
use crate::{NamedPolicy, NicIds};

/// Number of classes that are checked, largest first: a request must be answered within milliseconds.
const MAX_CLASSES: usize = 256;

/// Nodes for which a policy has the same effect.
#[derive(Clone, Debug)]
pub struct NodeClass<'a> {
    /// First node by name.
    pub example: &'a str,
    /// Number of nodes.
    pub count: usize,
    /// Labels of the example.
    pub labels: &'a BTreeMap<String, String>,
    /// Cards of the example.
    pub cards: &'a [InterfaceExt],
    /// Other policies that select the nodes.
    pub others: Vec<NamedPolicy<'a>>,
}

/// Cluster facts that policy rules use.
#[derive(Clone, Debug)]
pub struct PolicyFacts<'a> {
    /// Feature gate `manageSoftwareBridges`; true if it is not known.
    pub manage_software_bridges: bool,
    /// PCI IDs of the cards that are reported. `None` or an empty list means all.
    pub nic_ids: Option<&'a NicIds>,
    /// Number of nodes that `nodeSelector` of the policy selects.
    pub nodes: usize,
    /// Number of selected nodes without an agent.
    pub without_agent: usize,
    /// Number of selected nodes with an agent that has not reported cards yet.
    pub without_cards: usize,
    /// Classes of the selected nodes whose cards are known.
    pub classes: Vec<NodeClass<'a>>,
    /// Number of classes that are not checked.
    pub classes_left_out: usize,
}

/// Returns the largest classes in order of size, and the number of classes that were dropped.
pub fn keep_largest_classes(mut classes: Vec<NodeClass<'_>>) -> (Vec<NodeClass<'_>>, usize) {
    classes.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.example.cmp(b.example)));
    let left_out = classes.len().saturating_sub(MAX_CLASSES);
    classes.truncate(MAX_CLASSES);
    (classes, left_out)
}

/// Builder of node classes, for one policy or for all policies at once.
#[derive(Debug)]
pub struct NodeClasses<'a> {
    policies: Vec<NamedPolicy<'a>>,
    found: BTreeMap<ClassKey<'a>, ClassMembers<'a>>,
}

/// Properties that all nodes of a class share.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClassKey<'a> {
    runs_agent: bool,
    /// `None` if the cards are not known or not needed.
    cards: Option<Vec<CardTraits<'a>>>,
    /// Indexes of the policies that select the nodes.
    policies: Vec<usize>,
}

/// Nodes of a class, with an example.
#[derive(Debug)]
struct ClassMembers<'a> {
    example: &'a str,
    count: usize,
    labels: &'a BTreeMap<String, String>,
    cards: Option<&'a [InterfaceExt]>,
}

/// Fields of a card that rules check. Other fields, such as the MAC address, differ on each node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CardTraits<'a> {
    selected_by: SelectorFacts<'a>,
    link_type: Option<&'a str>,
    e_switch_mode: Option<&'a str>,
    mtu: Option<i64>,
    vfs: (Option<i64>, Option<i64>),
}

impl<'a> From<&'a InterfaceExt> for CardTraits<'a> {
    fn from(card: &'a InterfaceExt) -> Self {
        Self {
            selected_by: SelectorFacts::from(card),
            link_type: card.link_type.as_deref(),
            e_switch_mode: card.e_switch_mode.as_deref(),
            mtu: card.mtu,
            vfs: (card.num_vfs, card.totalvfs),
        }
    }
}

/// Returns whether rules see no difference between two lists of cards. Fields that agents change are compared only if
/// some PFs are externally managed, where another process may have changed them.
pub fn cards_match(one: &[InterfaceExt], other: &[InterfaceExt], some_externally_managed: bool) -> bool {
    let traits = |card| match CardTraits::from(card) {
        traits if some_externally_managed => traits,
        traits => CardTraits { e_switch_mode: None, mtu: None, vfs: (None, traits.vfs.1), ..traits },
    };
    one.iter().map(traits).eq(other.iter().map(traits))
}

impl<'a> NodeClasses<'a> {
    /// Returns an empty builder for these policies.
    pub fn new(policies: impl IntoIterator<Item = NamedPolicy<'a>>) -> Self {
        Self { policies: policies.into_iter().collect(), found: BTreeMap::new() }
    }

    /// Returns an empty builder for `candidate` and `others`. A policy in `others` with the candidate's name is its
    /// stored version and is left out.
    pub fn with_candidate(candidate: NamedPolicy<'a>, others: &[NamedPolicy<'a>]) -> Self {
        let others = others.iter().copied().filter(|other| other.name != candidate.name);
        Self::new(others.chain([candidate]))
    }

    /// Adds a node. `cards` is `None` until the node has reported its cards.
    pub fn add(
        &mut self,
        node: &'a str,
        labels: &'a BTreeMap<String, String>,
        runs_agent: bool,
        cards: Option<&'a [InterfaceExt]>,
    ) {
        let selects =
            |(index, policy): (usize, &NamedPolicy<'_>)| selects_node(policy, labels).then_some(index);
        let policies: Vec<_> = self.policies.iter().enumerate().filter_map(selects).collect();
        if policies.is_empty() {
            return;
        }
        let cards = cards.filter(|_| runs_agent);
        let traits = cards.map(|cards| cards.iter().map(CardTraits::from).collect());
        let key = ClassKey { runs_agent, cards: traits, policies };
        let class = self.found.entry(key).or_insert(ClassMembers { example: node, count: 0, labels, cards });
        class.count += 1;
        if node < class.example {
            (class.example, class.labels, class.cards) = (node, labels, cards);
        }
    }

    /// Returns the facts about `policy`. Pass true for `manage_software_bridges` if the feature gate is not known.
    pub fn collect_facts(
        &self,
        policy: &str,
        manage_software_bridges: bool,
        nic_ids: Option<&'a NicIds>,
    ) -> PolicyFacts<'a> {
        let own = self.policies.iter().position(|other| other.name == policy);
        let (mut nodes, mut without_agent, mut without_cards) = (0, 0, 0);
        let mut classes = Vec::new();
        let is_own = |key: &ClassKey<'_>| own.is_some_and(|own| key.policies.binary_search(&own).is_ok());
        for (key, &ClassMembers { example, count, labels, cards }) in
            self.found.iter().filter(|(key, _)| is_own(key))
        {
            nodes += count;
            match cards {
                _ if !key.runs_agent => without_agent += count,
                None => without_cards += count,
                Some(cards) => {
                    let others = key.policies.iter().filter(|index| Some(**index) != own);
                    let others = others.map(|index| self.policies[*index]).collect();
                    classes.push(NodeClass { example, count, labels, cards, others });
                }
            }
        }
        let classes_left_out = 0;
        PolicyFacts {
            manage_software_bridges,
            nic_ids,
            nodes,
            without_agent,
            without_cards,
            classes,
            classes_left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use vfleet_api::SriovNetworkNodePolicySpec;

    fn policy(rack: &str) -> SriovNetworkNodePolicySpec {
        let spec =
            json!({"resourceName": "r", "nodeSelector": {"rack": rack}, "numVfs": 1, "nicSelector": {}});
        serde_json::from_value(spec).unwrap()
    }

    fn labels(words: &[(&str, &str)]) -> BTreeMap<String, String> {
        words.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn nodes_with_the_same_cards_and_policies_are_one_class() {
        let (candidate, mut both) = (policy("a"), policy("a"));
        both.node_selector.insert("zone".to_owned(), "1".to_owned());
        let own = NamedPolicy { name: "own", spec: &candidate };
        let other = NamedPolicy { name: "other", spec: &both };
        let cards: Vec<InterfaceExt> =
            serde_json::from_value(json!([{"pciAddress": "0000:01:00.0"}])).unwrap();
        let (plain, zoned) = (labels(&[("rack", "a")]), labels(&[("rack", "a"), ("zone", "1")]));
        let elsewhere = labels(&[("rack", "b")]);

        let mut classes = NodeClasses::with_candidate(own, &[own, other]);
        classes.add("zoned", &zoned, true, Some(&cards));
        let others: Vec<InterfaceExt> =
            serde_json::from_value(json!([{"pciAddress": "0000:01:00.0", "mac": "02:00:00:00:00:01"}]))
                .unwrap();
        classes.add("n2", &plain, true, Some(&others));
        classes.add("n1", &plain, true, Some(&cards));
        classes.add("no-cards", &plain, true, Some(&[]));
        classes.add("silent", &plain, true, None);
        classes.add("without-agent", &plain, false, Some(&cards));
        classes.add("elsewhere", &elsewhere, true, Some(&cards));

        let facts = classes.collect_facts("own", true, None);
        assert_eq!((facts.nodes, facts.without_agent, facts.without_cards), (6, 1, 1));
        let mut found: Vec<_> = facts
            .classes
            .iter()
            .map(|class| {
                let others: Vec<_> = class.others.iter().map(|other| other.name).collect();
                (class.example, class.count, class.cards.len(), others)
            })
            .collect();
        found.sort();
        let expected = [("n1", 2, 1, vec![]), ("no-cards", 1, 0, vec![]), ("zoned", 1, 1, vec!["other"])];
        assert_eq!(found, expected);
    }

    #[test]
    fn cards_differ_only_in_fields_that_rules_check() {
        let card = |changes: &serde_json::Value| {
            let mut card = json!({
                "pciAddress": "0000:01:00.0", "name": "a", "altNames": ["b"], "vendor": "8086", "deviceID": "158b",
                "netFilter": "aws/NetworkID:a", "mtu": 1500, "numVfs": 1, "totalvfs": 8, "linkType": "ETH",
                "eSwitchMode": "legacy", "mac": "02:00:00:00:00:01", "linkSpeed": "1 Mb/s", "driver": "i40e",
            });
            json_patch::merge(&mut card, changes);
            [serde_json::from_value::<InterfaceExt>(card).unwrap()]
        };
        let spec = policy("a");
        let here = labels(&[("rack", "a")]);
        let count = |changes: &serde_json::Value| {
            let (first, second) = (card(&json!({})), card(changes));
            let mut classes = NodeClasses::new([NamedPolicy { name: "own", spec: &spec }]);
            classes.add("n1", &here, true, Some(&first));
            classes.add("n2", &here, true, Some(&second));
            classes.collect_facts("own", false, None).classes.len()
        };
        let checked = json!({
            "pciAddress": "0000:02:00.0", "name": "c", "altNames": [], "vendor": "15b3", "deviceID": "1017",
            "netFilter": null, "mtu": 9000, "numVfs": 2, "totalvfs": 9, "linkType": "IB", "eSwitchMode": "switchdev",
        });
        for (field, value) in checked.as_object().unwrap() {
            assert_eq!(count(&json!({ field: value })), 2, "{field}");
        }
        let ignored = json!({"mac": "02:00:00:00:00:02", "linkSpeed": "2 Mb/s", "driver": "ice", "Vfs": []});
        assert_eq!(count(&ignored), 1);
    }

    #[test]
    fn the_smallest_classes_are_dropped_if_there_are_too_many() {
        let spec = policy("a");
        let here = labels(&[("rack", "a")]);
        let cards: Vec<InterfaceExt> = (0..MAX_CLASSES + 3)
            .map(|n| serde_json::from_value(json!({"pciAddress": "0000:01:00.0", "mtu": n})).unwrap())
            .collect();
        let mut classes = NodeClasses::new([NamedPolicy { name: "own", spec: &spec }]);
        for card in cards.chunks(1).chain(cards.chunks(1).rev().take(1)) {
            classes.add("node", &here, true, Some(card));
        }
        let facts = classes.collect_facts("own", false, None);
        assert_eq!(facts.classes.len(), MAX_CLASSES + 3);
        let (largest, dropped) = keep_largest_classes(facts.classes);
        assert_eq!((largest.len(), dropped), (MAX_CLASSES, 3));
        assert_eq!(
            (largest[0].count, largest[0].cards),
            (2, cards.last().map(core::slice::from_ref).unwrap())
        );
    }

    #[test]
    fn one_builder_serves_all_policies() {
        let (mut wide, narrow) = (policy("a"), policy("a"));
        wide.node_selector.clear();
        let named =
            [NamedPolicy { name: "narrow", spec: &narrow }, NamedPolicy { name: "wide", spec: &wide }];
        let (a, b) = (labels(&[("rack", "a")]), labels(&[("rack", "b")]));
        let mut classes = NodeClasses::new(named);
        for (node, labels) in [("n1", &a), ("n2", &b), ("n3", &b)] {
            classes.add(node, labels, true, Some(&[]));
        }
        let found = |name: &str| {
            let facts = classes.collect_facts(name, false, None);
            let class = |class: &NodeClass<'_>| (class.count, class.others.len());
            (facts.nodes, facts.classes.iter().map(class).collect::<Vec<_>>())
        };
        assert_eq!(found("narrow"), (1, vec![(1, 1)]));
        assert_eq!(found("wide"), (3, vec![(1, 1), (2, 0)]));
        assert_eq!(found("other"), (0, vec![]));
    }

    #[test]
    fn fields_that_agents_change_count_only_for_externally_managed_pfs() {
        let card = |mtu: i64, vfs: i64, total: i64| {
            let card = json!({"pciAddress": "0000:01:00.0", "mtu": mtu, "numVfs": vfs, "totalvfs": total});
            [serde_json::from_value::<InterfaceExt>(card).unwrap()]
        };
        let before = card(1500, 0, 8);
        for (after, differs, differs_external) in [
            (card(1500, 0, 8), false, false),
            (card(9000, 4, 8), false, true),
            (card(1500, 0, 9), true, true),
        ] {
            assert_eq!(!cards_match(&before, &after, false), differs);
            assert_eq!(!cards_match(&before, &after, true), differs_external);
        }
    }
}
