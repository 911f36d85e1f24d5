//! Bridges that an administrator creates.

use serde_json::{Value, json};

use super::super::guest::{Guest, assert_unchanged};
use super::super::lab_cluster::{LabCluster, OTHER_PF, PF};
use super::links::{read_links, read_ports};
use super::open_vswitch::snapshot_bridge;
use super::pods::{self, REPRESENTORS};
use super::{OVS_BRIDGE, policy};
use crate::cluster::NodeStateView;

const LINUX_BRIDGE: &str = "hand";

/// An administrator creates bridges for PFs in switchdev mode that only the policies' VFs are configured on, one of them
/// with the name that the bridge of a policy would have. Then one PF becomes externally managed. The bridges are neither
/// reported nor changed, also when the policies are deleted.
pub(super) async fn are_left_alone(lab: &LabCluster<'_>) {
    let LabCluster { cluster, guest, .. } = lab;
    create(guest);
    pods::wait_until_reached(guest, "through bridges of an administrator");
    let ovs = read_ovs_bridge(guest);
    let linux = read_linux_bridge(guest);
    let ports = read_all_ports(guest);
    let assert_same = |when: &str| {
        assert_unchanged(&ovs, &read_ovs_bridge(guest), when);
        assert_unchanged(&linux, &read_linux_bridge(guest), when);
    };

    // Another resource name changes nothing on the machine.
    let mut renamed = policy(OTHER_PF);
    renamed["resourceName"] = json!("renamed");
    apply(lab, "linux", renamed).await;
    pods::wait_until_reached(guest, "with VFs of policies");
    assert_same("a bridge was changed while policies have VFs only");
    assert_unchanged(&ports, &read_all_ports(guest), "a port was changed while policies have VFs only");

    let mut external = policy(PF);
    external["externallyManaged"] = json!(true);
    apply(lab, "ovs", external).await;
    let record = "cat /etc/sriov-operator/vfleet/pci/0000:01:00.0";
    guest.wait_until(
        "the PF is externally managed",
        &format!("{record} | grep -q '\"externallyManaged\": true'"),
    );
    pods::wait_until_reached(guest, "on an externally managed PF");
    assert_same("a bridge was changed while its PF is externally managed");
    assert_unchanged(&ports, &read_all_ports(guest), "a port was changed");

    pods::remove(guest);
    for policy in ["ovs", "linux"] {
        cluster.delete_policy(policy).await;
    }
    let is_reset = |state: &NodeStateView| {
        state.is_synced() && state.vfs(OTHER_PF).is_empty() && state.status().bridges.is_none()
    };
    lab.wait("both policies are deleted", is_reset).await;
    guest.wait_until("the records are removed", "test -z \"$(ls /etc/sriov-operator/vfleet/pci)\"");
    assert_eq!(guest.drivers(PF).len(), 1, "the VF of the externally managed PF is kept");
    guest.wait_until(
        "the other PF has a carrier again",
        &format!("grep -qx up /sys/class/net/{LINUX_BRIDGE}/operstate"),
    );
    assert_same("a bridge was changed when the policies were deleted");
}

/// Creates both bridges, with the PFs and the representors of the pods as ports.
fn create(guest: &Guest<'_>) {
    // With an address of its own, because otherwise the kernel changes the address with the ports.
    guest.run(&format!(
        "ovs-vsctl add-br {OVS_BRIDGE} \
            -- set Bridge {OVS_BRIDGE} external_ids:owner=administrator other_config:mac-aging-time=77 \
            -- add-port {OVS_BRIDGE} {PF} -- add-port {OVS_BRIDGE} {}
        ip link add {LINUX_BRIDGE} address 02:00:00:00:00:99 type bridge ageing_time 1000
        ip link set {LINUX_BRIDGE} up
        for port in {OTHER_PF} {}; do ip link set $port master {LINUX_BRIDGE}; done
        bridge link set dev {OTHER_PF} mcast_flood off",
        REPRESENTORS[0], REPRESENTORS[1]
    ));
}

/// Applies a policy, waits until the agent has applied the new state of the node, and checks that it reports no bridge.
async fn apply(lab: &LabCluster<'_>, name: &str, policy: Value) {
    let before = lab.wait("the state of the node", |_| true).await;
    lab.cluster.apply_policy(name, policy).await;
    let is_next = |state: &NodeStateView| state.generation() > before.generation() && state.is_synced();
    let state = lab.wait("the policy is applied", is_next).await;
    let reported = state.status().bridges;
    assert!(reported.is_none(), "a bridge of an administrator is reported: {reported:?}");
}

/// Returns the state of the Open vSwitch bridge and its ports as text.
fn read_ovs_bridge(guest: &Guest<'_>) -> String {
    snapshot_bridge(guest, OVS_BRIDGE, &[PF, REPRESENTORS[0]])
}

/// Returns the state of the Linux bridge and its uplink as text.
fn read_linux_bridge(guest: &Guest<'_>) -> String {
    [read_links(guest, &[LINUX_BRIDGE]), read_ports(guest, &[OTHER_PF])].join("\n")
}

/// Returns the state of the ports of both bridges as text.
fn read_all_ports(guest: &Guest<'_>) -> String {
    let [ovs_port, linux_port] = REPRESENTORS;
    let links = read_links(guest, &[PF, ovs_port, OTHER_PF, linux_port]);
    [links, read_ports(guest, &[OTHER_PF, linux_port])].join("\n")
}
