//! The API server's objects, those who write them, and what each of them sees.

use std::hash::{Hash, Hasher};

use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_plan::drain::{Moment, NodeFacts, StateFacts, Writer};

/// The most nodes that a model has.
pub(crate) const NODES: usize = 3;
/// Nodes 0 and 1 are in the first, node 2 is in the second.
pub(crate) const POOLS: usize = 2;
const HOUR: i64 = 3600;

/// What may happen besides, and how often at most. Part of the state, so that every run ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Budget {
    /// An agent is killed in the middle of its work.
    pub(crate) agent_crashes: u8,
    /// A node needs no drain any more.
    pub(crate) withdrawals: u8,
    /// A node needs a full drain instead of a partial one.
    pub(crate) escalations: u8,
    /// A node needs a drain once more.
    pub(crate) wishes: u8,
    /// A pod comes to a node that is not cordoned.
    pub(crate) pods: u8,
    /// A write is on its way for a while; its sender goes on, or dies.
    pub(crate) late_writes: u8,
    /// A node state is deleted. It is made again.
    pub(crate) deletions: u8,
    /// Node 1 becomes a member of the other pool.
    pub(crate) moves: u8,
    /// An hour passes: longer than a drain may take.
    pub(crate) hours: u8,
}

/// A Node, and the pool that its labels choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    pub(crate) facts: NodeFacts,
    pub(crate) pool: usize,
}

/// For each node, the request that a pool lists it for.
pub(crate) type Slots = [Option<Moment>; NODES];

/// The objects, as the API server has them or a replica sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Objects {
    pub(crate) nodes: [Node; NODES],
    pub(crate) states: [Option<StateFacts>; NODES],
    pub(crate) pools: [Slots; POOLS],
}

/// A write of a replica to one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Write {
    Node(usize, NodeFacts),
    State(usize, StateFacts),
    Slots(usize, Slots),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Pod {
    None,
    Running,
    Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Agent {
    /// What its work needs; `None` when there is none.
    pub(crate) need: Option<DrainScope>,
    /// It is in the middle of it.
    pub(crate) works: bool,
}

/// How far a replica is with reading both objects of a node from the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verified {
    No,
    Node,
    Both,
}

/// A replica of the operator. Any of them may act at any time: whether it leads is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Replica {
    pub(crate) sees: Objects,
    /// For each object, whether it is still as seen: only then a write on top of it succeeds.
    pub(crate) nodes_current: [bool; NODES],
    pub(crate) states_current: [bool; NODES],
    pub(crate) pools_current: [bool; POOLS],
    pub(crate) verified: [Verified; NODES],
    /// The request for which the pods were looked at, and whether all were gone.
    pub(crate) pods: [Option<(Moment, bool)>; NODES],
    pub(crate) crashes_left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct World {
    pub(crate) api: Objects,
    pub(crate) pods: [Pod; NODES],
    pub(crate) agents: [Agent; NODES],
    pub(crate) replicas: [Replica; 2],
    /// A write that is on its way. Lost when its object changes before.
    pub(crate) late: Option<Write>,
    pub(crate) hours: u8,
    /// How much the agents' clocks are ahead. Changes with a deletion: a request is never named just as a forgotten one,
    /// but may be before it when a clock is set back.
    pub(crate) clocks_ahead: i64,
    pub(crate) budget: Budget,
    /// Nodes that came to their pool by a move. They may be too many there, which no grant has brought about.
    pub(crate) moved: [bool; NODES],
    /// An operator wrote over `Idle`.
    pub(crate) overwrote: bool,
    /// Nothing happens any more unless something else goes wrong.
    pub(crate) at_rest: bool,
}

impl World {
    /// Each of so many nodes needs a drain.
    pub(crate) fn new(nodes: usize, finds_cordon: bool, replica_crashes: u8, budget: Budget) -> Self {
        let facts = |node: usize| NodeFacts {
            is_ready: true,
            is_cordoned: finds_cordon && node == 0,
            ..NodeFacts::default()
        };
        let api = Objects {
            nodes: std::array::from_fn(|node| Node { facts: facts(node), pool: usize::from(node >= 2) }),
            states: [Some(StateFacts::default()); NODES],
            pools: [Slots::default(); POOLS],
        };
        let need = |node| (node < nodes).then_some(DrainScope::Partial);
        Self {
            api,
            pods: [Pod::Running; NODES],
            agents: std::array::from_fn(|node| Agent { need: need(node), works: false }),
            replicas: [Replica::new(&api, replica_crashes); 2],
            late: None,
            hours: 0,
            clocks_ahead: 0,
            budget,
            moved: [false; NODES],
            overwrote: false,
            at_rest: false,
        }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(0).plus_seconds(HOUR * i64::from(self.hours))
    }

    pub(crate) fn agents_now(&self) -> Moment {
        Moment(self.now().0 + self.clocks_ahead)
    }

    /// A replica's write, or one whose sender does not know of its success.
    pub(crate) fn write(&mut self, write: Write, by: Option<usize>) {
        match write {
            Write::Node(node, facts) => self.set_node(node, Node { facts, ..self.api.nodes[node] }, by),
            Write::State(node, state) => {
                let old = self.api.states[node].map(|state| state.status);
                self.overwrote |= old == Some(DrainStatus::Idle) && state.writer == Writer::Operator;
                self.set_state(node, Some(state), by);
            }
            Write::Slots(pool, slots) => self.set_slots(pool, slots, by),
        }
        for (node, moved) in self.moved.iter_mut().enumerate() {
            let is_listed = self.api.pools.iter().any(|pool| pool[node].is_some());
            let is_known = self.replicas.iter().all(|replica| replica.nodes_current[node]);
            *moved &= is_listed || !is_known || self.api.occupies(node);
        }
    }

    pub(crate) fn set_node(&mut self, node: usize, object: Node, by: Option<usize>) {
        self.api.nodes[node] = object;
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            replica.nodes_current[node] = Some(index) == by;
            if Some(index) == by {
                replica.sees.nodes[node] = object;
            }
        }
        self.late.take_if(|late| matches!(late, Write::Node(other, _) if *other == node));
    }

    pub(crate) fn set_state(&mut self, node: usize, state: Option<StateFacts>, by: Option<usize>) {
        self.api.states[node] = state;
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            replica.states_current[node] = false;
            if Some(index) == by {
                replica.sees_state(&self.api, node);
            }
        }
        self.late.take_if(|late| matches!(late, Write::State(other, _) if *other == node));
    }

    fn set_slots(&mut self, pool: usize, slots: Slots, by: Option<usize>) {
        self.api.pools[pool] = slots;
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            replica.pools_current[pool] = false;
            if Some(index) == by {
                replica.sees_pool(&self.api, pool);
            }
        }
        self.late.take_if(|late| matches!(late, Write::Slots(other, _) if *other == pool));
    }
}

impl Objects {
    /// Whether a node is not as it usually is, by our doing.
    pub(crate) fn occupies(&self, node: usize) -> bool {
        let is_in_flight = |state: &StateFacts| vfleet_plan::drain::is_in_flight(state.status);
        self.nodes[node].facts.mark.is_some() || self.states[node].as_ref().is_some_and(is_in_flight)
    }
}

/// It does not matter which replica is which.
impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let [one, other] = &self.replicas;
        (one.min(other), one.max(other)).hash(hasher);
        (&self.api, self.pods, self.agents, self.late, self.hours, self.clocks_ahead, self.budget)
            .hash(hasher);
        (self.moved, self.overwrote, self.at_rest).hash(hasher);
    }
}
