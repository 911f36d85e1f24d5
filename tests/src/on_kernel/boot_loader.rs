//! Kernel arguments and reboots.

use fixture_lab::Vm;
use serde_json::{Value, json};

use super::crashing_agent::{BOOT_LOADER_STEPS, CrashingAgent};
use super::guest::Guest;
use super::lab_cluster::{LabCluster, PF, kill};
use super::takeover::WITHOUT_IOMMU;

const REBOOTS: &str = "/etc/sriov-operator/vfleet/reboots.json";
const REQUIRED_ARGUMENTS: &str = "intel_iommu=on iommu=pt";

/// The agent needs the IOMMU for vfio-pci, but the boot loader ignores the arguments: after two reboots without effect
/// the agent reports the problem instead of rebooting again. Leaves the machine without an IOMMU.
pub(super) async fn gives_up_after_two_reboots(lab: &LabCluster<'_>) {
    let LabCluster { cluster, guest, .. } = lab;
    switch_iommu_off(guest);
    install_grub(guest, "true");
    cluster.apply_policy("dpdk", policy()).await;
    for _ in 0..2 {
        lab.wait_for_reboot_by_agent(&[]);
        assert_reboot_is_prepared(guest);
    }
    let boots = guest.vm.boots();
    let agent = lab.start_agent();
    let state = lab.wait("Failed", |state| state.sync_status() == "Failed").await;
    for word in ["intel_iommu=on", "2"] {
        assert!(state.error().contains(word), "{}", state.error());
    }
    kill(agent);
    let agent = lab.start_agent();
    guest.wait_until_idle();
    assert_eq!(guest.executed(), [""; 0], "a restarted agent does not try again");
    assert_eq!(guest.vm.boots(), boots);

    cluster.delete_policy("dpdk").await;
    lab.wait_for_no_vfs(PF).await;
    guest.wait_until(
        "the reboot count is cleared, because no argument is missing any more",
        &format!("test ! -e {REBOOTS}"),
    );
    kill(agent);
}

/// With a working boot loader the agent needs one reboot until VFs are bound to vfio-pci, although the administrator
/// had set contrary arguments and the agent crashes repeatedly. The reboot count is cleared at the end.
pub(super) async fn sets_kernel_arguments(lab: &LabCluster<'_>) {
    let LabCluster { cluster, guest, .. } = lab;
    switch_iommu_off(guest);
    // The part of update-grub that writes the kernel arguments.
    let update = format!(
        ". /etc/default/grub; for file in /etc/default/grub.d/*.cfg; do . $file; done
        echo \"$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT\" >{}",
        Vm::ARGUMENTS
    );
    install_grub(guest, &update);
    cluster.apply_policy("dpdk", policy()).await;
    let crashing_agent = CrashingAgent::new(lab, &BOOT_LOADER_STEPS);
    let boots = guest.vm.boots();
    crashing_agent.reboot("");
    assert_reboot_is_prepared(guest);
    let line = guest.run("cat /proc/cmdline");
    assert!(line.ends_with(REQUIRED_ARGUMENTS) && !line.contains(WITHOUT_IOMMU), "{line}");
    let agent = crashing_agent.start("");
    lab.wait_for_drivers(PF, &["vfio-pci"; 2]).await;
    assert_eq!(guest.run(&format!("ls {REBOOTS} 2>/dev/null || true")), "", "the reboot count is cleared");
    assert_eq!(guest.vm.boots(), boots + 1);
    crashing_agent.assert_crashed_at_all();

    cluster.delete_policy("dpdk").await;
    lab.wait_for_no_vfs(PF).await;
    kill(agent);
    guest.run("rm -r /etc/default/grub /etc/default/grub.d /usr/sbin/update-grub");
}

/// Reboots without an IOMMU, unless it is off already.
fn switch_iommu_off(guest: &Guest<'_>) {
    if !guest.run("ls /sys/kernel/iommu_groups").is_empty() {
        guest.vm.reboot_with(WITHOUT_IOMMU).expect("the machine reboots");
    }
}

/// Checks that the agent has set the arguments and counted the reboot.
fn assert_reboot_is_prepared(guest: &Guest<'_>) {
    let drop_in = guest.run("cat /etc/default/grub.d/90-vfleet.cfg");
    assert!(drop_in.contains(REQUIRED_ARGUMENTS), "{drop_in}");
    assert!(guest.run(&format!("cat {REBOOTS}")).contains(REQUIRED_ARGUMENTS));
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
