//! State of the model: objects of the API server, agents, and replicas with their observed objects.

use std::hash::{Hash, Hasher};

use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_plan::drain::{Moment, NodeFacts, StateFacts, StatusWriter};

/// Maximum number of nodes.
pub(crate) const NODES: usize = 3;
/// Nodes 0 and 1 belong to the first pool, node 2 to the second.
pub(crate) const POOLS: usize = 2;
const HOUR: i64 = 3600;

/// Number of disturbances that may still happen. Part of the state, so that every run ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Budget {
    /// An agent is killed while it configures the machine.
    pub(crate) agent_crashes: u8,
    /// A node needs no drain any more.
    pub(crate) withdrawals: u8,
    /// A node needs a full drain instead of a partial one.
    pub(crate) escalations: u8,
    /// A node needs another drain.
    pub(crate) new_requests: u8,
    /// A pod is scheduled to a node that is not cordoned.
    pub(crate) pods: u8,
    /// A write is delayed while its sender continues or crashes.
    pub(crate) late_writes: u8,
    /// A node state is deleted and created again.
    pub(crate) deletions: u8,
    /// Node 1 moves to the other pool.
    pub(crate) moves: u8,
    /// An hour passes, longer than the timeout of a drain.
    pub(crate) hours: u8,
}

/// Node with the pool that its labels select.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    pub(crate) facts: NodeFacts,
    pub(crate) pool: usize,
}

/// Slots of a pool: the request for each node.
pub(crate) type Slots = [Option<Moment>; NODES];

/// Objects of the API server, or as a replica observed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Objects {
    pub(crate) nodes: [Node; NODES],
    pub(crate) states: [Option<StateFacts>; NODES],
    pub(crate) pools: [Slots; POOLS],
}

/// Write of a replica to one object.
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
    Terminating,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Agent {
    /// Scope that its plan needs; `None` without a plan.
    pub(crate) needed: Option<DrainScope>,
    /// The agent configures the machine.
    pub(crate) is_busy: bool,
}

/// Objects of a node that a replica has read from the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verified {
    No,
    Node,
    Both,
}

/// Replica of the operator. Every replica may act at any time, as if it led.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Replica {
    pub(crate) observed: Objects,
    /// For each object, whether the observed version is current: only then a write succeeds.
    pub(crate) nodes_current: [bool; NODES],
    pub(crate) states_current: [bool; NODES],
    pub(crate) pools_current: [bool; POOLS],
    pub(crate) verified: [Verified; NODES],
    /// Request for which the pods were listed, and whether all were gone.
    pub(crate) pods: [Option<(Moment, bool)>; NODES],
    pub(crate) crashes_left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelState {
    pub(crate) api: Objects,
    pub(crate) pods: [Pod; NODES],
    pub(crate) agents: [Agent; NODES],
    pub(crate) replicas: [Replica; 2],
    /// Delayed write. Lost if its object changes before.
    pub(crate) late: Option<Write>,
    pub(crate) hours: u8,
    /// Offset of the agents' clocks. Changes with a deletion, so that a request never has the time of a forgotten one,
    /// but may have an earlier one if clocks are set back.
    pub(crate) clocks_ahead: i64,
    pub(crate) budget: Budget,
    /// Nodes that moved to their pool. They may exceed its limit without any grant.
    pub(crate) moved: [bool; NODES],
    /// An operator has overwritten `Idle`.
    pub(crate) overwrote: bool,
    /// No action is left except disturbances.
    pub(crate) is_final: bool,
}

impl ModelState {
    /// Creates the state in which each of `nodes` nodes needs a drain.
    pub(crate) fn new(
        nodes: usize,
        has_preexisting_cordon: bool,
        replica_crashes: u8,
        budget: Budget,
    ) -> Self {
        let facts = |node: usize| NodeFacts {
            is_ready: true,
            is_cordoned: has_preexisting_cordon && node == 0,
            ..NodeFacts::default()
        };
        let api = Objects {
            nodes: std::array::from_fn(|node| Node { facts: facts(node), pool: usize::from(node >= 2) }),
            states: [Some(StateFacts::default()); NODES],
            pools: [Slots::default(); POOLS],
        };
        let needed = |node| (node < nodes).then_some(DrainScope::Partial);
        Self {
            api,
            pods: [Pod::Running; NODES],
            agents: std::array::from_fn(|node| Agent { needed: needed(node), is_busy: false }),
            replicas: [Replica::new(&api, replica_crashes); 2],
            late: None,
            hours: 0,
            clocks_ahead: 0,
            budget,
            moved: [false; NODES],
            overwrote: false,
            is_final: false,
        }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(0).plus_seconds(HOUR * i64::from(self.hours))
    }

    pub(crate) fn agents_now(&self) -> Moment {
        Moment(self.now().0 + self.clocks_ahead)
    }

    /// Executes a write of replica `by`, or a delayed one whose sender does not learn the result.
    pub(crate) fn write(&mut self, write: Write, by: Option<usize>) {
        match write {
            Write::Node(node, facts) => self.set_node(node, Node { facts, ..self.api.nodes[node] }, by),
            Write::State(node, state) => {
                let old = self.api.states[node].map(|state| state.status);
                self.overwrote |= old == Some(DrainStatus::Idle) && state.writer == StatusWriter::Operator;
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
                replica.observed.nodes[node] = object;
            }
        }
        self.late.take_if(|late| matches!(late, Write::Node(other, _) if *other == node));
    }

    pub(crate) fn set_state(&mut self, node: usize, state: Option<StateFacts>, by: Option<usize>) {
        self.api.states[node] = state;
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            replica.states_current[node] = false;
            if Some(index) == by {
                replica.read_state(&self.api, node);
            }
        }
        self.late.take_if(|late| matches!(late, Write::State(other, _) if *other == node));
    }

    fn set_slots(&mut self, pool: usize, slots: Slots, by: Option<usize>) {
        self.api.pools[pool] = slots;
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            replica.pools_current[pool] = false;
            if Some(index) == by {
                replica.read_pool(&self.api, pool);
            }
        }
        self.late.take_if(|late| matches!(late, Write::Slots(other, _) if *other == pool));
    }
}

impl Objects {
    /// Returns whether a node is marked or being drained.
    pub(crate) fn occupies(&self, node: usize) -> bool {
        let is_in_flight = |state: &StateFacts| vfleet_plan::drain::is_in_flight(state.status);
        self.nodes[node].facts.mark.is_some() || self.states[node].as_ref().is_some_and(is_in_flight)
    }
}

/// Replicas are interchangeable.
impl Hash for ModelState {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let [one, other] = &self.replicas;
        (one.min(other), one.max(other)).hash(hasher);
        (&self.api, self.pods, self.agents, self.late, self.hours, self.clocks_ahead, self.budget)
            .hash(hasher);
        (self.moved, self.overwrote, self.is_final).hash(hasher);
    }
}
