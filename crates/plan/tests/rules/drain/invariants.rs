//! Invariants for any pool and any nodes.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::{collection, option};
use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_api::pool_config::OnTimeout;
use vfleet_plan::drain::{
    CordonMark, CordonOrigin, DrainFacts, DrainLimit, DrainPlan, DrainRules, Moment, NodeAction, NodeFacts,
    PodsState, PoolDrain, PoolMember, RetryState, Slot, StateFacts, StatusWriter, holds_slot, is_in_flight,
    plan_drain, slot_priority,
};

const NOW: Moment = Moment(5);

#[derive(Clone, Debug)]
struct PoolInput {
    limit: DrainLimit,
    rules: DrainRules,
    nodes: Vec<NodeInput>,
}

/// Node with the requests for which its pool and another one list it.
#[derive(Clone, Debug)]
struct NodeInput {
    name: String,
    facts: DrainFacts,
    slot: Option<Moment>,
    slot_in_other_pool: Option<Moment>,
    is_former_member: bool,
    pods: PodsState,
}

fn moment() -> impl Strategy<Value = Moment> {
    (0..9_i64).prop_map(Moment)
}

fn node() -> impl Strategy<Value = NodeFacts> {
    let mark = (select(vec![CordonOrigin::Ours, CordonOrigin::Preexisting]), moment())
        .prop_map(|(cordon, request)| CordonMark { cordon, request });
    (any::<bool>(), option::weighted(0.3, mark), option::of(moment()), any::<bool>()).prop_map(
        |(is_cordoned, mark, last_request, is_ready)| NodeFacts {
            is_cordoned,
            mark,
            last_request,
            is_ready,
            is_marked_by_other_installation: false,
        },
    )
}

fn state() -> impl Strategy<Value = StateFacts> {
    let retry = (0..4_u32, moment()).prop_map(|(times, not_before)| RetryState { times, not_before });
    let status = prop_oneof![select(super::STATUSES.to_vec()), Just(DrainStatus::DrainRequired)];
    (
        status,
        select(vec![
            StatusWriter::Operator,
            StatusWriter::Operator,
            StatusWriter::Agent,
            StatusWriter::Other,
        ]),
        select(vec![DrainScope::Partial, DrainScope::Full]),
        option::weighted(0.9, moment()),
        option::of(moment()),
        option::of(moment()),
        option::weighted(0.2, retry),
        prop::bool::weighted(0.1),
    )
        .prop_map(
            |(status, writer, scope, request, draining_since, completed_at, retry, is_external)| StateFacts {
                status,
                writer,
                scope,
                request,
                requested_at: None,
                draining_since,
                completed_at,
                retry,
                is_external,
            },
        )
}

fn node_input() -> impl Strategy<Value = NodeInput> {
    let facts = (option::weighted(0.95, node()), option::weighted(0.95, state()), any::<bool>())
        .prop_map(|(node, state, is_verified)| DrainFacts { node, state, is_verified });
    (
        facts,
        option::of(moment()),
        option::weighted(0.1, moment()),
        prop::bool::weighted(0.1),
        select(vec![PodsState::Unknown, PodsState::Remaining, PodsState::Gone]),
    )
        .prop_map(|(facts, slot, slot_in_other_pool, is_former_member, pods)| NodeInput {
            name: String::new(),
            facts,
            slot,
            slot_in_other_pool,
            is_former_member,
            pods,
        })
}

fn input() -> impl Strategy<Value = PoolInput> {
    let limit = prop_oneof![Just(DrainLimit::Unlimited), (0..4_usize).prop_map(DrainLimit::AtMost)];
    let rules = (prop::bool::weighted(0.1), prop::bool::weighted(0.1), any::<bool>());
    (limit, rules, collection::vec(node_input(), 0..7)).prop_map(
        |(limit, (is_disabled, is_single_node, releases), mut nodes)| {
            for (number, node) in nodes.iter_mut().enumerate() {
                node.name = format!("n{number}");
            }
            let on_timeout = if releases { OnTimeout::Release } else { OnTimeout::Wait };
            let rules = DrainRules { is_disabled, is_single_node, timeout_seconds: Some(0), on_timeout };
            PoolInput { limit, rules, nodes }
        },
    )
}

impl PoolInput {
    fn plan(&self) -> DrainPlan {
        let slot = |node: &NodeInput| node.slot.map(|request| Slot { node: node.name.clone(), request });
        let mut slots: Vec<_> = self.nodes.iter().filter_map(slot).collect();
        slots.sort();
        let pool = PoolDrain { limit: self.limit, slots: &slots, rules: self.rules };
        plan_drain(&pool, &self.nodes.iter().map(NodeInput::member).collect::<Vec<_>>(), NOW)
    }

    fn node(&self, name: &str) -> &NodeInput {
        self.nodes.iter().find(|node| node.name == name).unwrap()
    }
}

impl NodeInput {
    fn member(&self) -> PoolMember<'_> {
        PoolMember {
            name: &self.name,
            facts: &self.facts,
            is_former_member: self.is_former_member,
            slot_in_other_pool: self.slot_in_other_pool,
            pods: self.pods,
            mcp: None,
        }
    }

    fn is_waiting(&self, rules: &DrainRules) -> bool {
        slot_priority(&self.member(), rules, NOW).is_some()
    }
}

proptest! {
    #![proptest_config(crate::config(4_000))]

    /// Also if more slots were granted before than the limit allows.
    #[test]
    fn no_grant_exceeds_the_limit(input in input()) {
        let planned = input.plan().slots;
        if let (DrainLimit::AtMost(most), false) = (input.limit, planned.granted.is_empty()) {
            prop_assert!(planned.slots.len() <= most, "{planned:?}");
        }
    }

    #[test]
    fn draining_and_marked_nodes_are_listed(input in input()) {
        let planned = input.plan().slots;
        for node in input.nodes.iter().filter(|node| holds_slot(&node.facts) && !node.is_former_member) {
            let is_listed = planned.slots.iter().any(|slot| slot.node == node.name);
            prop_assert!(is_listed || planned.verify.contains(&node.name), "{node:?} {planned:?}");
        }
        prop_assert!(planned.slots.is_sorted_by(|one, other| one.node < other.node));
    }

    #[test]
    fn free_slots_are_granted_to_waiting_nodes(input in input()) {
        let planned = input.plan().slots;
        for name in &planned.granted {
            prop_assert!(input.node(name).is_waiting(&input.rules), "{name}");
        }
        let is_left = |node: &&NodeInput| {
            node.is_waiting(&input.rules) && planned.slots.iter().all(|slot| slot.node != node.name)
        };
        if planned.verify.is_empty() && input.limit.free(planned.slots.len()) > 0 {
            prop_assert_eq!(input.nodes.iter().find(is_left).map(|node| &node.name), None);
        }
    }

    #[test]
    fn nodes_without_slot_or_request_do_not_affect_others(input in input()) {
        let whole = input.plan();
        let counts = |node: &NodeInput| {
            node.slot.is_some() || holds_slot(&node.facts) || node.slot_in_other_pool.is_some() || node.is_waiting(&input.rules)
        };
        let without = PoolInput {
            nodes: input.nodes.iter().filter(|node| counts(node)).cloned().collect(),
            ..input.clone()
        };
        let left: Vec<_> = input.nodes.iter().zip(&whole.actions).filter(|(node, _)| counts(node)).collect();
        let planned = without.plan();
        prop_assert_eq!(planned.slots, whole.slots);
        prop_assert!(left.into_iter().map(|(_, action)| *action).eq(planned.actions));
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(input in input()) {
        let whole = input.plan();
        let reversed = PoolInput { nodes: input.nodes.iter().rev().cloned().collect(), ..input }.plan();
        prop_assert_eq!((reversed.slots.slots, reversed.slots.granted), (whole.slots.slots, whole.slots.granted));
        prop_assert!(reversed.actions.into_iter().rev().eq(whole.actions));
    }

    #[test]
    fn no_drain_starts_without_a_slot_and_no_cordon_without_a_drain(input in input()) {
        for (node, action) in input.nodes.iter().zip(input.plan().actions) {
            let state = node.facts.state;
            match action {
                NodeAction::SetStatus { status, request, is_correction: false, .. } if is_in_flight(status) => {
                    let state = state.unwrap();
                    prop_assert_eq!(request, state.request);
                    let is_granted = request.is_some() && node.slot == request;
                    prop_assert!(is_granted || is_in_flight(state.status), "{:?}", node);
                }
                NodeAction::Cordon(mark) => {
                    let state = state.unwrap();
                    let is_draining = matches!(state.status, DrainStatus::Draining | DrainStatus::DrainingComplete);
                    prop_assert!(is_draining && state.writer == StatusWriter::Operator);
                    prop_assert_eq!(Some(mark.request), state.request);
                    prop_assert!(node.facts.node.unwrap().last_request < state.request);
                }
                _ => {}
            }
        }
    }
}
