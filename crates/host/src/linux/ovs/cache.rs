//! State of Open vSwitch that the reader of facts, steps and watches share.

use std::collections::BTreeSet;
use std::io::{PipeWriter, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use vfleet_plan::OvsFacts;
use vfleet_plan::cni::facts::OvsSocket;

use super::super::cache::lock;
use super::super::ovsdb::OvsdbClient;

/// Time for which a server that did not answer is not asked again, so that not every read waits for it. A watch ends
/// this time when the server answers a read.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Shared state of Open vSwitch.
#[derive(Debug, Default)]
pub(in crate::linux) struct OvsCache(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Latest configuration that ovs-vswitchd did not apply in time.
    unapplied: Option<i64>,
    /// Rows of bridges whose datapath ovs-vswitchd did not create in time.
    without_datapath: BTreeSet<String>,
    /// Socket, time and result of a read that the server did not answer.
    unanswered: Option<(String, Instant, OvsFacts)>,
    /// Socket of the database that facts are read from.
    socket: Option<String>,
    /// Ends of pipes whose other ends wake watches.
    watches: Vec<PipeWriter>,
    /// Connection of the last operation for an attachment.
    client: Option<(OvsSocket, OvsdbClient)>,
}

impl OvsCache {
    /// Stores the configuration that ovs-vswitchd did not apply in time.
    pub(super) fn set_unapplied(&self, number: Option<i64>) {
        lock(&self.0).unapplied = number;
    }

    /// Returns the configuration that ovs-vswitchd did not apply in time.
    pub(super) fn unapplied(&self) -> Option<i64> {
        lock(&self.0).unapplied
    }

    /// Stores the rows of the bridges whose datapath ovs-vswitchd did not create in time.
    pub(in crate::linux) fn set_without_datapath(&self, bridges: BTreeSet<String>) {
        lock(&self.0).without_datapath = bridges;
    }

    /// Returns the rows of the bridges whose datapath ovs-vswitchd did not create in time.
    pub(super) fn without_datapath(&self) -> BTreeSet<String> {
        lock(&self.0).without_datapath.clone()
    }

    /// Returns the facts of a recent read through this socket that the server did not answer.
    pub(super) fn unanswered(&self, socket: &str) -> Option<OvsFacts> {
        let state = lock(&self.0);
        let (found, when, facts) = state.unanswered.as_ref()?;
        (found == socket && when.elapsed() < RETRY_INTERVAL).then(|| facts.clone())
    }

    /// Stores the facts of a read that the server did not answer, and asks watches to find out when it answers.
    pub(super) fn set_unanswered(&self, socket: &str, facts: OvsFacts) {
        let mut state = lock(&self.0);
        state.unanswered = Some((socket.to_owned(), Instant::now(), facts));
        state.wake();
    }

    /// Returns whether the server did not answer the last read.
    pub(super) fn is_unanswered(&self) -> bool {
        lock(&self.0).unanswered.is_some()
    }

    /// Forgets that the server did not answer.
    pub(super) fn set_answered(&self) {
        lock(&self.0).unanswered = None;
    }

    /// Sets the socket of the database that watches observe; `None` for no database.
    pub(super) fn set_socket(&self, socket: Option<&str>) {
        let mut state = lock(&self.0);
        if state.socket.as_deref() != socket {
            state.socket = socket.map(str::to_owned);
            state.wake();
        }
    }

    /// Returns the socket of the database that watches observe.
    pub(super) fn socket(&self) -> Option<String> {
        lock(&self.0).socket.clone()
    }

    /// Keeps a connection for the next operation.
    pub(super) fn keep_client(&self, socket: &OvsSocket, client: OvsdbClient) {
        lock(&self.0).client = Some((socket.clone(), client));
    }

    /// Returns the connection of the last operation, if it was through this socket and the server has not closed it.
    pub(super) fn take_client(&self, socket: &OvsSocket) -> Option<OvsdbClient> {
        let (kept, mut client) = lock(&self.0).client.take()?;
        (kept == *socket && client.is_open()).then_some(client)
    }

    /// Adds a watch, which a byte in this pipe wakes.
    pub(super) fn add_watch(&self, pipe: PipeWriter) {
        lock(&self.0).watches.push(pipe);
    }
}

impl State {
    /// Wakes all watches, and forgets those that have ended.
    fn wake(&mut self) {
        self.watches.retain_mut(|pipe| pipe.write_all(&[0]).is_ok());
    }
}
