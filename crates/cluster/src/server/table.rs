//! Table of open connections, which tells which of them to close.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::activity::Activity;

/// Number of a connection.
pub(super) type Serial = u64;

/// Open connections with their activity. A server has a few hundred at most, so the one to close is searched for among all
/// of them when another one comes: that takes microseconds, and nothing is kept up to date for it meanwhile.
pub(super) struct Table<P> {
    rows: HashMap<Serial, Row<P>>,
    /// Number of connections of each peer.
    peers: HashMap<P, usize>,
    next: Serial,
}

struct Row<P> {
    peer: P,
    activity: Arc<Activity>,
}

impl<P: Copy + Eq + Hash> Table<P> {
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

    /// Returns the connection to close for another one: one without a request in progress if there is any, of the peer that
    /// has most connections, and the longest idle one of those.
    pub(super) fn longest_idle(&self) -> Option<Serial> {
        let rows = self.rows.iter();
        let order = |serial: &Serial, row: &Row<P>| {
            (
                row.activity.phase().is_in_request(),
                Reverse(self.count(row.peer)),
                row.activity.begin(),
                *serial,
            )
        };
        rows.map(|(serial, row)| order(serial, row)).min().map(|(_, _, _, serial)| serial)
    }

    /// Returns the connection of `peer` to close for another one of the same peer.
    pub(super) fn longest_idle_of(&self, peer: P) -> Option<Serial> {
        let rows = self.rows.iter().filter(|(_, row)| row.peer == peer);
        let order = |serial: &Serial, row: &Row<P>| {
            (row.activity.phase().is_in_request(), row.activity.begin(), *serial)
        };
        rows.map(|(serial, row)| order(serial, row)).min().map(|(_, _, serial)| serial)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::server::activity::Phase;

    fn table(connections: &[(char, u64, Phase)]) -> Table<char> {
        let (origin, mut table) = (Instant::now(), Table::new());
        for &(peer, begin, phase) in connections {
            let activity = Arc::new(Activity::new(origin));
            activity.store(begin, phase);
            table.insert(peer, activity);
        }
        table
    }

    #[test]
    fn connections_are_closed_by_request_then_peer_then_age() {
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
    fn a_peer_gives_up_its_own_connection() {
        let mut table = table(&[('a', 0, Phase::Idle), ('b', 2, Phase::Idle), ('b', 1, Phase::Request)]);
        assert_eq!((table.count('b'), table.longest_idle_of('b')), (2, Some(1)));
        table.remove(1);
        assert_eq!((table.count('b'), table.longest_idle_of('b')), (1, Some(2)));
        assert_eq!((table.count('c'), table.longest_idle_of('c')), (0, None));
    }
}
