//! Bridges and Open vSwitch that are removed, changed or killed while an agent runs.

use serde_json::json;

use super::super::guest::{Guest, assert_unchanged};
use super::super::lab_cluster::{LabCluster, OTHER_PF, PF};
use super::open_vswitch::{map, ports, row};
use super::others::PORT_ON_OURS;
use super::pods::{self, REPRESENTORS};
use super::{LINUX_BRIDGE, OVS_BRIDGE, is_ready, others, ready, wait_until_ready};
use crate::cluster::NodeStateView;

const SERVICES: [&str; 2] = ["ovs-vswitchd", "ovsdb-server"];

/// Repairs what others change by hand. Both pods reach each other again afterwards.
pub(super) async fn repairs_changes_by_hand(lab: &LabCluster<'_>) {
    let guest = &lab.guest;
    guest.run(&format!("ovs-vsctl set Bridge {OVS_BRIDGE} external_ids:team=x"));
    guest.wait_until(
        "the key is repaired",
        &format!("ovs-vsctl get Bridge {OVS_BRIDGE} external_ids:team | grep -qx b"),
    );

    signal_agent(guest, "STOP");
    guest.run(&format!("ovs-vsctl del-port {OVS_BRIDGE} {PF}"));
    pods::assert_not_reached(guest, "without the uplink of the Open vSwitch bridge");
    signal_agent(guest, "CONT");
    wait_for_ovs_bridge(guest, "the uplink is attached again");
    pods::wait_until_reached(guest, "after the uplink was removed");
    signal_agent(guest, "STOP");
    guest.run(&format!("ip link set {OTHER_PF} nomaster"));
    pods::assert_not_reached(guest, "without the uplink of the Linux bridge");
    signal_agent(guest, "CONT");
    wait_for_linux_bridge(guest);
    pods::wait_until_reached(guest, "after the uplink was detached");

    guest.run(&format!("ovs-vsctl del-br {OVS_BRIDGE}; ip link delete {LINUX_BRIDGE}"));
    wait_for_ovs_bridge(guest, "the Open vSwitch bridge is created again");
    wait_for_linux_bridge(guest);
    pods::assert_not_reached(guest, "while the representors are out of the bridges");
    pods::attach_to_ovs(guest);
    pods::attach_to_linux(guest);
    pods::wait_until_reached(guest, "after both bridges were deleted");
    wait_until_ready(lab, "both bridges are repaired").await;
}

/// Reports Open vSwitch processes that are killed, and continues when they are back. The Linux bridge of the other card
/// is repaired meanwhile.
pub(super) async fn survives_open_vswitch(lab: &LabCluster<'_>) {
    let guest = &lab.guest;
    for service in SERVICES {
        let drop_in = format!("/run/systemd/system/{service}.service.d");
        guest.run(&format!("mkdir -p {drop_in}; printf '[Service]\\nRestart=no\\n' >{drop_in}/lab.conf"));
    }
    guest.run("systemctl daemon-reload");

    guest.run(&format!(
        "systemctl kill --signal KILL ovs-vswitchd; ovs-vsctl --no-wait set Bridge {OVS_BRIDGE} external_ids:team=x"
    ));
    wait_for_failure(lab, "ovs-vswitchd is dead", "ovs-vswitchd").await;
    guest.run("systemctl start ovs-vswitchd");
    wait_until_ready(lab, "ovs-vswitchd runs again").await;
    assert_eq!(map(&row(guest, "Bridge", OVS_BRIDGE), "external_ids")["team"], "b");
    pods::wait_until_reached(guest, "after ovs-vswitchd was killed");

    guest.run("systemctl kill --signal KILL ovsdb-server");
    wait_for_failure(lab, "ovsdb-server is dead", "Open vSwitch").await;
    guest.run(&format!("ip link delete {LINUX_BRIDGE}"));
    wait_for_linux_bridge(guest);
    pods::attach_to_linux(guest);
    pods::wait_until_reached(guest, "while ovsdb-server is dead");
    let is_repaired =
        |state: &NodeStateView| state.sync_status() == "Failed" && is_ready(state, LINUX_BRIDGE);
    lab.wait("the Linux bridge is ready while ovsdb-server is dead", is_repaired).await;
    guest.run("systemctl start ovsdb-server");
    wait_until_ready(lab, "ovsdb-server runs again").await;
    pods::wait_until_reached(guest, "after ovsdb-server was killed");
}

/// Creates bridge and uplink again after the database was emptied.
pub(super) async fn fills_an_empty_database(lab: &LabCluster<'_>) {
    let guest = &lab.guest;
    guest.run("systemctl stop openvswitch-switch ovs-vswitchd ovsdb-server");
    wait_for_failure(lab, "Open vSwitch is stopped", "Open vSwitch is not running").await;
    guest.run(
        "rm /etc/openvswitch/conf.db
        ovsdb-tool create /etc/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema
        systemctl start openvswitch-switch",
    );
    wait_until_ready(lab, "the database is filled again").await;
    assert_eq!(ports(guest, OVS_BRIDGE), [PF]);
    assert_eq!(guest.run("ovs-vsctl get Open_vSwitch . other_config:hw-offload"), "\"true\"");
    pods::attach_to_ovs(guest);
    pods::wait_until_reached(guest, "after the database was emptied");
}

/// Waits until the node fails, and the bridge is not ready for a reason that names it and `cause`. The other bridge is
/// ready.
async fn wait_for_failure(lab: &LabCluster<'_>, what: &str, cause: &str) {
    let is_reported = |state: &NodeStateView| {
        let (status, _, message) = ready(state, OVS_BRIDGE);
        state.sync_status() == "Failed"
            && status == "False"
            && [&message, &state.error()].iter().all(|text| text.contains(OVS_BRIDGE) && text.contains(cause))
            && is_ready(state, LINUX_BRIDGE)
    };
    lab.wait(what, is_reported).await;
}

/// Stops the agent, or lets it continue.
fn signal_agent(guest: &Guest<'_>, signal: &str) {
    // The brackets keep the pattern from matching the script.
    guest.run(&format!("pkill -{signal} -f '[v]fleet agent'"));
}

/// Waits until the Open vSwitch bridge has its uplink.
fn wait_for_ovs_bridge(guest: &Guest<'_>, what: &str) {
    guest.wait_until(what, &format!("ovs-vsctl list-ports {OVS_BRIDGE} 2>/dev/null | grep -qx {PF}"));
}

/// Waits until the Linux bridge has its uplink, with the settings of the policy.
fn wait_for_linux_bridge(guest: &Guest<'_>) {
    let port = format!(
        "bridge -details -json link show dev {OTHER_PF} | jq -e '.[0] | .master == \"{LINUX_BRIDGE}\" and .mcast_flood == false'"
    );
    guest.wait_until("the Linux bridge is created again", &format!("{port} >/dev/null 2>&1"));
}

/// Takes the bridges out of the policies. The node is drained because ports are attached, and bridges stay without uplink
/// as long as they are; then they are removed without a drain. VFs are unchanged.
pub(super) async fn removes_bridges(lab: &LabCluster<'_>) {
    let guest = &lab.guest;
    let vfs = pods::read_vfs(guest);
    let additions = others::read_additions(guest);
    let drain = |state: &NodeStateView| state.status().drain_requested_at;
    let last_drain = drain(&lab.wait("the state of the node", |_| true).await);
    super::apply_policies_without_bridges(lab).await;
    let is_kept_for = |state: &NodeStateView, bridge: &str, port: &str| {
        let (status, reason, message) = ready(state, bridge);
        status == "False" && reason == "BridgeInUse" && message.contains(port)
    };
    let are_kept = |state: &NodeStateView| {
        [OVS_BRIDGE, LINUX_BRIDGE]
            .iter()
            .zip(REPRESENTORS)
            .all(|(bridge, port)| is_kept_for(state, bridge, port))
    };
    let requested = drain(&lab.wait("ports keep both bridges alive", are_kept).await);
    assert!(requested > last_drain, "no drain was requested: {last_drain:?}, {requested:?}");
    assert_eq!(ports(guest, OVS_BRIDGE), [REPRESENTORS[0], PORT_ON_OURS], "the uplink is removed");
    assert_eq!(guest.link(OTHER_PF)["master"], json!(null), "the uplink is removed");
    pods::assert_not_reached(guest, "through bridges without uplinks");

    pods::detach_from_ovs(guest);
    pods::detach_from_linux(guest);
    let is_kept_for_others = |state: &NodeStateView| {
        is_kept_for(state, OVS_BRIDGE, PORT_ON_OURS) && ready(state, LINUX_BRIDGE).0.is_empty()
    };
    lab.wait("a port of others keeps one bridge alive", is_kept_for_others).await;
    assert_unchanged(
        &additions,
        &others::read_additions(guest),
        "a port or key of others on our bridge was changed",
    );
    others::remove_from_our_bridge(guest);
    let is_gone = |state: &NodeStateView| state.is_synced() && state.status().bridges.is_none();
    let state = lab.wait("both bridges are removed", is_gone).await;
    assert_eq!(drain(&state), requested, "bridges without ports are removed without a drain");
    let left = guest.run(&format!(
        "ovs-vsctl list-br | grep -x {OVS_BRIDGE} || true
        ls -d /sys/class/net/{LINUX_BRIDGE} 2>/dev/null || true
        ls /etc/udev/rules.d /etc/sriov-operator | grep bridge || true"
    ));
    assert_eq!(left, "", "bridges or files are left");
    assert_unchanged(&vfs, &pods::read_vfs(guest), "a VF was changed");
}
