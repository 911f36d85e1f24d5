use serde_json::{Value, json};

use super::guest::assert_same;
use super::scene::{OTHER_PF, PF, Scene, kill};

/// Seconds for which a use must be away before its protection ends. Longer than the story's moment, shorter than its
/// patience.
const PROTECTION: (&str, &str) = ("HOST_PROTECTION_SECONDS", "10");

/// The default route leads through a card, and then through a VF: the card gets VFs and is never down, the VF stays what
/// it is until the route is gone for long.
pub(super) async fn of_what_the_node_uses(scene: &Scene<'_>) {
    let Scene { cluster, guest, .. } = scene;
    guest.run(&format!(
        "ip link set {PF} up; ip address add 198.51.100.1/24 dev {PF}
        ip route add default via 198.51.100.2 dev {PF}"
    ));
    let events = scene.start(&format!("exec ip monitor link dev {PF}"), &[]);
    let agent = scene.start_agent_with(&[PROTECTION]);
    cluster.apply_policy("pf", policy(PF, "netdevice")).await;
    scene.wait_for_drivers(PF, &["igbvf"; 2]).await;
    cluster.delete_policy("pf").await;
    scene.wait_for_no_vfs(PF).await;
    let seen = events.output_so_far();
    let flags: Vec<_> = seen.lines().filter(|line| line.contains(&format!(" {PF}: <"))).collect();
    assert!(!flags.is_empty(), "the card's events are seen: {seen}");
    let is_up = |line: &&&str| line.contains(",UP") || line.contains("<UP");
    assert_eq!(flags.iter().filter(is_up).count(), flags.len(), "it was down: {seen}");
    kill(events);
    guest.run(&format!("ip route delete default; ip address flush dev {PF}"));

    cluster.apply_policy("vf", policy(OTHER_PF, "netdevice")).await;
    scene.wait_for_drivers(OTHER_PF, &["igbvf"; 2]).await;
    let vf = &guest.vf_names(OTHER_PF)[0];
    guest.run(&format!(
        "ip link set {vf} up; ip address add 203.0.113.1/24 dev {vf}
        ip route add default via 203.0.113.2 dev {vf}"
    ));
    let before = guest.snapshot(OTHER_PF, 0..1);
    cluster.apply_policy("vf", policy(OTHER_PF, "vfio-pci")).await;
    let state = scene.wait("Failed", |state| state.sync_status() == "Failed").await;
    assert!(state.error().contains("the default route"), "{}", state.error());
    cluster.delete_policy("vf").await;
    let state = scene.wait("still Failed", |state| state.sync_status() == "Failed").await;
    assert!(state.error().contains("the default route"), "{}", state.error());
    assert_same(&before, &guest.snapshot(OTHER_PF, 0..1), "the VF was touched");

    // Away for a moment, as when the network is configured anew: also an agent that starts in that moment knows it.
    guest.run(&format!("ip route delete default; ip address delete 203.0.113.1/24 dev {vf}"));
    let state = scene.wait("not seen", |state| state.error().contains("not seen since")).await;
    assert_eq!(state.sync_status(), "Failed");
    kill(agent);
    let agent = scene.start_agent_with(&[PROTECTION]);
    guest.until_idle();
    assert_eq!(guest.executed_steps(), [""; 0], "nothing is done at once");
    guest.run(&format!(
        "ip address add 203.0.113.1/24 dev {vf}; ip route add default via 203.0.113.2 dev {vf}"
    ));
    scene.wait("seen again", |state| !state.error().contains("not seen since")).await;
    assert_same(&before, &guest.snapshot(OTHER_PF, 0..1), "the VF was touched");

    guest.run(&format!("ip route delete default; ip address delete 203.0.113.1/24 dev {vf}"));
    scene.wait_for_no_vfs(OTHER_PF).await;
    kill(agent);
}

fn policy(pf: &str, device_type: &str) -> Value {
    json!({ "numVfs": 2, "deviceType": device_type, "nicSelector": { "pfNames": [pf] } })
}
