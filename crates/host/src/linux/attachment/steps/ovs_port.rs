//! Steps that add ports to Open vSwitch and remove them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use vfleet_plan::cni::facts::OvsSocket;
use vfleet_plan::cni::step::{OvsPort, OvsVlans};

use crate::HostError;
use crate::linux::ovs::session::OvsSession;
use crate::linux::ovs::switch_rows::{BridgeRow, InterfaceRow, PortRow, RowFilter, SwitchRows};
use crate::linux::ovs::transaction::{Transaction, uuids};
use crate::linux::ovsdb::{Operation, value};
use crate::linux::root::HostRoot;
use crate::linux::steps::verify;

/// Adds a port to a bridge, and waits until ovs-vswitchd has configured its interface.
pub(super) fn add(
    root: &HostRoot,
    socket: &OvsSocket,
    bridge: &str,
    port: &OvsPort,
) -> Result<(), HostError> {
    let attempt = format!("add port {} to Open vSwitch bridge {bridge}", port.name);
    OvsSession::run(root, socket, &attempt, |session| {
        let rows = session.read(RowFilter::Port(&port.name))?;
        let on = session.require_bridge(&rows, bridge)?;
        let mut transaction = session.transaction(&rows);
        match find(&rows, on, port, &attempt)? {
            None => insert(&mut transaction, on, port),
            // An earlier attempt has added it.
            Some((found, interface)) => configure(&mut transaction, found, interface, port),
        }
        if transaction.has_changes() {
            session.apply(transaction)?;
        } else {
            session.apply_latest(&rows)?;
        }
        let rows = session.read(RowFilter::Port(&port.name))?;
        let found = session.require_bridge(&rows, bridge).and_then(|on| find(&rows, on, port, &attempt))?;
        let is_done = found.is_some_and(|(found, interface)| {
            changed_columns(found, port).is_empty() && changed_interface(interface, port).is_empty()
        });
        let (expected, other) = ("the port with its settings", "no port, or other settings");
        verify(&attempt, &expected, &if is_done { expected } else { other })?;
        found.map_or(Ok(()), |(_, interface)| check_interface(interface, &attempt))
    })
}

/// Returns the port of an attachment, which an earlier attempt has added. Fails if another port or interface has its name.
fn find<'r>(
    rows: &'r SwitchRows,
    on: &BridgeRow,
    port: &OvsPort,
    attempt: &str,
) -> Result<Option<(&'r PortRow, &'r InterfaceRow)>, HostError> {
    let taken = |found: String| {
        let (attempt, port) = (attempt.to_owned(), port.name.clone());
        Err(HostError::OvsPortTaken { attempt, port, found })
    };
    let Some((bridge, found)) = rows.port(&port.name) else {
        return if rows.has_other_interface { taken("an interface of a bond".to_owned()) } else { Ok(None) };
    };
    match found.interfaces.as_slice() {
        [interface]
            if bridge.uuid == on.uuid
                && found.to_facts().external_ids == port.external_ids
                && interface.columns.name == port.name =>
        {
            Ok(Some((found, interface)))
        }
        _ => taken(format!("a port of bridge {}", bridge.name)),
    }
}

/// Fails if ovs-vswitchd has not configured the interface.
fn check_interface(interface: &InterfaceRow, attempt: &str) -> Result<(), HostError> {
    let columns = &interface.columns;
    let message = match (&columns.error, columns.ofport) {
        (Some(error), _) => error.clone(),
        (None, Some(_)) => return Ok(()),
        // A bridge without a datapath reports no errors.
        (None, None) => "no port number: ovs-vswitchd could not create the bridge".to_owned(),
    };
    let (attempt, interface) = (attempt.to_owned(), columns.name.clone());
    Err(HostError::OvsPortFailed { attempt, interface, message })
}

fn insert(transaction: &mut Transaction, on: &BridgeRow, port: &OvsPort) {
    transaction.push(Operation::assert_row("Bridge", &on.uuid, vec![json!(["name", "==", on.name])]));
    transaction.push(Operation::assert_absent("Port", &port.name));
    transaction.push(Operation::assert_absent("Interface", &port.name));
    let mut interface = interface_columns(port);
    interface.insert("name".to_owned(), port.name.clone().into());
    // The name of an interface need not be a valid identifier.
    transaction.push(Operation::insert("Interface", "interface", &interface.into()));
    let mut columns = port_columns(port);
    columns.insert("name".to_owned(), port.name.clone().into());
    columns.insert("external_ids".to_owned(), value::map(&port.external_ids));
    columns.insert("interfaces".to_owned(), value::set([value::named_uuid("interface")]));
    transaction.push(Operation::insert("Port", "port", &columns.into()));
    let added = json!(["ports", "insert", value::set([value::named_uuid("port")])]);
    transaction.push(Operation::mutate("Bridge", &on.uuid, &[added]));
}

/// Changes the settings of a port that differ.
fn configure(transaction: &mut Transaction, found: &PortRow, interface: &InterfaceRow, port: &OvsPort) {
    let ids = json!(["external_ids", "==", value::map(&port.external_ids)]);
    for (table, uuid, assertions, columns) in [
        ("Port", &found.uuid, vec![ids], changed_columns(found, port)),
        ("Interface", &interface.uuid, Vec::new(), changed_interface(interface, port)),
    ] {
        if !columns.is_empty() {
            transaction.push(Operation::assert_row(table, uuid, assertions));
            transaction.push(Operation::update(table, uuid, &columns.into()));
        }
    }
}

/// Returns the columns of a port that settings are stored in.
fn port_columns(port: &OvsPort) -> Map<String, Value> {
    let (tag, trunks) = match &port.vlans {
        OvsVlans::Access(tag) => (Some(*tag), None),
        OvsVlans::Trunk(trunks) => (None, Some(trunks)),
    };
    let trunks = trunks.into_iter().flatten().map(|id| Value::from(*id));
    Map::from_iter([
        ("vlan_mode".to_owned(), value::optional(Some(port.vlans.mode()))),
        ("tag".to_owned(), value::optional(tag)),
        ("trunks".to_owned(), value::set(trunks)),
    ])
}

fn interface_columns(port: &OvsPort) -> Map<String, Value> {
    Map::from_iter([
        ("type".to_owned(), port.interface_type.clone().unwrap_or_default().into()),
        ("external_ids".to_owned(), value::map(&port.interface_ids)),
        ("ofport_request".to_owned(), value::optional(port.ofport_request)),
    ])
}

/// Returns the columns of a port to change.
fn changed_columns(found: &PortRow, port: &OvsPort) -> Map<String, Value> {
    let (facts, mut columns) = (found.to_facts(), port_columns(port));
    let is_same = facts.vlan_mode.as_deref() == Some(port.vlans.mode())
        && match &port.vlans {
            OvsVlans::Access(tag) => facts.tag == Some(*tag) && facts.trunks.is_empty(),
            OvsVlans::Trunk(trunks) => facts.tag.is_none() && facts.trunks == *trunks,
        };
    if is_same {
        columns.clear();
    }
    columns
}

/// Returns the columns of an interface to change.
fn changed_interface(found: &InterfaceRow, port: &OvsPort) -> Map<String, Value> {
    let mut columns = interface_columns(port);
    let is_same = found.columns.type_ == port.interface_type.as_deref().unwrap_or_default()
        && found.external_ids == port.interface_ids
        && found.ofport_request == port.ofport_request.map(i64::from);
    if is_same {
        columns.clear();
    }
    columns
}

/// Removes the port with this name from its bridge, if it has these `external_ids`.
pub(super) fn remove(
    root: &HostRoot,
    socket: &OvsSocket,
    name: &str,
    external_ids: &BTreeMap<String, String>,
) -> Result<(), HostError> {
    let attempt = format!("remove port {name} from Open vSwitch");
    OvsSession::run(root, socket, &attempt, |session| {
        session.repeat(|session| {
            let rows = session.read(RowFilter::Port(name))?;
            let Some((bridge, port)) = find_own(&rows, name, external_ids) else { return Ok(()) };
            let mut transaction = session.transaction(&rows);
            let ids = json!(["external_ids", "includes", value::map(external_ids)]);
            transaction.push(Operation::assert_row("Port", &port.uuid, vec![ids]));
            let removed = json!(["ports", "delete", uuids([&port.uuid])]);
            transaction.push(Operation::mutate("Bridge", &bridge.uuid, &[removed]));
            session.give_back(transaction)
        })?;
        let rows = session.read(RowFilter::Port(name))?;
        let found = if find_own(&rows, name, external_ids).is_some() { "the port" } else { "no port" };
        verify(&attempt, &"no port", &found)
    })
}

fn find_own<'r>(
    rows: &'r SwitchRows,
    name: &str,
    external_ids: &BTreeMap<String, String>,
) -> Option<(&'r BridgeRow, &'r PortRow)> {
    rows.port(name).filter(|(_, port)| port.to_facts().has_ids(external_ids))
}

/// Waits until Open vSwitch reports that the link of an interface is up.
pub(super) fn await_link(
    root: &HostRoot,
    socket: &OvsSocket,
    name: &str,
    limit: Duration,
) -> Result<(), HostError> {
    let attempt = format!("wait for the link of interface {name}");
    OvsSession::run(root, socket, &attempt, |session| session.await_link(name, limit))
}

#[cfg(test)]
#[path = "ovs_port/tests.rs"]
mod tests;
