use fixture_lab::Vm;
use serde_json::{Value, json};

use super::guest::Guest;
use super::mortal::{Mortal, OF_BOOT_LOADERS};
use super::records::WITHOUT_IOMMU;
use super::scene::{PF, Scene, kill};

const REBOOTS: &str = "/etc/sriov-operator/vfleet/reboots.json";
const NEEDED: &str = "intel_iommu=on iommu=pt";

/// vfio-pci needs the IOMMU, which is off, and the boot loader does not do what it is told: after two reboots that did
/// not help there is no third, and the node says why. Leaves the machine without an IOMMU.
pub(super) async fn that_changes_nothing(scene: &Scene<'_>) {
    let Scene { cluster, guest, .. } = scene;
    switch_iommu_off(guest);
    install_grub(guest, "true");
    cluster.apply_policy("dpdk", policy()).await;
    for _ in 0..2 {
        scene.reboot_by_the_agent(&[]);
        assert_restart_is_prepared(guest);
    }
    let boots = guest.vm.boots();
    let agent = scene.start_agent();
    let state = scene.wait("Failed", |state| state.sync_status() == "Failed").await;
    for word in ["intel_iommu=on", "2"] {
        assert!(state.error().contains(word), "{}", state.error());
    }
    kill(agent);
    let agent = scene.start_agent();
    guest.until_idle();
    assert_eq!(guest.executed(), [""; 0], "an agent that starts again does not try again");
    assert_eq!(guest.vm.boots(), boots);

    cluster.delete_policy("dpdk").await;
    scene.wait_for_no_vfs(PF).await;
    guest.until("the reboots are forgotten, as nothing is missing any more", &format!("test ! -e {REBOOTS}"));
    kill(agent);
}

/// The same with a boot loader that works, an administrator who said the contrary, and an agent that is killed again and
/// again on the way: one reboot, VFs bound to vfio-pci, and nothing is left of the count.
pub(super) async fn that_works(scene: &Scene<'_>) {
    let Scene { cluster, guest, .. } = scene;
    switch_iommu_off(guest);
    // What GRUB's tool does, for the one thing that matters here.
    let update = format!(
        ". /etc/default/grub; for file in /etc/default/grub.d/*.cfg; do . $file; done
        echo \"$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT\" >{}",
        Vm::ARGUMENTS
    );
    install_grub(guest, &update);
    cluster.apply_policy("dpdk", policy()).await;
    let mortal = Mortal::new(scene, &OF_BOOT_LOADERS);
    let boots = guest.vm.boots();
    mortal.reboot("");
    assert_restart_is_prepared(guest);
    let line = guest.run("cat /proc/cmdline");
    assert!(line.ends_with(NEEDED) && !line.contains(WITHOUT_IOMMU), "{line}");
    let agent = mortal.start("");
    scene.wait_for_drivers(PF, &["vfio-pci"; 2]).await;
    assert_eq!(guest.run(&format!("ls {REBOOTS} 2>/dev/null || true")), "", "the reboots are forgotten");
    assert_eq!(guest.vm.boots(), boots + 1);
    mortal.assert_killed_at_all();

    cluster.delete_policy("dpdk").await;
    scene.wait_for_no_vfs(PF).await;
    kill(agent);
    guest.run("rm -r /etc/default/grub /etc/default/grub.d /usr/sbin/update-grub");
}

/// Only a reboot can do that, so it is not done when it was done before.
fn switch_iommu_off(guest: &Guest<'_>) {
    if !guest.run("ls /sys/kernel/iommu_groups").is_empty() {
        guest.vm.reboot_with(WITHOUT_IOMMU).expect("the machine reboots");
    }
}

/// The agent has set the arguments, and counted.
fn assert_restart_is_prepared(guest: &Guest<'_>) {
    let drop_in = guest.run("cat /etc/default/grub.d/90-vfleet.cfg");
    assert!(drop_in.contains(NEEDED), "{drop_in}");
    assert!(guest.run(&format!("cat {REBOOTS}")).contains(NEEDED));
}

fn install_grub(guest: &Guest<'_>, update: &str) {
    guest.run(&format!(
        "mkdir -p /etc/default/grub.d
        echo 'GRUB_CMDLINE_LINUX=\"{WITHOUT_IOMMU}\"' >/etc/default/grub
        cat >/usr/sbin/update-grub <<'EOF'\n#!/bin/sh\n{update}\nEOF
        chmod +x /usr/sbin/update-grub; sync"
    ));
}

fn policy() -> Value {
    json!({ "numVfs": 2, "deviceType": "vfio-pci", "nicSelector": { "pfNames": [PF] } })
}
