//! Changes of the machine between ADD and DEL.

use serde_json::{Value, json};

use super::super::guest::Guest;
use super::pod_node::{LabVf, PodNode, sriov};

const FIRST: LabVf = LabVf::new(1, 2);
const SECOND: LabVf = LabVf::new(1, 3);
const PF: &str = "enp1s0";

/// Returns a configuration with all kinds of changes.
fn config(vf: LabVf) -> Value {
    let mac = format!("02:00:00:00:0c:0{}", vf.index);
    sriov(vf, &json!({ "vlan": 400 + vf.index, "mac": mac, "trust": "on", "mtu": 1300 }))
}

/// Namespaces are deleted under running pods, so that the kernel returns their interfaces under names of pods. DEL, or the
/// next ADD, restores the VFs.
pub(in super::super) fn survives_lost_namespaces(node: &PodNode<'_>) {
    let pods = [("first", FIRST), ("second", SECOND)];
    // Both come back at the same time with the same name.
    node.create_pods(&["first", "second"]);
    for (pod, vf) in pods {
        node.call("ADD", pod, &config(vf)).result();
    }
    node.delete_pods(&["first", "second"]);
    for (pod, vf) in pods {
        node.call("DEL", pod, &config(vf)).assert_silent_success();
    }
    node.assert_restored("after DEL of lost pods");

    // The next ADD for the VF, without DEL. The late DEL of the lost pod does not touch the new one.
    node.create_pods(&["lost", "next"]);
    node.call("ADD", "lost", &config(FIRST)).result();
    node.delete_pods(&["lost"]);
    let next = sriov(FIRST, &json!({ "vlan": 77 }));
    node.call("ADD", "next", &next).result();
    let settings = node.vf_settings(FIRST);
    node.call("DEL", "lost", &config(FIRST)).assert_silent_success();
    assert_eq!(node.vf_settings(FIRST), settings, "the late DEL of another pod changed the VF");
    assert_eq!(node.pod_link("next")["mtu"], 1500, "the MTU of the lost pod is left");
    // The runtime does not know the namespace, which exists.
    node.call_with("DEL", "next", &next, &[("CNI_NETNS", "")]).assert_silent_success();
    node.assert_restored("after DEL without a namespace");

    // Another namespace at the same path, which often has the same inode: the kernel reuses the numbers.
    node.create_pods(&["again"]);
    node.call("ADD", "again", &config(FIRST)).result();
    node.delete_pods(&["again"]);
    node.create_pods(&["again"]);
    node.call("DEL", "again", &config(FIRST)).assert_silent_success();
    node.assert_restored("after DEL with another namespace at the same path");
    node.call("ADD", "again", &next).result();
    assert_eq!(node.vf_settings(FIRST)["vlan_list"][0]["vlan"], 77);
    node.call("DEL", "again", &next).assert_silent_success();
    node.assert_restored("after a pod with the name of a lost one");
}

/// A PF is renamed and a VF is unbound or bound again while pods use them. DEL restores what is left.
pub(in super::super) fn survives_changes_of_the_machine(node: &PodNode<'_>) {
    let guest = &node.guest;
    node.create_pods(&["renamed", "unbound", "rebound"]);
    node.call("ADD", "renamed", &config(FIRST)).result();
    rename(guest, PF, "uplink0");
    node.call("DEL", "renamed", &config(FIRST)).assert_silent_success();
    rename(guest, "uplink0", PF);
    node.assert_restored("after DEL with a renamed PF");

    // Its interface does not exist during DEL.
    node.call("ADD", "unbound", &config(SECOND)).result();
    guest.run(&format!("echo {SECOND} >/sys/bus/pci/drivers/igbvf/unbind"));
    node.call("DEL", "unbound", &config(SECOND)).assert_silent_success();
    // Unless DEL did it for the MAC.
    guest.run(&format!(
        "test -e /sys/bus/pci/devices/{SECOND}/driver || echo {SECOND} >/sys/bus/pci/drivers/igbvf/bind
        udevadm settle"
    ));
    // What DEL could not finish, the next ADD does.
    node.call("ADD", "unbound", &config(SECOND)).result();
    node.call("DEL", "unbound", &config(SECOND)).assert_silent_success();
    node.assert_restored("after DEL of an unbound VF");

    // Its interface is a new one on the host.
    node.call("ADD", "rebound", &config(SECOND)).result();
    guest.run(&format!(
        "echo {SECOND} >/sys/bus/pci/drivers/igbvf/unbind
        echo {SECOND} >/sys/bus/pci/drivers/igbvf/bind
        udevadm settle"
    ));
    node.call("DEL", "rebound", &config(SECOND)).assert_silent_success();
    node.assert_restored("after DEL of a VF that was bound again");
}

/// Renames an interface. udev may have added the new name as alternative name.
fn rename(guest: &Guest<'_>, name: &str, new_name: &str) {
    guest.run(&format!(
        "ip link property delete dev {name} altname {new_name} 2>/dev/null || true
        ip link set {name} name {new_name}
        udevadm settle
        ip link property delete dev {new_name} altname {name} 2>/dev/null || true"
    ));
}
