//! Nodes that are alike for a policy: their cards are alike in all that rules look at, and the same other policies select
//! them. Each class is judged once, however many nodes it has.

use vfleet_api::node_state::InterfaceExt;

use crate::policy::{SelectedBy, selects_node};
use crate::prelude::*;
use crate::{NamedPolicy, NicIds};

/// More classes than these are not judged: a request is to be answered within milliseconds. The largest come first.
const MOST_CLASSES: usize = 256;

/// Nodes that are alike for a policy.
#[derive(Clone, Debug)]
pub struct NodeClass<'a> {
    /// The first of them by name.
    pub example: &'a str,
    /// How many they are.
    pub count: usize,
    /// The labels of the example.
    pub labels: &'a BTreeMap<String, String>,
    /// The cards of the example.
    pub cards: &'a [InterfaceExt],
    /// The other policies that select them.
    pub others: Vec<NamedPolicy<'a>>,
}

/// What is known of the cluster when a policy is judged.
#[derive(Clone, Debug)]
pub struct PolicyFacts<'a> {
    /// Whether software bridges are managed: a feature gate. Where nobody knows it, they may be.
    pub manage_software_bridges: bool,
    /// The kinds of cards that are reported. `None`, or a list without entries: any.
    pub nic_ids: Option<&'a NicIds>,
    /// Nodes that the policy's `nodeSelector` selects.
    pub nodes: usize,
    /// Of those, nodes that run no agent.
    pub without_agent: usize,
    /// Of those that run one, nodes whose cards are not known yet.
    pub without_cards: usize,
    /// Those whose cards are known, by class.
    pub classes: Vec<NodeClass<'a>>,
    /// Further classes.
    pub classes_left_out: usize,
}

/// The largest of these classes, in order of size, and how many more there are.
pub fn largest_classes(mut classes: Vec<NodeClass<'_>>) -> (Vec<NodeClass<'_>>, usize) {
    classes.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.example.cmp(b.example)));
    let left_out = classes.len().saturating_sub(MOST_CLASSES);
    classes.truncate(MOST_CLASSES);
    (classes, left_out)
}

/// Groups nodes into classes, one node after the other: for one policy, or for all of them at once.
#[derive(Debug)]
pub struct Classes<'a> {
    policies: Vec<NamedPolicy<'a>>,
    found: BTreeMap<ClassKey<'a>, Alike<'a>>,
}

/// What nodes of a class have in common.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClassKey<'a> {
    runs_agent: bool,
    /// `None` when they are not known, or nobody looks at them.
    cards: Option<Vec<CardSight<'a>>>,
    /// Those that select them.
    policies: Vec<usize>,
}

/// Nodes of a class.
#[derive(Debug)]
struct Alike<'a> {
    example: &'a str,
    count: usize,
    labels: &'a BTreeMap<String, String>,
    cards: Option<&'a [InterfaceExt]>,
}

/// All of a card that rules look at. What else is reported, such as its MAC address, is different on each node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CardSight<'a> {
    selected_by: SelectedBy<'a>,
    link_type: Option<&'a str>,
    e_switch_mode: Option<&'a str>,
    mtu: Option<i64>,
    vfs: (Option<i64>, Option<i64>),
}

impl<'a> From<&'a InterfaceExt> for CardSight<'a> {
    fn from(card: &'a InterfaceExt) -> Self {
        Self {
            selected_by: SelectedBy::from(card),
            link_type: card.link_type.as_deref(),
            e_switch_mode: card.e_switch_mode.as_deref(),
            mtu: card.mtu,
            vfs: (card.num_vfs, card.totalvfs),
        }
    }
}

/// Whether cards are the same to rules. What our own agents change on them is seen only where somebody else may have
/// done it: on PFs that are managed outside.
pub fn same_cards(one: &[InterfaceExt], other: &[InterfaceExt], some_are_outside: bool) -> bool {
    let sight = |card| match CardSight::from(card) {
        seen if some_are_outside => seen,
        seen => CardSight { e_switch_mode: None, mtu: None, vfs: (None, seen.vfs.1), ..seen },
    };
    one.iter().map(sight).eq(other.iter().map(sight))
}

impl<'a> Classes<'a> {
    /// For all these policies.
    pub fn new(policies: impl IntoIterator<Item = NamedPolicy<'a>>) -> Self {
        Self { policies: policies.into_iter().collect(), found: BTreeMap::new() }
    }

    /// For `candidate`, among `others`. One of them with the candidate's name is its old version, and does not count.
    pub fn among(candidate: NamedPolicy<'a>, others: &[NamedPolicy<'a>]) -> Self {
        let others = others.iter().copied().filter(|other| other.name != candidate.name);
        Self::new(others.chain([candidate]))
    }

    /// Adds a node. Its `cards` are `None` while it has not reported them.
    pub fn add(
        &mut self,
        node: &'a str,
        labels: &'a BTreeMap<String, String>,
        runs_agent: bool,
        cards: Option<&'a [InterfaceExt]>,
    ) {
        let selects = |(at, policy): (usize, &NamedPolicy<'_>)| selects_node(policy, labels).then_some(at);
        let policies: Vec<_> = self.policies.iter().enumerate().filter_map(selects).collect();
        if policies.is_empty() {
            return;
        }
        let cards = cards.filter(|_| runs_agent);
        let sights = cards.map(|cards| cards.iter().map(CardSight::from).collect());
        let key = ClassKey { runs_agent, cards: sights, policies };
        let class = self.found.entry(key).or_insert(Alike { example: node, count: 0, labels, cards });
        class.count += 1;
        if node < class.example {
            (class.example, class.labels, class.cards) = (node, labels, cards);
        }
    }

    /// What is known when this policy is judged, with the feature gate manageSoftwareBridges and the kinds of cards that
    /// are reported. Where nobody knows the gate, it is no fault that it is off: say that it is on.
    pub fn facts_of(
        &self,
        policy: &str,
        manage_software_bridges: bool,
        nic_ids: Option<&'a NicIds>,
    ) -> PolicyFacts<'a> {
        let own = self.policies.iter().position(|known| known.name == policy);
        let (mut nodes, mut without_agent, mut without_cards) = (0, 0, 0);
        let mut classes = Vec::new();
        let is_own = |key: &ClassKey<'_>| own.is_some_and(|own| key.policies.binary_search(&own).is_ok());
        for (key, &Alike { example, count, labels, cards }) in
            self.found.iter().filter(|(key, _)| is_own(key))
        {
            nodes += count;
            match cards {
                _ if !key.runs_agent => without_agent += count,
                None => without_cards += count,
                Some(cards) => {
                    let others = key.policies.iter().filter(|at| Some(**at) != own);
                    let others = others.map(|at| self.policies[*at]).collect();
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

        let mut classes = Classes::among(own, &[own, other]);
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

        let facts = classes.facts_of("own", true, None);
        assert_eq!((facts.nodes, facts.without_agent, facts.without_cards), (6, 1, 1));
        let mut seen: Vec<_> = facts
            .classes
            .iter()
            .map(|class| {
                let others: Vec<_> = class.others.iter().map(|other| other.name).collect();
                (class.example, class.count, class.cards.len(), others)
            })
            .collect();
        seen.sort();
        let expected = [("n1", 2, 1, vec![]), ("no-cards", 1, 0, vec![]), ("zoned", 1, 1, vec!["other"])];
        assert_eq!(seen, expected);
    }

    #[test]
    fn cards_are_alike_in_what_rules_look_at() {
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
            let mut classes = Classes::new([NamedPolicy { name: "own", spec: &spec }]);
            classes.add("n1", &here, true, Some(&first));
            classes.add("n2", &here, true, Some(&second));
            classes.facts_of("own", false, None).classes.len()
        };
        let seen = json!({
            "pciAddress": "0000:02:00.0", "name": "c", "altNames": [], "vendor": "15b3", "deviceID": "1017",
            "netFilter": null, "mtu": 9000, "numVfs": 2, "totalvfs": 9, "linkType": "IB", "eSwitchMode": "switchdev",
        });
        for (field, value) in seen.as_object().unwrap() {
            assert_eq!(count(&json!({ field: value })), 2, "{field}");
        }
        let unseen = json!({"mac": "02:00:00:00:00:02", "linkSpeed": "2 Mb/s", "driver": "ice", "Vfs": []});
        assert_eq!(count(&unseen), 1);
    }

    #[test]
    fn the_smallest_of_too_many_classes_are_left_out() {
        let spec = policy("a");
        let here = labels(&[("rack", "a")]);
        let cards: Vec<InterfaceExt> = (0..MOST_CLASSES + 3)
            .map(|n| serde_json::from_value(json!({"pciAddress": "0000:01:00.0", "mtu": n})).unwrap())
            .collect();
        let mut classes = Classes::new([NamedPolicy { name: "own", spec: &spec }]);
        for card in cards.chunks(1).chain(cards.chunks(1).rev().take(1)) {
            classes.add("node", &here, true, Some(card));
        }
        let facts = classes.facts_of("own", false, None);
        assert_eq!(facts.classes.len(), MOST_CLASSES + 3);
        let (largest, left_out) = largest_classes(facts.classes);
        assert_eq!((largest.len(), left_out), (MOST_CLASSES, 3));
        assert_eq!(
            (largest[0].count, largest[0].cards),
            (2, cards.last().map(core::slice::from_ref).unwrap())
        );
    }

    #[test]
    fn one_grouping_is_for_all_policies() {
        let (mut wide, narrow) = (policy("a"), policy("a"));
        wide.node_selector.clear();
        let named =
            [NamedPolicy { name: "narrow", spec: &narrow }, NamedPolicy { name: "wide", spec: &wide }];
        let (a, b) = (labels(&[("rack", "a")]), labels(&[("rack", "b")]));
        let mut classes = Classes::new(named);
        for (node, labels) in [("n1", &a), ("n2", &b), ("n3", &b)] {
            classes.add(node, labels, true, Some(&[]));
        }
        let seen = |name: &str| {
            let facts = classes.facts_of(name, false, None);
            let class = |class: &NodeClass<'_>| (class.count, class.others.len());
            (facts.nodes, facts.classes.iter().map(class).collect::<Vec<_>>())
        };
        assert_eq!(seen("narrow"), (1, vec![(1, 1)]));
        assert_eq!(seen("wide"), (3, vec![(1, 1), (2, 0)]));
        assert_eq!(seen("nobody"), (0, vec![]));
    }

    #[test]
    fn what_agents_change_is_no_news_unless_somebody_else_may_have_done_it() {
        let card = |mtu: i64, vfs: i64, most: i64| {
            let card = json!({"pciAddress": "0000:01:00.0", "mtu": mtu, "numVfs": vfs, "totalvfs": most});
            [serde_json::from_value::<InterfaceExt>(card).unwrap()]
        };
        let before = card(1500, 0, 8);
        for (after, news, news_outside) in [
            (card(1500, 0, 8), false, false),
            (card(9000, 4, 8), false, true),
            (card(1500, 0, 9), true, true),
        ] {
            assert_eq!(!same_cards(&before, &after, false), news);
            assert_eq!(!same_cards(&before, &after, true), news_outside);
        }
    }
}
