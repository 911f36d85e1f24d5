//! Take-over from the Go daemon.

use fixture_lab::Options;
use serde_json::{Value, json};

use super::guest::assert_unchanged;
use super::lab_cluster::{LabCluster, PF, PF_ADDRESS, kill};

/// Directory of the records of the Go daemon.
const GO_RECORDS: &str = "/etc/sriov-operator/pci";
/// Record of three VFs, written by the Go daemon.
const GO_RECORD: &str = include_str!("../../../crates/host/tests/go_daemon/lab/record-enp1s0.json");

/// VFs that the Go daemon created are taken over without a change of the card. After a reboot VFs are created again
/// with the same MACs. Leaves the machine without an IOMMU.
pub(super) async fn survives_a_reboot(lab: &LabCluster<'_>) {
    let LabCluster { cluster, guest, .. } = lab;
    guest.create_vfs(PF, 3);
    guest.run("modprobe --all tun vhost_net"); // otherwise the agent loads them for pods
    guest.run(&format!("mkdir -p {GO_RECORDS}; printf %s '{GO_RECORD}' >{GO_RECORDS}/{PF_ADDRESS}"));
    let before = guest.snapshot(PF, 0..3);
    cluster.apply_policy("taken-over", policy(3)).await;
    let agent = lab.start_agent();
    lab.wait_for_drivers(PF, &["igbvf"; 3]).await;
    assert_unchanged(&before, &guest.snapshot(PF, 0..3), "the card or its VFs were changed");
    let expected = [
        "write /etc/udev/disable-nm-sriov.sh".to_owned(),
        format!("write state file of {PF}"),
        format!("write /etc/udev/rules.d/10-nm-disable-{PF_ADDRESS}.rules"),
    ];
    assert_eq!(guest.executed_steps(), expected, "only files are written");
    kill(agent);
    let agent = lab.start_agent();
    guest.wait_until_idle();
    assert_eq!(guest.executed_steps(), [""; 0], "no step is left after the take-over");
    assert_unchanged(&before, &guest.snapshot(PF, 0..3), "the card or its VFs were changed");

    cluster.apply_policy("taken-over", policy(4)).await;
    lab.wait_for_drivers(PF, &["igbvf"; 4]).await;
    guest.vf_names(PF);
    let macs = guest.vf_macs(PF);
    kill(agent);
    let records = "cd /etc/sriov-operator; find . -type f | sort | xargs tail -n +1";
    let content = guest.run(records);
    guest.vm.reboot_with(WITHOUT_IOMMU).expect("the machine reboots");
    assert_eq!(guest.run(records), content, "records survive the reboot");
    assert_eq!(guest.drivers(PF), [""; 0], "VFs do not survive the reboot");
    let agent = lab.start_agent();
    guest.wait_until(
        "four VFs are bound again",
        &format!("test $(ls -d /sys/class/net/{PF}/device/virtfn*/driver | wc -l) = 4"),
    );
    lab.wait_for_drivers(PF, &["igbvf"; 4]).await;
    assert_eq!(guest.vf_macs(PF), macs, "VFs keep their MACs");

    cluster.delete_policy("taken-over").await;
    lab.wait_for_no_vfs(PF).await;
    assert_eq!(guest.run(&format!("ls {GO_RECORDS}")), "", "the record of the Go daemon is removed");
    kill(agent);
}

/// Kernel argument that switches the IOMMU off; by default the kernel of the lab uses it.
pub(super) const WITHOUT_IOMMU: &str = "intel_iommu=off";

/// Returns the default kernel arguments of the lab, with IOMMU.
pub(super) fn with_iommu() -> String {
    Options::default().arguments
}

fn policy(count: u32) -> Value {
    json!({ "numVfs": count, "nicSelector": { "pfNames": [PF] } })
}
