//! Slot queue of a pool: nodes that hold a slot or wait for one.

use std::collections::{BTreeMap, BTreeSet};

use vfleet_plan::drain::{DrainLimit, Moment, SlotPriority};

/// Nodes of one pool with their slot states. The cost of an update does not grow linearly with the number of nodes.
#[derive(Debug, Default)]
pub(super) struct SlotQueue {
    /// All nodes of the pool.
    nodes: BTreeMap<String, SlotState>,
    holders: BTreeSet<String>,
    waiting: BTreeSet<(QueuePosition, String)>,
}

/// Slot state of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// The node needs no slot.
    Idle,
    /// The node has a slot or must have one.
    Holds,
    /// The node waits for a slot.
    Waits(QueuePosition),
}

/// Priority of a waiting node without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePosition {
    is_serving: bool,
    requested_at: Moment,
    request: Moment,
}

impl From<SlotPriority<'_>> for SlotState {
    fn from(priority: SlotPriority<'_>) -> Self {
        let SlotPriority { is_serving, requested_at, request, .. } = priority;
        Self::Waits(QueuePosition { is_serving, requested_at, request })
    }
}

impl SlotQueue {
    /// Returns the number of nodes of the pool.
    pub(super) fn total(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of waiting nodes.
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether the node waits for a slot.
    pub(super) fn is_waiting(&self, node: &str) -> bool {
        matches!(self.nodes.get(node), Some(SlotState::Waits(_)))
    }

    /// Returns the waiting nodes, the next one first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &str> {
        self.waiting.iter().map(|(_, node)| node.as_str())
    }

    /// Returns the nodes that hold a slot or must have one.
    pub(super) fn holders(&self) -> impl Iterator<Item = &str> {
        self.holders.iter().map(String::as_str)
    }

    /// Returns the nodes that matter for a slot plan: all holders, and as many waiting nodes as could get a slot.
    pub(super) fn candidates(&self, limit: DrainLimit) -> impl Iterator<Item = &str> {
        self.holders().chain(self.waiting().take(limit.free(0)))
    }

    /// Sets the slot state of a node, `None` to remove it from the pool. Returns the previous state.
    pub(super) fn set(&mut self, node: &str, state: Option<SlotState>) -> Option<SlotState> {
        let old = self.nodes.remove(node);
        match &old {
            Some(SlotState::Holds) => drop(self.holders.remove(node)),
            Some(SlotState::Waits(position)) => drop(self.waiting.remove(&(*position, node.to_owned()))),
            Some(SlotState::Idle) | None => {}
        }
        if let Some(state) = state {
            match &state {
                SlotState::Holds => drop(self.holders.insert(node.to_owned())),
                SlotState::Waits(position) => drop(self.waiting.insert((*position, node.to_owned()))),
                SlotState::Idle => {}
            }
            self.nodes.insert(node.to_owned(), state);
        }
        old
    }
}
