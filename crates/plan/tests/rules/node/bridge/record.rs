//! Bridge in the record of a PF: bridges that were never created, and those that are left.

use vfleet_plan::{
    BridgeKind, HostFacts, NodeOptions, OvsFacts, Plan, Step, plan_before_network, plan_node_with,
};

use super::{
    OPTIONS, bridge_steps, database, foreign_bridge_of_our_name, linux_spec, no_bridge, not_running,
    ovs_spec, plan, record, switch, with_linux_bridge, with_ovs_bridge, write_records,
};
use crate::node::machine::{nothing, reasons, steps};

#[test]
fn an_unreadable_ovs_is_a_problem_of_its_bridges_only() {
    let facts = |ovs| HostFacts {
        bridges: vfleet_plan::BridgeFacts { ovs, ..Default::default() },
        ..switch(Some(record(BridgeKind::Ovs)))
    };
    let unreadable = || OvsFacts::Unreadable { error: "no reply".to_owned(), reason: "OvsdbFailed" };
    let failed = plan(&ovs_spec("", ""), &facts(unreadable()));
    assert_eq!((bridge_steps(&failed), reasons(&failed)), (vec![], vec!["OvsdbFailed"]));
    let linux = plan(&linux_spec("", ""), &HostFacts { ..facts(unreadable()) });
    assert_eq!(reasons(&linux), ["OvsdbFailed"], "the Open vSwitch bridge may still exist");
    let mut never_ovs = HostFacts { records: switch(None).records, ..facts(unreadable()) };
    let failed = plan(&ovs_spec("", ""), &never_ovs);
    assert_eq!(reasons(&failed), ["OvsdbFailed"]);
    write_records(&mut never_ovs, &failed);
    let linux = plan(&linux_spec("", ""), &never_ovs);
    assert_eq!(reasons(&linux), Vec::<&str>::new());
    assert_eq!(bridge_steps(&linux)[0], "create Linux bridge br-0000_3b_00.0");
}

/// A node without Open vSwitch: the policy is corrected, the bridge removed from it, or the gate switched off.
#[test]
fn a_bridge_that_was_never_created_prevents_nothing() {
    for kind in [None, Some(BridgeKind::Linux)] {
        let mut facts = match kind {
            None => switch(None),
            Some(_) => with_linux_bridge(&["ens1f0"]),
        };
        facts.bridges.ovs = not_running();
        let failed = plan(&ovs_spec("", ""), &facts);
        assert_eq!(reasons(&failed), ["OvsNotRunning"]);
        write_records(&mut facts, &failed);
        assert_eq!(facts.records[0].bridge, None);
        facts.bridges.linux.clear();
        facts.pfs[0].link.as_mut().unwrap().master = None;
        for spec in [linux_spec("", ""), no_bridge(), nothing()] {
            assert_eq!(reasons(&plan(&spec, &facts)), Vec::<&str>::new());
        }
        let gate_off = plan_node_with(&ovs_spec("", ""), &facts, &NodeOptions::default());
        assert_eq!((bridge_steps(&gate_off), reasons(&gate_off)), (vec![], vec![]));
        let reset = plan(&nothing(), &facts);
        assert_eq!(steps(&reset).last().map(String::as_str), Some("remove state file of 0000:3b:00.0"));
    }
}

#[test]
fn the_record_names_a_bridge_that_is_created_or_exists() {
    let recorded = |facts: &HostFacts, plan: &Plan| {
        let mut facts = facts.clone();
        write_records(&mut facts, plan);
        facts.records.remove(0).bridge.map(|bridge| bridge.kind)
    };
    let spec = ovs_spec("", "");
    let created = switch(None);
    assert_eq!(recorded(&created, &plan(&spec, &created)), Some(BridgeKind::Ovs));
    let mut failing = with_ovs_bridge(&spec);
    failing.records[0].bridge = None;
    database(&mut failing).is_behind = true;
    let failed = plan(&spec, &failing);
    assert_eq!(
        (reasons(&failed), recorded(&failing, &failed)),
        (vec!["OvsNotFollowing"], Some(BridgeKind::Ovs))
    );
    let mut taken = switch(None);
    taken.bridges.ovs = OvsFacts::Database(foreign_bridge_of_our_name());
    assert_eq!(recorded(&taken, &plan(&spec, &taken)), None);
    let mut stopped = with_ovs_bridge(&spec);
    stopped.bridges.ovs = not_running();
    assert_eq!(recorded(&stopped, &plan(&spec, &stopped)), Some(BridgeKind::Ovs), "it may still exist");
    let before_network = plan_before_network(&spec, &created, &OPTIONS);
    assert_eq!(recorded(&created, &before_network), None);
}

#[test]
fn a_bridge_that_is_left_stays_in_the_record() {
    let mut facts = switch(Some(record(BridgeKind::Ovs)));
    facts.bridges.ovs = not_running();
    let changed = plan(&linux_spec("", ""), &facts);
    assert_eq!((bridge_steps(&changed), reasons(&changed)), (vec![], vec!["OvsNotRunning"]));
    let written = changed.steps.iter().find_map(|planned| match &planned.step {
        Step::WriteRecord { record } => Some(record.bridge.clone()),
        _ => None,
    });
    assert!(written.is_none_or(|bridge| bridge == Some(record(BridgeKind::Ovs))), "{:?}", changed.steps);
}

/// The record names the bridge that exists until it is removed, so that a process that is killed in between finds it.
#[test]
fn the_record_changes_between_the_removal_of_one_bridge_and_the_creation_of_another() {
    let ovs = with_ovs_bridge(&ovs_spec("", ""));
    let linux = with_linux_bridge(&["ens1f0"]);
    for (facts, spec, from, to) in [
        (ovs, linux_spec("", ""), BridgeKind::Ovs, BridgeKind::Linux),
        (linux, ovs_spec("", ""), BridgeKind::Linux, BridgeKind::Ovs),
    ] {
        let plan = plan(&spec, &facts);
        let mut recorded = vec![(0, from)];
        let mut removed = None;
        for (at, planned) in plan.steps.iter().enumerate() {
            match &planned.step {
                Step::WriteRecord { record } => {
                    recorded.push((at, record.bridge.as_ref().map(|bridge| bridge.kind).unwrap()));
                }
                Step::RemoveOvsBridge { .. } | Step::RemoveLinuxBridge { .. } => removed = Some(at),
                _ => {}
            }
        }
        let removed = removed.expect("the old bridge is removed");
        let at_removal = recorded.iter().rev().find(|(at, _)| *at <= removed).unwrap().1;
        assert_eq!((at_removal, recorded.last().unwrap().1), (from, to), "{:?}", steps(&plan));
    }
}

/// A process was killed after it had written the record of the other kind.
#[test]
fn our_bridge_of_the_other_kind_is_replaced_whatever_the_record_says() {
    let mut facts = with_linux_bridge(&["ens1f0"]);
    facts.records[0].bridge = Some(record(BridgeKind::Ovs));
    let changed = plan(&ovs_spec("", ""), &facts);
    assert_eq!(reasons(&changed), Vec::<&str>::new());
    assert_eq!(
        bridge_steps(&changed).last().map(String::as_str),
        Some("create Open vSwitch bridge br-0000_3b_00.0 with uplink ens1f0")
    );
}

/// The port of a bridge that the Go operator made has no mark until vfleet has configured it.
#[test]
fn the_port_with_the_recorded_name_is_the_uplink_of_a_pf_that_is_missing() {
    let mut facts = with_ovs_bridge(&ovs_spec("", ""));
    let plan_of_spec = plan(&ovs_spec("", ""), &facts);
    write_records(&mut facts, &plan_of_spec);
    facts.pfs.clear();
    for port in &mut database(&mut facts).bridges[0].ports {
        port.external_ids.clear();
    }
    let reset = plan(&nothing(), &facts);
    assert_eq!(bridge_steps(&reset), ["remove Open vSwitch bridge br-0000_3b_00.0"], "{:?}", steps(&reset));
}
