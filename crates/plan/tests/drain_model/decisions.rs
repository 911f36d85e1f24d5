//! What a replica would do now: the product's decisions on what it sees.

use vfleet_api::node_state::DrainStatus;
use vfleet_api::pool_config::OnTimeout;
use vfleet_plan::drain::{
    DrainFacts, Limit, Member, Moment, NodeAction, NodeFacts, PodsSeen, PoolDrain, Rules, Slot, SlotPlan,
    StateFacts, Writer, next, plan_drain,
};

use crate::bugs::Bug;
use crate::world::{NODES, Objects, POOLS, Replica, Slots, Write};

pub(crate) const NAMES: [&str; NODES] = ["n0", "n1", "n2"];
const LIMIT: Limit = Limit::AtMost(1);
const RULES: Rules = Rules {
    is_disabled: false,
    is_single_node: false,
    timeout_seconds: Some(900),
    on_timeout: OnTimeout::Release,
};

/// What a replica would do, of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Write(Write),
    /// Read the objects of this node from the API server.
    Verify(usize),
    /// Look after the pods of this node, and evict them.
    Evict(usize),
}

impl Replica {
    /// All that this replica would do now.
    pub(crate) fn deeds(&self, nodes: usize, bug: Bug, now: Moment, mut each: impl FnMut(Deed)) {
        let facts: [DrainFacts; NODES] = std::array::from_fn(|node| bug.distort(self.facts(node)));
        let lists: [Vec<Slot>; POOLS] = std::array::from_fn(|pool| list(&self.sees.pools[pool]));
        let slot_facts = facts.map(|facts| bug.distort_for_slots(facts));
        for (pool, listed) in lists.iter().enumerate() {
            let members = (0..nodes).filter(|node| self.is_member(*node, pool));
            let members: Vec<_> = members.map(|node| self.member(node, pool, &slot_facts[node])).collect();
            let drain = PoolDrain { limit: LIMIT, slots: listed, rules: RULES };
            let plan = plan_drain(&drain, &members, now).slots;
            self.slot_deeds(pool, &bug.distort_slots(plan, listed), &mut each);
        }
        for (node, facts) in facts.iter().enumerate().take(nodes) {
            let pool = self.sees.nodes[node].pool;
            let drain = PoolDrain { limit: LIMIT, slots: &lists[pool], rules: RULES };
            let action = next(&drain, &self.member(node, pool, facts), now);
            if let Some(deed) = self.deed(node, bug.distort_action(action), now) {
                each(deed);
            }
        }
    }

    fn is_member(&self, node: usize, pool: usize) -> bool {
        self.sees.nodes[node].pool == pool || self.sees.pools[pool][node].is_some()
    }

    fn member<'a>(&self, node: usize, pool: usize, facts: &'a DrainFacts) -> Member<'a> {
        let request = self.sees.states[node].and_then(|state| state.request);
        Member {
            name: NAMES[node],
            facts,
            is_guest: self.sees.nodes[node].pool != pool,
            slot_elsewhere: self.sees.pools[1 - pool][node],
            pods: match self.pods[node] {
                Some((looked_for, is_gone)) if Some(looked_for) == request => {
                    if is_gone {
                        PodsSeen::Gone
                    } else {
                        PodsSeen::Left
                    }
                }
                _ => PodsSeen::No,
            },
            mcp: None,
        }
    }

    fn slot_deeds(&self, pool: usize, plan: &SlotPlan, each: &mut impl FnMut(Deed)) {
        let slots = unlist(&plan.slots);
        if slots != self.sees.pools[pool] {
            each(Deed::Write(Write::Slots(pool, slots)));
        }
        for name in &plan.verify {
            each(Deed::Verify(index(name)));
        }
        for slot in &plan.conclude {
            let node = index(&slot.node);
            let facts = NodeFacts { last_request: Some(slot.request), ..self.sees.nodes[node].facts };
            each(Deed::Write(Write::Node(node, facts)));
        }
    }

    fn deed(&self, node: usize, action: NodeAction, now: Moment) -> Option<Deed> {
        let Objects { nodes, states, .. } = &self.sees;
        let facts = nodes[node].facts;
        Some(match action {
            NodeAction::Set { status, retry, request, .. } => {
                let state = states[node]?;
                let since = |is_it: bool, before| if is_it { Some(now) } else { before };
                let state = StateFacts {
                    status,
                    retry,
                    request,
                    writer: Writer::Operator,
                    draining_since: since(status == DrainStatus::Draining, state.draining_since),
                    completed_at: since(status == DrainStatus::DrainingComplete, state.completed_at),
                    ..state
                };
                Deed::Write(Write::State(node, state))
            }
            NodeAction::Cordon(mark) => {
                Deed::Write(Write::Node(node, NodeFacts { is_cordoned: true, mark: Some(mark), ..facts }))
            }
            NodeAction::Uncordon { request, stays_cordoned } => {
                let is_cordoned = facts.is_cordoned && stays_cordoned;
                let last_request = Some(request);
                Deed::Write(Write::Node(node, NodeFacts { is_cordoned, mark: None, last_request, ..facts }))
            }
            NodeAction::Verify => Deed::Verify(node),
            NodeAction::Evict { .. } => Deed::Evict(node),
            NodeAction::Rest | NodeAction::Wait(_) | NodeAction::PauseMcp | NodeAction::UnpauseMcp => None?,
        })
    }
}

fn list(slots: &Slots) -> Vec<Slot> {
    let listed = slots.iter().zip(NAMES);
    listed.filter_map(|(slot, name)| slot.map(|request| Slot { node: name.to_owned(), request })).collect()
}

fn unlist(list: &[Slot]) -> Slots {
    let mut slots = Slots::default();
    for slot in list {
        slots[index(&slot.node)] = Some(slot.request);
    }
    slots
}

fn index(name: &str) -> usize {
    NAMES.iter().position(|known| *known == name).unwrap()
}
