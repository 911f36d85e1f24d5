//! Externally managed PFs.

use serde_json::{Value, json};

use super::guest::{Guest, assert_unchanged};
use super::lab_cluster::{LabCluster, OTHER_PF, PF, kill};
use crate::cluster::NodeStateView;

/// Network namespace of the peer, which stands for a pod.
const PEER: &str = "peer";

/// An administrator creates VFs while the agent runs. The node uses the first VF, and the policy selects the last two.
/// The PF and the other VFs stay unchanged when the policy is created, changed and deleted.
pub(super) async fn configures_only_vfs_of_the_policy(lab: &LabCluster<'_>) {
    let LabCluster { cluster, guest, .. } = lab;
    let agent = lab.start_agent();
    cluster.apply_policy("external", policy(true, "netdevice")).await;
    let state = lab.wait("Failed", |state| state.sync_status() == "Failed").await;
    assert!(state.error().contains(PF) || state.error().contains("0000:01:00.0"), "{}", state.error());
    assert_eq!(guest.drivers(PF), [""; 0]);

    guest.create_vfs(PF, 7);
    lab.wait_for_drivers(PF, &["igbvf"; 7]).await;

    connect(guest);
    let before = guest.snapshot(PF, 0..5);
    let pings = lab.start_script("exec ping -i 0.1 192.0.2.2", &[]);
    cluster.apply_policy("external", policy(true, "vfio-pci")).await;
    let split = ["igbvf", "igbvf", "igbvf", "igbvf", "igbvf", "vfio-pci", "vfio-pci"];
    lab.wait_for_drivers(PF, &split).await;
    guest.run("pkill -INT -x ping");
    let pings = pings.wait().expect("ping ends").output;
    assert!(pings.contains(", 0% packet loss"), "VF 0 lost packets: {pings}");
    assert_unchanged(&before, &guest.snapshot(PF, 0..5), "other VFs were changed");

    cluster.delete_policy("external").await;
    let is_forgotten = |state: &NodeStateView| state.is_synced() && state.vfs(PF).len() == 7;
    lab.wait("the policy is deleted", is_forgotten).await;
    guest.wait_until("the record is removed", "test -z \"$(ls /etc/sriov-operator/vfleet/pci)\"");
    assert_unchanged(
        &before,
        &guest.snapshot(PF, 0..5),
        "other VFs were changed when the policy was deleted",
    );
    assert_eq!(guest.drivers(PF).len(), 7);

    toggle_externally_managed(lab).await;
    assert_unchanged(
        &before,
        &guest.snapshot(PF, 0..5),
        "other VFs were changed while the PF was not externally managed",
    );

    kill(agent);
    guest.run(&format!("ip netns delete {PEER}; udevadm settle"));
    for pf in [PF, OTHER_PF] {
        guest.run(&format!("echo 0 >/sys/class/net/{pf}/device/sriov_numvfs"));
    }
}

/// Switches the policy to managed and back. The last record decides who owns the VFs: here it says that they are
/// external.
async fn toggle_externally_managed(lab: &LabCluster<'_>) {
    let LabCluster { cluster, guest, .. } = lab;
    let record = "cat /etc/sriov-operator/vfleet/pci/*";
    cluster.apply_policy("external", policy(false, "vfio-pci")).await;
    lab.wait("the PF is managed", NodeStateView::is_synced).await;
    guest.wait_until("the record is managed", &format!("! {record} | grep -q '\"externallyManaged\": true'"));
    cluster.apply_policy("external", policy(true, "vfio-pci")).await;
    lab.wait("the PF is externally managed again", NodeStateView::is_synced).await;
    guest.wait_until(
        "the record is externally managed",
        &format!("{record} | grep -q '\"externallyManaged\": true'"),
    );
    cluster.delete_policy("external").await;
    guest.wait_until("the record is removed", "test -z \"$(ls /etc/sriov-operator/vfleet/pci)\"");
    assert_eq!(guest.drivers(PF).len(), 7, "the VFs are kept");
}

fn policy(external: bool, device_type: &str) -> Value {
    json!({
        "numVfs": 7, "externallyManaged": external, "deviceType": device_type,
        "nicSelector": { "pfNames": [format!("{PF}#5-6")] },
    })
}

/// Connects VF 0, used by the node, with a VF of the other card in the network namespace of a pod.
fn connect(guest: &Guest<'_>) {
    guest.create_vfs(OTHER_PF, 1);
    guest.run(&format!(
        "ip netns add {PEER}
        ip link set {OTHER_PF}v0 netns {PEER}
        ip -n {PEER} address add 192.0.2.2/24 dev {OTHER_PF}v0
        ip -n {PEER} link set {OTHER_PF}v0 up
        ip address add 192.0.2.1/24 dev {PF}v0
        ip link set {PF}v0 up
        until ping -c 1 -w 1 192.0.2.2 >/dev/null; do sleep 0.2; done"
    ));
}
