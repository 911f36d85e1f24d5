//! Removal of bridges and ports.

use serde_json::json;
use vfleet_plan::OvsBridgeFacts;

use super::super::super::ovs::rows::Rows;
use super::super::super::ovs::transaction::{Transaction, uuids};
use super::super::super::root::HostRoot;
use super::super::verify;
use super::change::assert_bridge;
use super::{OvsStep, is_same};
use crate::HostError;
use crate::linux::ovsdb::Operation;

/// Removes a bridge with all ports that it had when the removal was planned.
pub(in crate::linux::steps) fn remove_bridge(
    root: &HostRoot,
    observed: &OvsBridgeFacts,
    attempt: &str,
) -> Result<(), HostError> {
    let mut step = OvsStep::connect(root, attempt)?;
    let rows = step.read()?;
    match find(&step, &rows, observed)? {
        None => step.wait_for_latest(&rows)?,
        Some(bridge) => {
            let mut transaction = Transaction::new(rows.root.as_ref(), attempt);
            assert_bridge(&mut transaction, bridge);
            transaction.mutate_root([json!(["bridges", "delete", uuids([&bridge.uuid])])]);
            step.execute(transaction).map_err(|error| step.name_bridge(&observed.name, error))?;
        }
    }
    let is_left = step.read()?.database.bridges.iter().any(|bridge| bridge.uuid == observed.uuid);
    verify(attempt, &"no bridge", &if is_left { "the bridge" } else { "no bridge" })
}

/// Removes a port from a bridge.
pub(in crate::linux::steps) fn remove_port(
    root: &HostRoot,
    name: &str,
    observed: &OvsBridgeFacts,
    attempt: &str,
) -> Result<(), HostError> {
    let mut step = OvsStep::connect(root, attempt)?;
    let rows = step.read()?;
    let by_uuid = rows.database.bridges.iter().find(|bridge| bridge.uuid == observed.uuid);
    let port = by_uuid.and_then(|bridge| bridge.ports.iter().find(|port| port.name == name));
    match (port, by_uuid) {
        (Some(port), Some(bridge)) => {
            if !is_same(observed, bridge) {
                return Err(step.changed(&observed.name));
            }
            let mut transaction = Transaction::new(rows.root.as_ref(), attempt);
            assert_bridge(&mut transaction, bridge);
            let removed = json!(["ports", "delete", uuids([&port.uuid])]);
            transaction.push(Operation::mutate("Bridge", &bridge.uuid, &[removed]));
            step.execute(transaction).map_err(|error| step.name_bridge(&observed.name, error))?;
        }
        _ => step.wait_for_latest(&rows)?,
    }
    let rows = step.read()?;
    let mut ports = rows.database.bridges.iter().filter(|bridge| bridge.uuid == observed.uuid);
    let is_left = ports.any(|bridge| bridge.ports.iter().any(|port| port.name == name));
    verify(attempt, &"no port", &if is_left { "the port" } else { "no port" })
}

/// Returns the bridge to remove; `None` if it is gone. A new bridge of the same name is not the planned one.
fn find<'r>(
    step: &OvsStep<'_>,
    rows: &'r Rows,
    observed: &OvsBridgeFacts,
) -> Result<Option<&'r OvsBridgeFacts>, HostError> {
    match rows.database.bridge(&observed.name) {
        None => Ok(None),
        Some(found) if is_same(observed, found) => Ok(Some(found)),
        Some(_) => Err(step.changed(&observed.name)),
    }
}
