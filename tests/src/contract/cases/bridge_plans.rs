//! Whole plans with software bridges: creation, change in place, repair and reset.
//!
//! The cards are in legacy mode: the steps for bridges are the same in switchdev mode, which takes long to set. Scenarios
//! in the lab use both.

use std::collections::BTreeMap;

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_api::bridge::{
    BridgeVlanProtocol, Bridges, LinuxBridgeConfigExt, LinuxBridgeSettings, LinuxBridgeUplinkConfigExt,
    OvsBridgeConfig, OvsConfigExt, OvsInterfaceConfig, OvsUplinkConfigExt,
};
use vfleet_plan::files::UDEV_RULES;
use vfleet_plan::{BridgeKind, HostFacts, NodeOptions, OvsBridgeFacts, Plan, plan_node_with};

use super::eswitch_plans::apply_with;
use super::{INITIAL_VFS, cases};
use crate::contract::bridges::OvsTable;
use crate::contract::check::bridges::{
    BRIDGE, FOREIGN, compare_linux, compare_linux_bridge, compare_ovs, compare_ovs_bridge, expect_master,
    interface_name, observe_port, to_map,
};
use crate::contract::check::{ensure, expect_eq, expect_some};
use crate::contract::specs::{group, spec, with_groups};
use crate::contract::testbed::{CaseResult, TestBed};

cases! {
    a_plan_creates_changes_repairs_and_removes_a_linux_bridge: VfsCreatedUp,
    a_plan_creates_changes_repairs_and_removes_an_ovs_bridge: VfsCreatedUp,
    a_plan_replaces_a_linux_bridge_by_an_ovs_bridge: VfsCreatedUp,
    a_plan_leaves_a_foreign_bridge_of_the_same_name_alone: VfsCreatedUp,
}

const OPTIONS: NodeOptions =
    NodeOptions { firmware_reset: false, mellanox: true, manage_bridges: true, ovs_offload: true };

/// Returns a desired state with these bridges.
fn with_bridges(testbed: &dyn TestBed, bridges: Option<Bridges>) -> SriovNetworkNodeStateSpec {
    let groups = vec![group("netdevice", (0, INITIAL_VFS - 1), None)];
    let interface = with_groups(testbed.pf(), INITIAL_VFS.into(), None, groups);
    SriovNetworkNodeStateSpec { bridges, ..spec(vec![interface]) }
}

fn linux(testbed: &dyn TestBed, vlan_filtering: bool, uplink: &[(&str, &str)]) -> SriovNetworkNodeStateSpec {
    let uplink = LinuxBridgeUplinkConfigExt {
        pci_address: testbed.pf().into(),
        name: None,
        uplink: Some(to_map(uplink)),
    };
    let bridge = LinuxBridgeConfigExt {
        name: BRIDGE.to_owned(),
        bridge: Some(LinuxBridgeSettings {
            vlan_filtering: Some(vlan_filtering),
            vlan_protocol: Some(BridgeVlanProtocol::Ieee8021ad),
        }),
        uplinks: Some(vec![uplink]),
        conditions: None,
    };
    with_bridges(testbed, Some(Bridges { ovs: None, linux: Some(vec![bridge]) }))
}

fn ovs(testbed: &dyn TestBed, external_ids: &[(&str, &str)], mtu: Option<i64>) -> SriovNetworkNodeStateSpec {
    let uplink = OvsUplinkConfigExt {
        pci_address: testbed.pf().into(),
        name: None,
        interface: Some(OvsInterfaceConfig { mtu_request: mtu, ..OvsInterfaceConfig::default() }),
    };
    let bridge = OvsConfigExt {
        name: BRIDGE.to_owned(),
        bridge: Some(OvsBridgeConfig {
            external_ids: Some(to_map(external_ids)),
            ..OvsBridgeConfig::default()
        }),
        uplinks: Some(vec![uplink]),
        conditions: None,
    };
    with_bridges(testbed, Some(Bridges { ovs: Some(vec![bridge]), linux: None }))
}

fn plan(desired: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Plan {
    plan_node_with(desired, facts, &OPTIONS)
}

/// Applies a spec and checks that no step and no problem is left.
fn apply(testbed: &dyn TestBed, desired: &SriovNetworkNodeStateSpec) -> CaseResult {
    let failures = apply_with(testbed, &|facts| plan(desired, facts))?;
    expect_eq("the failures", &failures, &Vec::new())?;
    let rest = plan(desired, &testbed.host().facts()?);
    let steps: Vec<String> = rest.steps.iter().map(ToString::to_string).collect();
    ensure(
        steps.is_empty() && rest.problems.is_empty(),
        format!("steps {steps:#?} and problems {:#?} are left", rest.problems),
    )
}

/// Checks the bridge in the record, and whether NetworkManager leaves it alone.
fn expect_record(testbed: &dyn TestBed, kind: Option<BridgeKind>) -> CaseResult {
    let facts = testbed.host().facts()?;
    let mut records = facts.records.iter().filter(|record| record.pf == testbed.pf());
    let bridge = records.next().and_then(|record| record.bridge.clone());
    expect_eq("the kind of the recorded bridge", &bridge.map(|bridge| bridge.kind), &kind)?;
    let rule = format!("{UDEV_RULES}/10-nm-bridge-{}.rules", testbed.pf());
    let has_rule = testbed.observer().file(&rule)?.is_some_and(|file| file.text.contains("NM_UNMANAGED"));
    expect_eq("whether the bridge has a udev rule", &has_rule, &kind.is_some())
}

/// Checks that the bridges and the record are gone after a reset.
fn expect_reset(testbed: &dyn TestBed) -> CaseResult {
    apply(testbed, &spec(Vec::new()))?;
    expect_record(testbed, None)?;
    expect_eq("the record", &testbed.observer().record(testbed.pf())?, &None)?;
    expect_master(testbed, None)
}

fn a_plan_creates_changes_repairs_and_removes_a_linux_bridge(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().add_bridge(FOREIGN)?;
    apply(testbed, &linux(testbed, true, &[("learning", "off"), ("cost", "77")]))?;
    let created = compare_linux_bridge(testbed)?;
    ensure(created.admin_up && created.vlan_filtering, format!("{created:?}"))?;
    expect_eq("the VLAN protocol", &created.vlan_protocol, &Some(BridgeVlanProtocol::Ieee8021ad))?;
    let settings = observe_port(testbed)?.settings;
    let found = ["learning", "cost"].map(|name| settings.get(name).map(String::as_str));
    expect_eq("the settings of the uplink", &found, &[Some("off"), Some("77")])?;
    expect_record(testbed, Some(BridgeKind::Linux))?;

    let changed = linux(testbed, false, &[("isolated", "on")]);
    apply(testbed, &changed)?;
    ensure(!compare_linux_bridge(testbed)?.vlan_filtering, "VLAN filtering was not disabled")?;
    let settings = observe_port(testbed)?.settings;
    let found = ["isolated", "learning"].map(|name| settings.get(name).map(String::as_str));
    expect_eq("the settings of the uplink", &found, &[Some("on"), Some("on")])?;

    testbed.admin().remove_port(BRIDGE, testbed.pf())?;
    apply(testbed, &changed)?;
    let settings = observe_port(testbed)?.settings;
    expect_eq("the repaired setting", &settings.get("isolated").map(String::as_str), &Some("on"))?;

    expect_reset(testbed)?;
    let names: Vec<String> = compare_linux(testbed)?.into_iter().map(|bridge| bridge.name).collect();
    expect_eq("the bridges", &names, &vec![FOREIGN.to_owned()])
}

/// Returns the entries of a bridge that are not marks of vfleet.
fn entries(bridge: &OvsBridgeFacts) -> BTreeMap<String, String> {
    let is_mark = |key: &String| key.contains("vfleet") || key.contains('/');
    let external_ids = bridge.external_ids.clone().into_iter();
    external_ids.filter(|(key, _)| !is_mark(key)).collect()
}

fn a_plan_creates_changes_repairs_and_removes_an_ovs_bridge(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    testbed.admin().add_ovs_bridge(FOREIGN)?;
    let desired = ovs(testbed, &[("tenant", "blue"), ("zone", "one")], Some(2000));
    apply(testbed, &desired)?;
    let created = compare_ovs_bridge(testbed)?;
    expect_eq("the entries", &entries(&created), &to_map(&[("tenant", "blue"), ("zone", "one")]))?;
    expect_master(testbed, Some("ovs-system"))?;
    expect_record(testbed, Some(BridgeKind::Ovs))?;

    testbed.admin().set_ovs_entry(OvsTable::Bridge, BRIDGE, "external_ids", "foreign", "kept")?;
    let changed = ovs(testbed, &[("tenant", "green")], None);
    apply(testbed, &changed)?;
    let bridge = compare_ovs_bridge(testbed)?;
    expect_eq("the entries", &entries(&bridge), &to_map(&[("foreign", "kept"), ("tenant", "green")]))?;
    expect_eq("the row of the bridge", &bridge.uuid, &created.uuid)?;
    let uplink = interface_name(testbed)?;
    let port = expect_some("the uplink", bridge.ports.iter().find(|port| port.name == uplink))?;
    expect_eq("mtu_request", &port.interfaces[0].mtu_request, &None)?;

    testbed.admin().remove_ovs_port(&uplink)?;
    testbed.admin().set_ovs_entry(OvsTable::Bridge, BRIDGE, "external_ids", "tenant", "red")?;
    apply(testbed, &changed)?;
    let repaired = compare_ovs_bridge(testbed)?;
    expect_eq("the entries", &repaired.external_ids, &bridge.external_ids)?;
    expect_eq("the number of ports", &repaired.ports.len(), &bridge.ports.len())?;

    expect_reset(testbed)?;
    let names: Vec<String> = compare_ovs(testbed)?.bridges.into_iter().map(|bridge| bridge.name).collect();
    expect_eq("the bridges", &names, &vec![FOREIGN.to_owned()])
}

fn a_plan_replaces_a_linux_bridge_by_an_ovs_bridge(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    apply(testbed, &linux(testbed, true, &[("learning", "off")]))?;
    expect_master(testbed, Some(BRIDGE))?;
    apply(testbed, &ovs(testbed, &[], None))?;
    expect_eq("the Linux bridges", &compare_linux(testbed)?, &Vec::new())?;
    expect_master(testbed, Some("ovs-system"))?;
    expect_record(testbed, Some(BridgeKind::Ovs))?;
    apply(testbed, &linux(testbed, false, &[]))?;
    expect_eq("the Open vSwitch bridges", &compare_ovs(testbed)?.bridges, &Vec::new())?;
    expect_master(testbed, Some(BRIDGE))?;
    expect_record(testbed, Some(BridgeKind::Linux))?;
    // A policy without a bridge keeps the VFs.
    apply(testbed, &with_bridges(testbed, None))?;
    expect_eq("the Linux bridges", &compare_linux(testbed)?, &Vec::new())?;
    expect_record(testbed, None)
}

fn a_plan_leaves_a_foreign_bridge_of_the_same_name_alone(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().add_bridge(BRIDGE)?;
    let before = compare_linux(testbed)?;
    let desired = linux(testbed, true, &[("learning", "off")]);
    let failures = apply_with(testbed, &|facts| plan(&desired, facts))?.join("\n");
    ensure(failures.contains(BRIDGE) && failures.contains("rename or remove it"), failures)?;
    let rest = plan(&desired, &testbed.host().facts()?);
    let reasons: Vec<&str> = rest.problems.iter().map(|problem| problem.cause.reason()).collect();
    expect_eq("the reasons of problems", &reasons, &vec!["BridgeNotOurs"])?;
    ensure(rest.steps.is_empty(), format!("{:?}", rest.steps))?;
    expect_eq("the bridges", &compare_linux(testbed)?, &before)?;
    expect_master(testbed, None)
}
