use fixture_lab::Options;
use serde_json::{Value, json};

use super::guest::assert_same;
use super::scene::{PF, PF_ADDRESS, Scene, kill};

/// Where the Go daemon keeps what it has applied.
const GO_RECORDS: &str = "/etc/sriov-operator/pci";
/// The record that the Go daemon's own code writes of three VFs.
const GO_RECORD: &str = include_str!("../../../crates/host/tests/go_daemon/lab/record-enp1s0.json");

/// VFs that the Go daemon made are ours without a change of the card; after a reboot the VFs that we made come again with
/// the addresses that they had. Leaves the machine without an IOMMU.
pub(super) async fn outlive_the_go_daemon_and_a_reboot(scene: &Scene<'_>) {
    let Scene { cluster, guest, .. } = scene;
    guest.make_vfs(PF, 3);
    guest.run("modprobe --all tun vhost_net"); // which the agent would load for pods
    guest.run(&format!("mkdir -p {GO_RECORDS}; printf %s '{GO_RECORD}' >{GO_RECORDS}/{PF_ADDRESS}"));
    let before = guest.snapshot(PF, 0..3);
    cluster.apply_policy("taken", policy(3)).await;
    let agent = scene.start_agent();
    scene.wait_for_drivers(PF, &["igbvf"; 3]).await;
    assert_same(&before, &guest.snapshot(PF, 0..3), "the card or its VFs were touched");
    let written_down = [
        "write /etc/udev/disable-nm-sriov.sh".to_owned(),
        format!("record {PF_ADDRESS}"),
        format!("write /etc/udev/rules.d/10-nm-disable-{PF_ADDRESS}.rules"),
    ];
    assert_eq!(guest.executed_steps(), written_down, "nothing but what is written down");
    kill(agent);
    let agent = scene.start_agent();
    guest.until_idle();
    assert_eq!(guest.executed_steps(), [""; 0], "once it is ours nothing is left to do");
    assert_same(&before, &guest.snapshot(PF, 0..3), "the card or its VFs were touched");

    cluster.apply_policy("taken", policy(4)).await;
    scene.wait_for_drivers(PF, &["igbvf"; 4]).await;
    guest.vf_names(PF);
    let ours = guest.vf_macs(PF);
    kill(agent);
    let records = "cd /etc/sriov-operator; find . -type f | sort | xargs tail -n +1";
    let written = guest.run(records);
    guest.vm.reboot_with(WITHOUT_IOMMU).expect("the machine reboots");
    assert_eq!(guest.run(records), written, "records outlive the reboot");
    assert_eq!(guest.drivers(PF), [""; 0], "VFs do not");
    let agent = scene.start_agent();
    guest.until(
        "four VFs are bound again",
        &format!("test $(ls -d /sys/class/net/{PF}/device/virtfn*/driver | wc -l) = 4"),
    );
    scene.wait_for_drivers(PF, &["igbvf"; 4]).await;
    assert_eq!(guest.vf_macs(PF), ours, "the same addresses");

    cluster.delete_policy("taken").await;
    scene.wait_for_no_vfs(PF).await;
    assert_eq!(guest.run(&format!("ls {GO_RECORDS}")), "", "the Go daemon's file is gone, too");
    kill(agent);
}

/// The kernel of the lab uses the IOMMU unless it is told not to.
pub(super) const WITHOUT_IOMMU: &str = "intel_iommu=off";

/// Puts the machine back to what the lab's machines are like.
pub(super) fn with_iommu() -> String {
    Options::default().arguments
}

fn policy(count: u32) -> Value {
    json!({ "numVfs": count, "nicSelector": { "pfNames": [PF] } })
}
