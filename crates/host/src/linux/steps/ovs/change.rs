//! Creation and change of a bridge with its uplink.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use vfleet_api::PciAddress;
use vfleet_api::keys::OVS_UPLINK;
use vfleet_plan::{
    MapChange, OvsBridgeChange, OvsBridgeFacts, OvsInterfaceFacts, OvsPortFacts, OvsUplinkChange,
};

use super::super::super::ovs::transaction::{Transaction, uuids};
use super::super::super::ovsdb::{Operation, value};
use super::super::super::root::HostRoot;
use super::super::verify;
use super::{OvsStep, check_datapath, check_interface, without_results};
use crate::HostError;

/// Creates a bridge with its uplink, or changes their settings.
pub(in crate::linux::steps) fn set_bridge(
    root: &HostRoot,
    pf: PciAddress,
    change: &OvsBridgeChange,
    observed: Option<&OvsBridgeFacts>,
    attempt: &str,
) -> Result<(), HostError> {
    let mut step = OvsStep::connect(root, attempt)?;
    let rows = step.read()?;
    let mut transaction = Transaction::new(rows.root.as_ref(), attempt);
    let has_changed = !rows.database.bridge(&change.name).is_some_and(|found| is_done(change, found));
    match (rows.database.bridge(&change.name), observed) {
        // Also the result of an interrupted step.
        _ if !has_changed => step.wait_for_latest(&rows)?,
        (None, None) => {
            create(&mut transaction, change);
            step.execute(transaction).map_err(|error| step.name_bridge(&change.name, error))?;
        }
        (Some(found), Some(observed)) if decisive(change, observed) == decisive(change, found) => {
            assert_decisive(&mut transaction, change, found);
            configure(&mut transaction, change, found);
            step.execute(transaction).map_err(|error| step.name_bridge(&change.name, error))?;
        }
        (Some(found), None) if found.external_ids.get(OVS_UPLINK) != Some(&pf.to_string()) => {
            let (attempt, bridge) = (attempt.to_owned(), format!("Open vSwitch bridge {}", change.name));
            return Err(HostError::ForeignBridge { attempt, bridge });
        }
        _ => return Err(step.changed(&change.name)),
    }
    let rows = step.read()?;
    if has_changed {
        // ovs-vswitchd has applied the change, so reads do not wait for datapaths.
        root.cache().ovs.set_without_datapath(rows.without_datapath());
    }
    let found = rows.database.bridge(&change.name);
    let is_there = found.is_some_and(|bridge| is_done(change, bridge));
    let texts = ("the requested settings", if found.is_some() { "other settings" } else { "no bridge" });
    verify(attempt, &texts.0, if is_there { &texts.0 } else { &texts.1 })?;
    found.map_or(Ok(()), |bridge| check_datapath(bridge, attempt))?;
    let uplink = found.and_then(|bridge| find_uplink(bridge, &change.uplink.name));
    uplink.map_or(Ok(()), |(_, interface)| check_interface(interface, attempt))
}

/// Returns the part of a bridge that a change depends on. Ports of pods come and go.
fn decisive(change: &OvsBridgeChange, bridge: &OvsBridgeFacts) -> OvsBridgeFacts {
    let mut part = without_results(bridge);
    part.ports.retain(|port| {
        port.name == bridge.name || port.name == change.uplink.name || change.stale_ports.contains(&port.name)
    });
    for port in part.ports.iter_mut().filter(|port| port.name == bridge.name) {
        // The internal port only has to exist.
        (port.external_ids, port.interfaces) = (BTreeMap::new(), Vec::new());
    }
    part
}

/// Asserts the part of a bridge that a change depends on. Names of ports are unique in the database, so a port that the
/// change inserts cannot exist.
pub(super) fn assert_decisive(
    transaction: &mut Transaction,
    change: &OvsBridgeChange,
    bridge: &OvsBridgeFacts,
) {
    let part = decisive(change, bridge);
    assert_row(transaction, &part, "includes");
    part.ports.iter().filter(|port| port.name != bridge.name).for_each(|port| assert_port(transaction, port));
}

/// Asserts everything that was read of a bridge and its ports.
pub(super) fn assert_bridge(transaction: &mut Transaction, bridge: &OvsBridgeFacts) {
    assert_row(transaction, bridge, "==");
    bridge.ports.iter().for_each(|port| assert_port(transaction, port));
}

/// Asserts the row of a bridge. `function` compares its ports.
fn assert_row(transaction: &mut Transaction, bridge: &OvsBridgeFacts, function: &str) {
    let conditions = vec![
        json!(["name", "==", bridge.name]),
        json!(["ports", function, uuids(bridge.ports.iter().map(|port| &port.uuid))]),
        json!(["datapath_type", "==", bridge.datapath_type]),
        json!(["fail_mode", "==", value::optional(bridge.fail_mode.clone())]),
        json!(["external_ids", "==", value::map(&bridge.external_ids)]),
        json!(["other_config", "==", value::map(&bridge.other_config)]),
    ];
    transaction.push(Operation::assert_row("Bridge", &bridge.uuid, conditions));
}

fn assert_port(transaction: &mut Transaction, port: &OvsPortFacts) {
    let conditions = vec![
        json!(["interfaces", "==", uuids(port.interfaces.iter().map(|interface| &interface.uuid))]),
        json!(["external_ids", "==", value::map(&port.external_ids)]),
    ];
    transaction.push(Operation::assert_row("Port", &port.uuid, conditions));
    for interface in &port.interfaces {
        let conditions = vec![
            json!(["type", "==", interface.type_]),
            json!(["options", "==", value::map(&interface.options)]),
            json!(["external_ids", "==", value::map(&interface.external_ids)]),
            json!(["other_config", "==", value::map(&interface.other_config)]),
            json!(["mtu_request", "==", value::optional(interface.mtu_request)]),
        ];
        transaction.push(Operation::assert_row("Interface", &interface.uuid, conditions));
    }
}

fn create(transaction: &mut Transaction, change: &OvsBridgeChange) {
    transaction.push(Operation::assert_absent("Bridge", &change.name));
    let ports = [insert_internal(transaction, &change.name), insert_uplink(transaction, &change.uplink)];
    let row = json!({
        "name": change.name,
        "datapath_type": change.datapath_type,
        "fail_mode": value::optional(change.fail_mode.clone()),
        "external_ids": value::map(&change.external_ids.set),
        "other_config": value::map(&change.other_config.set),
        "ports": value::set(ports),
    });
    transaction.push(Operation::insert("Bridge", "bridge", &row));
    transaction.mutate_root([json!(["bridges", "insert", value::set([value::named_uuid("bridge")])])]);
}

/// Inserts the internal port that every bridge has. Returns its UUID.
fn insert_internal(transaction: &mut Transaction, bridge: &str) -> Value {
    let interface = json!({"name": bridge, "type": "internal"});
    transaction.push(Operation::insert("Interface", "internal_interface", &interface));
    let interfaces = value::set([value::named_uuid("internal_interface")]);
    let port = json!({"name": bridge, "interfaces": interfaces});
    transaction.push(Operation::insert("Port", "internal_port", &port));
    value::named_uuid("internal_port")
}

/// Inserts the port of the uplink. Returns its UUID.
fn insert_uplink(transaction: &mut Transaction, uplink: &OvsUplinkChange) -> Value {
    let interface = json!({
        "name": uplink.name,
        "type": uplink.type_,
        "options": value::map(&uplink.options.set),
        "external_ids": value::map(&uplink.external_ids.set),
        "other_config": value::map(&uplink.other_config.set),
        "mtu_request": value::optional(uplink.mtu_request),
    });
    transaction.push(Operation::insert("Interface", "uplink_interface", &interface));
    let port = json!({
        "name": uplink.name,
        "external_ids": value::map(&uplink.port_external_ids.set),
        "interfaces": value::set([value::named_uuid("uplink_interface")]),
    });
    transaction.push(Operation::insert("Port", "uplink_port", &port));
    value::named_uuid("uplink_port")
}

/// Changes an existing bridge. Only columns and keys that differ are written.
fn configure(transaction: &mut Transaction, change: &OvsBridgeChange, found: &OvsBridgeFacts) {
    let mut row = Map::new();
    if default_empty(&change.datapath_type) != default_empty(&found.datapath_type) {
        row.insert("datapath_type".to_owned(), change.datapath_type.clone().into());
    }
    if change.fail_mode != found.fail_mode {
        row.insert("fail_mode".to_owned(), value::optional(change.fail_mode.clone()));
    }
    let mut mutations = map_mutations("external_ids", &change.external_ids, &found.external_ids);
    mutations.extend(map_mutations("other_config", &change.other_config, &found.other_config));
    let stale: Vec<&String> = found
        .ports
        .iter()
        .filter(|port| change.stale_ports.contains(&port.name))
        .map(|port| &port.uuid)
        .collect();
    if !stale.is_empty() {
        mutations.push(json!(["ports", "delete", uuids(stale)]));
    }
    let mut inserted = Vec::new();
    if !found.ports.iter().any(|port| port.name == found.name) {
        inserted.push(insert_internal(transaction, &found.name));
    }
    match find_uplink(found, &change.uplink.name) {
        Some((port, interface)) => configure_uplink(transaction, &change.uplink, port, interface),
        None => inserted.push(insert_uplink(transaction, &change.uplink)),
    }
    if !inserted.is_empty() {
        mutations.push(json!(["ports", "insert", value::set(inserted)]));
    }
    write(transaction, "Bridge", &found.uuid, row, &mutations);
}

fn configure_uplink(
    transaction: &mut Transaction,
    uplink: &OvsUplinkChange,
    port: &OvsPortFacts,
    interface: &OvsInterfaceFacts,
) {
    let of_port = map_mutations("external_ids", &uplink.port_external_ids, &port.external_ids);
    write(transaction, "Port", &port.uuid, Map::new(), &of_port);
    let mut row = Map::new();
    if default_empty(&uplink.type_) != default_empty(&interface.type_) {
        row.insert("type".to_owned(), uplink.type_.clone().into());
    }
    if uplink.mtu_request != interface.mtu_request {
        row.insert("mtu_request".to_owned(), value::optional(uplink.mtu_request));
    }
    let mut mutations = map_mutations("options", &uplink.options, &interface.options);
    mutations.extend(map_mutations("external_ids", &uplink.external_ids, &interface.external_ids));
    mutations.extend(map_mutations("other_config", &uplink.other_config, &interface.other_config));
    write(transaction, "Interface", &interface.uuid, row, &mutations);
}

fn write(
    transaction: &mut Transaction,
    table: &'static str,
    uuid: &str,
    row: Map<String, Value>,
    mutations: &[Value],
) {
    if !row.is_empty() {
        transaction.push(Operation::update(table, uuid, &Value::Object(row)));
    }
    if !mutations.is_empty() {
        transaction.push(Operation::mutate(table, uuid, mutations));
    }
}

/// Returns the mutations of a map. An insertion does not replace a value: its key is deleted first.
fn map_mutations(column: &str, change: &MapChange, found: &BTreeMap<String, String>) -> Vec<Value> {
    let wrong = |(key, value): &(&String, &String)| found.get(*key) != Some(*value);
    let set: BTreeMap<String, String> =
        change.set.iter().filter(wrong).map(|(key, value)| (key.clone(), value.clone())).collect();
    let is_removed = |key: &&String| change.remove.contains(*key) && !change.set.contains_key(*key);
    let removed: Vec<Value> = found
        .keys()
        .filter(|key| set.contains_key(*key) || is_removed(key))
        .map(|key| Value::from(key.as_str()))
        .collect();
    let delete = (!removed.is_empty()).then(|| json!([column, "delete", value::set(removed)]));
    let insert = (!set.is_empty()).then(|| json!([column, "insert", value::map(&set)]));
    delete.into_iter().chain(insert).collect()
}

/// Returns a type of a datapath or interface with its default name, which is empty.
fn default_empty(type_: &str) -> &str {
    if type_ == "system" { "" } else { type_ }
}

/// Returns the port of the uplink, and its only interface.
fn find_uplink<'b>(
    bridge: &'b OvsBridgeFacts,
    name: &str,
) -> Option<(&'b OvsPortFacts, &'b OvsInterfaceFacts)> {
    let port = bridge.ports.iter().find(|port| port.name == name)?;
    match port.interfaces.as_slice() {
        [interface] if interface.name == name => Some((port, interface)),
        _ => None,
    }
}

/// Returns whether a bridge has the result of a change.
fn is_done(change: &OvsBridgeChange, bridge: &OvsBridgeFacts) -> bool {
    let has_port = |name: &String| bridge.ports.iter().any(|port| port.name == *name);
    let is_same = |one: &str, other: &str| default_empty(one) == default_empty(other);
    let uplink = find_uplink(bridge, &change.uplink.name);
    is_same(&change.datapath_type, &bridge.datapath_type)
        && change.fail_mode == bridge.fail_mode
        && change.external_ids.is_done(&bridge.external_ids)
        && change.other_config.is_done(&bridge.other_config)
        && has_port(&bridge.name)
        && !change.stale_ports.iter().any(has_port)
        && uplink.is_some_and(|(port, interface)| {
            let wanted = &change.uplink;
            wanted.port_external_ids.is_done(&port.external_ids)
                && is_same(&wanted.type_, &interface.type_)
                && wanted.options.is_done(&interface.options)
                && wanted.external_ids.is_done(&interface.external_ids)
                && wanted.other_config.is_done(&interface.other_config)
                && wanted.mtu_request == interface.mtu_request
        })
}
