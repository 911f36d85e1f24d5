//! The connections of one server.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::Limits;
use super::activity::Activity;
use super::table::{Serial, Table};

/// Connections of a server, each with a task. All tasks end with it.
pub(super) struct Connections<P> {
    name: &'static str,
    limits: Limits,
    origin: Instant,
    tasks: JoinSet<()>,
    serials: HashMap<Id, Serial>,
    open: HashMap<Serial, (AbortHandle, P)>,
    table: Table<P>,
}

impl<P: Copy + Display + Eq + Hash> Connections<P> {
    pub(super) fn new(name: &'static str, limits: Limits) -> Self {
        Self {
            name,
            limits,
            origin: Instant::now(),
            tasks: JoinSet::new(),
            serials: HashMap::new(),
            open: HashMap::new(),
            table: Table::new(),
        }
    }

    /// Returns true when another connection can be opened: a connection that was closed holds its descriptor until its
    /// task has ended.
    pub(super) fn has_room(&self) -> bool {
        self.tasks.len() <= self.limits.connections
    }

    /// Runs a connection of `peer`, in place of others where a limit is reached.
    pub(super) fn open<T>(&mut self, peer: P, run: impl FnOnce(P, Arc<Activity>) -> T)
    where
        T: Future<Output = ()> + Send + 'static,
    {
        // Nothing is closed in place of what has ended by itself.
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

    /// Closes the longest idle connection, of the peer that has most of them.
    pub(super) fn close_longest_idle(&mut self) {
        let longest = self.table.longest_idle();
        self.close(longest);
    }

    /// Waits for the end of a task; never returns while there is none.
    pub(super) async fn reap(&mut self) {
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

    /// Waits for the end of all tasks.
    pub(super) async fn all_ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    fn close(&mut self, serial: Option<Serial>) {
        let Some(serial) = serial else { return };
        self.table.remove(serial);
        if let Some((task, peer)) = self.open.remove(&serial) {
            tracing::debug!(server = self.name, %peer, "closed an idle connection in favour of a new one");
            task.abort();
        }
    }
}
