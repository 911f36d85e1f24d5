use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::guest::{AGENT_LOG, assert_same};
use super::scene::{NODE, PF, Scene, kill};

/// The kinds of steps that this card calls for, when VFs come and when they go.
const KINDS: [&str; 11] = [
    "WriteRecord",
    "WriteFile",
    "SetLinkUp",
    "SetPfMtu",
    "SetAutoprobe",
    "SetNumVfs",
    "SetVfMac",
    "BindVf",
    "SetVfMtu",
    "RemoveFile",
    "RemoveRecord",
];

/// An agent that is killed once at each kind of step, and started again each time, ends where one ends that nobody
/// disturbs.
pub(super) async fn at_every_kind_of_step(scene: &Scene<'_>) {
    let undisturbed = vfs_come_and_go(scene, &format!("exec {} agent --node {NODE}", vfleet(scene))).await;

    let deaths = "/run/deaths";
    let mortal = scene.guest.put(scene.programs.mortal_agent);
    let again_and_again = format!("while :; do {mortal} --node {NODE} --deaths {deaths} || true; done");
    scene.guest.run(&format!("rm -f {deaths}; touch {deaths}"));
    let disturbed = vfs_come_and_go(scene, &again_and_again).await;
    for (undisturbed, disturbed) in undisturbed.iter().zip(&disturbed) {
        assert_same(undisturbed, disturbed, "not the same end");
    }
    let deaths = scene.guest.run(&format!("cat {deaths}"));
    let deaths: BTreeSet<&str> = deaths.lines().collect();
    for kind in KINDS {
        assert!(deaths.contains(kind), "never at {kind}: {deaths:?}");
    }
}

/// What the card is like with its VFs, and after they are gone. The addresses of VFs depend on the card alone.
async fn vfs_come_and_go(scene: &Scene<'_>, agent: &str) -> [String; 2] {
    let Scene { cluster, guest, .. } = scene;
    guest.run(&format!("ip link set {PF} down"));
    // Both before the agent reports its cards: all VFs are wanted from the start.
    cluster.apply_policy("netdevice", policy("0-1", "netdevice")).await;
    cluster.apply_policy("vfio", policy("2-2", "vfio-pci")).await;
    let agent = scene.start(&format!("exec >{AGENT_LOG} 2>&1; {agent}"), &[]);
    scene.wait_for_drivers(PF, &["igbvf", "igbvf", "vfio-pci"]).await;
    guest.run("udevadm settle");
    let come = seen(&guest.snapshot(PF, 0..3));
    for name in ["netdevice", "vfio"] {
        cluster.delete_policy(name).await;
    }
    scene.wait_for_no_vfs(PF).await;
    let gone = seen(&guest.snapshot(PF, 0..0));
    let files = guest.run("find /etc/sriov-operator /etc/udev/rules.d -type f 2>/dev/null || true");
    kill(agent);
    [come, format!("{gone}\n{files}")]
}

/// Without what is different for each VF ever made.
fn seen(snapshot: &str) -> String {
    let is_chance =
        |line: &&str| ["\"ifindex\"", "\"permaddr\"", "iommu_group"].iter().any(|word| line.contains(word));
    snapshot.lines().filter(|line| !is_chance(line)).collect::<Vec<_>>().join("\n")
}

fn policy(vfs: &str, device_type: &str) -> Value {
    let mut policy = json!({
        "numVfs": 3, "deviceType": device_type, "resourceName": device_type.replace('-', "_"),
        "nicSelector": { "pfNames": [format!("{PF}#{vfs}")] },
    });
    if device_type == "netdevice" {
        policy["mtu"] = json!(2000);
    }
    policy
}

fn vfleet(scene: &Scene<'_>) -> String {
    scene.guest.put(scene.programs.vfleet)
}
