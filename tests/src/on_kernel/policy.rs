use serde_json::json;

use super::guest::Guest;
use super::scene::{OTHER_PF, PF, PF_ADDRESS, Scene, kill};
use crate::cluster::State;

/// A policy becomes VFs that the kernel shows, VFs that somebody removes come again, a change, an impossible wish,
/// a restart with nothing to do, and an end that leaves the card as it was.
pub(super) async fn becomes_vfs(scene: &Scene<'_>) {
    let Scene { cluster, guest, .. } = scene;
    let agent = scene.start_agent();
    scene
        .wait("the real card is reported", |state| state.is_synced() && state.card(PF).totalvfs == Some(7))
        .await;

    guest.run("modprobe vfio-pci");
    let groups = |count: u32| json!({ "numVfs": count, "mtu": 2000, "nicSelector": { "pfNames": [PF] } });
    cluster.apply_policy("kernel", groups(4)).await;
    let made = |state: &State| state.is_synced() && state.vfs(PF).len() == 4;
    scene.wait("4 VFs", made).await;
    assert_eq!(guest.drivers(PF), ["igbvf"; 4]);
    assert_eq!(guest.mtu(PF), 2000);
    // udev renames new interfaces; the agent reports the new names as it hears of them.
    let names = guest.vf_names(PF);
    let has_them =
        |state: &State| state.vfs(PF).into_iter().filter_map(|vf| vf.name).eq(names.iter().cloned());
    let state = scene.wait("the VFs' names", has_them).await;
    for (vf, name) in state.vfs(PF).iter().zip(&names) {
        assert_eq!(guest.mtu(name), 2000, "{name}");
        assert_eq!(guest.address(name), vf.mac.clone().expect("an address"), "{name}");
    }
    assert_rules_are_obeyed(guest, &names);
    let addresses: Vec<_> = names.iter().map(|name| guest.address(name)).collect();

    guest.run(&format!("echo 0 >/sys/class/net/{PF}/device/sriov_numvfs"));
    guest.until(
        "four VFs are bound again",
        &format!("test $(ls -d /sys/class/net/{PF}/device/virtfn*/driver | wc -l) = 4"),
    );
    let again = scene.wait("4 VFs again", made).await;
    assert_eq!(guest.drivers(PF), ["igbvf"; 4]);
    let macs: Vec<_> = again.vfs(PF).into_iter().map(|vf| vf.mac.expect("an address")).collect();
    assert_eq!(macs, addresses, "VFs keep their addresses");

    let dpdk = json!({
        "numVfs": 4, "deviceType": "vfio-pci", "resourceName": "dpdk", "priority": 10,
        "nicSelector": { "pfNames": [format!("{PF}#2-3")] },
    });
    cluster.apply_policy("dpdk", dpdk).await;
    cluster
        .apply_policy("kernel", json!({ "numVfs": 4, "nicSelector": { "pfNames": [format!("{PF}#0-1")] } }))
        .await;
    let split = |state: &State| {
        let drivers: Vec<_> = state.vfs(PF).into_iter().filter_map(|vf| vf.driver).collect();
        state.is_synced() && drivers == ["igbvf", "igbvf", "vfio-pci", "vfio-pci"]
    };
    scene.wait("two VFs for the kernel, two for DPDK", split).await;
    assert_eq!(guest.drivers(PF), ["igbvf", "igbvf", "vfio-pci", "vfio-pci"]);

    kill(agent);
    let agent = scene.start_agent();
    guest.until_idle();
    assert_eq!(guest.executed(), [""; 0], "a restart with nothing to do does nothing");

    cluster.delete_policy("dpdk").await;
    cluster.apply_policy("kernel", groups(8)).await;
    let state = scene.wait("Failed", |state| state.sync_status() == "Failed").await;
    assert!(state.error().contains("at most 7"), "{}", state.error());

    cluster.delete_policy("kernel").await;
    let gone =
        |state: &State| state.is_synced() && state.vfs(PF).is_empty() && state.card(PF).mtu == Some(1500);
    scene.wait("the card is as it was", gone).await;
    assert_eq!(guest.drivers(PF), [""; 0]);
    assert_eq!(guest.run("find /etc/sriov-operator -type f"), "");
    kill(agent);
}

/// udev understands the rules that were written, and gave the VFs what keeps NetworkManager from them; nobody else.
fn assert_rules_are_obeyed(guest: &Guest<'_>, vfs: &[String]) {
    let rules = guest.run("ls /etc/udev/rules.d/10-nm-disable-*.rules");
    assert!(rules.ends_with(&format!("/10-nm-disable-{PF_ADDRESS}.rules")), "{rules}");
    guest.run(&format!("udevadm verify {rules}"));
    let unmanaged = |link: &str| {
        guest.run(&format!(
            "udevadm info --query property --property NM_UNMANAGED --value /sys/class/net/{link}"
        ))
    };
    for vf in vfs {
        assert_eq!(unmanaged(vf), "1", "{vf}");
    }
    for pf in [PF, OTHER_PF] {
        assert_eq!(unmanaged(pf), "", "{pf}");
    }
}
