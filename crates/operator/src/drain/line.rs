//! The nodes of one pool that hold a slot, and those that stand in line for one.

use std::collections::{BTreeMap, BTreeSet};

use vfleet_plan::drain::{Limit, Moment, Turn};

/// The nodes of one pool. What a node's change costs does not depend on how many others there are.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// All of its nodes, and what each of them is here for.
    places: BTreeMap<String, Place>,
    holders: BTreeSet<String>,
    waiting: BTreeSet<(WaitingTurn, String)>,
}

/// What a node is in its pool for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing now.
    Rests,
    /// It has a slot, or must have one.
    Holds,
    /// It waits for one.
    Waits(WaitingTurn),
}

/// When its turn is, but for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitingTurn {
    costs_something: bool,
    asked_at: Moment,
    request: Moment,
}

impl From<Turn<'_>> for Place {
    fn from(turn: Turn<'_>) -> Self {
        let Turn { costs_something, asked_at, request, .. } = turn;
        Self::Waits(WaitingTurn { costs_something, asked_at, request })
    }
}

impl Line {
    /// How many nodes the pool has.
    pub(super) fn total(&self) -> usize {
        self.places.len()
    }

    /// Whether somebody waits.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Those who wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &str> {
        self.waiting.iter().map(|(_, node)| node.as_str())
    }

    /// Those who hold a slot, or must have one.
    pub(super) fn holders(&self) -> impl Iterator<Item = &str> {
        self.holders.iter().map(String::as_str)
    }

    /// Those who count when slots are given away: who holds one, and as many of those who wait as could get one.
    pub(super) fn candidates(&self, limit: Limit) -> impl Iterator<Item = &str> {
        self.holders().chain(self.waiting().take(limit.free(0)))
    }

    /// Puts the node in its place, or out of the pool; gives what it was here for before.
    pub(super) fn put(&mut self, node: &str, place: Option<Place>) -> Option<Place> {
        let old = self.places.remove(node);
        match &old {
            Some(Place::Holds) => drop(self.holders.remove(node)),
            Some(Place::Waits(turn)) => drop(self.waiting.remove(&(*turn, node.to_owned()))),
            Some(Place::Rests) | None => {}
        }
        if let Some(place) = place {
            match &place {
                Place::Holds => drop(self.holders.insert(node.to_owned())),
                Place::Waits(turn) => drop(self.waiting.insert((*turn, node.to_owned()))),
                Place::Rests => {}
            }
            self.places.insert(node.to_owned(), place);
        }
        old
    }
}
