//! Open vSwitch bridges of other programs, and changes that other programs make meanwhile.

use vfleet_plan::{OvsBridgeFacts, Step};

use super::cases;
use crate::contract::bridges::OvsTable;
use crate::contract::check::bridges::{
    BRIDGE, FOREIGN, compare_ovs, compare_ovs_bridge, create_ovs_bridge, expect_master, interface_name,
    ovs_change, ovs_step, to_map,
};
use crate::contract::check::{ensure, execute, expect_eq, expect_refusal, expect_some};
use crate::contract::testbed::{CaseResult, TestBed};

cases! {
    leaves_a_foreign_ovs_bridge_alone: NoVfs,
    refuses_an_ovs_bridge_that_changed: NoVfs,
    changes_an_ovs_bridge_to_which_a_pod_was_attached_meanwhile: NoVfs,
    reports_ovs_bridges_of_others: NoVfs,
}

fn leaves_a_foreign_ovs_bridge_alone(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    testbed.admin().add_ovs_bridge(BRIDGE)?;
    testbed.admin().set_ovs_entry(OvsTable::Bridge, BRIDGE, "external_ids", "owner", "another program")?;
    let before = compare_ovs(testbed)?;
    let text = expect_refusal(testbed, &ovs_step(testbed, &ovs_change(testbed)?, None), "BridgeNotOurs")?;
    ensure(text.contains(BRIDGE), text)?;
    expect_eq("Open vSwitch", &compare_ovs(testbed)?, &before)?;
    expect_master(testbed, None)
}

/// A fast test bed tries a change of each table.
fn refuses_an_ovs_bridge_that_changed(testbed: &dyn TestBed) -> CaseResult {
    let (mut change, observed) = create_ovs_bridge(testbed)?;
    change.external_ids.set.insert("tenant".to_owned(), "blue".to_owned());
    let port = interface_name(testbed)?;
    let removals = |observed: &OvsBridgeFacts| {
        let (pf, observed) = (testbed.pf(), observed.clone());
        let remove_port = Step::RemoveOvsPort { pf, port: port.clone(), observed: observed.clone() };
        vec![remove_port, Step::RemoveOvsBridge { pf, observed }]
    };
    let refused = |steps: Vec<Step>| {
        let before = testbed.observer().ovs()?;
        for step in steps {
            let text = expect_refusal(testbed, &step, "BridgeChanged")?;
            ensure(text.contains(BRIDGE), text)?;
        }
        expect_eq("Open vSwitch", &testbed.observer().ovs()?, &before)
    };
    testbed.admin().add_internal_ovs_port(BRIDGE, "contract-pod")?;
    refused(removals(&observed))?;
    let tables = [(OvsTable::Interface, port.as_str()), (OvsTable::Port, &port), (OvsTable::Bridge, BRIDGE)];
    for (table, row) in tables.into_iter().take(if testbed.is_fast() { tables.len() } else { 1 }) {
        let observed = compare_ovs_bridge(testbed)?;
        testbed.admin().set_ovs_entry(table, row, "external_ids", "foreign", "new")?;
        let set = ovs_step(testbed, &change, Some(&observed));
        refused(removals(&observed).into_iter().chain([set]).collect())?;
    }
    // Created again by another program meanwhile.
    let observed = compare_ovs_bridge(testbed)?;
    testbed.admin().remove_ovs_bridge(BRIDGE)?;
    testbed.admin().add_ovs_bridge(BRIDGE)?;
    let before = compare_ovs(testbed)?;
    expect_refusal(testbed, &ovs_step(testbed, &change, Some(&observed)), "BridgeChanged")?;
    let remove = Step::RemoveOvsBridge { pf: testbed.pf(), observed };
    expect_refusal(testbed, &remove, "BridgeChanged")?;
    expect_eq("Open vSwitch", &compare_ovs(testbed)?, &before)
}

fn changes_an_ovs_bridge_to_which_a_pod_was_attached_meanwhile(testbed: &dyn TestBed) -> CaseResult {
    let (mut change, observed) = create_ovs_bridge(testbed)?;
    change.external_ids.set.insert("tenant".to_owned(), "blue".to_owned());
    testbed.admin().add_internal_ovs_port(BRIDGE, "contract-pod")?;
    let attached = compare_ovs_bridge(testbed)?;
    let steps = [ovs_step(testbed, &change, Some(&observed))];
    execute(testbed, &steps)?;
    let changed = compare_ovs_bridge(testbed)?;
    expect_eq("the ports", &changed.ports, &attached.ports)?;
    let tenant = changed.external_ids.get("tenant").map(String::as_str);
    expect_eq("the new entry", &tenant, &Some("blue"))
}

fn reports_ovs_bridges_of_others(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    expect_eq("the bridges at the start", &compare_ovs(testbed)?.bridges, &Vec::new())?;
    testbed.admin().add_ovs_bridge(FOREIGN)?;
    testbed.admin().add_ovs_port(FOREIGN, testbed.pf())?;
    testbed.admin().add_internal_ovs_port(FOREIGN, "contract-pod")?;
    testbed.admin().set_ovs_entry(OvsTable::Bridge, FOREIGN, "other_config", "mac-aging-time", "100")?;
    testbed.admin().set_ovs_entry(OvsTable::Port, "contract-pod", "external_ids", "pod", "one")?;
    let found = compare_ovs(testbed)?;
    let bridge = expect_some("the bridge", found.bridge(FOREIGN))?;
    expect_eq("the number of ports", &bridge.ports.len(), &3)?;
    expect_eq("other_config", &bridge.other_config, &to_map(&[("mac-aging-time", "100")]))?;
    expect_master(testbed, Some("ovs-system"))?;
    testbed.admin().remove_ovs_bridge(FOREIGN)?;
    expect_eq("the bridges", &compare_ovs(testbed)?.bridges, &Vec::new())
}
