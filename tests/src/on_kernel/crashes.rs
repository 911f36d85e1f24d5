//! Crashes of the agent at every kind of step.

use fixture_lab::RunningJob;
use serde_json::{Value, json};

use super::crashing_agent::{CARD_STEPS, CrashingAgent};
use super::guest::assert_unchanged;
use super::lab_cluster::{LabCluster, PF, kill};

/// An agent that is killed before and after each kind of step, and restarted each time, has the same result as an agent
/// that is not killed.
pub(super) async fn at_every_kind_of_step(lab: &LabCluster<'_>) {
    let undisturbed = create_and_remove_vfs(lab, || lab.start_agent()).await;
    let crashing_agent = CrashingAgent::new(lab, &CARD_STEPS);
    let disturbed = create_and_remove_vfs(lab, || crashing_agent.start("")).await;
    for (undisturbed, disturbed) in undisturbed.iter().zip(&disturbed) {
        assert_unchanged(undisturbed, disturbed, "the results differ");
    }
    crashing_agent.assert_crashed_at_all();
}

/// Returns the state of the card with its VFs, and after their removal. The MACs of VFs depend only on the card.
async fn create_and_remove_vfs(
    lab: &LabCluster<'_>,
    start_agent: impl FnOnce() -> RunningJob,
) -> [String; 2] {
    let LabCluster { cluster, guest, .. } = lab;
    guest.run(&format!("ip link set {PF} down; modprobe --remove vfio-pci"));
    // Both policies exist before the agent reports its cards, so all VFs are desired from the start.
    cluster.apply_policy("netdevice", policy("0-1", "netdevice")).await;
    cluster.apply_policy("vfio", policy("2-2", "vfio-pci")).await;
    let agent = start_agent();
    lab.wait_for_drivers(PF, &["igbvf", "igbvf", "vfio-pci"]).await;
    guest.run("udevadm settle");
    let created = comparable(&guest.snapshot(PF, 0..3));
    for name in ["netdevice", "vfio"] {
        cluster.delete_policy(name).await;
    }
    lab.wait_for_no_vfs(PF).await;
    let removed = comparable(&guest.snapshot(PF, 0..0));
    let files = guest.run("find /etc/sriov-operator /etc/udev/rules.d -type f 2>/dev/null || true");
    kill(agent);
    [created, format!("{removed}\n{files}")]
}

/// Removes lines that differ for every created VF, or that depend on the carrier.
fn comparable(snapshot: &str) -> String {
    const VARYING: [&str; 6] =
        ["\"ifindex\"", "\"permaddr\"", "iommu_group", "\"operstate\"", "\"LOWER_UP\"", "\"NO-CARRIER\""];
    let is_varying = |line: &&str| VARYING.iter().any(|word| line.contains(word));
    let lines = snapshot.lines().filter(|line| !is_varying(line));
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
