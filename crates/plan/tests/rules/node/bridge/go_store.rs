//! Bridges of the Go daemon, and the list of bridges that it reads.

use std::collections::BTreeMap;

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_plan::files::MANAGED_OVS_BRIDGES;
use vfleet_plan::{
    BridgeKind, Disruption, HostFacts, OvsBridgeFacts, OvsDatabase, OvsFacts, Plan, Step, UnreadableCard,
};

use super::{
    BRIDGE, apply, bridge_steps, database, linux_bridge, linux_spec, no_bridge, not_running, ovs_spec, plan,
    port, record, set_master, switch, with_ovs_bridge,
};
use crate::node::machine::{PF, nothing, reasons, steps};

/// Returns the list that the Go daemon writes for the bridges of `spec`.
fn go_list(spec: &SriovNetworkNodeStateSpec) -> String {
    let bridges = spec.bridges.as_ref().and_then(|bridges| bridges.ovs.as_ref()).unwrap();
    let entries: BTreeMap<_, _> = bridges.iter().map(|bridge| (bridge.name.clone(), bridge)).collect();
    serde_json::to_string(&entries).unwrap()
}

/// Returns the bridge of the PF as the Go daemon creates it.
fn unmarked() -> OvsBridgeFacts {
    OvsBridgeFacts {
        name: BRIDGE.to_owned(),
        ports: vec![port(BRIDGE), port("ens1f0")],
        ..Default::default()
    }
}

/// Returns the list that the plan writes.
fn written_list(plan: &Plan) -> Option<String> {
    plan.steps.iter().find_map(|planned| match &planned.step {
        Step::WriteFile { file, .. } if file.path == MANAGED_OVS_BRIDGES => Some(file.text.clone()),
        _ => None,
    })
}

fn mentions_list(plan: &Plan) -> bool {
    plan.steps.iter().any(|planned| planned.step.to_string().contains(MANAGED_OVS_BRIDGES))
}

#[test]
fn a_bridge_of_the_go_daemon_is_adopted_once() {
    let spec = ovs_spec("externalIDs: {a: b}", "");
    let mut facts = switch(None);
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), go_list(&spec));
    database(&mut facts).bridges = vec![OvsBridgeFacts {
        name: BRIDGE.to_owned(),
        external_ids: [("a".to_owned(), "b".to_owned())].into(),
        ports: vec![port(BRIDGE), port("ens1f0"), port("pod1")],
        ..Default::default()
    }];
    let adopted = plan(&spec, &facts);
    assert_eq!(bridge_steps(&adopted), ["configure Open vSwitch bridge br-0000_3b_00.0 with uplink ens1f0"]);
    assert_eq!(adopted.disruption(), Disruption::Pf);
    apply(&mut facts, &adopted);
    let listed = written_list(&plan(&spec, &facts)).expect("the list says that the bridge has our mark");
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), listed);
    assert_eq!((bridge_steps(&plan(&spec, &facts)), written_list(&plan(&spec, &facts))), (vec![], None));
    database(&mut facts).bridges[0].external_ids.clear();
    assert_eq!(reasons(&plan(&spec, &facts)), ["BridgeNotOurs"], "without our mark it is another one");
}

/// After a migration back, the Go daemon deleted our bridge and created another one, and wrote its own entry.
#[test]
fn a_bridge_that_the_go_daemon_created_after_vfleet_is_adopted_again() {
    let desired = ovs_spec("", "");
    for spec in [desired.clone(), no_bridge(), nothing()] {
        for kind in [BridgeKind::Ovs, BridgeKind::Linux] {
            let mut facts = switch(Some(record(kind)));
            facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), go_list(&desired));
            database(&mut facts).bridges = vec![unmarked()];
            let adopted = plan(&spec, &facts);
            assert_eq!(reasons(&adopted), Vec::<&str>::new());
            let expected = if spec == desired {
                "configure Open vSwitch bridge br-0000_3b_00.0 with uplink ens1f0"
            } else {
                "remove Open vSwitch bridge br-0000_3b_00.0"
            };
            assert_eq!(bridge_steps(&adopted), [expected]);
            assert!(!mentions_list(&adopted), "the step on the bridge may fail: {:?}", steps(&adopted));
        }
    }
}

/// Another fault prevents the bridge, and the bridge of the Go daemon is left.
#[test]
fn an_entry_of_the_go_daemon_stays_as_long_as_its_bridge_has_no_mark() {
    let mut facts = switch(None);
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), go_list(&ovs_spec("", "")));
    database(&mut facts).bridges = vec![unmarked()];
    facts.bridges.linux = vec![linux_bridge(false, &[])];
    let taken = plan(&ovs_spec("", ""), &facts);
    assert_eq!(reasons(&taken), ["BridgeNotOurs"]);
    assert!(!mentions_list(&taken), "{:?}", steps(&taken));
    facts.records.clear();
    assert_eq!(steps(&plan(&nothing(), &facts)), Vec::<String>::new());
}

#[test]
fn a_list_that_is_not_valid_is_kept_and_leaves_bridges_of_unknown_owners_alone() {
    for (text, bridges, reason) in [
        ("{torn", vec![unmarked()], Some("BridgeListInvalid")),
        (r#"{"br0": 1}"#, vec![unmarked()], Some("BridgeListInvalid")),
        ("{torn", vec![], None),
        ("null", vec![], None),
        ("\n", vec![unmarked()], Some("BridgeNotOurs")),
    ] {
        let mut facts = switch(None);
        facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), text.to_owned());
        database(&mut facts).bridges = bridges;
        let reasons_of = |plan: &Plan| reasons(plan).first().copied();
        let desired = plan(&ovs_spec("", ""), &facts);
        assert_eq!(reasons_of(&desired), reason, "{text}");
        assert_eq!(bridge_steps(&desired).is_empty(), reason.is_some(), "{text}");
        if text == "\n" {
            continue;
        }
        for spec in [linux_spec("", ""), no_bridge(), nothing()] {
            let plan = plan(&spec, &facts);
            assert_eq!(reasons_of(&plan), reason, "{text}");
            let is_reset = steps(&plan).iter().any(|text| text.starts_with("remove state file"));
            assert_eq!(is_reset, reason.is_none() && spec == nothing(), "{text}");
        }
        let is_invalid = text != "null";
        assert!(!(is_invalid && mentions_list(&desired)), "{text}: {:?}", steps(&desired));
        if let Some(problem) = desired.problems.first() {
            assert!(problem.to_string().contains(MANAGED_OVS_BRIDGES), "{problem}");
        }
    }
    let mut marked = with_ovs_bridge(&ovs_spec("", ""));
    marked.files.insert(MANAGED_OVS_BRIDGES.to_owned(), "{torn".to_owned());
    let removed = plan(&no_bridge(), &marked);
    assert_eq!(steps(&removed), ["remove Open vSwitch bridge br-0000_3b_00.0"], "the mark decides");
}

#[test]
fn a_bridge_of_the_go_daemon_stays_ours_until_it_has_our_mark() {
    let spec = ovs_spec("", "");
    let mut facts = switch(None);
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), go_list(&spec));
    database(&mut facts).bridges = vec![unmarked()];
    set_master(&mut facts, "ovs-system", "openvswitch");
    for (spec, marks) in [(spec, "configure Open vSwitch"), (linux_spec("", ""), "remove Open vSwitch")] {
        let whole = plan(&spec, &facts);
        let texts = steps(&whole);
        assert_eq!(reasons(&whole), Vec::<&str>::new());
        let marked = whole.steps.iter().position(|planned| planned.step.to_string().starts_with(marks));
        for planned in &whole.steps[..marked.expect(marks)] {
            if let Step::WriteRecord { record } = &planned.step {
                let killed = HostFacts { records: vec![record.clone()], ..facts.clone() };
                assert!(
                    bridge_steps(&plan(&spec, &killed))[0].starts_with(marks),
                    "a killed process continues"
                );
            }
        }
        assert!(!mentions_list(&whole), "if {marks} fails, only the list says whose bridge it is: {texts:?}");
    }
}

#[test]
fn the_list_for_the_go_daemon_keeps_bridges_that_cannot_be_removed_now() {
    let mut facts = switch(None);
    let spec = ovs_spec("", "");
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), go_list(&spec));
    facts.bridges.ovs = not_running();
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
    let written = written_list(&plan(&spec, &facts)).expect("the list is written");
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), written);
    database(&mut facts).bridges = vec![unmarked()];
    assert_eq!(reasons(&plan(&spec, &facts)), ["BridgeNotOurs"]);
    assert!(!steps(&plan(&no_bridge(), &facts)).iter().any(|text| text.contains("Open vSwitch bridge")));
}

#[test]
fn the_list_for_the_go_daemon_loses_bridges_of_pfs_that_were_reset() {
    let mut facts = switch(None);
    let spec = ovs_spec("", "");
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), go_list(&spec));
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
    let text = written_list(&plan(&spec, &facts)).expect("the list is written");
    assert!(text.contains(BRIDGE), "{text}");
    let first = plan(&spec, &facts);
    apply(&mut facts, &first);
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), text);
    assert!(!mentions_list(&plan(&spec, &facts)));
    assert!(mentions_list(&plan(&no_bridge(), &facts)));
}
