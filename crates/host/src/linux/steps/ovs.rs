//! Steps for Open vSwitch. Each is one transaction, which asserts the rows that the step was planned for.

mod change;
mod remove;

pub(super) use change::set_bridge;
pub(super) use remove::{remove_bridge, remove_port};

use serde_json::json;
use vfleet_plan::{OvsBridgeFacts, OvsInterfaceFacts};

use super::super::ovs::transaction::Transaction;
use super::super::ovs::{follow, rows};
use super::super::ovsdb::{OvsdbClient, value};
use super::super::root::HostRoot;
use super::verify;
use crate::HostError;

/// Connection to Open vSwitch for one step.
struct OvsStep<'a> {
    root: &'a HostRoot,
    client: OvsdbClient,
    attempt: &'a str,
}

impl<'a> OvsStep<'a> {
    fn connect(root: &'a HostRoot, attempt: &'a str) -> Result<Self, HostError> {
        Ok(Self { root, client: OvsdbClient::connect(root, attempt)?, attempt })
    }

    fn read(&mut self) -> Result<rows::Rows, HostError> {
        rows::read(&mut self.client, self.attempt)
    }

    /// Executes a transaction, and waits until ovs-vswitchd has applied it.
    fn execute(&mut self, transaction: Transaction) -> Result<(), HostError> {
        let number = transaction.execute(&mut self.client, self.attempt)?;
        self.wait(number)
    }

    /// Waits until ovs-vswitchd has applied the latest change, which an interrupted step may have made.
    fn wait_for_latest(&mut self, rows: &rows::Rows) -> Result<(), HostError> {
        match &rows.root {
            Some(root) if root.configuration.is_behind() => self.wait(root.configuration.next),
            _ => Ok(()),
        }
    }

    fn wait(&mut self, number: i64) -> Result<(), HostError> {
        if follow::wait(&mut self.client, self.root, number, self.attempt)? {
            return Ok(());
        }
        let after = self.root.ovs_limits().apply;
        Err(HostError::OvsNotApplied { attempt: self.attempt.to_owned(), after })
    }

    /// Returns the error of a bridge that is not the planned one.
    fn changed(&self, bridge: &str) -> HostError {
        HostError::BridgeChanged { attempt: self.attempt.to_owned(), bridge: bridge.to_owned() }
    }

    /// Replaces the error of an assertion by one that names the bridge.
    fn name_bridge(&self, bridge: &str, error: HostError) -> HostError {
        if matches!(error, HostError::OvsChanged { .. }) { self.changed(bridge) } else { error }
    }
}

/// Returns whether a bridge is the planned one, with all its ports.
fn is_same(planned: &OvsBridgeFacts, found: &OvsBridgeFacts) -> bool {
    without_results(planned) == without_results(found)
}

/// Returns a bridge without results of ovs-vswitchd, which are no settings.
fn without_results(bridge: &OvsBridgeFacts) -> OvsBridgeFacts {
    let mut bridge = OvsBridgeFacts { lacks_datapath: false, ..bridge.clone() };
    for interface in bridge.ports.iter_mut().flat_map(|port| &mut port.interfaces) {
        interface.error = None;
    }
    bridge
}

/// Fails if ovs-vswitchd has applied the bridge and did not create it.
fn check_datapath(bridge: &OvsBridgeFacts, attempt: &str) -> Result<(), HostError> {
    if !bridge.lacks_datapath {
        return Ok(());
    }
    let datapath_type = if bridge.datapath_type.is_empty() { "system" } else { &bridge.datapath_type };
    let (attempt, bridge) = (attempt.to_owned(), bridge.name.clone());
    Err(HostError::OvsBridgeFailed { attempt, bridge, datapath_type: datapath_type.to_owned() })
}

/// Fails if ovs-vswitchd reports an error of the interface.
fn check_interface(interface: &OvsInterfaceFacts, attempt: &str) -> Result<(), HostError> {
    let Some(message) = &interface.error else { return Ok(()) };
    // The message of an unknown type does not mention it.
    let of_type = if interface.type_.is_empty() { "system" } else { &interface.type_ };
    let (attempt, interface) = (attempt.to_owned(), format!("{} of type {of_type}", interface.name));
    Err(HostError::OvsInterfaceFailed { attempt, interface, message: message.clone() })
}

/// Sets `other_config:hw-offload`. Does not wait for ovs-vswitchd, which may not run on a node without bridges of
/// vfleet, and reads the setting when it starts.
pub(super) fn enable_offload(root: &HostRoot, attempt: &str) -> Result<(), HostError> {
    let mut step = OvsStep::connect(root, attempt)?;
    let rows = step.read()?;
    if !rows.database.has_offload {
        let entry = [("hw-offload".to_owned(), "true".to_owned())].into();
        let mut transaction = Transaction::new(rows.root.as_ref(), attempt);
        transaction.mutate_root([
            json!(["other_config", "delete", value::set(["hw-offload".into()])]),
            json!(["other_config", "insert", value::map(&entry)]),
        ]);
        transaction.execute(&mut step.client, attempt)?;
    }
    verify(attempt, &true, &step.read()?.database.has_offload)
}

#[cfg(test)]
mod tests;
