use fixture_lab::RunningJob;
use serde_json::{Value, json};

use super::guest::assert_same;
use super::mortal::{Mortal, OF_CARDS};
use super::scene::{PF, Scene, kill};

/// An agent that is killed before and after each kind of step, and started again each time, ends where one ends that
/// nobody disturbs.
pub(super) async fn at_every_kind_of_step(scene: &Scene<'_>) {
    let undisturbed = vfs_come_and_go(scene, || scene.start_agent()).await;
    let mortal = Mortal::new(scene, &OF_CARDS);
    let disturbed = vfs_come_and_go(scene, || mortal.start("")).await;
    for (undisturbed, disturbed) in undisturbed.iter().zip(&disturbed) {
        assert_same(undisturbed, disturbed, "not the same end");
    }
    mortal.assert_killed_at_all();
}

/// What the card is like with its VFs, and after they are gone. The addresses of VFs depend on the card alone.
async fn vfs_come_and_go(scene: &Scene<'_>, start: impl FnOnce() -> RunningJob) -> [String; 2] {
    let Scene { cluster, guest, .. } = scene;
    guest.run(&format!("ip link set {PF} down; modprobe --remove vfio-pci"));
    // Both before the agent reports its cards: all VFs are wanted from the start.
    cluster.apply_policy("netdevice", policy("0-1", "netdevice")).await;
    cluster.apply_policy("vfio", policy("2-2", "vfio-pci")).await;
    let agent = start();
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

/// Without what is different for each VF ever made, and without what a link says about its other end: it comes when it
/// comes.
fn seen(snapshot: &str) -> String {
    const CHANCE: [&str; 6] =
        ["\"ifindex\"", "\"permaddr\"", "iommu_group", "\"operstate\"", "\"LOWER_UP\"", "\"NO-CARRIER\""];
    let is_chance = |line: &&str| CHANCE.iter().any(|word| line.contains(word));
    let lines = snapshot.lines().filter(|line| !is_chance(line));
    lines.map(|line| line.trim_end_matches(',')).collect::<Vec<_>>().join("\n")
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
