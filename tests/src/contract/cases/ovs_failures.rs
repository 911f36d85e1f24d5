//! Open vSwitch that does not run, does not follow, or refuses.

use vfleet_plan::{OvsBridgeChange, OvsFacts, OvsUplinkChange, Step};

use super::cases;
use crate::contract::check::bridges::{
    BRIDGE, FOREIGN, compare_ovs, compare_ovs_bridge, create_ovs_bridge, expect_master, interface_name,
    ovs_change, ovs_step,
};
use crate::contract::check::{ensure, execute, expect_eq, expect_refusal, expect_some};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    reports_that_ovs_is_not_running_and_then_empty: NoVfs,
    reports_that_ovs_does_not_follow: NoVfs,
    refuses_an_uplink_type_that_ovs_does_not_support: NoVfs,
    reports_an_ovs_bridge_with_an_unknown_datapath_type: NoVfs,
    refuses_an_ovs_uplink_that_is_a_port_of_a_linux_bridge: NoVfs,
    refuses_an_ovs_uplink_that_is_a_member_of_a_bond: NoVfs,
    refuses_an_ovs_uplink_that_is_a_port_of_another_ovs_bridge: NoVfs,
}

/// While it is stopped, its database is lost. ovs-vswitchd leaves the ports of the old database in the kernel until it has
/// a bridge again.
fn reports_that_ovs_is_not_running_and_then_empty(testbed: &dyn TestBed) -> CaseResult {
    let (change, observed) = create_ovs_bridge(testbed)?;
    execute(testbed, &[Step::EnableOvsOffload])?;
    testbed.admin().stop_ovs()?;
    let reported = testbed.host().facts()?.bridges.ovs;
    let OvsFacts::NotRunning { socket } = &reported else {
        return Err(CaseError::Failed(format!("Open vSwitch is {reported:?}")));
    };
    let port = interface_name(testbed)?;
    let steps = [
        ovs_step(testbed, &change, None),
        Step::RemoveOvsPort { pf: testbed.pf(), port, observed: observed.clone() },
        Step::RemoveOvsBridge { pf: testbed.pf(), observed: observed.clone() },
        Step::EnableOvsOffload,
    ];
    for step in steps {
        let text = expect_refusal(testbed, &step, "OvsNotRunning")?;
        ensure(text.contains(socket), text)?;
    }
    expect_master(testbed, Some("ovs-system"))?;

    testbed.admin().empty_ovs_database()?;
    let emptied = compare_ovs(testbed)?;
    expect_eq("the bridges", &emptied.bridges, &Vec::new())?;
    ensure(!emptied.has_offload, "hardware offload is still enabled")?;
    expect_master(testbed, Some("ovs-system"))?;
    expect_refusal(testbed, &ovs_step(testbed, &change, Some(&observed)), "BridgeChanged")?;
    execute(testbed, &[ovs_step(testbed, &change, None), Step::EnableOvsOffload])?;
    let created = compare_ovs_bridge(testbed)?;
    ensure(created.uuid != observed.uuid, "the bridge has its old row")?;
    expect_eq("the settings", &created.external_ids, &observed.external_ids)?;
    expect_master(testbed, Some("ovs-system"))
}

fn reports_that_ovs_does_not_follow(testbed: &dyn TestBed) -> CaseResult {
    let (mut change, observed) = create_ovs_bridge(testbed)?;
    testbed.admin().stop_ovs_switch()?;
    ensure(!compare_ovs(testbed)?.is_behind, "nothing was changed, but Open vSwitch is behind")?;
    // ovs-vswitchd reads the setting when it starts.
    execute(testbed, &[Step::EnableOvsOffload])?;
    change.external_ids.set.insert("tenant".to_owned(), "blue".to_owned());
    let step = ovs_step(testbed, &change, Some(&observed));
    expect_refusal(testbed, &step, "OvsNotFollowing")?;
    let stuck = compare_ovs(testbed)?;
    let bridge = expect_some("the bridge", stuck.bridge(BRIDGE))?;
    ensure(stuck.has_offload, "hardware offload is not enabled")?;
    ensure(stuck.is_behind, "ovs-vswitchd does not run, but Open vSwitch is not behind")?;
    expect_eq("the new entry", &bridge.external_ids.get("tenant").map(String::as_str), &Some("blue"))?;
    testbed.admin().start_ovs()?;
    execute(testbed, &[step])?;
    ensure(!compare_ovs(testbed)?.is_behind, "Open vSwitch is still behind")
}

/// Returns the error that Open vSwitch reports for the card.
fn uplink_error(testbed: &dyn TestBed) -> Result<Option<String>, CaseError> {
    let (bridge, name) = (compare_ovs_bridge(testbed)?, interface_name(testbed)?);
    let port = expect_some("the uplink", bridge.ports.iter().find(|port| port.name == name))?;
    Ok(expect_some("the interface", port.interfaces.first())?.error.clone())
}

fn refuses_an_uplink_type_that_ovs_does_not_support(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    let change = ovs_change(testbed)?;
    let dpdk = OvsUplinkChange { type_: "dpdk".to_owned(), ..change.uplink.clone() };
    let dpdk = OvsBridgeChange { uplink: dpdk, ..change.clone() };
    for _ in 0..2 {
        let text = expect_refusal(testbed, &ovs_step(testbed, &dpdk, None), "UplinkFailed")?;
        let error = expect_some("the error of the interface", uplink_error(testbed)?)?;
        ensure(text.contains(&error) && text.contains(&interface_name(testbed)?), text)?;
    }
    expect_master(testbed, None)?;
    let observed = compare_ovs_bridge(testbed)?;
    execute(testbed, &[ovs_step(testbed, &change, Some(&observed))])?;
    expect_eq("the error", &uplink_error(testbed)?, &None)?;
    expect_master(testbed, Some("ovs-system"))
}

/// ovs-vswitchd reports no error of such a bridge.
fn reports_an_ovs_bridge_with_an_unknown_datapath_type(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    let change = ovs_change(testbed)?;
    let unknown = OvsBridgeChange { datapath_type: "nonsense".to_owned(), ..change.clone() };
    for _ in 0..2 {
        let text = expect_refusal(testbed, &ovs_step(testbed, &unknown, None), "DatapathFailed")?;
        ensure(text.contains(BRIDGE) && text.contains("nonsense"), text)?;
    }
    let observed = compare_ovs_bridge(testbed)?;
    ensure(observed.lacks_datapath, format!("{observed:?}"))?;
    expect_eq("the error of the interface", &uplink_error(testbed)?, &None)?;
    expect_master(testbed, None)?;
    execute(testbed, &[Step::RemoveOvsBridge { pf: testbed.pf(), observed }])?;
    execute(testbed, &[ovs_step(testbed, &change, None)])?;
    ensure(!compare_ovs_bridge(testbed)?.lacks_datapath, "the bridge is not created")?;
    expect_master(testbed, Some("ovs-system"))
}

/// Checks that Open vSwitch does not take the card from `master`.
fn expect_busy_uplink(testbed: &dyn TestBed, master: &str) -> CaseResult {
    let text = expect_refusal(testbed, &ovs_step(testbed, &ovs_change(testbed)?, None), "UplinkFailed")?;
    ensure(text.contains("busy"), text)?;
    expect_some("the error", uplink_error(testbed)?)?;
    expect_master(testbed, Some(master))
}

fn refuses_an_ovs_uplink_that_is_a_port_of_a_linux_bridge(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    testbed.admin().add_bridge(FOREIGN)?;
    testbed.admin().add_port(FOREIGN, testbed.pf())?;
    expect_busy_uplink(testbed, FOREIGN)?;
    testbed.admin().remove_port(FOREIGN, testbed.pf())?;
    let observed = compare_ovs_bridge(testbed)?;
    execute(testbed, &[ovs_step(testbed, &ovs_change(testbed)?, Some(&observed))])?;
    expect_master(testbed, Some("ovs-system"))
}

fn refuses_an_ovs_uplink_that_is_a_member_of_a_bond(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    testbed.admin().add_bond("contract-bond", testbed.pf())?;
    expect_busy_uplink(testbed, "contract-bond")
}

fn refuses_an_ovs_uplink_that_is_a_port_of_another_ovs_bridge(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    testbed.admin().add_ovs_bridge(FOREIGN)?;
    testbed.admin().add_ovs_port(FOREIGN, testbed.pf())?;
    let before = compare_ovs(testbed)?;
    let text = expect_refusal(testbed, &ovs_step(testbed, &ovs_change(testbed)?, None), "OvsRefused")?;
    ensure(text.contains(&interface_name(testbed)?), text)?;
    expect_eq("Open vSwitch", &compare_ovs(testbed)?, &before)
}
