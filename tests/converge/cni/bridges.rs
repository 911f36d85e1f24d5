//! The same properties for networks of software bridges, and what pods on one bridge share.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;
use vfleet_host::SimHost;
use vfleet_host::sim::{EffectFault, Machine};
use vfleet_plan::cni::protocol::ErrorCode;

use super::deaths::{delete_namespace, effects_of, reboot};
use super::runtime::{Pod, state};
use super::scenario::{CniScenario, switch_scenario};
use super::switch::consumer;
use super::{
    CASES, Recovery, add_and_del, config, effects_of_add, effects_of_del, fault, interrupt_add,
    interrupt_del, interrupt_everywhere, prepare, recovery,
};

/// Every effect of the plugins that attach pods to bridges, with every fault and every recovery.
#[test]
fn every_interruption_of_a_network_of_a_bridge_is_repaired() {
    for scenario in CniScenario::all_with_bridges() {
        interrupt_everywhere(&scenario, &Recovery::ALL);
    }
    // Another pod cannot have the output of the mirror.
    let alone = [Recovery::Del, Recovery::Retry, Recovery::Gc, Recovery::Sweep];
    interrupt_everywhere(&CniScenario::with_bridges(consumer()), &alone);
}

proptest! {
    #![proptest_config(config(CASES))]

    #[test]
    fn add_and_del_leave_bridges_as_they_were(scenario in switch_scenario()) {
        add_and_del(&scenario)?;
    }

    #[test]
    fn an_interrupted_add_leaves_no_port_behind(
        scenario in switch_scenario(),
        at in any::<Index>(),
        fault in fault(),
        recovery in recovery(),
    ) {
        let Some(effects) = effects_of_add(&scenario) else { return Ok(()) };
        interrupt_add(&scenario, at.index(effects.len()), fault, recovery)?;
    }

    #[test]
    fn an_interrupted_del_of_a_port_is_finished_by_the_next_operation(
        scenario in switch_scenario(),
        at in any::<Index>(),
        fault in fault(),
        recovery in recovery(),
    ) {
        let Some(effects) = effects_of_del(&scenario) else { return Ok(()) };
        interrupt_del(&scenario, at.index(effects.len()), fault, recovery)?;
    }

    #[test]
    fn a_namespace_with_a_port_may_be_deleted_at_any_moment(
        scenario in switch_scenario(),
        at in any::<Index>(),
        is_in_del in any::<bool>(),
        returns_at_once in any::<bool>(),
    ) {
        let Some(effects) = effects_of(&scenario, is_in_del) else { return Ok(()) };
        delete_namespace(&scenario, at.index(effects.len()), is_in_del, returns_at_once)?;
    }

    #[test]
    fn a_machine_with_bridges_may_be_rebooted_at_any_moment(
        scenario in switch_scenario(),
        at in any::<Index>(),
        is_in_del in any::<bool>(),
    ) {
        let Some(effects) = effects_of(&scenario, is_in_del) else { return Ok(()) };
        reboot(&scenario, at.index(effects.len()), is_in_del)?;
    }

    /// Pods with VFs of one card, whose VLANs overlap, come and go in any order. Some of their plugins are killed.
    #[test]
    fn a_vlan_stays_on_the_uplink_as_long_as_a_pod_needs_it(
        operations in prop::collection::vec((0_usize..3, prop::option::weighted(0.2, any::<Index>())), 1..12),
    ) {
        let (host, before, pods) = share_uplink();
        for (number, killed_at) in operations {
            let pod = &pods[number];
            let process = host.new_process();
            if let Some(at) = killed_at {
                process.inject_at_effect(at.index(20), EffectFault::KillBefore);
            }
            // A second ADD of an attached pod is refused.
            if state(&host).iter().any(|line| line.starts_with("journal") && line.contains(pod.container_id)) {
                let _ = pod.del_once(&process);
            } else {
                let _ = pod.add(&process);
            }
            for (other, vlans) in pods.iter().zip(VLANS) {
                let is_attached = format!("{other_id:?}", other_id = other.container_id);
                let is_attached = state(&host).iter().any(|line| {
                    line.starts_with("journal") && line.contains(&is_attached) && line.ends_with("Ok(Attached)")
                });
                let has_all = || vlans.iter().all(|vlan| uplink_vlans(&host).contains(vlan));
                prop_assert!(!is_attached || has_all(), "{}: {:#?}", other.container_id, state(&host));
            }
        }
        for pod in &pods {
            pod.del(&host.new_process()).expect("DEL");
        }
        prop_assert_eq!(state(&host), before);
    }
}

/// VLANs of three pods on the uplink.
const VLANS: [&[u16]; 3] = [&[100, 300], &[100, 200], &[200, 201]];

/// Returns a machine whose uplink has VLAN 300, and three pods with VFs of their own.
fn share_uplink() -> (SimHost, Vec<String>, [Pod; 3]) {
    let scenario = CniScenario::all_with_bridges().remove(0);
    let host = scenario.prepare();
    let card = Machine::lab().pfs[0].clone();
    let pods = [0, 1, 2].map(|number: usize| {
        let device = card.vf_address(u16::try_from(number).expect("a number")).expect("a VF");
        let trunk: Vec<_> = VLANS[number].iter().map(|id| json!({"id": id})).collect();
        let network = json!({
            "cniVersion": "1.0.0", "name": "net-a", "type": "accelerated-bridge", "deviceID": device.to_string(),
            "trunk": trunk, "setUplinkVlan": true,
        });
        let pod = Pod::new(number, &[network]);
        pod.start(&host);
        pod
    });
    let before = state(&host);
    (host, before, pods)
}

/// Returns the VLANs of the uplink, which is a bond.
fn uplink_vlans(host: &SimHost) -> Vec<u16> {
    let kernel = host.kernel();
    let vlans = kernel.bridges.iter().find_map(|bridge| bridge.vlans.get("bond0")).expect("an uplink");
    vlans.keys().copied().collect()
}

#[test]
fn an_open_vswitch_that_does_not_answer_is_waited_for() {
    let scenario = CniScenario::all_with_bridges().remove(2);
    let (host, [pod, ..], before) = prepare(&scenario);
    host.modify_kernel(|kernel| kernel.ovs.has_server = false);
    let process = host.new_process();
    let error = pod.add(&process).expect_err("Open vSwitch is down");
    assert_eq!(error.code, ErrorCode::TryAgainLater, "{error}");
    assert_eq!(process.executed_effects(), Vec::<String>::new());
    assert_eq!(state(&host), before);
    host.modify_kernel(|kernel| kernel.ovs.has_server = true);
    pod.add(&host.new_process()).expect("ADD");
    host.modify_kernel(|kernel| kernel.ovs.has_server = false);
    let error = pod.del_once(&host.new_process()).expect_err("Open vSwitch is down");
    assert_eq!(error.code, ErrorCode::TryAgainLater, "{error}");
    host.modify_kernel(|kernel| kernel.ovs.has_server = true);
    pod.del_once(&host.new_process()).expect("DEL");
    assert_eq!(state(&host), before);
}

/// The row has no interface, as after a boot. The namespace of its pod is gone.
#[test]
fn a_port_of_a_pod_that_is_gone_is_removed_by_the_next_operation_and_that_of_others_stays() {
    let scenario = CniScenario::all_with_bridges().remove(2);
    let (host, [pod, ..], before) = prepare(&scenario);
    let add = |name: &str, owner: &str, netns: &str| {
        host.modify_kernel(|kernel| {
            kernel.ovs.add_port("br-ovs", name, "").expect("a port");
            let bridge = kernel.ovs.bridge_mut("br-ovs").expect("a bridge");
            let port = bridge.ports.iter_mut().find(|port| port.name == name).expect("the port");
            port.external_ids = [("owner", owner), ("contNetns", netns), ("contIface", "net1")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
        });
    };
    let owner = "ovs-cni.network.kubevirt.io";
    add("veth-gone", owner, "/run/netns/gone");
    add("veth-alive", owner, pod.netns);
    add("veth-other", "somebody else", "/run/netns/gone");
    pod.add(&host.new_process()).expect("ADD");
    let has_port = |name: &str| host.kernel().ovs.port(name).is_some();
    let found = ["veth-gone", "veth-alive", "veth-other"].map(has_port);
    assert_eq!(found, [false, true, true]);
    pod.del_once(&host.new_process()).expect("DEL");
    host.modify_kernel(|kernel| ["veth-alive", "veth-other"].map(|name| kernel.ovs.remove_port(name)));
    assert_eq!(state(&host), before);
}
