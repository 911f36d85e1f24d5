use serde_json::json;

use super::guest::assert_same;
use super::scene::{PF, Scene, kill};

/// A VF that somebody unbinds is bound again, and nothing else is touched; a VF that a pod takes and gives back calls for
/// nothing.
pub(super) async fn a_vf_that_lost_its_driver(scene: &Scene<'_>) {
    let Scene { cluster, guest, .. } = scene;
    let agent = scene.start_agent();
    cluster.apply_policy("healed", json!({ "numVfs": 3, "nicSelector": { "pfNames": [PF] } })).await;
    scene.wait_for_drivers(PF, &["igbvf"; 3]).await;
    let names = guest.vf_names(PF);
    kill(agent);
    let agent = scene.start_agent(); // with a new log
    guest.until_idle();

    let before = (guest.snapshot(PF, 0..1), guest.snapshot(PF, 2..3));
    let unbind = format!("cd /sys/class/net/{PF}/device/virtfn1; basename $(readlink -f .) >driver/unbind");
    let bound = format!("test -d /sys/class/net/{PF}/device/virtfn1/driver");
    guest.run(&unbind);
    guest.until("VF 1 is bound again", &bound);
    scene.wait_for_drivers(PF, &["igbvf"; 3]).await;
    let after = (guest.snapshot(PF, 0..1), guest.snapshot(PF, 2..3));
    assert_same(&before.0, &after.0, "VF 0 was touched");
    assert_same(&before.1, &after.1, "VF 2 was touched");
    let steps = guest.executed();
    assert!(steps.iter().all(|step| step.contains("vf 1")), "{steps:#?}");

    let pod = "ip netns add pod; ip link set VF netns pod; ip -n pod link set VF up; sleep 1";
    let back = "ip -n pod link set VF netns 1; ip netns delete pod; udevadm settle";
    guest.run(&format!("{pod}; {back}").replace("VF", &names[2]));
    // What the agent does next shows that it has seen both.
    guest.run(&unbind);
    guest.until("VF 1 is bound again", &bound);
    let steps = guest.executed();
    assert!(steps.iter().all(|step| step.contains("vf 1")), "{steps:#?}");

    cluster.delete_policy("healed").await;
    scene.wait_for_no_vfs(PF).await;
    kill(agent);
}
