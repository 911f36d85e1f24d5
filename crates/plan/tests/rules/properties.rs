//! What holds for any policies on any cards.

use std::collections::{BTreeMap, BTreeSet};

use crate::any_policies::{cards, policy};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use vfleet_api::node_state::{Interface, InterfaceExt, VfGroup};
use vfleet_api::{SriovNetworkNodePolicySpec, SriovNetworkNodeStateSpec, VfRange};
use vfleet_plan::{NamedPolicy, NodeInput, NodePlan, PfVerdict, plan_node_spec};

type Policies = Vec<(&'static str, SriovNetworkNodePolicySpec)>;

/// Everything that the planner looks at.
#[derive(Clone, Debug)]
struct Situation {
    policies: Policies,
    cards: Vec<InterfaceExt>,
    labels: BTreeMap<String, String>,
    gate: bool,
    unreadable: BTreeSet<String>,
}

fn policies() -> impl Strategy<Value = Policies> {
    let names = vec!["a", "b", "c", "d", "e", "default"];
    (subsequence(names, 0..6), prop::collection::vec(policy(), 6))
        .prop_map(|(names, specs)| names.into_iter().zip(specs).collect())
}

fn situation() -> impl Strategy<Value = Situation> {
    let unreadable = prop::collection::btree_set(select(vec!["a".to_owned(), "gone".to_owned()]), 0..2);
    (policies(), cards(), select(vec!["a", "b"]), any::<bool>(), unreadable).prop_map(
        |(policies, cards, rack, gate, unreadable)| Situation {
            policies: policies.into_iter().filter(|(name, _)| !unreadable.contains(*name)).collect(),
            cards,
            labels: BTreeMap::from([("rack".to_owned(), rack.to_owned())]),
            gate,
            unreadable,
        },
    )
}

impl Situation {
    fn plan_of(&self, policies: &Policies, current: &SriovNetworkNodeStateSpec) -> NodePlan {
        let named: Vec<_> = policies.iter().map(|(name, spec)| NamedPolicy { name, spec }).collect();
        let node = NodeInput {
            labels: &self.labels,
            cards: &self.cards,
            current,
            rdma_mode: vfleet_plan::Fact::None,
            manage_software_bridges: self.gate,
        };
        plan_node_spec(&named, &self.unreadable, &node)
    }

    fn plan(&self, current: &SriovNetworkNodeStateSpec) -> NodePlan {
        self.plan_of(&self.policies, current)
    }

    /// A node state that other policies, some of the same names, had led to.
    fn after(&self, earlier: &Policies) -> SriovNetworkNodeStateSpec {
        let nobody = Situation { unreadable: BTreeSet::new(), gate: true, ..self.clone() };
        nobody.plan_of(earlier, &SriovNetworkNodeStateSpec::default()).spec
    }
}

fn entry<'a>(spec: &'a SriovNetworkNodeStateSpec, card: &InterfaceExt) -> Option<&'a Interface> {
    spec.interfaces.iter().flatten().find(|entry| entry.pci_address == card.pci_address)
}

fn groups(entry: Option<&Interface>) -> &[VfGroup] {
    entry.and_then(|entry| entry.vf_groups.as_deref()).unwrap_or_default()
}

fn range(group: &VfGroup) -> VfRange {
    *group.vf_range.as_ref().unwrap().value().unwrap()
}

fn name(group: &VfGroup) -> &str {
    group.policy_name.as_deref().unwrap()
}

/// The policy's verdict on the card at this place.
fn verdict<'a>(plan: &'a NodePlan, policy: &str, at: usize) -> Option<&'a PfVerdict> {
    plan.answers.iter().find(|answer| answer.policy == policy).map(|answer| &answer.pfs[at].verdict)
}

/// Whether the card stays as it is for the sake of a policy that cannot be read or followed.
fn is_held(situation: &Situation, plan: &NodePlan, current: &SriovNetworkNodeStateSpec, at: usize) -> bool {
    groups(entry(current, &situation.cards[at])).iter().any(|group| {
        situation.unreadable.contains(name(group))
            || matches!(verdict(plan, name(group), at), Some(PfVerdict::Invalid(_)))
    })
}

proptest! {
    #![proptest_config(crate::config(300))]

    #[test]
    fn the_order_of_the_list_does_not_matter(situation in situation(), earlier in policies(), turn in 0..6_usize) {
        let current = situation.after(&earlier);
        let plan = situation.plan(&current);
        let mut other = situation.policies.clone();
        other.reverse();
        prop_assert_eq!(&situation.plan_of(&other, &current), &plan);
        let places = other.len().max(1);
        other.rotate_left(turn % places);
        prop_assert_eq!(&situation.plan_of(&other, &current), &plan);
    }

    #[test]
    fn planning_again_changes_nothing(situation in situation(), earlier in policies()) {
        let plan = situation.plan(&situation.after(&earlier));
        prop_assert_eq!(&situation.plan(&plan.spec), &plan);
    }

    #[test]
    fn every_group_is_of_a_policy_that_selects_the_pf(situation in situation(), earlier in policies()) {
        let current = situation.after(&earlier);
        let plan = situation.plan(&current);
        for (at, card) in situation.cards.iter().enumerate() {
            let entry_now = entry(&plan.spec, card);
            if is_held(&situation, &plan, &current, at) {
                prop_assert_eq!(entry_now, entry(&current, card));
                continue;
            }
            for group in groups(entry_now) {
                prop_assert!(matches!(verdict(&plan, name(group), at), Some(PfVerdict::Selected { .. })), "{:?}", group);
            }
            let selected = plan.answers.iter().any(|answer| !matches!(answer.pfs[at].verdict, PfVerdict::NotSelected(_)));
            prop_assert!(selected || entry_now.is_none());
        }
    }

    #[test]
    fn groups_of_one_pf_do_not_overlap(situation in situation(), earlier in policies()) {
        let plan = situation.plan(&situation.after(&earlier));
        for interface in plan.spec.interfaces.iter().flatten() {
            let groups = groups(Some(interface));
            prop_assert!(!groups.is_empty());
            for (at, one) in groups.iter().enumerate() {
                prop_assert!(i64::from(range(one).last()) < interface.num_vfs.unwrap());
                for other in &groups[at + 1..] {
                    prop_assert!(!range(one).overlaps(range(other)), "{:?}", interface);
                    prop_assert!(name(one) == name(other) || one.resource_name != other.resource_name);
                }
            }
        }
    }

    #[test]
    fn a_group_is_there_or_was_lost_to_one_that_is_stronger(situation in situation()) {
        let plan = situation.plan(&SriovNetworkNodeStateSpec::default());
        let place = |policy: &str| plan.answers.iter().position(|answer| answer.policy == policy).unwrap();
        for (at, card) in situation.cards.iter().enumerate() {
            let there = groups(entry(&plan.spec, card));
            for answer in &plan.answers {
                let PfVerdict::Selected { lost, .. } = &answer.pfs[at].verdict else { continue };
                let own = there.iter().filter(|group| name(group) == answer.policy);
                prop_assert!(own.clone().count() + lost.len() > 0);
                for group in lost {
                    prop_assert!(place(&answer.policy) < place(&group.to));
                    prop_assert!(own.clone().all(|own| range(own) != group.range));
                }
            }
            let winner = plan.answers.iter().rfind(|answer| matches!(answer.pfs[at].verdict, PfVerdict::Selected { .. }));
            prop_assert_eq!(there.first().map(name), winner.map(|answer| answer.policy.as_str()));
        }
    }

    #[test]
    fn a_policy_that_cannot_be_followed_anywhere_changes_nothing_for_others(situation in situation()) {
        let nothing = SriovNetworkNodeStateSpec::default();
        let plan = situation.plan(&nothing);
        let followed = |policy: &str| {
            (0..situation.cards.len()).any(|at| matches!(verdict(&plan, policy, at), Some(PfVerdict::Selected { .. })))
        };
        let others = situation.policies.iter().filter(|(policy, _)| followed(policy)).cloned().collect();
        let mut without = situation.plan_of(&others, &nothing).spec;
        // Their order follows from all policies that concern a PF.
        let mut with = plan.spec;
        for spec in [&mut with, &mut without] {
            if let Some(list) = &mut spec.interfaces {
                list.sort_by(|a, b| a.pci_address.text().cmp(b.pci_address.text()));
            }
        }
        prop_assert_eq!(with, without);
    }
}
