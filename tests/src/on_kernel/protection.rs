//! Protection of PFs and VFs that the node uses.

use serde_json::{Value, json};

use super::guest::assert_unchanged;
use super::lab_cluster::{LabCluster, OTHER_PF, PF, kill};

/// Protection period in seconds: longer than the interruption in the scenario, shorter than its deadlines.
const PROTECTION: (&str, &str) = ("HOST_PROTECTION_SECONDS", "10");

/// A PF with the default route gets VFs, but its link never goes down. A VF with the default route stays unchanged
/// until the route is gone for longer than the protection period.
pub(super) async fn protects_what_the_node_uses(lab: &LabCluster<'_>) {
    let LabCluster { cluster, guest, .. } = lab;
    guest.run(&format!(
        "ip link set {PF} up; ip address add 198.51.100.1/24 dev {PF}
        ip route add default via 198.51.100.2 dev {PF}"
    ));
    let events = lab.start_script(&format!("exec ip monitor link dev {PF}"), &[]);
    let agent = lab.start_agent_with(&[PROTECTION]);
    cluster.apply_policy("pf", policy(PF, "netdevice")).await;
    lab.wait_for_drivers(PF, &["igbvf"; 2]).await;
    cluster.delete_policy("pf").await;
    lab.wait_for_no_vfs(PF).await;
    let output = events.output_so_far();
    let flags: Vec<_> = output.lines().filter(|line| line.contains(&format!(" {PF}: <"))).collect();
    assert!(!flags.is_empty(), "no events of the card: {output}");
    let is_up = |line: &&&str| line.contains(",UP") || line.contains("<UP");
    assert_eq!(flags.iter().filter(is_up).count(), flags.len(), "the link was down: {output}");
    kill(events);
    guest.run(&format!("ip route delete default; ip address flush dev {PF}"));

    cluster.apply_policy("vf", policy(OTHER_PF, "netdevice")).await;
    lab.wait_for_drivers(OTHER_PF, &["igbvf"; 2]).await;
    let vf = &guest.vf_names(OTHER_PF)[0];
    guest.run(&format!(
        "ip link set {vf} up; ip address add 203.0.113.1/24 dev {vf}
        ip route add default via 203.0.113.2 dev {vf}"
    ));
    let before = guest.snapshot(OTHER_PF, 0..1);
    cluster.apply_policy("vf", policy(OTHER_PF, "vfio-pci")).await;
    let state = lab.wait("Failed", |state| state.sync_status() == "Failed").await;
    assert!(state.error().contains("the default route"), "{}", state.error());
    cluster.delete_policy("vf").await;
    let state = lab.wait("still Failed", |state| state.sync_status() == "Failed").await;
    assert!(state.error().contains("the default route"), "{}", state.error());
    assert_unchanged(&before, &guest.snapshot(OTHER_PF, 0..1), "the VF was changed");

    // The route is gone for a moment, as when the network is reconfigured. Also an agent that starts in that moment
    // protects the VF.
    guest.run(&format!("ip route delete default; ip address delete 203.0.113.1/24 dev {vf}"));
    let state = lab.wait("not seen", |state| state.error().contains("not observed since")).await;
    assert_eq!(state.sync_status(), "Failed");
    kill(agent);
    let agent = lab.start_agent_with(&[PROTECTION]);
    guest.wait_until_idle();
    assert_eq!(guest.executed_steps(), [""; 0], "no step is executed during the protection period");
    guest.run(&format!(
        "ip address add 203.0.113.1/24 dev {vf}; ip route add default via 203.0.113.2 dev {vf}"
    ));
    lab.wait("seen again", |state| !state.error().contains("not observed since")).await;
    assert_unchanged(&before, &guest.snapshot(OTHER_PF, 0..1), "the VF was changed");

    guest.run(&format!("ip route delete default; ip address delete 203.0.113.1/24 dev {vf}"));
    lab.wait_for_no_vfs(OTHER_PF).await;
    kill(agent);
}

fn policy(pf: &str, device_type: &str) -> Value {
    json!({ "numVfs": 2, "deviceType": device_type, "nicSelector": { "pfNames": [pf] } })
}
