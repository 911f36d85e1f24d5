//! Table of open connections, which tells which of them to close.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use super::activity::Activity;

/// Number of a connection.
pub(super) type Serial = u64;

/// Most connections with a request in progress that are passed over in favour of an idle one.
const SPARED: usize = 8;

/// Open connections by peer and by activity.
///
/// A connection does not tell the table when its activity changes. What the table knows may be too old, never too new, and
/// is refreshed when the connection looks like the one to close: that costs a logarithm for each activity at most, and
/// nothing while no connection has to be closed.
pub(super) struct Table<P> {
    rows: HashMap<Serial, Row<P>>,
    /// The connections of each peer, longest idle first.
    peers: HashMap<P, BTreeSet<(u64, Serial)>>,
    /// Number of connections and begin of the longest idle one of each peer. The last one has to give one up.
    order: BTreeSet<(usize, Reverse<u64>, P)>,
    next: Serial,
}

struct Row<P> {
    peer: P,
    /// Begin of the last known phase.
    begin: u64,
    activity: Arc<Activity>,
}

impl<P: Copy + Eq + Hash + Ord> Table<P> {
    pub(super) fn new() -> Self {
        Self { rows: HashMap::new(), peers: HashMap::new(), order: BTreeSet::new(), next: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the number of connections of `peer`.
    pub(super) fn count(&self, peer: P) -> usize {
        self.peers.get(&peer).map_or(0, BTreeSet::len)
    }

    pub(super) fn insert(&mut self, peer: P, activity: Arc<Activity>) -> Serial {
        let (serial, begin) = (self.next, activity.begin());
        self.next += 1;
        self.change(peer, |connections| {
            connections.insert((begin, serial));
        });
        self.rows.insert(serial, Row { peer, begin, activity });
        serial
    }

    pub(super) fn remove(&mut self, serial: Serial) {
        if let Some(Row { peer, begin, .. }) = self.rows.remove(&serial) {
            self.change(peer, |connections| {
                connections.remove(&(begin, serial));
            });
        }
    }

    /// Returns the longest idle connection of the peer that has most connections. Of several such peers, it is the one with
    /// the longest idle connection.
    pub(super) fn longest_idle(&mut self) -> Option<Serial> {
        loop {
            let &(_, _, peer) = self.order.last()?;
            let first = self.peers.get(&peer)?.first().copied();
            let longest = self.longest_idle_of(peer)?;
            // Otherwise it was not that long, and another peer may have to give one up.
            if self.peers.get(&peer)?.first().copied() == first {
                return Some(longest);
            }
        }
    }

    /// Returns the longest idle connection of `peer`. One with a request in progress is only returned when the next ones
    /// have requests in progress as well.
    pub(super) fn longest_idle_of(&mut self, peer: P) -> Option<Serial> {
        let first = loop {
            let &(_, serial) = self.peers.get(&peer)?.first()?;
            if !self.refresh(serial) {
                break serial;
            }
        };
        let mut oldest = self.peers.get(&peer)?.iter().take(SPARED).map(|&(_, serial)| serial);
        let is_idle =
            |serial: &Serial| self.rows.get(serial).is_some_and(|row| !row.activity.phase().is_in_request());
        Some(oldest.find(is_idle).unwrap_or(first))
    }

    /// Takes note of the connection's last activity; returns true when there was some.
    fn refresh(&mut self, serial: Serial) -> bool {
        let Some(row) = self.rows.get_mut(&serial) else { return false };
        let (peer, old, new) = (row.peer, row.begin, row.activity.begin());
        if old == new {
            return false;
        }
        row.begin = new;
        self.change(peer, |connections| {
            connections.remove(&(old, serial));
            connections.insert((new, serial));
        });
        true
    }

    /// Changes the connections of `peer`, and its place in the order.
    fn change(&mut self, peer: P, change: impl FnOnce(&mut BTreeSet<(u64, Serial)>)) {
        let connections = self.peers.entry(peer).or_default();
        let place = |connections: &BTreeSet<(u64, Serial)>| {
            connections.first().map(|&(begin, _)| (connections.len(), Reverse(begin), peer))
        };
        let old = place(connections);
        change(connections);
        let new = place(connections);
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.order.remove(&old);
        }
        match new {
            Some(new) => {
                self.order.insert(new);
            }
            None => {
                self.peers.remove(&peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;
    use crate::server::activity::Phase;

    #[derive(Clone, Debug)]
    enum Event {
        Open { peer: u8, begin: u64 },
        Enter { which: prop::sample::Index, begin: u64, in_request: bool },
        End(prop::sample::Index),
        CloseLongest,
        CloseLongestOf { peer: u8 },
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            4 => (0..4_u8, 0..3_u64).prop_map(|(peer, begin)| Event::Open { peer, begin }),
            4 => (any::<prop::sample::Index>(), 0..3_u64, any::<bool>())
                .prop_map(|(which, begin, in_request)| Event::Enter { which, begin, in_request }),
            1 => any::<prop::sample::Index>().prop_map(Event::End),
            2 => Just(Event::CloseLongest),
            1 => (0..4_u8).prop_map(|peer| Event::CloseLongestOf { peer }),
        ];
        prop::collection::vec(event, 0..80)
    }

    /// Connections as somebody would keep them who need not be quick.
    type Model = Vec<(Serial, u8, Arc<Activity>)>;

    fn of(model: &Model, peer: u8) -> Vec<(u64, Serial, bool)> {
        let all = model.iter().filter(|(_, other, _)| *other == peer);
        let mut all: Vec<_> = all
            .map(|(serial, _, activity)| (activity.begin(), *serial, activity.phase().is_in_request()))
            .collect();
        all.sort_unstable();
        all
    }

    /// Asserts that `chosen` is the right connection of `peer` to close.
    fn check(model: &Model, peer: u8, chosen: Serial) {
        let all = of(model, peer);
        let (_, longest, is_in_request) = all[0];
        if !is_in_request {
            assert!(all.iter().any(|&(begin, serial, _)| serial == chosen && begin == all[0].0), "{all:?}");
        } else if chosen != longest {
            assert!(all.contains(&(begin_of(model, chosen), chosen, false)), "{all:?}");
        } else {
            assert!(all.len() > SPARED || all.iter().all(|(_, _, in_request)| *in_request), "{all:?}");
        }
    }

    fn begin_of(model: &Model, serial: Serial) -> u64 {
        model.iter().find(|(other, _, _)| *other == serial).unwrap().2.begin()
    }

    proptest! {
        #[test]
        fn the_table_chooses_as_a_search_through_all_would(events in events()) {
            let (origin, mut now) = (Instant::now(), 0);
            let (mut table, mut model) = (Table::new(), Model::new());
            for event in events {
                let chosen = match event {
                    Event::Open { peer, begin } => {
                        now += begin;
                        let activity = Arc::new(Activity::new(origin));
                        activity.store(now, Phase::Header);
                        model.push((table.insert(peer, Arc::clone(&activity)), peer, activity));
                        None
                    }
                    Event::Enter { which, begin, in_request } if !model.is_empty() => {
                        now += begin;
                        let phase = if in_request { Phase::Request } else { Phase::Idle };
                        which.get(&model).2.store(now, phase);
                        None
                    }
                    Event::End(which) if !model.is_empty() => Some(which.get(&model).0),
                    Event::Enter { .. } | Event::End(_) => None,
                    Event::CloseLongest => {
                        let chosen = table.longest_idle();
                        prop_assert_eq!(chosen.is_none(), model.is_empty());
                        if let Some(chosen) = chosen {
                            let peer = model.iter().find(|row| row.0 == chosen).unwrap().1;
                            let all = (0..4).map(|peer| of(&model, peer)).filter(|all| !all.is_empty());
                            let place = |all: &Vec<(u64, Serial, bool)>| (all.len(), Reverse(all[0].0));
                            prop_assert_eq!(all.map(|all| place(&all)).max(), Some(place(&of(&model, peer))));
                            check(&model, peer, chosen);
                        }
                        chosen
                    }
                    Event::CloseLongestOf { peer } => {
                        let chosen = table.longest_idle_of(peer);
                        prop_assert_eq!(chosen.is_none(), of(&model, peer).is_empty());
                        chosen.inspect(|&chosen| check(&model, peer, chosen))
                    }
                };
                if let Some(chosen) = chosen {
                    table.remove(chosen);
                    model.retain(|row| row.0 != chosen);
                }
                prop_assert_eq!(table.len(), model.len());
                for peer in 0..4 {
                    prop_assert_eq!(table.count(peer), of(&model, peer).len());
                }
                prop_assert_eq!(table.order.len(), table.peers.len());
            }
        }
    }
}
