//! What a replica sees, and when.

use vfleet_api::node_state::DrainStatus;
use vfleet_plan::drain::{DrainFacts, Moment, StateFacts};

use crate::world::{NODES, Objects, POOLS, Replica, Verified, Write};

/// What a replica sees change at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Everything; and what it reads again, it reads at one time.
    Whole,
    /// All objects of a kind.
    Kind,
    /// One object.
    Object,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    All,
    Nodes,
    States,
    Pools,
    Node(usize),
    State(usize),
    Pool(usize),
}

impl Replica {
    /// It begins, and reads everything.
    pub(crate) fn new(api: &Objects, crashes_left: u8) -> Self {
        Self {
            sees: *api,
            nodes_current: [true; NODES],
            states_current: [true; NODES],
            pools_current: [true; POOLS],
            verified: [Verified::No; NODES],
            pods: [None; NODES],
            crashes_left,
        }
    }

    pub(crate) fn sees_node(&mut self, api: &Objects, node: usize) {
        self.sees.nodes[node] = api.nodes[node];
        self.nodes_current[node] = true;
    }

    pub(crate) fn sees_state(&mut self, api: &Objects, node: usize) {
        self.sees.states[node] = api.states[node];
        self.states_current[node] = true;
        self.forget_pods(node);
    }

    /// Pods are looked at only while a node is drained.
    fn forget_pods(&mut self, node: usize) {
        let is_draining = |state: StateFacts| state.status == DrainStatus::Draining;
        let request =
            self.sees.states[node].filter(|state| is_draining(*state)).and_then(|state| state.request);
        self.pods[node].take_if(|(looked_for, _)| Some(*looked_for) != request);
    }

    pub(crate) fn sees_pool(&mut self, api: &Objects, pool: usize) {
        self.sees.pools[pool] = api.pools[pool];
        self.pools_current[pool] = true;
        self.verified = [Verified::No; NODES];
    }

    pub(crate) fn facts(&self, node: usize) -> DrainFacts {
        DrainFacts {
            node: Some(self.sees.nodes[node].facts),
            state: self.sees.states[node],
            is_verified: self.verified[node] == Verified::Both,
        }
    }

    /// Whether a write to that object would be on top of its newest version.
    pub(crate) fn is_current(&self, write: &Write) -> bool {
        match *write {
            Write::Node(node, _) => self.nodes_current[node],
            Write::State(node, _) => self.states_current[node],
            Write::Slots(pool, _) => self.pools_current[pool],
        }
    }

    pub(crate) fn request(&self, node: usize) -> Moment {
        self.sees.states[node].and_then(|state| state.request).unwrap_or_default()
    }

    /// What is there to see that is not seen yet.
    pub(crate) fn sights(&self, sight: Sight, nodes: usize, mut each: impl FnMut(Seen)) {
        let is_old = |current: &[bool]| current.contains(&false);
        let old = [is_old(&self.nodes_current), is_old(&self.states_current), is_old(&self.pools_current)];
        match sight {
            Sight::Whole if old.contains(&true) => each(Seen::All),
            Sight::Whole => {}
            Sight::Kind => {
                let kinds = [Seen::Nodes, Seen::States, Seen::Pools].into_iter().zip(old);
                kinds.filter(|(_, is_old)| *is_old).for_each(|(kind, _)| each(kind));
            }
            Sight::Object => {
                let old = |current: &[bool], index: usize| !current[index];
                (0..nodes)
                    .filter(|node| old(&self.nodes_current, *node))
                    .for_each(|node| each(Seen::Node(node)));
                (0..nodes)
                    .filter(|node| old(&self.states_current, *node))
                    .for_each(|node| each(Seen::State(node)));
                (0..POOLS)
                    .filter(|pool| old(&self.pools_current, *pool))
                    .for_each(|pool| each(Seen::Pool(pool)));
            }
        }
    }

    pub(crate) fn see(&mut self, api: &Objects, seen: Seen) {
        match seen {
            Seen::All => {
                for kind in [Seen::Nodes, Seen::States, Seen::Pools] {
                    self.see(api, kind);
                }
            }
            Seen::Nodes => (0..NODES).for_each(|node| self.see(api, Seen::Node(node))),
            Seen::States => (0..NODES).for_each(|node| self.see(api, Seen::State(node))),
            Seen::Pools => (0..POOLS).for_each(|pool| self.see(api, Seen::Pool(pool))),
            Seen::Node(node) => {
                self.sees_node(api, node);
                self.verified[node] = Verified::No;
            }
            Seen::State(node) => {
                self.sees_state(api, node);
                self.verified[node] = Verified::No;
            }
            Seen::Pool(pool) => self.sees_pool(api, pool),
        }
    }

    /// Reads first the Node and then the node state.
    pub(crate) fn verify(&mut self, api: &Objects, node: usize, sight: Sight) {
        let has_node = self.verified[node] == Verified::Node;
        if !has_node {
            self.sees_node(api, node);
            self.verified[node] = Verified::Node;
        }
        if has_node || sight == Sight::Whole {
            self.sees_state(api, node);
            self.verified[node] = Verified::Both;
        }
    }
}
