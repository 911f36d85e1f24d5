//! Bridges that an administrator creates.

use serde_json::json;

use super::super::guest::Guest;
use super::super::lab_cluster::{LabCluster, OTHER_PF, PF};
use super::open_vswitch::ports;
use super::pods::{self, REPRESENTORS};
use crate::cluster::NodeStateView;

const OVS_BRIDGE: &str = "br-hand";
const LINUX_BRIDGE: &str = "hand";

/// An administrator creates bridges for PFs in switchdev mode that only the policies' VFs are configured on. Then one PF
/// becomes externally managed. The bridges are neither reported nor changed, also when the policies are deleted.
pub(super) async fn are_left_alone(lab: &LabCluster<'_>) {
    let LabCluster { cluster, guest, .. } = lab;
    guest.run(&format!(
        "ovs-vsctl add-br {OVS_BRIDGE} -- add-port {OVS_BRIDGE} {PF} -- add-port {OVS_BRIDGE} {}
        ip link add {LINUX_BRIDGE} type bridge
        ip link set {LINUX_BRIDGE} up
        for port in {OTHER_PF} {}; do ip link set $port master {LINUX_BRIDGE}; done",
        REPRESENTORS[0], REPRESENTORS[1]
    ));
    pods::wait_until_reached(guest, "through bridges of an administrator");
    let external = json!({
        "numVfs": 1, "eSwitchMode": "switchdev", "externallyManaged": true, "nicSelector": { "pfNames": [PF] },
    });
    cluster.apply_policy("ovs", external).await;
    let record = "cat /etc/sriov-operator/vfleet/pci/0000:01:00.0";
    guest.wait_until(
        "the PF is externally managed",
        &format!("{record} | grep -q '\"externallyManaged\": true'"),
    );
    let is_unreported = |state: &NodeStateView| state.is_synced() && state.status().bridges.is_none();
    lab.wait("an externally managed PF", is_unreported).await;
    pods::wait_until_reached(guest, "on an externally managed PF");
    assert_exist(guest, &REPRESENTORS);

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
    assert_exist(guest, &REPRESENTORS[..1]);
}

/// Checks that the bridges have the PFs as ports, and these representors.
fn assert_exist(guest: &Guest<'_>, representors: &[&str]) {
    assert_eq!(ports(guest, OVS_BRIDGE), [PF, REPRESENTORS[0]]);
    let ports = guest.run(&format!("ls /sys/class/net/{LINUX_BRIDGE}/brif"));
    let expected: Vec<_> = [OTHER_PF].into_iter().chain(representors.get(1).copied()).collect();
    assert_eq!(ports.lines().collect::<Vec<_>>(), expected);
}
