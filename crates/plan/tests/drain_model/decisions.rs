//! Decisions of `vfleet_plan::drain` on the observed objects of a replica.

use vfleet_api::node_state::DrainStatus;
use vfleet_api::pool_config::OnTimeout;
use vfleet_plan::drain::{
    DrainFacts, DrainLimit, DrainRules, Moment, NodeAction, NodeFacts, PodsState, PoolDrain, PoolMember,
    Slot, SlotPlan, StateFacts, StatusWriter, next_action, plan_drain,
};

use crate::bugs::Bug;
use crate::model::{NODES, Objects, POOLS, Replica, Slots, Write};

pub(crate) const NAMES: [&str; NODES] = ["n0", "n1", "n2"];
const LIMIT: DrainLimit = DrainLimit::AtMost(1);
const RULES: DrainRules = DrainRules {
    is_disabled: false,
    is_single_node: false,
    timeout_seconds: Some(900),
    on_timeout: OnTimeout::Release,
};

/// Action of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaAction {
    Write(Write),
    /// Read the objects of this node from the API server.
    Verify(usize),
    /// List and evict the pods of this node.
    Evict(usize),
}

impl Replica {
    /// Calls `each` with every action that this replica would take now.
    pub(crate) fn planned_actions(
        &self,
        nodes: usize,
        bug: Bug,
        now: Moment,
        mut each: impl FnMut(ReplicaAction),
    ) {
        let facts: [DrainFacts; NODES] = std::array::from_fn(|node| bug.distort(self.facts(node)));
        let lists: [Vec<Slot>; POOLS] = std::array::from_fn(|pool| list(&self.observed.pools[pool]));
        let slot_facts = facts.map(|facts| bug.distort_for_slots(facts));
        for (pool, listed) in lists.iter().enumerate() {
            let members = (0..nodes).filter(|node| self.is_member(*node, pool));
            let members: Vec<_> = members.map(|node| self.member(node, pool, &slot_facts[node])).collect();
            let drain = PoolDrain { limit: LIMIT, slots: listed, rules: RULES };
            let plan = plan_drain(&drain, &members, now).slots;
            self.slot_actions(pool, &bug.distort_slots(plan, listed), &mut each);
        }
        for (node, facts) in facts.iter().enumerate().take(nodes) {
            let pool = self.observed.nodes[node].pool;
            let drain = PoolDrain { limit: LIMIT, slots: &lists[pool], rules: RULES };
            let action = next_action(&drain, &self.member(node, pool, facts), now);
            if let Some(action) = self.replica_action_for(node, bug.distort_action(action), now) {
                each(action);
            }
        }
    }

    fn is_member(&self, node: usize, pool: usize) -> bool {
        self.observed.nodes[node].pool == pool || self.observed.pools[pool][node].is_some()
    }

    fn member<'a>(&self, node: usize, pool: usize, facts: &'a DrainFacts) -> PoolMember<'a> {
        let request = self.observed.states[node].and_then(|state| state.request);
        PoolMember {
            name: NAMES[node],
            facts,
            is_former_member: self.observed.nodes[node].pool != pool,
            slot_in_other_pool: self.observed.pools[1 - pool][node],
            pods: match self.pods[node] {
                Some((listed_for, is_gone)) if Some(listed_for) == request => {
                    if is_gone {
                        PodsState::Gone
                    } else {
                        PodsState::Remaining
                    }
                }
                _ => PodsState::Unknown,
            },
            mcp: None,
        }
    }

    fn slot_actions(&self, pool: usize, plan: &SlotPlan, each: &mut impl FnMut(ReplicaAction)) {
        let slots = unlist(&plan.slots);
        if slots != self.observed.pools[pool] {
            each(ReplicaAction::Write(Write::Slots(pool, slots)));
        }
        for name in &plan.verify {
            each(ReplicaAction::Verify(index(name)));
        }
        for slot in &plan.conclude {
            let node = index(&slot.node);
            let facts = NodeFacts { last_request: Some(slot.request), ..self.observed.nodes[node].facts };
            each(ReplicaAction::Write(Write::Node(node, facts)));
        }
    }

    fn replica_action_for(&self, node: usize, action: NodeAction, now: Moment) -> Option<ReplicaAction> {
        let Objects { nodes, states, .. } = &self.observed;
        let facts = nodes[node].facts;
        Some(match action {
            NodeAction::SetStatus { status, retry, request, .. } => {
                let state = states[node]?;
                let since = |is_it: bool, before| if is_it { Some(now) } else { before };
                let state = StateFacts {
                    status,
                    retry,
                    request,
                    writer: StatusWriter::Operator,
                    draining_since: since(status == DrainStatus::Draining, state.draining_since),
                    completed_at: since(status == DrainStatus::DrainingComplete, state.completed_at),
                    ..state
                };
                ReplicaAction::Write(Write::State(node, state))
            }
            NodeAction::Cordon(mark) => ReplicaAction::Write(Write::Node(
                node,
                NodeFacts { is_cordoned: true, mark: Some(mark), ..facts },
            )),
            NodeAction::Uncordon { request, stays_cordoned } => {
                let is_cordoned = facts.is_cordoned && stays_cordoned;
                let last_request = Some(request);
                ReplicaAction::Write(Write::Node(
                    node,
                    NodeFacts { is_cordoned, mark: None, last_request, ..facts },
                ))
            }
            NodeAction::Verify => ReplicaAction::Verify(node),
            NodeAction::Evict { .. } => ReplicaAction::Evict(node),
            NodeAction::None | NodeAction::Hold(_) | NodeAction::PauseMcp | NodeAction::UnpauseMcp => None?,
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
