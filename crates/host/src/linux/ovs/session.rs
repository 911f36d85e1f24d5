//! Operations of attachments on Open vSwitch.

use std::time::{Duration, Instant};

use serde_json::json;
use vfleet_plan::cni::facts::OvsSocket;

use super::super::ovsdb::OvsdbClient;
use super::super::root::HostRoot;
use super::follow;
use super::switch_rows::{BridgeRow, RowFilter, SwitchRows, read};
use super::transaction::Transaction;
use crate::HostError;

/// Limit for ovs-vswitchd to let go of an interface. It needs some milliseconds; if it is not running, nothing has to wait
/// for it.
const DETACH_LIMIT: Duration = Duration::from_secs(2);
const UP: &str = "up";

/// Connection to Open vSwitch for one operation.
pub(in crate::linux) struct OvsSession<'a> {
    client: OvsdbClient,
    /// Limit for ovs-vswitchd to apply a change.
    apply: Duration,
    attempt: &'a str,
}

impl<'a> OvsSession<'a> {
    /// Connects to the database for `work`. `attempt` says what for. A host that works for one attachment only keeps the
    /// connection for the next operation.
    pub(in crate::linux) fn run<T>(
        root: &HostRoot,
        socket: &OvsSocket,
        attempt: &'a str,
        work: impl FnOnce(&mut Self) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let kept = root.cache().ovs.take_client(socket);
        let client = match kept {
            Some(client) => client,
            None => OvsdbClient::connect_to(root, socket, attempt)?,
        };
        let mut session = Self { client, apply: root.ovs_limits().apply, attempt };
        let result = work(&mut session);
        // After an error nobody knows what still arrives.
        if result.is_ok() && root.keeps_connections() {
            root.cache().ovs.keep_client(socket, session.client);
        }
        result
    }

    /// Reads rows.
    pub(in crate::linux) fn read(&mut self, filter: RowFilter<'_>) -> Result<SwitchRows, HostError> {
        read(&mut self.client, filter, self.attempt)
    }

    /// Returns a transaction without operations.
    pub(in crate::linux) fn transaction(&self, rows: &SwitchRows) -> Transaction {
        Transaction::new(rows.root.as_ref(), self.attempt)
    }

    /// Executes a transaction, and waits until ovs-vswitchd has applied it.
    pub(in crate::linux) fn apply(&mut self, transaction: Transaction) -> Result<(), HostError> {
        let number = transaction.execute(&mut self.client, self.attempt)?;
        self.await_configuration(number)
    }

    /// Waits until ovs-vswitchd has applied the latest change, which an interrupted step may have made.
    pub(in crate::linux) fn apply_latest(&mut self, rows: &SwitchRows) -> Result<(), HostError> {
        match &rows.root {
            Some(root) if root.configuration.is_behind() => self.await_configuration(root.configuration.next),
            _ => Ok(()),
        }
    }

    fn await_configuration(&mut self, number: i64) -> Result<(), HostError> {
        if follow::wait_until(&mut self.client, number, Instant::now() + self.apply, self.attempt)? {
            return Ok(());
        }
        Err(HostError::OvsNotApplied { attempt: self.attempt.to_owned(), after: self.apply })
    }

    /// Executes a transaction that gives something back. An ovs-vswitchd that does not apply it soon is no error.
    pub(in crate::linux) fn give_back(&mut self, transaction: Transaction) -> Result<(), HostError> {
        let number = transaction.execute(&mut self.client, self.attempt)?;
        let deadline = Instant::now() + DETACH_LIMIT.min(self.apply);
        if !follow::wait_until(&mut self.client, number, deadline, self.attempt)? {
            let attempt = self.attempt;
            tracing::warn!(attempt, "ovs-vswitchd has not applied a removal: check whether it is running");
        }
        Ok(())
    }

    /// Repeats `attempt` while other programs change the rows that it was planned for.
    pub(in crate::linux) fn repeat(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        let deadline = Instant::now() + self.apply;
        loop {
            match attempt(self) {
                Err(HostError::OvsChanged { .. }) if Instant::now() < deadline => {}
                result => return result,
            }
        }
    }

    /// Waits until the link of an interface is up.
    pub(in crate::linux) fn await_link(&mut self, name: &str, limit: Duration) -> Result<(), HostError> {
        let deadline = Instant::now() + limit;
        let columns = json!({"columns": ["link_state"], "select": {"initial": false}});
        // Before the first look, so that no change is missed.
        self.client.monitor(json!({"Interface": columns}), self.attempt)?;
        loop {
            let rows = self.read(RowFilter::Port(name))?;
            let interface = rows.port(name).and_then(|(_, port)| port.own_interface());
            if interface.is_some_and(|interface| interface.columns.link_state.as_deref() == Some(UP)) {
                return Ok(());
            }
            if self.client.next_update(deadline, self.attempt)?.is_none() {
                let (attempt, interface) = (self.attempt.to_owned(), name.to_owned());
                return Err(HostError::OvsLinkDown { attempt, interface, after: limit });
            }
        }
    }

    /// Returns the bridge with this name.
    pub(in crate::linux) fn require_bridge<'r>(
        &self,
        rows: &'r SwitchRows,
        name: &str,
    ) -> Result<&'r BridgeRow, HostError> {
        let (attempt, bridge) = (self.attempt.to_owned(), name.to_owned());
        rows.bridge(name).ok_or(HostError::OvsBridgeNotFound { attempt, bridge })
    }

    /// Returns the text for errors.
    pub(in crate::linux) const fn attempt(&self) -> &'a str {
        self.attempt
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_switch::TestSwitch;
    use super::*;

    /// Reads the database in a session; returns the number of bridges.
    fn read(root: &HostRoot) -> Result<usize, HostError> {
        let read = |session: &mut OvsSession<'_>| Ok(session.read(RowFilter::All)?.bridges.len());
        OvsSession::run(root, &OvsSocket::default(), "read it", read)
    }

    #[test]
    fn a_connection_is_kept_until_the_server_closes_it() {
        let mut switch = TestSwitch::started();
        let root = switch.root().clone().with_kept_connections();
        let kept = || root.cache().ovs.take_client(&OvsSocket::default());
        assert_eq!(read(&root).unwrap(), 0);
        let mut client = kept().unwrap();
        // A change that nobody waits for, and a request of the server.
        client.monitor(json!({"Bridge": {"columns": ["name"]}}), "watch").unwrap();
        root.cache().ovs.keep_client(&OvsSocket::default(), client);
        switch.add_bridge("br0");
        assert_eq!(read(&root).unwrap(), 1);
        switch.kill_server();
        assert!(kept().is_none());
        switch.start_server();
        assert_eq!(read(&root).unwrap(), 1);
        let other = OvsSocket::Unix("/run/other.sock".to_owned());
        assert!(root.cache().ovs.take_client(&other).is_none());
        // Another program keeps none.
        assert_eq!(read(switch.root()).unwrap(), 1);
        assert!(switch.root().cache().ovs.take_client(&OvsSocket::default()).is_none());
    }
}
