//! Open connections of one server.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::ServerLimits;
use super::activity::Activity;
use super::table::{ConnectionTable, Serial};

/// Connections of a server, with one task each. Dropping it aborts all tasks.
pub(super) struct Connections<P> {
    name: &'static str,
    limits: ServerLimits,
    origin: Instant,
    tasks: JoinSet<()>,
    serials: HashMap<Id, Serial>,
    open: HashMap<Serial, (AbortHandle, P)>,
    table: ConnectionTable<P>,
}

impl<P: Copy + Display + Eq + Hash> Connections<P> {
    pub(super) fn new(name: &'static str, limits: ServerLimits) -> Self {
        Self {
            name,
            limits,
            origin: Instant::now(),
            tasks: JoinSet::new(),
            serials: HashMap::new(),
            open: HashMap::new(),
            table: ConnectionTable::new(),
        }
    }

    /// Returns whether another connection can be opened. A closed connection holds its file descriptor until its task
    /// has ended.
    pub(super) fn has_room(&self) -> bool {
        self.tasks.len() <= self.limits.connections
    }

    /// Runs a connection of `peer`, and closes others if a limit is reached.
    pub(super) fn open<T>(&mut self, peer: P, run: impl FnOnce(P, Arc<Activity>) -> T)
    where
        T: Future<Output = ()> + Send + 'static,
    {
        // Connections that have ended do not count.
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.forget(ended);
        }
        while self.table.count(peer) >= self.limits.connections_per_peer.max(1) {
            let longest = self.table.longest_idle_of(peer);
            self.close(longest);
        }
        while self.table.len() >= self.limits.connections.max(1) {
            self.close_longest_idle();
        }
        let activity = Arc::new(Activity::new(self.origin));
        let task = self.tasks.spawn(run(peer, Arc::clone(&activity)));
        let serial = self.table.insert(peer, activity);
        self.serials.insert(task.id(), serial);
        self.open.insert(serial, (task, peer));
    }

    /// Closes the longest idle connection of the peer that has most connections.
    pub(super) fn close_longest_idle(&mut self) {
        let longest = self.table.longest_idle();
        self.close(longest);
    }

    /// Waits until a task has ended. Pending forever if there is none.
    pub(super) async fn wait_for_one(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(ended) => self.forget(ended),
            None => std::future::pending().await,
        }
    }

    fn forget(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        if let Some(serial) = self.serials.remove(&id) {
            self.open.remove(&serial);
            self.table.remove(serial);
        }
    }

    /// Waits until all tasks have ended.
    pub(super) async fn wait_for_all(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    fn close(&mut self, serial: Option<Serial>) {
        let Some(serial) = serial else { return };
        self.table.remove(serial);
        if let Some((task, peer)) = self.open.remove(&serial) {
            tracing::debug!(server = self.name, %peer, "closed an idle connection in favor of a new one");
            task.abort();
        }
    }
}
