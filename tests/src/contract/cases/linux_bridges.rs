//! Linux bridges: creation, configuration and removal, and bridges of others.

use vfleet_api::bridge::BridgeVlanProtocol::{Ieee8021Q, Ieee8021ad};
use vfleet_plan::{LinuxBridgeFacts, LinuxBridgeState, Step};

use super::cases;
use crate::contract::check::bridges::{
    BRIDGE, DEFAULT_STATE, FOREIGN, attach_step, compare_linux, compare_linux_bridge, configure_step,
    create_linux_bridge, create_step, detach_step, execute_twice, expect_master, interface_name, port_step,
    remove_step,
};
use crate::contract::check::{ensure, execute, expect_eq, expect_refusal};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    creates_a_linux_bridge: NoVfs,
    sets_vlan_filtering_and_protocol_of_a_linux_bridge: NoVfs,
    sets_the_mtu_of_a_linux_bridge: NoVfs,
    sets_a_linux_bridge_up: NoVfs,
    a_linux_bridge_accepts_no_router_advertisements: NoVfs,
    attaches_and_detaches_an_uplink: NoVfs,
    removes_a_linux_bridge: NoVfs,
    continues_a_linux_bridge_that_was_begun: NoVfs,
    refuses_steps_on_a_missing_linux_bridge: NoVfs,
    leaves_a_foreign_linux_bridge_alone: NoVfs,
    leaves_an_interface_with_the_name_of_a_bridge_alone: NoVfs,
    keeps_a_linux_bridge_with_foreign_ports: NoVfs,
    refuses_an_uplink_of_another_linux_bridge: NoVfs,
    refuses_an_uplink_of_a_bond: NoVfs,
    reports_linux_bridges_of_others: NoVfs,
}

/// Returns the name and the ports of each bridge.
fn names(bridges: &[LinuxBridgeFacts]) -> Vec<(&str, Vec<&str>)> {
    bridges
        .iter()
        .map(|bridge| (bridge.name.as_str(), bridge.ports.iter().map(|port| port.name.as_str()).collect()))
        .collect()
}

fn creates_a_linux_bridge(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the bridges at the start", &compare_linux(testbed)?, &Vec::new())?;
    execute_twice(testbed, &create_step(testbed))?;
    let created = compare_linux_bridge(testbed)?;
    let alias = format!("vfleet bridge of {}", testbed.pf());
    expect_eq("the alias", &created.alias.as_deref(), &Some(alias.as_str()))?;
    expect_eq("the group", &created.group, &LinuxBridgeFacts::NEW_GROUP)?;
    ensure(!created.admin_up && created.ports.is_empty(), format!("a new bridge is up: {created:?}"))
}

fn sets_vlan_filtering_and_protocol_of_a_linux_bridge(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[create_step(testbed), attach_step(testbed)])?;
    testbed.admin().add_port_vlan(BRIDGE, testbed.pf(), 100)?;
    let combinations = [(true, Ieee8021ad), (true, Ieee8021Q), (false, Ieee8021ad), (false, Ieee8021Q)];
    for (vlan_filtering, vlan_protocol) in combinations {
        let state = LinuxBridgeState { vlan_filtering, vlan_protocol, ..DEFAULT_STATE };
        execute_twice(testbed, &configure_step(testbed, state))?;
        let bridge = compare_linux_bridge(testbed)?;
        expect_eq("VLAN filtering", &bridge.vlan_filtering, &vlan_filtering)?;
        expect_eq("the VLAN protocol", &bridge.vlan_protocol, &Some(vlan_protocol))?;
        let vlans = testbed.observer().port_vlans(testbed.pf())?;
        expect_eq("the VLANs that others added", &vlans, &[1, 100].into())?;
    }
    Ok(())
}

/// The MTU of a bridge follows that of its ports until it is set.
fn sets_the_mtu_of_a_linux_bridge(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().set_mtu(testbed.pf(), 3000)?;
    execute(testbed, &[create_step(testbed), attach_step(testbed)])?;
    expect_eq("the MTU of a new bridge", &compare_linux_bridge(testbed)?.mtu, &3000)?;
    execute(testbed, &[detach_step(testbed)])?;
    expect_eq("the MTU without a port", &compare_linux_bridge(testbed)?.mtu, &1500)?;
    for mtu in [9000, 1400] {
        let state = LinuxBridgeState { mtu, ..DEFAULT_STATE };
        execute_twice(testbed, &configure_step(testbed, state))?;
        execute(testbed, &[attach_step(testbed)])?;
        expect_eq("the MTU", &compare_linux_bridge(testbed)?.mtu, &mtu)?;
        execute(testbed, &[detach_step(testbed)])?;
        expect_eq("the MTU without a port", &compare_linux_bridge(testbed)?.mtu, &mtu)?;
    }
    Ok(())
}

fn sets_a_linux_bridge_up(testbed: &dyn TestBed) -> CaseResult {
    create_linux_bridge(testbed)?;
    for _ in 0..2 {
        let bridge = compare_linux_bridge(testbed)?;
        ensure(bridge.admin_up && bridge.group == 0, format!("the bridge is not configured: {bridge:?}"))?;
        testbed.admin().set_bridge_up(BRIDGE, false)?;
        testbed.admin().set_bridge_group(BRIDGE, 7)?;
        execute_twice(testbed, &configure_step(testbed, DEFAULT_STATE))?;
    }
    Ok(())
}

/// With an address from a router the node would use the bridge, which could never be removed.
fn a_linux_bridge_accepts_no_router_advertisements(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[create_step(testbed)])?;
    ensure(compare_linux_bridge(testbed)?.accepts_ra, "a new bridge accepts no router advertisements")?;
    for mtu in [1500, 1500, 1400] {
        let state = LinuxBridgeState { mtu, ..DEFAULT_STATE };
        execute_twice(testbed, &configure_step(testbed, state))?;
        let bridge = compare_linux_bridge(testbed)?;
        ensure(!bridge.accepts_ra && bridge.admin_up, format!("the bridge accepts them: {bridge:?}"))?;
        testbed.admin().set_accept_ra(BRIDGE, true)?;
        ensure(compare_linux_bridge(testbed)?.accepts_ra, "a change by others is not reported")?;
    }
    Ok(())
}

fn attaches_and_detaches_an_uplink(testbed: &dyn TestBed) -> CaseResult {
    let interface = interface_name(testbed)?;
    execute(testbed, &[create_step(testbed)])?;
    execute_twice(testbed, &attach_step(testbed))?;
    expect_eq("the bridges", &names(&compare_linux(testbed)?), &vec![(BRIDGE, vec![interface.as_str()])])?;
    expect_master(testbed, Some(BRIDGE))?;
    execute_twice(testbed, &detach_step(testbed))?;
    expect_eq("the bridges", &names(&compare_linux(testbed)?), &vec![(BRIDGE, vec![])])?;
    expect_master(testbed, None)
}

fn removes_a_linux_bridge(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().add_bridge(FOREIGN)?;
    create_linux_bridge(testbed)?;
    let text = expect_refusal(testbed, &remove_step(testbed), "BridgeInUse")?;
    ensure(text.contains(&interface_name(testbed)?), text)?;
    execute(testbed, &[detach_step(testbed)])?;
    execute_twice(testbed, &remove_step(testbed))?;
    expect_eq("the bridges", &names(&compare_linux(testbed)?), &vec![(FOREIGN, vec![])])?;
    // The PF of a bridge that is gone is detached.
    execute(testbed, &[detach_step(testbed)])
}

fn continues_a_linux_bridge_that_was_begun(testbed: &dyn TestBed) -> CaseResult {
    let begin = || {
        testbed.admin().add_bridge(BRIDGE)?;
        testbed.admin().set_bridge_group(BRIDGE, LinuxBridgeFacts::NEW_GROUP)
    };
    begin()?;
    for step in [configure_step(testbed, DEFAULT_STATE), attach_step(testbed)] {
        expect_refusal(testbed, &step, "BridgeNotOurs")?;
    }
    create_linux_bridge(testbed)?;
    let bridge = compare_linux_bridge(testbed)?;
    expect_eq("the PF of the alias", &bridge.marked_uplink(), &Some(testbed.pf()))?;
    execute(testbed, &[detach_step(testbed), remove_step(testbed)])?;
    begin()?;
    execute(testbed, &[remove_step(testbed)])?;
    expect_eq("the bridges", &compare_linux(testbed)?, &Vec::new())
}

fn refuses_steps_on_a_missing_linux_bridge(testbed: &dyn TestBed) -> CaseResult {
    let steps = [configure_step(testbed, DEFAULT_STATE), attach_step(testbed), port_step(testbed, &[])];
    for step in steps {
        expect_refusal(testbed, &step, "BridgeNotFound")?;
    }
    execute(testbed, &[detach_step(testbed), remove_step(testbed)])?;
    expect_master(testbed, None)?;
    expect_eq("the bridges", &compare_linux(testbed)?, &Vec::new())
}

/// Returns all steps that change a Linux bridge of the card.
fn all_steps(testbed: &dyn TestBed) -> [Step; 6] {
    let state = LinuxBridgeState { vlan_filtering: true, mtu: 1400, ..DEFAULT_STATE };
    [
        create_step(testbed),
        configure_step(testbed, state),
        attach_step(testbed),
        port_step(testbed, &[("flood", "off")]),
        detach_step(testbed),
        remove_step(testbed),
    ]
}

/// Checks that every step on the bridge of the card is refused and changes nothing.
fn expect_untouched(testbed: &dyn TestBed) -> CaseResult {
    let before = compare_linux(testbed)?;
    for step in all_steps(testbed) {
        let text = expect_refusal(testbed, &step, "BridgeNotOurs")?;
        ensure(text.contains(BRIDGE), text)?;
    }
    expect_eq("the bridges of others", &compare_linux(testbed)?, &before)
}

fn leaves_a_foreign_linux_bridge_alone(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().add_bridge(BRIDGE)?;
    expect_untouched(testbed)?;
    for alias in ["another program", &LinuxBridgeFacts::alias_of(testbed.other_pf())] {
        testbed.admin().set_bridge_alias(BRIDGE, alias)?;
        expect_untouched(testbed)?;
    }
    // With the PF as its port.
    testbed.admin().add_port(BRIDGE, testbed.pf())?;
    expect_untouched(testbed)?;
    expect_master(testbed, Some(BRIDGE))
}

fn leaves_an_interface_with_the_name_of_a_bridge_alone(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().add_bond(BRIDGE, testbed.other_pf())?;
    expect_untouched(testbed)?;
    expect_eq("the bridges", &compare_linux(testbed)?, &Vec::new())
}

fn keeps_a_linux_bridge_with_foreign_ports(testbed: &dyn TestBed) -> CaseResult {
    create_linux_bridge(testbed)?;
    testbed.admin().add_port(BRIDGE, testbed.other_pf())?;
    execute(testbed, &[detach_step(testbed)])?;
    let before = compare_linux_bridge(testbed)?;
    expect_eq("the number of ports", &before.ports.len(), &1)?;
    let text = expect_refusal(testbed, &remove_step(testbed), "BridgeInUse")?;
    ensure(text.contains(&before.ports[0].name), text)?;
    expect_eq("the bridge", &compare_linux_bridge(testbed)?, &before)?;
    testbed.admin().remove_port(BRIDGE, testbed.other_pf())?;
    execute(testbed, &[remove_step(testbed)])
}

/// Checks that the card stays a port or member of `master`.
fn expect_refused_uplink(testbed: &dyn TestBed, master: &str) -> CaseResult {
    execute(testbed, &[create_step(testbed)])?;
    let before = compare_linux(testbed)?;
    let text = expect_refusal(testbed, &attach_step(testbed), "UplinkOfOtherBridge")?;
    ensure(text.contains(master), text)?;
    expect_refusal(testbed, &port_step(testbed, &[("flood", "off")]), "UplinkNotAttached")?;
    execute(testbed, &[detach_step(testbed)])?;
    expect_eq("the bridges", &compare_linux(testbed)?, &before)?;
    expect_master(testbed, Some(master))
}

fn refuses_an_uplink_of_another_linux_bridge(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().add_bridge(FOREIGN)?;
    testbed.admin().add_port(FOREIGN, testbed.pf())?;
    expect_refused_uplink(testbed, FOREIGN)
}

fn refuses_an_uplink_of_a_bond(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().add_bond("contract-bond", testbed.pf())?;
    expect_refused_uplink(testbed, "contract-bond")
}

fn reports_linux_bridges_of_others(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().add_bridge(FOREIGN)?;
    testbed.admin().set_bridge_alias(FOREIGN, "another program")?;
    testbed.admin().set_bridge_group(FOREIGN, 7)?;
    testbed.admin().set_bridge_up(FOREIGN, true)?;
    for pf in [testbed.pf(), testbed.other_pf()] {
        testbed.admin().add_port(FOREIGN, pf)?;
    }
    testbed.admin().set_port_setting(FOREIGN, testbed.pf(), "learning", "off")?;
    let bridges = compare_linux(testbed)?;
    let [bridge] = bridges.as_slice() else {
        return Err(CaseError::Failed(format!("not one bridge: {bridges:?}")));
    };
    ensure(bridge.group == 7 && bridge.admin_up && bridge.ports.len() == 2, format!("{bridge:?}"))?;
    execute(testbed, &[create_step(testbed)])?;
    expect_eq("the foreign bridge", &compare_linux(testbed)?.last(), &Some(bridge))
}
