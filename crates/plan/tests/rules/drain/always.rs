//! What holds for any pool and any nodes.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::{collection, option};
use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_api::pool_config::OnTimeout;
use vfleet_plan::drain::{
    Cordon, DrainFacts, DrainPlan, Limit, Mark, Member, Moment, NodeAction, NodeFacts, PodsSeen, PoolDrain,
    Retry, Rules, Slot, StateFacts, Writer, holds_slot, is_in_flight, plan_drain, turn,
};

const NOW: Moment = Moment(5);

#[derive(Clone, Debug)]
struct Situation {
    limit: Limit,
    rules: Rules,
    nodes: Vec<Given>,
}

/// A node, and what its pool and another list it for.
#[derive(Clone, Debug)]
struct Given {
    name: String,
    facts: DrainFacts,
    slot: Option<Moment>,
    slot_elsewhere: Option<Moment>,
    is_guest: bool,
    pods: PodsSeen,
}

fn moment() -> impl Strategy<Value = Moment> {
    (0..9_i64).prop_map(Moment)
}

fn node() -> impl Strategy<Value = NodeFacts> {
    let mark = (select(vec![Cordon::Ours, Cordon::Found]), moment())
        .prop_map(|(cordon, request)| Mark { cordon, request });
    (any::<bool>(), option::weighted(0.3, mark), option::of(moment()), any::<bool>()).prop_map(
        |(is_cordoned, mark, last_request, is_ready)| NodeFacts {
            is_cordoned,
            mark,
            last_request,
            is_ready,
            is_anothers: false,
        },
    )
}

fn state() -> impl Strategy<Value = StateFacts> {
    let retry = (0..4_u32, moment()).prop_map(|(times, not_before)| Retry { times, not_before });
    let status = prop_oneof![select(super::STATUSES.to_vec()), Just(DrainStatus::DrainRequired)];
    (
        status,
        select(vec![Writer::Operator, Writer::Operator, Writer::Agent, Writer::Other]),
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
                asked_at: None,
                draining_since,
                completed_at,
                retry,
                is_external,
            },
        )
}

fn given() -> impl Strategy<Value = Given> {
    let facts = (option::weighted(0.95, node()), option::weighted(0.95, state()), any::<bool>())
        .prop_map(|(node, state, is_verified)| DrainFacts { node, state, is_verified });
    (
        facts,
        option::of(moment()),
        option::weighted(0.1, moment()),
        prop::bool::weighted(0.1),
        select(vec![PodsSeen::No, PodsSeen::Left, PodsSeen::Gone]),
    )
        .prop_map(|(facts, slot, slot_elsewhere, is_guest, pods)| Given {
            name: String::new(),
            facts,
            slot,
            slot_elsewhere,
            is_guest,
            pods,
        })
}

fn situation() -> impl Strategy<Value = Situation> {
    let limit = prop_oneof![Just(Limit::None), (0..4_usize).prop_map(Limit::AtMost)];
    let rules = (prop::bool::weighted(0.1), prop::bool::weighted(0.1), any::<bool>());
    (limit, rules, collection::vec(given(), 0..7)).prop_map(
        |(limit, (is_disabled, is_single_node, gives_up), mut nodes)| {
            for (number, node) in nodes.iter_mut().enumerate() {
                node.name = format!("n{number}");
            }
            let on_timeout = if gives_up { OnTimeout::Release } else { OnTimeout::Wait };
            let rules = Rules { is_disabled, is_single_node, timeout_seconds: Some(0), on_timeout };
            Situation { limit, rules, nodes }
        },
    )
}

impl Situation {
    fn plan(&self) -> DrainPlan {
        let slot = |node: &Given| node.slot.map(|request| Slot { node: node.name.clone(), request });
        let mut slots: Vec<_> = self.nodes.iter().filter_map(slot).collect();
        slots.sort();
        let pool = PoolDrain { limit: self.limit, slots: &slots, rules: self.rules };
        plan_drain(&pool, &self.nodes.iter().map(Given::member).collect::<Vec<_>>(), NOW)
    }

    fn node(&self, name: &str) -> &Given {
        self.nodes.iter().find(|node| node.name == name).unwrap()
    }
}

impl Given {
    fn member(&self) -> Member<'_> {
        Member {
            name: &self.name,
            facts: &self.facts,
            is_guest: self.is_guest,
            slot_elsewhere: self.slot_elsewhere,
            pods: self.pods,
            mcp: None,
        }
    }

    fn is_waiting(&self, rules: &Rules) -> bool {
        turn(&self.member(), rules, NOW).is_some()
    }
}

proptest! {
    #![proptest_config(crate::config(4_000))]

    /// Also when there were too many before.
    #[test]
    fn no_grant_brings_a_pool_above_its_limit(situation in situation()) {
        let planned = situation.plan().slots;
        if let (Limit::AtMost(most), false) = (situation.limit, planned.granted.is_empty()) {
            prop_assert!(planned.slots.len() <= most, "{planned:?}");
        }
    }

    #[test]
    fn who_is_in_flight_or_marked_is_listed(situation in situation()) {
        let planned = situation.plan().slots;
        for node in situation.nodes.iter().filter(|node| holds_slot(&node.facts) && !node.is_guest) {
            let is_listed = planned.slots.iter().any(|slot| slot.node == node.name);
            prop_assert!(is_listed || planned.verify.contains(&node.name), "{node:?} {planned:?}");
        }
        prop_assert!(planned.slots.is_sorted_by(|one, other| one.node < other.node));
    }

    #[test]
    fn slots_go_to_those_who_wait_and_none_is_left_free(situation in situation()) {
        let planned = situation.plan().slots;
        for name in &planned.granted {
            prop_assert!(situation.node(name).is_waiting(&situation.rules), "{name}");
        }
        let is_left = |node: &&Given| {
            node.is_waiting(&situation.rules) && planned.slots.iter().all(|slot| slot.node != node.name)
        };
        if planned.verify.is_empty() && situation.limit.free(planned.slots.len()) > 0 {
            prop_assert_eq!(situation.nodes.iter().find(is_left).map(|node| &node.name), None);
        }
    }

    #[test]
    fn those_who_neither_hold_nor_wait_change_nothing_for_others(situation in situation()) {
        let whole = situation.plan();
        let counts = |node: &Given| {
            node.slot.is_some() || holds_slot(&node.facts) || node.slot_elsewhere.is_some() || node.is_waiting(&situation.rules)
        };
        let without = Situation {
            nodes: situation.nodes.iter().filter(|node| counts(node)).cloned().collect(),
            ..situation.clone()
        };
        let left: Vec<_> = situation.nodes.iter().zip(&whole.actions).filter(|(node, _)| counts(node)).collect();
        let planned = without.plan();
        prop_assert_eq!(planned.slots, whole.slots);
        prop_assert!(left.into_iter().map(|(_, action)| *action).eq(planned.actions));
    }

    #[test]
    fn the_order_in_which_nodes_are_given_does_not_matter(situation in situation()) {
        let whole = situation.plan();
        let turned = Situation { nodes: situation.nodes.iter().rev().cloned().collect(), ..situation }.plan();
        prop_assert_eq!((turned.slots.slots, turned.slots.granted), (whole.slots.slots, whole.slots.granted));
        prop_assert!(turned.actions.into_iter().rev().eq(whole.actions));
    }

    #[test]
    fn no_drain_begins_without_a_slot_and_no_cordon_without_a_drain(situation in situation()) {
        for (node, action) in situation.nodes.iter().zip(situation.plan().actions) {
            let state = node.facts.state;
            match action {
                NodeAction::Set { status, request, puts_right: false, .. } if is_in_flight(status) => {
                    let state = state.unwrap();
                    prop_assert_eq!(request, state.request);
                    let is_granted = request.is_some() && node.slot == request;
                    prop_assert!(is_granted || is_in_flight(state.status), "{:?}", node);
                }
                NodeAction::Cordon(mark) => {
                    let state = state.unwrap();
                    let is_its_time = matches!(state.status, DrainStatus::Draining | DrainStatus::DrainingComplete);
                    prop_assert!(is_its_time && state.writer == Writer::Operator);
                    prop_assert_eq!(Some(mark.request), state.request);
                    prop_assert!(node.facts.node.unwrap().last_request < state.request);
                }
                _ => {}
            }
        }
    }
}
