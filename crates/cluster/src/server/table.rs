//! Table of open connections, which selects the connection to close.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::activity::Activity;

/// Number of a connection.
pub(super) type Serial = u64;

/// Open connections with their activity. There are a few hundred at most, so that a search over all of them takes
/// microseconds and no index has to be maintained.
pub(super) struct ConnectionTable<P> {
    rows: HashMap<Serial, Row<P>>,
    /// Number of connections of each peer.
    peers: HashMap<P, usize>,
    next: Serial,
}

/// Open connection.
struct Row<P> {
    peer: P,
    activity: Arc<Activity>,
}

impl<P: Copy + Eq + Hash> ConnectionTable<P> {
    pub(super) fn new() -> Self {
        Self { rows: HashMap::new(), peers: HashMap::new(), next: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the number of connections of `peer`.
    pub(super) fn count(&self, peer: P) -> usize {
        self.peers.get(&peer).copied().unwrap_or_default()
    }

    pub(super) fn insert(&mut self, peer: P, activity: Arc<Activity>) -> Serial {
        let serial = self.next;
        self.next += 1;
        *self.peers.entry(peer).or_default() += 1;
        self.rows.insert(serial, Row { peer, activity });
        serial
    }

    pub(super) fn remove(&mut self, serial: Serial) {
        let Some(Row { peer, .. }) = self.rows.remove(&serial) else { return };
        match self.count(peer) {
            0 | 1 => self.peers.remove(&peer),
            count => self.peers.insert(peer, count - 1),
        };
    }

    /// Returns the connection to close for a new one: the longest idle connection of the peer that has most
    /// connections, or its longest request in progress if none of its connections is idle. Instead of such a request, a
    /// connection of another peer is closed if it has been idle for longer, unless the peer has half of all
    /// connections: such a peer must not displace others by slow requests.
    pub(super) fn longest_idle(&self) -> Option<Serial> {
        let rows = self.rows.iter();
        let order = |(serial, row): (&Serial, &Row<P>)| {
            let Row { peer, activity } = row;
            (Reverse(self.count(*peer)), activity.phase().is_in_request(), activity.started_at(), *serial)
        };
        let (Reverse(count), is_in_request, begin, serial) = rows.map(order).min()?;
        if !is_in_request || count * 2 >= self.len() {
            return Some(serial);
        }
        let idle = self.rows.iter().filter(|(_, row)| !row.activity.phase().is_in_request());
        let longest = idle.map(|(serial, row)| (row.activity.started_at(), *serial)).min();
        Some(longest.filter(|(other, _)| *other < begin).map_or(serial, |(_, other)| other))
    }

    /// Returns the connection of `peer` to close for another one of the same peer.
    pub(super) fn longest_idle_of(&self, peer: P) -> Option<Serial> {
        let rows = self.rows.iter().filter(|(_, row)| row.peer == peer);
        let order = |serial: &Serial, row: &Row<P>| {
            (row.activity.phase().is_in_request(), row.activity.started_at(), *serial)
        };
        rows.map(|(serial, row)| order(serial, row)).min().map(|(_, _, serial)| serial)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::server::activity::Phase;

    fn table(connections: &[(char, u64, Phase)]) -> ConnectionTable<char> {
        let (origin, mut table) = (Instant::now(), ConnectionTable::new());
        for &(peer, begin, phase) in connections {
            let activity = Arc::new(Activity::new(origin));
            activity.store(begin, phase);
            table.insert(peer, activity);
        }
        table
    }

    #[test]
    fn requests_in_progress_are_spared_unless_their_peer_has_half_of_all_connections() {
        let crowd = [('x', 0, Phase::Idle), ('y', 9, Phase::Idle), ('z', 9, Phase::Idle)];
        let busy = [('a', 5, Phase::Request), ('a', 6, Phase::Request)];
        assert_eq!(table(&[&crowd[..], &busy].concat()).longest_idle(), Some(0), "x is idle for longer");
        assert_eq!(table(&[&crowd[1..], &busy].concat()).longest_idle(), Some(2), "a has half of them");
        let new = [('u', 9, Phase::Header), ('v', 9, Phase::Header), ('w', 9, Phase::Header)];
        assert_eq!(table(&[&new[..], &busy].concat()).longest_idle(), Some(3), "the others are new");
    }

    #[test]
    fn connections_are_closed_by_peer_then_request_then_age() {
        let mut table = table(&[
            ('a', 1, Phase::Request),
            ('a', 2, Phase::Idle),
            ('b', 0, Phase::Idle),
            ('a', 3, Phase::Idle),
            ('b', 4, Phase::Header),
            ('c', 0, Phase::Flush),
        ]);
        let mut closed = Vec::new();
        while let Some(serial) = table.longest_idle() {
            closed.push(serial);
            table.remove(serial);
        }
        assert_eq!(closed, [1, 2, 3, 4, 5, 0]);
        assert_eq!((table.len(), table.peers.len()), (0, 0));
    }

    #[test]
    fn a_peer_loses_one_of_its_own_connections() {
        let mut table = table(&[('a', 0, Phase::Idle), ('b', 2, Phase::Idle), ('b', 1, Phase::Request)]);
        assert_eq!((table.count('b'), table.longest_idle_of('b')), (2, Some(1)));
        table.remove(1);
        assert_eq!((table.count('b'), table.longest_idle_of('b')), (1, Some(2)));
        assert_eq!((table.count('c'), table.longest_idle_of('c')), (0, None));
    }
}
