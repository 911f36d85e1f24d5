//! Bridges of systemd mode, which units create at boot.

use serde_json::{Value, json};

use super::super::guest::{Guest, assert_unchanged};
use super::super::lab_cluster::{LabCluster, OTHER_PF, PF, kill};
use super::super::systemd::{BRIDGE_UNIT, FIRST_UNIT};
use super::open_vswitch::{ports, snapshot_bridge};
use super::pods::{self, REPRESENTORS};
use super::{
    LINUX_BRIDGE, OVS_BRIDGE, START_SWITCHES, open_gate, others, policy, start_agent, wait_until_ready,
};
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

/// Bridges on the disk before the reboot, as text.
pub(in super::super) struct BridgesBefore {
    ours: String,
    others: String,
}

/// Prepares a machine with embedded switches, Open vSwitch and a bridge of another program, now and after a reboot.
/// An agent without systemd mode creates bridges of both kinds; the Open vSwitch bridge has the port of a pod. The
/// reboot creates more VFs: all policies together request three on the first card, and the first VF of both cards is
/// for a pod.
pub(in super::super) async fn prepare(lab: &LabCluster<'_>) -> BridgesBefore {
    let guest = &lab.guest;
    open_gate(lab).await;
    guest.run(&format!(
        "{START_SWITCHES}
        printf %s \"{SWITCH_UNIT_TEXT}\" >{SWITCH_UNIT}
        systemctl daemon-reload
        systemctl enable lab-switch.service openvswitch-switch.service"
    ));
    others::create_ovs_bridge(guest);
    let others = others::read_ovs_bridge(guest);
    lab.cluster.apply_policy("ovs-at-boot", ovs_policy(1)).await;
    let mut with_linux_bridge = policy(OTHER_PF);
    with_linux_bridge["bridge"] = json!({ "linux": { "bridge": { "vlanFiltering": true } } });
    lab.cluster.apply_policy("linux-at-boot", with_linux_bridge).await;
    let agent = start_agent(lab);
    wait_until_ready(lab, "both bridges before the reboot").await;
    kill(agent);
    pods::attach_to_ovs(guest);
    lab.cluster.apply_policy("ovs-at-boot", ovs_policy(3)).await;
    BridgesBefore { ours: read_our_ovs_bridge(guest), others }
}

/// Returns a policy for the first of these VFs of the first card, with an Open vSwitch bridge.
fn ovs_policy(vfs: u32) -> Value {
    let mut policy = policy(&format!("{PF}#0-0"));
    policy["numVfs"] = json!(vfs);
    policy["bridge"] = json!({ "ovs": {} });
    policy
}

/// Returns the state of our Open vSwitch bridge and its ports as text.
fn read_our_ovs_bridge(guest: &Guest<'_>) -> String {
    snapshot_bridge(guest, OVS_BRIDGE, &[PF, REPRESENTORS[0]])
}

/// Checks after the boot that the first unit has created the Linux bridge, that all Open vSwitch bridges and their ports
/// are the ones of before, and that pods reach each other through both bridges.
pub(in super::super) fn assert_configured(guest: &Guest<'_>, before: &BridgesBefore) {
    assert_eq!(guest.link(PF)["master"], "ovs-system");
    assert_eq!(guest.link(OTHER_PF)["master"], LINUX_BRIDGE);
    assert_eq!(guest.link(LINUX_BRIDGE)["linkinfo"]["info_data"]["vlan_filtering"], 1);
    assert_eq!(creations(guest, FIRST_UNIT, LINUX_BRIDGE), "1", "the first unit creates the Linux bridge");
    pods::create(guest);
    pods::attach_to_linux(guest);
    pods::wait_until_reached(guest, "after the reboot");
    assert_unchanged(&before.ours, &read_our_ovs_bridge(guest), "our bridge was changed by the reboot");
    assert_eq!(creations(guest, BRIDGE_UNIT, OVS_BRIDGE), "0", "an existing bridge is kept");
    assert_unchanged(&before.others, &others::read_ovs_bridge(guest), "a bridge of others was changed");
    let complaints = guest.run(
        "systemd-analyze --man=no verify /etc/systemd/system/sriov-config*.service 2>&1 | grep -i -e sriov-config -e cycle || true
        journalctl -b | grep -i 'ordering cycle' || true",
    );
    assert_eq!(complaints, "", "units have an ordering cycle, or other faults");
}

/// Removes the pods and the Open vSwitch bridge, and checks that its unit creates the bridge.
pub(in super::super) fn assert_unit_creates_bridge(guest: &Guest<'_>, before: &BridgesBefore) {
    pods::detach_from_linux(guest);
    pods::remove(guest);
    guest.run(&format!(
        "ovs-vsctl del-br {OVS_BRIDGE}
        # As while the machine boots.
        sed -i s/Succeeded/InProgress/ /etc/sriov-operator/sriov-interface-result.yaml
        systemctl restart {BRIDGE_UNIT} || {{ journalctl -b -u {BRIDGE_UNIT}; exit 1; }}"
    ));
    assert_eq!(ports(guest, OVS_BRIDGE), [PF]);
    assert_eq!(creations(guest, BRIDGE_UNIT, OVS_BRIDGE), "1", "its unit creates the bridge");
    assert_unchanged(&before.others, &others::read_ovs_bridge(guest), "a bridge of others was changed");
}

/// Returns how often a unit has created this bridge since the boot.
fn creations(guest: &Guest<'_>, unit: &str, bridge: &str) -> String {
    guest.run(&format!("journalctl -b -u {unit} | grep -c 'create .* bridge {bridge}' || true"))
}

/// Waits until the bridges of the deleted policies are gone, and checks that others are left. Restores the machine.
pub(in super::super) async fn wait_for_removal(lab: &LabCluster<'_>, before: &BridgesBefore) {
    let guest = &lab.guest;
    let is_gone = |state: &NodeStateView| state.is_synced() && state.status().bridges.is_none();
    lab.wait("no bridges", is_gone).await;
    let left = guest.run(&format!(
        "ovs-vsctl list-br | grep -x {OVS_BRIDGE} || true
        ls -d /sys/class/net/{LINUX_BRIDGE} 2>/dev/null || true"
    ));
    assert_eq!(left, "", "bridges are left");
    assert_unchanged(&before.others, &others::read_ovs_bridge(guest), "a bridge of others was removed");
    guest.run(&format!(
        "systemctl disable lab-switch.service openvswitch-switch.service
        rm {SWITCH_UNIT}"
    ));
}
