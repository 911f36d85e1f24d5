//! Life of a policy.

use serde_json::json;

use super::guest::Guest;
use super::lab_cluster::{LabCluster, OTHER_PF, PF, PF_ADDRESS, kill};
use crate::cluster::NodeStateView;

/// A policy creates VFs, VFs that an administrator removes are created again, the policy is changed, an impossible
/// policy fails, a restarted agent has nothing to do, and deleting the policy resets the card.
pub(super) async fn creates_vfs(lab: &LabCluster<'_>) {
    let LabCluster { cluster, guest, .. } = lab;
    let agent = lab.start_agent();
    lab.wait("the card is reported", |state| state.is_synced() && state.card(PF).totalvfs == Some(7)).await;

    guest.run("modprobe vfio-pci");
    let policy = |count: u32| json!({ "numVfs": count, "mtu": 2000, "nicSelector": { "pfNames": [PF] } });
    cluster.apply_policy("kernel", policy(4)).await;
    let has_four_vfs = |state: &NodeStateView| state.is_synced() && state.vfs(PF).len() == 4;
    lab.wait("4 VFs", has_four_vfs).await;
    assert_eq!(guest.drivers(PF), ["igbvf"; 4]);
    assert_eq!(guest.mtu(PF), 2000);
    // udev renames new interfaces; the agent reports the new names afterwards.
    let names = guest.vf_names(PF);
    let has_names =
        |state: &NodeStateView| state.vfs(PF).into_iter().filter_map(|vf| vf.name).eq(names.iter().cloned());
    let state = lab.wait("the names of the VFs", has_names).await;
    for (vf, name) in state.vfs(PF).iter().zip(&names) {
        assert_eq!(guest.mtu(name), 2000, "{name}");
        assert_eq!(guest.address(name), vf.mac.clone().expect("an address"), "{name}");
    }
    assert_nm_rules_are_effective(guest, &names);
    let addresses: Vec<_> = names.iter().map(|name| guest.address(name)).collect();

    guest.run(&format!("echo 0 >/sys/class/net/{PF}/device/sriov_numvfs"));
    guest.wait_until(
        "four VFs are bound again",
        &format!("test $(ls -d /sys/class/net/{PF}/device/virtfn*/driver | wc -l) = 4"),
    );
    let again = lab.wait("4 VFs again", has_four_vfs).await;
    assert_eq!(guest.drivers(PF), ["igbvf"; 4]);
    let macs: Vec<_> = again.vfs(PF).into_iter().map(|vf| vf.mac.expect("an address")).collect();
    assert_eq!(macs, addresses, "VFs keep their MACs");

    let dpdk = json!({
        "numVfs": 4, "deviceType": "vfio-pci", "resourceName": "dpdk", "priority": 10,
        "nicSelector": { "pfNames": [format!("{PF}#2-3")] },
    });
    cluster.apply_policy("dpdk", dpdk).await;
    cluster
        .apply_policy("kernel", json!({ "numVfs": 4, "nicSelector": { "pfNames": [format!("{PF}#0-1")] } }))
        .await;
    let is_split = |state: &NodeStateView| {
        let drivers: Vec<_> = state.vfs(PF).into_iter().filter_map(|vf| vf.driver).collect();
        state.is_synced() && drivers == ["igbvf", "igbvf", "vfio-pci", "vfio-pci"]
    };
    lab.wait("two VFs for the kernel, two for DPDK", is_split).await;
    assert_eq!(guest.drivers(PF), ["igbvf", "igbvf", "vfio-pci", "vfio-pci"]);

    kill(agent);
    let agent = lab.start_agent();
    guest.wait_until_idle();
    assert_eq!(guest.executed(), [""; 0], "a restart with nothing to do does nothing");

    cluster.delete_policy("dpdk").await;
    cluster.apply_policy("kernel", policy(8)).await;
    let state = lab.wait("Failed", |state| state.sync_status() == "Failed").await;
    assert!(state.error().contains("at most 7"), "{}", state.error());

    cluster.delete_policy("kernel").await;
    let is_reset = |state: &NodeStateView| {
        state.is_synced() && state.vfs(PF).is_empty() && state.card(PF).mtu == Some(1500)
    };
    lab.wait("the card is reset", is_reset).await;
    assert_eq!(guest.drivers(PF), [""; 0]);
    assert_eq!(guest.run("find /etc/sriov-operator -type f"), "");
    kill(agent);
}

/// Checks that udev accepts the written rules, and that they exclude the VFs, and only the VFs, from NetworkManager.
fn assert_nm_rules_are_effective(guest: &Guest<'_>, vfs: &[String]) {
    let rules = guest.run("ls /etc/udev/rules.d/10-nm-disable-*.rules");
    assert!(rules.ends_with(&format!("/10-nm-disable-{PF_ADDRESS}.rules")), "{rules}");
    guest.run(&format!("udevadm verify {rules}"));
    let read_unmanaged = |link: &str| {
        guest.run(&format!(
            "udevadm info --query property --property NM_UNMANAGED --value /sys/class/net/{link}"
        ))
    };
    for vf in vfs {
        assert_eq!(read_unmanaged(vf), "1", "{vf}");
    }
    for pf in [PF, OTHER_PF] {
        assert_eq!(read_unmanaged(pf), "", "{pf}");
    }
}
