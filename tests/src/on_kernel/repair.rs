//! Repair of changes by others.

use serde_json::json;

use super::guest::assert_unchanged;
use super::lab_cluster::{LabCluster, PF, kill};

/// A VF that an administrator unbinds is bound again, and nothing else is changed. A VF that a pod used and returned
/// needs no step.
pub(super) async fn binds_an_unbound_vf(lab: &LabCluster<'_>) {
    let LabCluster { cluster, guest, .. } = lab;
    let agent = lab.start_agent();
    cluster.apply_policy("repaired", json!({ "numVfs": 3, "nicSelector": { "pfNames": [PF] } })).await;
    lab.wait_for_drivers(PF, &["igbvf"; 3]).await;
    let names = guest.vf_names(PF);
    kill(agent);
    let agent = lab.start_agent(); // with an empty log
    guest.wait_until_idle();

    let before = (guest.snapshot(PF, 0..1), guest.snapshot(PF, 2..3));
    let unbind = format!("cd /sys/class/net/{PF}/device/virtfn1; basename $(readlink -f .) >driver/unbind");
    let bound = format!("test -d /sys/class/net/{PF}/device/virtfn1/driver");
    guest.run(&unbind);
    guest.wait_until("VF 1 is bound again", &bound);
    lab.wait_for_drivers(PF, &["igbvf"; 3]).await;
    let after = (guest.snapshot(PF, 0..1), guest.snapshot(PF, 2..3));
    assert_unchanged(&before.0, &after.0, "VF 0 was changed");
    assert_unchanged(&before.1, &after.1, "VF 2 was changed");
    let steps = guest.executed();
    assert!(steps.iter().all(|step| step.contains("vf 1")), "{steps:#?}");

    let pod = "ip netns add pod; ip link set VF netns pod; ip -n pod link set VF up; sleep 1";
    let return_vf = "ip -n pod link set VF netns 1; ip netns delete pod; udevadm settle";
    guest.run(&format!("{pod}; {return_vf}").replace("VF", &names[2]));
    // The next repair shows that the agent has handled the events of the pod.
    guest.run(&unbind);
    guest.wait_until("VF 1 is bound again", &bound);
    let steps = guest.executed();
    assert!(steps.iter().all(|step| step.contains("vf 1")), "{steps:#?}");

    cluster.delete_policy("repaired").await;
    lab.wait_for_no_vfs(PF).await;
    kill(agent);
}
