//! Bridges that cannot be set up or removed: what else is configured, and whether the node stays drained.

use serde_json::{Value, json};
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::sim::{HexId, Machine};
use vfleet_host::{Host, SimHost};
use vfleet_plan::firmware::MELLANOX;
use vfleet_plan::{
    BridgeKind, EswitchMode, HostFacts, LaneProgress, NodeOptions, Record, RecordedBridge, plan_node_with,
};

use super::super::*;
use super::{cards, context, planned};

const BRIDGE: &str = "br-x";

/// Returns a machine with Open vSwitch, whose first card supports switchdev mode.
fn machine() -> SimHost {
    let mut machine = Machine::lab();
    machine.open_vswitch.installed = true;
    machine.open_vswitch.running = true;
    let card = &mut machine.pfs[0];
    (card.eswitch, card.vendor) = (Some(EswitchMode::Legacy), HexId(MELLANOX));
    SimHost::new(&machine, "agent").unwrap()
}

fn spec(bridges: &Value) -> SriovNetworkNodeStateSpec {
    let groups = json!([{ "vfRange": "0-1", "deviceType": "netdevice" }]);
    let card =
        json!({ "pciAddress": cards()[0], "numVfs": 2, "eSwitchMode": "switchdev", "vfGroups": groups });
    serde_json::from_value(json!({ "interfaces": [card], "bridges": bridges })).unwrap()
}

fn ovs() -> SriovNetworkNodeStateSpec {
    spec(&json!({ "ovs": [{ "name": BRIDGE, "uplinks": [{ "pciAddress": cards()[0] }] }] }))
}

fn linux(port: &Value) -> SriovNetworkNodeStateSpec {
    spec(&json!({ "linux": [{ "name": BRIDGE, "uplinks": [{ "pciAddress": cards()[0], "uplink": port }] }] }))
}

fn plan(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Plan {
    let options = NodeOptions { manage_bridges: true, ovs_offload: true, ..NodeOptions::default() };
    plan_node_with(spec, facts, &options)
}

fn apply(host: &SimHost, spec: &SriovNetworkNodeStateSpec) -> ApplyOutcome {
    let planner = |facts: &HostFacts| plan(spec, facts);
    let context = context(host, &planner);
    let (facts, plan) = survey(host, &planner).unwrap();
    apply_plan(&context, facts, plan)
}

fn reasons(outcome: &ApplyOutcome) -> Vec<&'static str> {
    outcome.failures.iter().map(Failure::reason).collect()
}

fn recorded(outcome: &ApplyOutcome) -> Option<&RecordedBridge> {
    outcome.facts.as_ref().unwrap().record(cards()[0]).unwrap().bridge.as_ref()
}

#[test]
fn vfs_are_configured_although_their_bridge_is_refused_and_the_node_does_not_stay_drained() {
    let host = machine();
    host.modify_kernel(|kernel| kernel.ovs.refusal = Some("constraint violation".to_owned()));
    for _ in 0..2 {
        let outcome = apply(&host, &ovs());
        // Hardware offload is refused, too.
        assert_eq!(reasons(&outcome), ["OvsRefused"; 2], "{:?}", outcome.failures);
        let keeps_nothing = |failure: &Failure| !failure.keeps_node_drained() && failure.needs_retry();
        assert!(outcome.failures.iter().all(keeps_nothing));
        let facts = outcome.facts.unwrap();
        let pf = facts.pf(cards()[0]).unwrap();
        assert!(pf.vfs.len() == 2 && pf.vfs.iter().all(|vf| vf.driver.is_some()), "{:?}", pf.vfs);
        assert!(!facts.record(cards()[0]).unwrap().creating_vfs, "VF creation is complete");
    }
    host.modify_kernel(|kernel| kernel.ovs.refusal = None);
    let outcome = apply(&host, &ovs());
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert_eq!(recorded(&outcome).unwrap().kind, BridgeKind::Ovs);
    assert_eq!(apply(&host, &ovs()).executed, 0);
}

/// The kernel has `isolated` until the step succeeds.
#[test]
fn a_setting_that_could_not_be_taken_back_stays_recorded() {
    let host = machine();
    let before = apply(&host, &linux(&json!({ "isolated": "on", "learning": "off" })));
    assert!(before.failures.is_empty(), "{:?}", before.failures);
    let given_up = linux(&json!({ "learning": "off" }));
    let steps = plan(&given_up, &host.facts().unwrap()).steps;
    host.fail_at(steps.iter().position(|planned| planned.step.sets_up_bridge()).unwrap());
    let failed = apply(&host, &given_up);
    assert_eq!(failed.failures.len(), 1, "{:?}", failed.failures);
    assert!(recorded(&failed).unwrap().port_settings.contains("isolated"), "{:?}", recorded(&failed));
    let healed = apply(&host, &given_up);
    assert!(healed.failures.is_empty(), "{:?}", healed.failures);
    assert!(!recorded(&healed).unwrap().port_settings.contains("isolated"));
}

/// What follows might need that the bridge is gone, and the removal that the node is drained.
#[test]
fn a_bridge_that_is_not_removed_ends_the_lane_and_keeps_the_node_drained() {
    let host = machine();
    assert!(apply(&host, &ovs()).failures.is_empty());
    host.modify_kernel(|kernel| kernel.ovs.refusal = Some("not now".to_owned()));
    let mut more = spec(&Value::Null);
    more.interfaces.as_mut().unwrap()[0].num_vfs = Some(3);
    let outcome = apply(&host, &more);
    assert_eq!(reasons(&outcome), ["OvsRefused"], "{:?}", outcome.failures);
    assert!(outcome.failures[0].keeps_node_drained());
    assert_eq!(outcome.facts.as_ref().unwrap().pf(cards()[0]).unwrap().vfs.len(), 2);
    assert!(recorded(&outcome).is_some());
}

/// `ovs-vswitchd` sets the PF back to the MTU that the bridge requested before, so the PF would need another drain.
#[test]
fn the_node_stays_drained_while_more_than_the_bridge_is_left() {
    let host = machine();
    let with_mtu = |mtu: u32| {
        let uplink = json!({ "pciAddress": cards()[0], "interface": { "mtuRequest": mtu } });
        let mut spec = spec(&json!({ "ovs": [{ "name": BRIDGE, "uplinks": [uplink] }] }));
        spec.interfaces.as_mut().unwrap()[0].mtu = Some(mtu.into());
        spec
    };
    assert!(apply(&host, &with_mtu(2000)).failures.is_empty());
    host.modify_kernel(|kernel| kernel.ovs.refusal = Some("read-only".to_owned()));
    let outcome = apply(&host, &with_mtu(9000));
    assert_eq!(reasons(&outcome), ["OvsRefused", "NotVerified"], "{:?}", outcome.failures);
    assert!(outcome.failures[1].keeps_node_drained() && outcome.failures[1].to_string().contains("mtu 9000"));
    let is_mtu = |step: &&String| step.ends_with("mtu 9000");
    assert_eq!(host.executed_steps().iter().filter(is_mtu).count(), 1, "not again in this attempt");
}

#[test]
fn vfs_are_configured_although_the_udev_rule_of_their_bridge_cannot_be_written() {
    let host = machine();
    let is_rule = |step: &Step| step.sets_up_bridge() && matches!(step, Step::WriteFile { pf: Some(_), .. });
    let steps = plan(&linux(&json!({})), &host.facts().unwrap()).steps;
    host.fail_at(steps.iter().position(|planned| is_rule(&planned.step)).unwrap());
    let outcome = apply(&host, &linux(&json!({})));
    assert!(!outcome.failures[0].keeps_node_drained(), "{:?}", outcome.failures);
    let facts = outcome.facts.unwrap();
    assert!(facts.pf(cards()[0]).unwrap().vfs.iter().all(|vf| vf.driver.is_some()));
    assert!(facts.bridges.linux_bridge(BRIDGE).is_none(), "NetworkManager would take it over");
}

#[test]
fn the_machine_does_not_reboot_after_a_failed_step_of_a_bridge() {
    let host = machine();
    host.modify_kernel(|kernel| kernel.ovs.refusal = Some("read-only".to_owned()));
    let reboot =
        Plan { steps: [Step::EnableOvsOffload, Step::Reboot].map(planned).into(), problems: Vec::new() };
    let planner = |_: &HostFacts| reboot.clone();
    let context = context(&host, &planner);
    let outcome = apply_plan(&context, host.facts().unwrap(), reboot.clone());
    assert!(!outcome.reboots);
    assert_eq!(reasons(&outcome), ["OvsRefused", "RebootPostponed"]);
}

#[test]
fn steps_of_the_machine_are_executed_although_offload_is_refused() {
    let host = machine();
    host.modify_kernel(|kernel| kernel.ovs.refusal = Some("read-only".to_owned()));
    let first = [Step::EnableOvsOffload, Step::ForgetReboots].map(planned);
    let left = Plan { steps: vec![first[0].clone()], problems: Vec::new() };
    let planner = |_: &HostFacts| left.clone();
    let context = context(&host, &planner);
    let plan = Plan { steps: first.into(), problems: Vec::new() };
    let outcome = apply_plan(&context, host.facts().unwrap(), plan);
    assert_eq!(reasons(&outcome), ["OvsRefused"]);
    assert_eq!(host.executed_steps().len(), 2, "{:?}", host.executed_steps());
}

/// An interrupted attempt did not record that udev was triggered.
#[test]
fn a_record_that_is_left_is_written_in_the_same_attempt() {
    let host = machine();
    let facts = apply(&host, &linux(&json!({}))).facts.unwrap();
    let written = facts.record(cards()[0]).unwrap().clone();
    let record = Record { representors_replayed: true, ..written.clone() };
    host.execute(&Step::WriteRecord { record }).unwrap();
    let spec = linux(&json!({}));
    let plan_of = |facts: &HostFacts| plan(&spec, facts);
    let first = Plan { steps: vec![planned(Step::SetLinkUp { pf: cards()[0] })], problems: Vec::new() };
    let context = context(&host, &plan_of);
    let outcome = apply_plan(&context, host.facts().unwrap(), first);
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert_eq!(outcome.facts.unwrap().record(cards()[0]), Some(&written));
}

#[test]
fn no_step_of_a_pf_follows_one_that_the_kernel_still_executes() {
    let pf = cards()[0];
    let create = Step::CreateLinuxBridge { pf, name: BRIDGE.to_owned(), alias: String::new() };
    let mut progress = LaneProgress::new(Target::Pf(pf), &HostFacts::default());
    let next = planned(Step::SetLinkUp { pf });
    progress.record_failure(&create, false);
    assert!(progress.next_step(&next).is_some());
    progress.record_failure(&create, true);
    assert!(progress.next_step(&next).is_none());
}
