//! Bridges of the Go daemon, and the list of bridges that it reads.

use vfleet_plan::files::MANAGED_OVS_BRIDGES;
use vfleet_plan::{
    BridgeKind, Disruption, OvsBridgeFacts, OvsDatabase, OvsFacts, Plan, Step, UnreadableCard,
};

use super::{
    BRIDGE, apply, bridge_steps, database, linux_spec, no_bridge, ovs_spec, plan, port, record, set_master,
    switch,
};
use crate::node::machine::{PF, nothing, reasons, steps};

#[test]
fn a_bridge_of_the_go_daemon_is_adopted_once() {
    let spec = ovs_spec("externalIDs: {a: b}", "");
    let mut facts = switch(None);
    let go_entry = serde_json::to_string(&spec.bridges.as_ref().unwrap().ovs.as_ref().unwrap()[0]).unwrap();
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), format!("{{\"{BRIDGE}\": {go_entry}}}"));
    database(&mut facts).bridges = vec![OvsBridgeFacts {
        name: BRIDGE.to_owned(),
        external_ids: [("a".to_owned(), "b".to_owned())].into(),
        ports: vec![port(BRIDGE), port("ens1f0"), port("pod1")],
        ..Default::default()
    }];
    let adopted = plan(&spec, &facts);
    assert_eq!(bridge_steps(&adopted), ["configure Open vSwitch bridge br-0000_3b_00.0 with uplink ens1f0"]);
    assert_eq!(adopted.disruption(), Disruption::Pf);
    facts.records[0].bridge = Some(record(BridgeKind::Ovs));
    assert_eq!(reasons(&plan(&spec, &facts)), ["BridgeNotOurs"], "without our mark it is another one");
}

#[test]
fn a_bridge_of_the_go_daemon_stays_ours_until_it_has_our_mark() {
    let spec = ovs_spec("", "");
    let mut facts = switch(None);
    let go_entry = serde_json::to_string(&spec.bridges.as_ref().unwrap().ovs.as_ref().unwrap()[0]).unwrap();
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), format!("{{\"{BRIDGE}\": {go_entry}}}"));
    database(&mut facts).bridges = vec![OvsBridgeFacts {
        name: BRIDGE.to_owned(),
        ports: vec![port(BRIDGE), port("ens1f0")],
        ..Default::default()
    }];
    set_master(&mut facts, "ovs-system", "openvswitch");
    for (spec, marks) in [(spec, "configure Open vSwitch"), (linux_spec("", ""), "remove Open vSwitch")] {
        let plan = plan(&spec, &facts);
        assert_eq!(reasons(&plan), Vec::<&str>::new());
        let marked = steps(&plan).iter().position(|text| text.starts_with(marks)).expect(marks);
        for planned in &plan.steps[..marked] {
            if let Step::WriteRecord { record } = &planned.step {
                assert_eq!(record.bridge, None, "a killed process would not recognize the bridge");
            }
        }
        let texts = steps(&plan);
        let mentions_list = texts.iter().any(|text| text.contains(MANAGED_OVS_BRIDGES));
        assert!(!mentions_list, "if {marks} fails, only the list says whose bridge it is: {texts:?}");
    }
}

#[test]
fn the_list_for_the_go_daemon_keeps_bridges_that_cannot_be_removed_now() {
    let mut facts = switch(None);
    let spec = ovs_spec("", "");
    let go_entry = serde_json::to_string(&spec.bridges.as_ref().unwrap().ovs.as_ref().unwrap()[0]).unwrap();
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), format!("{{\"{BRIDGE}\": {go_entry}}}"));
    let mentions_list =
        |plan: &Plan| plan.steps.iter().any(|planned| planned.step.to_string().contains(MANAGED_OVS_BRIDGES));
    facts.bridges.ovs = OvsFacts::NotRunning { socket: "/run/openvswitch/db.sock".to_owned() };
    for spec in [linux_spec("", ""), no_bridge(), nothing()] {
        let left = plan(&spec, &facts);
        assert!(!mentions_list(&left), "{:?}", steps(&left));
        assert_eq!(reasons(&left), ["OvsNotRunning"]);
        let removes_record = |text: &String| text.starts_with("remove state file");
        assert!(!steps(&left).iter().any(removes_record), "{:?}", steps(&left));
    }
    // A card that cannot be read is not reset.
    facts.bridges.ovs = OvsFacts::Database(OvsDatabase::default());
    facts.pfs.clear();
    facts.unreadable =
        vec![UnreadableCard { pf: PF.parse().unwrap(), error: "hangs".to_owned(), reason: "Deadline" }];
    let left = plan(&nothing(), &facts);
    assert!(!mentions_list(&left), "{:?}", steps(&left));
}

#[test]
fn an_entry_of_the_list_that_vfleet_wrote_does_not_make_a_bridge_ours() {
    let spec = ovs_spec("", "");
    let mut facts = switch(None);
    let written = plan(&spec, &facts).steps.into_iter().find_map(|planned| match planned.step {
        Step::WriteFile { file, .. } if file.path == MANAGED_OVS_BRIDGES => Some(file.text),
        _ => None,
    });
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), written.expect("the list is written"));
    database(&mut facts).bridges = vec![OvsBridgeFacts {
        name: BRIDGE.to_owned(),
        ports: vec![port(BRIDGE), port("ens1f0")],
        ..Default::default()
    }];
    assert_eq!(reasons(&plan(&spec, &facts)), ["BridgeNotOurs"]);
    assert!(!steps(&plan(&no_bridge(), &facts)).iter().any(|text| text.contains("Open vSwitch bridge")));
}

#[test]
fn the_list_for_the_go_daemon_loses_bridges_of_pfs_that_were_reset() {
    let mut facts = switch(None);
    let spec = ovs_spec("", "");
    let go_entry = serde_json::to_string(&spec.bridges.as_ref().unwrap().ovs.as_ref().unwrap()[0]).unwrap();
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), format!("{{\"{BRIDGE}\": {go_entry}}}"));
    facts.records.clear();
    let texts = steps(&plan(&nothing(), &facts));
    assert_eq!(texts, [format!("remove {MANAGED_OVS_BRIDGES}")]);
    facts.unreadable_records.insert(PF.parse().unwrap());
    assert_eq!(steps(&plan(&nothing(), &facts)), Vec::<String>::new());
}

#[test]
fn the_list_for_the_go_daemon_follows_the_bridges() {
    let spec = ovs_spec("", "");
    let mut facts = switch(None);
    let written = plan(&spec, &facts).steps.into_iter().find_map(|planned| match planned.step {
        Step::WriteFile { file, .. } if file.path == MANAGED_OVS_BRIDGES => Some(file.text),
        _ => None,
    });
    let text = written.expect("the list is written");
    assert!(text.contains(BRIDGE), "{text}");
    let first = plan(&spec, &facts);
    apply(&mut facts, &first);
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), text);
    let mentions =
        |plan: &Plan| plan.steps.iter().any(|planned| planned.step.to_string().contains(MANAGED_OVS_BRIDGES));
    assert!(!mentions(&plan(&spec, &facts)));
    assert!(mentions(&plan(&no_bridge(), &facts)));
}
