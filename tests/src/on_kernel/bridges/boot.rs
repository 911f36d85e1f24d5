//! Bridges of systemd mode, which units create at boot.

use serde_json::json;

use super::super::guest::{Guest, assert_unchanged};
use super::super::lab_cluster::{LabCluster, OTHER_PF, PF};
use super::open_vswitch::ports;
use super::{LINUX_BRIDGE, OVS_BRIDGE, START_SWITCHES, open_gate, others, policy};
use crate::cluster::NodeStateView;

/// Unit that adds embedded switches to the cards before the units of vfleet run, as the firmware of a real card does.
const SWITCH_UNIT: &str = "/etc/systemd/system/lab-switch.service";
const SWITCH_UNIT_TEXT: &str = "[Unit]
DefaultDependencies=no
After=systemd-udev-trigger.service systemd-modules-load.service
Before=sriov-config.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'udevadm settle; modprobe labswitch datapath=Y'
[Install]
WantedBy=multi-user.target
";

/// Prepares a machine with embedded switches, Open vSwitch and a bridge of another program, now and after a reboot.
/// Applies a policy with a Linux bridge. Returns the state of the bridge of the other program.
pub(in super::super) async fn prepare(lab: &LabCluster<'_>) -> String {
    let guest = &lab.guest;
    open_gate(lab).await;
    guest.run(&format!(
        "{START_SWITCHES}
        printf %s \"{SWITCH_UNIT_TEXT}\" >{SWITCH_UNIT}
        systemctl daemon-reload
        systemctl enable lab-switch.service openvswitch-switch.service"
    ));
    others::create_ovs_bridge(guest);
    let mut with_linux_bridge = policy(OTHER_PF);
    with_linux_bridge["bridge"] = json!({ "linux": { "bridge": { "vlanFiltering": true } } });
    lab.cluster.apply_policy("linux-at-boot", with_linux_bridge).await;
    others::read_ovs_bridge(guest)
}

/// Checks that both bridges exist, in the phases of their units, and that the bridge of the other program is unchanged.
pub(in super::super) fn assert_created(guest: &Guest<'_>, other: &str) {
    assert_eq!(ports(guest, OVS_BRIDGE), [PF]);
    assert_eq!(guest.link(PF)["master"], "ovs-system");
    assert_eq!(guest.link(OTHER_PF)["master"], LINUX_BRIDGE);
    assert_eq!(guest.link(LINUX_BRIDGE)["linkinfo"]["info_data"]["vlan_filtering"], 1);
    let created_by = |unit: &str, bridge: &str| {
        guest.run(&format!("journalctl -b -u {unit} | grep -c 'create .* bridge {bridge}'"))
    };
    assert_eq!(
        created_by("sriov-config.service", LINUX_BRIDGE),
        "1",
        "the first unit creates the Linux bridge"
    );
    assert_eq!(created_by("sriov-config-bridges.service", OVS_BRIDGE), "1", "its unit creates the bridge");
    assert_unchanged(
        &lasting(other),
        &lasting(&others::read_ovs_bridge(guest)),
        "a bridge of others was changed",
    );
    let complaints = guest.run(
        "systemd-analyze --man=no verify /etc/systemd/system/sriov-config*.service 2>&1 | grep -i -e sriov-config -e cycle || true
        journalctl -b | grep -i 'ordering cycle' || true",
    );
    assert_eq!(complaints, "", "units have an ordering cycle, or other faults");
}

/// Waits until the bridges of the deleted policies are gone, and checks that others are left. Restores the machine.
pub(in super::super) async fn wait_for_removal(lab: &LabCluster<'_>, other: &str) {
    let guest = &lab.guest;
    let is_gone = |state: &NodeStateView| state.is_synced() && state.status().bridges.is_none();
    lab.wait("no bridges", is_gone).await;
    let left = guest.run(&format!(
        "ovs-vsctl list-br | grep -x {OVS_BRIDGE} || true
        ls -d /sys/class/net/{LINUX_BRIDGE} 2>/dev/null || true"
    ));
    assert_eq!(left, "", "bridges are left");
    assert_unchanged(
        &lasting(other),
        &lasting(&others::read_ovs_bridge(guest)),
        "a bridge of others was removed",
    );
    guest.run(&format!(
        "systemctl disable lab-switch.service openvswitch-switch.service
        rm {SWITCH_UNIT}"
    ));
}

/// Returns the columns that a reboot does not change.
fn lasting(rows: &str) -> String {
    let is_lasting = |line: &&str| !line.starts_with("[\"ifindex\"") && !line.starts_with("[\"mac_in_use\"");
    rows.lines().filter(is_lasting).collect::<Vec<_>>().join("\n")
}
