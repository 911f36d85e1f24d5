//! Bridges of policies.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::crashing_agent::{BRIDGE_CHANGES, CrashingAgent};
use super::super::guest::{Guest, assert_unchanged};
use super::super::lab_cluster::{LabCluster, OTHER_PF, OTHER_PF_ADDRESS, PF, PF_ADDRESS, kill};
use super::open_vswitch::{map, ports, row};
use super::pods::{self, Pings, REPRESENTORS};
use super::{
    LINUX_BRIDGE, OVS_BRIDGE, START_SWITCHES, apply_policies, by_hand, open_gate, others, recoveries,
    start_agent, wait_until_ready,
};
use crate::cluster::NodeStateView;

/// One policy requests an Open vSwitch bridge, another one a Linux bridge. Settings are changed without a drain, also by
/// an agent that crashes, drift is repaired, failures of Open vSwitch are reported and survived, and the bridges are
/// removed.
pub(in super::super) async fn configures_bridges(lab: &LabCluster<'_>) {
    let guest = &lab.guest;
    open_gate(lab).await;
    guest.run(START_SWITCHES);
    others::create_ovs_bridge(guest);
    others::create_linux_bridge(guest);
    let bridges = others::read_bridges(guest);
    apply_policies(lab, &first_ovs(), &first_linux()).await;
    let agent = start_agent(lab);
    let state = wait_until_ready(lab, "both bridges").await;
    assert_created(guest, &state);

    pods::create(guest);
    pods::assert_not_reached(guest, "without representors in the bridges");
    pods::attach_to_ovs(guest);
    pods::attach_to_linux(guest);
    pods::wait_until_reached(guest, "through both bridges");
    pods::detach_from_ovs(guest);
    pods::assert_not_reached(guest, "without the representor in the Open vSwitch bridge");
    pods::attach_to_ovs(guest);
    pods::wait_until_reached(guest, "through the Open vSwitch bridge again");
    pods::detach_from_linux(guest);
    pods::assert_not_reached(guest, "without the representor in the Linux bridge");
    pods::attach_to_linux(guest);
    pods::wait_until_reached(guest, "through the Linux bridge again");
    others::add_to_our_bridge(guest);
    let additions = others::read_additions(guest);
    let uplink_key = others::read_uplink_key(guest);

    kill(agent);
    let pings = Pings::start(lab);
    let crashing_agent = CrashingAgent::new(lab, &BRIDGE_CHANGES);
    let agent = crashing_agent.start("--bridges");
    let changed = change_settings(lab).await;
    crashing_agent.assert_crashed_at_all();
    let drain = |state: &NodeStateView| state.status().drain_requested_at;
    assert_eq!(drain(&changed), drain(&state), "settings are changed without a drain");
    assert_offloaded(guest);
    kill(agent);
    let agent = start_agent(lab);
    guest.wait_until_idle();
    assert_eq!(guest.executed(), [""; 0], "a restart with nothing to do does nothing");
    pings.assert_no_loss(guest, "changes of settings by an agent that crashes, and its restart");
    let is_changed = "a port or key of others on our bridge was changed";
    assert_unchanged(&additions, &others::read_additions(guest), is_changed);
    assert_eq!(others::read_uplink_key(guest), uplink_key, "the key of others on our uplink was changed");

    recoveries::repairs_changes_by_hand(lab).await;
    others::add_to_our_bridge(guest);
    let additions = others::read_additions(guest);
    recoveries::survives_open_vswitch(lab).await;
    assert_unchanged(&bridges, &others::read_bridges(guest), "a bridge of others was changed");
    assert_unchanged(&additions, &others::read_additions(guest), is_changed);
    assert_eq!(others::read_uplink_key(guest), uplink_key, "the key of others on our uplink was changed");

    let linux_bridge = others::read_linux_bridge(guest);
    recoveries::fills_an_empty_database(lab).await;
    assert_unchanged(
        &linux_bridge,
        &others::read_linux_bridge(guest),
        "the Linux bridge of others was changed",
    );
    others::create_ovs_bridge(guest);
    others::add_to_our_bridge(guest);
    let bridges = others::read_bridges(guest);
    recoveries::removes_bridges(lab).await;
    by_hand::are_left_alone(lab).await;
    assert_unchanged(&bridges, &others::read_bridges(guest), "a bridge of others was changed");
    kill(agent);
    guest.clean();
}

fn first_ovs() -> Value {
    json!({
        "bridge": { "externalIDs": { "team": "a", "old": "1" }, "otherConfig": { "mac-aging-time": "100" } },
        "uplink": { "interface": { "externalIDs": { "side": "uplink" } } },
    })
}

fn first_linux() -> Value {
    json!({ "bridge": { "vlanFiltering": true }, "uplink": { "learning": "off" } })
}

fn second_ovs() -> Value {
    json!({
        "bridge": { "externalIDs": { "team": "b" }, "otherConfig": { "mac-table-size": "4096" } },
        "uplink": { "interface": { "otherConfig": { "colour": "red" } } },
    })
}

fn second_linux() -> Value {
    json!({ "bridge": { "vlanFiltering": false }, "uplink": { "mcast_flood": "off" } })
}

fn assert_created(guest: &Guest<'_>, state: &NodeStateView) {
    for (pf, representor) in [PF, OTHER_PF].into_iter().zip(REPRESENTORS) {
        assert_eq!(state.card(pf).e_switch_mode.as_deref(), Some("switchdev"), "{pf}");
        let names: Vec<_> = state.vfs(pf).into_iter().map(|vf| vf.representor_name).collect();
        assert_eq!(names, [Some(representor.to_owned())], "representors of {pf}");
    }
    for pf in [PF_ADDRESS, OTHER_PF_ADDRESS] {
        let mode = guest.run(&format!("devlink --json dev eswitch show pci/{pf} | jq -r '.dev[].mode'"));
        assert_eq!(mode, "switchdev", "{pf}");
    }
    assert_eq!(ports(guest, OVS_BRIDGE), [PF]);
    let bridge = row(guest, "Bridge", OVS_BRIDGE);
    assert_entries(
        &map(&bridge, "external_ids"),
        &[("team", "a"), ("old", "1"), ("vfleet.io/uplink", PF_ADDRESS)],
    );
    assert_entries(&map(&bridge, "other_config"), &[("mac-aging-time", "100")]);
    let uplink = row(guest, "Interface", PF);
    assert_entries(&map(&uplink, "external_ids"), &[("side", "uplink")]);
    assert_eq!(uplink["error"], json!(["set", []]));
    assert!(uplink["ofport"].as_i64().is_some_and(|port| port > 0), "{:?}", uplink["ofport"]);
    assert_eq!(guest.link(PF)["master"], "ovs-system");

    let bridge = guest.link(LINUX_BRIDGE);
    assert_eq!(bridge["linkinfo"]["info_kind"], "bridge");
    assert_eq!(bridge["linkinfo"]["info_data"]["vlan_filtering"], 1);
    assert!(bridge["flags"].as_array().expect("flags").contains(&json!("UP")), "{bridge}");
    let uplink = guest.link(OTHER_PF);
    assert_eq!(uplink["master"], LINUX_BRIDGE);
    let port = bridge_port(guest, OTHER_PF);
    assert_eq!([&port["learning"], &port["mcast_flood"]], [&json!(false), &json!(true)], "{port}");
    for bridge in [OVS_BRIDGE, LINUX_BRIDGE] {
        let rule = "udevadm info --query property --property NM_UNMANAGED --value /sys/class/net";
        assert_eq!(guest.run(&format!("{rule}/{bridge}")), "1", "{bridge} is managed by NetworkManager");
    }
    guest.run("udevadm verify /etc/udev/rules.d/*.rules");
}

/// Checks that Open vSwitch, which ran before its hardware offload was enabled, offloads flows of the pod.
fn assert_offloaded(guest: &Guest<'_>) {
    assert_eq!(guest.run("ovs-vsctl get Open_vSwitch . other_config:hw-offload"), "\"true\"");
    let flows =
        format!("ovs-appctl dpctl/dump-flows -m type=offloaded | grep -q 'in_port({})'", REPRESENTORS[0]);
    guest.wait_until("flows are offloaded", &flows);
}

/// Changes settings of both bridges. Settings that are given up are reset. Returns the state of the node.
async fn change_settings(lab: &LabCluster<'_>) -> NodeStateView {
    let guest = &lab.guest;
    apply_policies(lab, &second_ovs(), &second_linux()).await;
    let is_changed = |state: &NodeStateView| {
        let bridges = state.status().bridges.unwrap_or_default();
        let ovs = bridges.ovs.into_iter().flatten().next().and_then(|bridge| bridge.bridge);
        let linux = bridges.linux.into_iter().flatten().next().and_then(|bridge| bridge.bridge);
        let ids = ovs.and_then(|bridge| bridge.external_ids).unwrap_or_default();
        state.is_synced()
            && ids.get("team").is_some_and(|team| team == "b")
            && linux.is_some_and(|bridge| bridge.vlan_filtering == Some(false))
    };
    let state = lab.wait("changed settings", is_changed).await;
    let bridge = row(guest, "Bridge", OVS_BRIDGE);
    let ids = map(&bridge, "external_ids");
    assert_entries(&ids, &[("team", "b"), ("other", "key")]);
    assert!(!ids.contains_key("old"), "{ids:?}");
    let config = map(&bridge, "other_config");
    assert_entries(&config, &[("mac-table-size", "4096"), ("forward-bpdu", "true")]);
    assert!(!config.contains_key("mac-aging-time"), "{config:?}");
    let uplink = row(guest, "Interface", PF);
    assert_entries(&map(&uplink, "other_config"), &[("colour", "red")]);
    assert_eq!(map(&uplink, "external_ids"), BTreeMap::from([("other".to_owned(), "key".to_owned())]));
    assert_eq!(guest.link(LINUX_BRIDGE)["linkinfo"]["info_data"]["vlan_filtering"], 0);
    let port = bridge_port(guest, OTHER_PF);
    assert_eq!([&port["learning"], &port["mcast_flood"]], [&json!(true), &json!(false)], "{port}");
    state
}

fn assert_entries(map: &BTreeMap<String, String>, expected: &[(&str, &str)]) {
    for (key, value) in expected {
        assert_eq!(map.get(*key).map(String::as_str), Some(*value), "{key} in {map:?}");
    }
}

/// Returns a port of a Linux bridge as bridge(8) shows it.
fn bridge_port(guest: &Guest<'_>, name: &str) -> Value {
    let ports = guest.run(&format!("bridge -details -json link show dev {name}"));
    let ports: Value = serde_json::from_str(&ports).expect("bridge prints JSON");
    ports[0].clone()
}
