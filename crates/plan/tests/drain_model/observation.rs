//! Observation of objects by replicas.

use vfleet_api::node_state::DrainStatus;
use vfleet_plan::drain::{DrainFacts, Moment, StateFacts};

use crate::model::{NODES, Objects, POOLS, Replica, Verified, Write};

/// Granularity at which a replica observes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchGranularity {
    /// All objects at once; verification also reads both objects at once.
    Whole,
    /// All objects of a kind.
    Kind,
    /// One object.
    Object,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    All,
    Nodes,
    States,
    Pools,
    Node(usize),
    State(usize),
    Pool(usize),
}

impl Replica {
    /// Starts a replica that has read all objects.
    pub(crate) fn new(api: &Objects, crashes_left: u8) -> Self {
        Self {
            observed: *api,
            nodes_current: [true; NODES],
            states_current: [true; NODES],
            pools_current: [true; POOLS],
            verified: [Verified::No; NODES],
            pods: [None; NODES],
            crashes_left,
        }
    }

    pub(crate) fn read_node(&mut self, api: &Objects, node: usize) {
        self.observed.nodes[node] = api.nodes[node];
        self.nodes_current[node] = true;
    }

    pub(crate) fn read_state(&mut self, api: &Objects, node: usize) {
        self.observed.states[node] = api.states[node];
        self.states_current[node] = true;
        self.forget_pods(node);
    }

    /// Forgets listed pods when the node is not drained for the same request any more.
    fn forget_pods(&mut self, node: usize) {
        let is_draining = |state: StateFacts| state.status == DrainStatus::Draining;
        let request =
            self.observed.states[node].filter(|state| is_draining(*state)).and_then(|state| state.request);
        self.pods[node].take_if(|(listed_for, _)| Some(*listed_for) != request);
    }

    pub(crate) fn read_pool(&mut self, api: &Objects, pool: usize) {
        self.observed.pools[pool] = api.pools[pool];
        self.pools_current[pool] = true;
        self.verified = [Verified::No; NODES];
    }

    pub(crate) fn facts(&self, node: usize) -> DrainFacts {
        DrainFacts {
            node: Some(self.observed.nodes[node].facts),
            state: self.observed.states[node],
            is_verified: self.verified[node] == Verified::Both,
        }
    }

    /// Returns whether a write carries the current version of its object.
    pub(crate) fn is_current(&self, write: &Write) -> bool {
        match *write {
            Write::Node(node, _) => self.nodes_current[node],
            Write::State(node, _) => self.states_current[node],
            Write::Slots(pool, _) => self.pools_current[pool],
        }
    }

    pub(crate) fn request(&self, node: usize) -> Moment {
        self.observed.states[node].and_then(|state| state.request).unwrap_or_default()
    }

    /// Returns the changes that the replica has not observed yet.
    pub(crate) fn pending_observations(
        &self,
        granularity: WatchGranularity,
        nodes: usize,
        mut each: impl FnMut(Observed),
    ) {
        let is_old = |current: &[bool]| current.contains(&false);
        let old = [is_old(&self.nodes_current), is_old(&self.states_current), is_old(&self.pools_current)];
        match granularity {
            WatchGranularity::Whole if old.contains(&true) => each(Observed::All),
            WatchGranularity::Whole => {}
            WatchGranularity::Kind => {
                let kinds = [Observed::Nodes, Observed::States, Observed::Pools].into_iter().zip(old);
                kinds.filter(|(_, is_old)| *is_old).for_each(|(kind, _)| each(kind));
            }
            WatchGranularity::Object => {
                let old = |current: &[bool], index: usize| !current[index];
                (0..nodes)
                    .filter(|node| old(&self.nodes_current, *node))
                    .for_each(|node| each(Observed::Node(node)));
                (0..nodes)
                    .filter(|node| old(&self.states_current, *node))
                    .for_each(|node| each(Observed::State(node)));
                (0..POOLS)
                    .filter(|pool| old(&self.pools_current, *pool))
                    .for_each(|pool| each(Observed::Pool(pool)));
            }
        }
    }

    pub(crate) fn observe(&mut self, api: &Objects, observed: Observed) {
        match observed {
            Observed::All => {
                for kind in [Observed::Nodes, Observed::States, Observed::Pools] {
                    self.observe(api, kind);
                }
            }
            Observed::Nodes => (0..NODES).for_each(|node| self.observe(api, Observed::Node(node))),
            Observed::States => (0..NODES).for_each(|node| self.observe(api, Observed::State(node))),
            Observed::Pools => (0..POOLS).for_each(|pool| self.observe(api, Observed::Pool(pool))),
            Observed::Node(node) => {
                self.read_node(api, node);
                self.verified[node] = Verified::No;
            }
            Observed::State(node) => {
                self.read_state(api, node);
                self.verified[node] = Verified::No;
            }
            Observed::Pool(pool) => self.read_pool(api, pool),
        }
    }

    /// Reads first the Node and then the node state.
    pub(crate) fn verify(&mut self, api: &Objects, node: usize, granularity: WatchGranularity) {
        let has_node = self.verified[node] == Verified::Node;
        if !has_node {
            self.read_node(api, node);
            self.verified[node] = Verified::Node;
        }
        if has_node || granularity == WatchGranularity::Whole {
            self.read_state(api, node);
            self.verified[node] = Verified::Both;
        }
    }
}
