//! Properties of plans for random policies and cards.

use std::collections::{BTreeMap, BTreeSet};

use crate::any_policies::{cards, policy};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use vfleet_api::node_state::{Interface, InterfaceExt, VfGroup};
use vfleet_api::{SriovNetworkNodePolicySpec, SriovNetworkNodeStateSpec, VfRange};
use vfleet_plan::{NamedPolicy, NodeInput, NodePlan, PfOutcome, plan_node_spec};

type Policies = Vec<(&'static str, SriovNetworkNodePolicySpec)>;

/// Input of the planner.
#[derive(Clone, Debug)]
struct PlanInput {
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

fn plan_input() -> impl Strategy<Value = PlanInput> {
    let unreadable = prop::collection::btree_set(select(vec!["a".to_owned(), "gone".to_owned()]), 0..2);
    (policies(), cards(), select(vec!["a", "b"]), any::<bool>(), unreadable).prop_map(
        |(policies, cards, rack, gate, unreadable)| PlanInput {
            policies: policies.into_iter().filter(|(name, _)| !unreadable.contains(*name)).collect(),
            cards,
            labels: BTreeMap::from([("rack".to_owned(), rack.to_owned())]),
            gate,
            unreadable,
        },
    )
}

impl PlanInput {
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

    /// Returns the spec of a node state that `earlier` policies, some of the same names, led to.
    fn spec_after(&self, earlier: &Policies) -> SriovNetworkNodeStateSpec {
        let input = PlanInput { unreadable: BTreeSet::new(), gate: true, ..self.clone() };
        input.plan_of(earlier, &SriovNetworkNodeStateSpec::default()).spec
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

/// Returns the outcome of the policy on the card at this position.
fn outcome<'a>(plan: &'a NodePlan, policy: &str, at: usize) -> Option<&'a PfOutcome> {
    plan.evaluations
        .iter()
        .find(|evaluation| evaluation.policy == policy)
        .map(|evaluation| &evaluation.pfs[at].outcome)
}

/// Returns whether the card keeps its desired state because of an unreadable or invalid policy.
fn is_kept(input: &PlanInput, plan: &NodePlan, current: &SriovNetworkNodeStateSpec, at: usize) -> bool {
    groups(entry(current, &input.cards[at])).iter().any(|group| {
        input.unreadable.contains(name(group))
            || matches!(outcome(plan, name(group), at), Some(PfOutcome::Invalid(_)))
    })
}

proptest! {
    #![proptest_config(crate::config(300))]

    #[test]
    fn the_order_of_the_list_does_not_matter(input in plan_input(), earlier in policies(), turn in 0..6_usize) {
        let current = input.spec_after(&earlier);
        let plan = input.plan(&current);
        let mut other = input.policies.clone();
        other.reverse();
        prop_assert_eq!(&input.plan_of(&other, &current), &plan);
        let places = other.len().max(1);
        other.rotate_left(turn % places);
        prop_assert_eq!(&input.plan_of(&other, &current), &plan);
    }

    #[test]
    fn planning_again_changes_nothing(input in plan_input(), earlier in policies()) {
        let plan = input.plan(&input.spec_after(&earlier));
        prop_assert_eq!(&input.plan(&plan.spec), &plan);
    }

    #[test]
    fn every_group_is_of_a_policy_that_selects_the_pf(input in plan_input(), earlier in policies()) {
        let current = input.spec_after(&earlier);
        let plan = input.plan(&current);
        for (at, card) in input.cards.iter().enumerate() {
            let entry_now = entry(&plan.spec, card);
            if is_kept(&input, &plan, &current, at) {
                prop_assert_eq!(entry_now, entry(&current, card));
                continue;
            }
            for group in groups(entry_now) {
                prop_assert!(matches!(outcome(&plan, name(group), at), Some(PfOutcome::Selected { .. })), "{:?}", group);
            }
            let selected = plan.evaluations.iter().any(|evaluation| !matches!(evaluation.pfs[at].outcome, PfOutcome::NotSelected(_)));
            prop_assert!(selected || entry_now.is_none());
        }
    }

    #[test]
    fn groups_of_one_pf_do_not_overlap(input in plan_input(), earlier in policies()) {
        let plan = input.plan(&input.spec_after(&earlier));
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
    fn each_group_exists_or_was_lost_to_a_policy_of_higher_precedence(input in plan_input()) {
        let plan = input.plan(&SriovNetworkNodeStateSpec::default());
        let precedence = |policy: &str| plan.evaluations.iter().position(|evaluation| evaluation.policy == policy).unwrap();
        for (at, card) in input.cards.iter().enumerate() {
            let existing = groups(entry(&plan.spec, card));
            for evaluation in &plan.evaluations {
                let PfOutcome::Selected { lost, .. } = &evaluation.pfs[at].outcome else { continue };
                let own = existing.iter().filter(|group| name(group) == evaluation.policy);
                prop_assert!(own.clone().count() + lost.len() > 0);
                for group in lost {
                    prop_assert!(precedence(&evaluation.policy) < precedence(&group.to));
                    prop_assert!(own.clone().all(|own| range(own) != group.range));
                }
            }
            let winner = plan.evaluations.iter().rfind(|evaluation| matches!(evaluation.pfs[at].outcome, PfOutcome::Selected { .. }));
            prop_assert_eq!(existing.first().map(name), winner.map(|evaluation| evaluation.policy.as_str()));
        }
    }

    #[test]
    fn a_policy_that_is_invalid_everywhere_does_not_affect_others(input in plan_input()) {
        let nothing = SriovNetworkNodeStateSpec::default();
        let plan = input.plan(&nothing);
        let followed = |policy: &str| {
            (0..input.cards.len()).any(|at| matches!(outcome(&plan, policy, at), Some(PfOutcome::Selected { .. })))
        };
        let others = input.policies.iter().filter(|(policy, _)| followed(policy)).cloned().collect();
        let mut without = input.plan_of(&others, &nothing).spec;
        // The order of PFs depends on all policies that select a PF.
        let mut with = plan.spec;
        for spec in [&mut with, &mut without] {
            if let Some(list) = &mut spec.interfaces {
                list.sort_by(|a, b| a.pci_address.text().cmp(b.pci_address.text()));
            }
        }
        prop_assert_eq!(with, without);
    }
}
