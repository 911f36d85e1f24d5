use serde_json::{Value, json};

use super::guest::{Guest, assert_same};
use super::scene::{OTHER_PF, PF, Scene, kill};
use crate::cluster::State;

/// Of the pod at the other end of the wire.
const PEER: &str = "peer";

/// VFs that somebody makes while the agent runs, of which the node itself uses the first, and the policy wants the last
/// two. The card and the others stay as they are, to the byte, whatever becomes of the policy.
pub(super) async fn only_the_vfs_of_the_policy(scene: &Scene<'_>) {
    let Scene { cluster, guest, .. } = scene;
    let agent = scene.start_agent();
    cluster.apply_policy("external", policy(true, "netdevice")).await;
    let state = scene.wait("Failed", |state| state.sync_status() == "Failed").await;
    assert!(state.error().contains(PF) || state.error().contains("0000:01:00.0"), "{}", state.error());
    assert_eq!(guest.drivers(PF), [""; 0]);

    guest.make_vfs(PF, 7);
    scene.wait_for_drivers(PF, &["igbvf"; 7]).await;

    connect(guest);
    let before = guest.snapshot(PF, 0..5);
    let pings = scene.start("exec ping -i 0.1 192.0.2.2", &[]);
    cluster.apply_policy("external", policy(true, "vfio-pci")).await;
    let split = ["igbvf", "igbvf", "igbvf", "igbvf", "igbvf", "vfio-pci", "vfio-pci"];
    scene.wait_for_drivers(PF, &split).await;
    guest.run("pkill -INT -x ping");
    let pings = pings.wait().expect("it ends").output;
    assert!(pings.contains(", 0% packet loss"), "VF 0 was disturbed: {pings}");
    assert_same(&before, &guest.snapshot(PF, 0..5), "others were touched");

    cluster.delete_policy("external").await;
    let forgotten = |state: &State| state.is_synced() && state.vfs(PF).len() == 7;
    scene.wait("the policy is gone", forgotten).await;
    guest.until("the record is gone", "test -z \"$(ls /etc/sriov-operator/vfleet/pci)\"");
    assert_same(&before, &guest.snapshot(PF, 0..5), "others were touched when the policy went");
    assert_eq!(guest.drivers(PF).len(), 7);

    become_owned_and_back(scene).await;
    assert_same(&before, &guest.snapshot(PF, 0..5), "others were touched while it was ours");

    kill(agent);
    guest.run(&format!("ip netns delete {PEER}; udevadm settle"));
    for pf in [PF, OTHER_PF] {
        guest.run(&format!("echo 0 >/sys/class/net/{pf}/device/sriov_numvfs"));
    }
}

/// The last applied record decides whether the VFs are ours: here it says that they are not.
async fn become_owned_and_back(scene: &Scene<'_>) {
    let Scene { cluster, guest, .. } = scene;
    let record = "cat /etc/sriov-operator/vfleet/pci/*";
    cluster.apply_policy("external", policy(false, "vfio-pci")).await;
    scene.wait("it is ours", State::is_synced).await;
    guest.until("the record says so", &format!("! {record} | grep -q '\"externallyManaged\": true'"));
    cluster.apply_policy("external", policy(true, "vfio-pci")).await;
    scene.wait("it is not ours any more", State::is_synced).await;
    guest.until("the record says so", &format!("{record} | grep -q '\"externallyManaged\": true'"));
    cluster.delete_policy("external").await;
    guest.until("the record is gone", "test -z \"$(ls /etc/sriov-operator/vfleet/pci)\"");
    assert_eq!(guest.drivers(PF).len(), 7, "its VFs stay");
}

fn policy(external: bool, device_type: &str) -> Value {
    json!({
        "numVfs": 7, "externallyManaged": external, "deviceType": device_type,
        "nicSelector": { "pfNames": [format!("{PF}#5-6")] },
    })
}

/// VF 0 carries traffic of the node itself, to a VF of the other card in a pod.
fn connect(guest: &Guest<'_>) {
    guest.make_vfs(OTHER_PF, 1);
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
