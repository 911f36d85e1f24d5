//! Open vSwitch bridges: creation, changes and removal.

use vfleet_plan::{MapChange, OvsBridgeChange, OvsBridgeFacts, OvsUplinkChange, Step};

use super::cases;
use crate::contract::bridges::OvsTable;
use crate::contract::check::bridges::{
    BRIDGE, FOREIGN, compare_ovs, compare_ovs_bridge, create_ovs_bridge, expect_master, interface_name,
    ovs_change, ovs_step, set_entries, to_map,
};
use crate::contract::check::{ensure, execute, expect_eq, expect_refusal, expect_some, observe_pf};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    creates_an_ovs_bridge: NoVfs,
    creates_an_ovs_bridge_with_a_userspace_datapath: NoVfs,
    creates_an_ovs_bridge_with_all_settings: NoVfs,
    changes_an_ovs_bridge_in_place: NoVfs,
    repairs_an_ovs_bridge: NoVfs,
    removes_an_ovs_bridge: NoVfs,
    removes_a_port_of_an_ovs_bridge: NoVfs,
    removes_stale_ports_of_an_ovs_bridge: NoVfs,
    enables_hardware_offload_of_ovs: NoVfs,
}

/// Returns an empty datapath type for its default name.
fn datapath(bridge: &OvsBridgeFacts) -> &str {
    if bridge.datapath_type == "system" { "" } else { &bridge.datapath_type }
}

/// Returns the names of the ports of a bridge.
fn ports(bridge: &OvsBridgeFacts) -> Vec<&str> {
    bridge.ports.iter().map(|port| port.name.as_str()).collect()
}

/// Returns the UUIDs of all rows of a bridge.
fn uuids(bridge: &OvsBridgeFacts) -> Vec<&str> {
    let ports = bridge.ports.iter().map(|port| port.uuid.as_str());
    let interfaces = bridge.ports.iter().flat_map(|port| &port.interfaces);
    let interfaces = interfaces.map(|interface| interface.uuid.as_str());
    [bridge.uuid.as_str()].into_iter().chain(ports).chain(interfaces).collect()
}

fn creates_an_ovs_bridge(testbed: &dyn TestBed) -> CaseResult {
    let (change, created) = create_ovs_bridge(testbed)?;
    let interface = interface_name(testbed)?;
    let mut expected = vec![BRIDGE, &interface];
    expected.sort_unstable();
    expect_eq("the ports", &ports(&created), &expected)?;
    let internal = expect_some("the internal port", created.ports.iter().find(|port| port.name == BRIDGE))?;
    expect_eq("the type of the internal port", &internal.interfaces[0].type_.as_str(), &"internal")?;
    expect_eq("the marks", &created.external_ids, &change.external_ids.set)?;
    expect_master(testbed, Some("ovs-system"))?;
    ensure(created.ports.iter().all(|port| port.interfaces[0].error.is_none()), format!("{created:?}"))?;
    execute(testbed, &[ovs_step(testbed, &change, None)])?;
    expect_eq("the bridge after another execution", &compare_ovs_bridge(testbed)?, &created)
}

/// The kernel has no ports of such a bridge.
fn creates_an_ovs_bridge_with_a_userspace_datapath(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    let change = OvsBridgeChange { datapath_type: "netdev".to_owned(), ..ovs_change(testbed)? };
    execute(testbed, &[ovs_step(testbed, &change, None)])?;
    expect_eq("the datapath type", &datapath(&compare_ovs_bridge(testbed)?), &"netdev")?;
    expect_master(testbed, None)
}

/// Returns a change with a value for each setting.
fn all_settings(testbed: &dyn TestBed) -> Result<OvsBridgeChange, CaseError> {
    let change = ovs_change(testbed)?;
    let with = |map: &MapChange, entries: &[(&str, &str)]| {
        let set = map.set.clone().into_iter().chain(to_map(entries)).collect();
        MapChange { set, ..map.clone() }
    };
    let uplink = OvsUplinkChange {
        type_: "system".to_owned(),
        options: set_entries(&[("n_rxq", "2")]),
        external_ids: set_entries(&[("uplink", "yes"), ("spaced", "a \"quoted\" value")]),
        other_config: set_entries(&[("emc-enable", "false")]),
        mtu_request: Some(3000),
        ..change.uplink
    };
    Ok(OvsBridgeChange {
        datapath_type: "system".to_owned(),
        fail_mode: Some("secure".to_owned()),
        external_ids: with(&change.external_ids, &[("tenant", "blue"), ("zone", "one")]),
        other_config: set_entries(&[("mac-aging-time", "100"), ("mac-table-size", "1000")]),
        uplink,
        ..change
    })
}

/// Checks that a bridge has the settings of a change, and no entries but these and `foreign`.
fn expect_settings(
    testbed: &dyn TestBed,
    change: &OvsBridgeChange,
    foreign: &[(&str, &str)],
) -> Result<OvsBridgeFacts, CaseError> {
    let bridge = compare_ovs_bridge(testbed)?;
    let port = bridge.ports.iter().find(|port| port.name == change.uplink.name);
    let port = expect_some("the uplink", port)?;
    let interface = expect_some("the interface", port.interfaces.first())?;
    let expected = |map: &MapChange| {
        let foreign = to_map(foreign);
        foreign.into_iter().chain(map.set.clone()).collect()
    };
    expect_eq("fail_mode", &bridge.fail_mode, &change.fail_mode)?;
    expect_eq("external_ids", &bridge.external_ids, &expected(&change.external_ids))?;
    expect_eq("other_config", &bridge.other_config, &expected(&change.other_config))?;
    expect_eq("external_ids of the port", &port.external_ids, &expected(&change.uplink.port_external_ids))?;
    expect_eq("options", &interface.options, &change.uplink.options.set)?;
    let external_ids = &change.uplink.external_ids;
    expect_eq("external_ids of the interface", &interface.external_ids, &expected(external_ids))?;
    let other_config = &change.uplink.other_config;
    expect_eq("other_config of the interface", &interface.other_config, &expected(other_config))?;
    expect_eq("mtu_request", &interface.mtu_request, &change.uplink.mtu_request)?;
    Ok(bridge)
}

fn creates_an_ovs_bridge_with_all_settings(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    let change = all_settings(testbed)?;
    execute(testbed, &[ovs_step(testbed, &change, None)])?;
    let created = expect_settings(testbed, &change, &[])?;
    expect_eq("the MTU of the PF", &observe_pf(testbed)?.link.map(|link| link.mtu), &Some(3000))?;
    execute(testbed, &[ovs_step(testbed, &change, None)])?;
    expect_eq("the bridge after another execution", &compare_ovs_bridge(testbed)?, &created)
}

/// Sets an entry of each map of the bridge and its uplink, as another program does.
fn set_foreign_entries(testbed: &dyn TestBed, key: &str, value: &str) -> CaseResult {
    let uplink = interface_name(testbed)?;
    let rows = [(OvsTable::Bridge, BRIDGE), (OvsTable::Interface, &uplink)];
    for (table, row) in rows {
        for column in ["external_ids", "other_config"] {
            testbed.admin().set_ovs_entry(table, row, column, key, value)?;
        }
    }
    testbed.admin().set_ovs_entry(OvsTable::Port, &uplink, "external_ids", key, value)
}

fn changes_an_ovs_bridge_in_place(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    testbed.admin().add_ovs_bridge(FOREIGN)?;
    let first = all_settings(testbed)?;
    execute(testbed, &[ovs_step(testbed, &first, None)])?;
    set_foreign_entries(testbed, "foreign", "kept")?;
    testbed.admin().add_internal_ovs_port(BRIDGE, "contract-pod")?;
    let before = compare_ovs(testbed)?;
    let observed = expect_some("the bridge", before.bridge(BRIDGE))?;
    // Other values, fewer keys, no columns.
    let mut change = ovs_change(testbed)?;
    change.external_ids.set.insert("tenant".to_owned(), "green".to_owned());
    change.external_ids.remove.insert("zone".to_owned());
    change.other_config =
        MapChange { set: to_map(&[("mac-aging-time", "50")]), remove: ["mac-table-size".to_owned()].into() };
    let given_up =
        |map: &MapChange| MapChange { remove: map.set.keys().cloned().collect(), ..MapChange::default() };
    change.uplink.options = given_up(&first.uplink.options);
    change.uplink.external_ids = given_up(&first.uplink.external_ids);
    change.uplink.other_config = given_up(&first.uplink.other_config);
    let step = ovs_step(testbed, &change, Some(observed));
    execute(testbed, std::slice::from_ref(&step))?;
    let changed = expect_settings(testbed, &change, &[("foreign", "kept")])?;
    expect_eq("the rows", &uuids(&changed), &uuids(observed))?;
    expect_eq("the foreign bridge", &compare_ovs(testbed)?.bridge(FOREIGN), &before.bridge(FOREIGN))?;
    expect_master(testbed, Some("ovs-system"))?;
    execute(testbed, &[step])?;
    expect_eq("the bridge after another execution", &compare_ovs_bridge(testbed)?, &changed)
}

fn repairs_an_ovs_bridge(testbed: &dyn TestBed) -> CaseResult {
    let (change, created) = create_ovs_bridge(testbed)?;
    let interface = interface_name(testbed)?;
    testbed.admin().remove_ovs_port(&interface)?;
    expect_master(testbed, None)?;
    let found = compare_ovs_bridge(testbed)?;
    expect_eq("the ports", &ports(&found), &vec![BRIDGE])?;
    execute(testbed, &[ovs_step(testbed, &change, Some(&found))])?;
    let repaired = compare_ovs_bridge(testbed)?;
    expect_eq("the ports", &ports(&repaired), &ports(&created))?;
    expect_eq("the row of the bridge", &repaired.uuid, &created.uuid)?;
    expect_master(testbed, Some("ovs-system"))?;

    testbed.admin().remove_ovs_bridge(BRIDGE)?;
    expect_eq("the bridges", &compare_ovs(testbed)?.bridges, &Vec::new())?;
    expect_refusal(testbed, &ovs_step(testbed, &change, Some(&repaired)), "BridgeChanged")?;
    execute(testbed, &[ovs_step(testbed, &change, None)])?;
    expect_eq("the ports", &ports(&compare_ovs_bridge(testbed)?), &ports(&created))
}

fn removes_an_ovs_bridge(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    testbed.admin().add_ovs_bridge(FOREIGN)?;
    testbed.admin().add_ovs_port(FOREIGN, testbed.other_pf())?;
    let foreign = compare_ovs(testbed)?.bridges;
    let (_, observed) = create_ovs_bridge(testbed)?;
    let step = Step::RemoveOvsBridge { pf: testbed.pf(), observed };
    for _ in 0..2 {
        execute(testbed, std::slice::from_ref(&step))?;
        expect_eq("the bridges", &compare_ovs(testbed)?.bridges, &foreign)?;
        expect_master(testbed, None)?;
    }
    Ok(())
}

fn removes_a_port_of_an_ovs_bridge(testbed: &dyn TestBed) -> CaseResult {
    create_ovs_bridge(testbed)?;
    testbed.admin().add_internal_ovs_port(BRIDGE, "contract-pod")?;
    let observed = compare_ovs_bridge(testbed)?;
    let port = interface_name(testbed)?;
    let step = Step::RemoveOvsPort { pf: testbed.pf(), port: port.clone(), observed: observed.clone() };
    for _ in 0..2 {
        execute(testbed, std::slice::from_ref(&step))?;
        let mut expected = observed.clone();
        expected.ports.retain(|found| found.name != port);
        expect_eq("the bridge", &compare_ovs_bridge(testbed)?, &expected)?;
        expect_master(testbed, None)?;
    }
    Ok(())
}

fn removes_stale_ports_of_an_ovs_bridge(testbed: &dyn TestBed) -> CaseResult {
    let (change, _) = create_ovs_bridge(testbed)?;
    for port in ["contract-old", "contract-pod"] {
        testbed.admin().add_internal_ovs_port(BRIDGE, port)?;
    }
    let observed = compare_ovs_bridge(testbed)?;
    let change = OvsBridgeChange { stale_ports: vec!["contract-old".to_owned()], ..change };
    execute(testbed, &[ovs_step(testbed, &change, Some(&observed))])?;
    let mut expected = observed;
    expected.ports.retain(|port| port.name != "contract-old");
    expect_eq("the bridge", &compare_ovs_bridge(testbed)?, &expected)
}

fn enables_hardware_offload_of_ovs(testbed: &dyn TestBed) -> CaseResult {
    let (_, observed) = create_ovs_bridge(testbed)?;
    ensure(!compare_ovs(testbed)?.has_offload, "hardware offload is enabled at the start")?;
    for _ in 0..2 {
        execute(testbed, &[Step::EnableOvsOffload])?;
        ensure(compare_ovs(testbed)?.has_offload, "hardware offload is not enabled")?;
    }
    let config = testbed.observer().ovs_config("hw-offload")?;
    expect_eq("other_config:hw-offload", &config.as_deref(), &Some("true"))?;
    expect_eq("the bridge", &compare_ovs_bridge(testbed)?, &observed)
}
