//! Side by side with the Go plugin `sriov`, whose files the test writes.

use serde_json::{Value, json};

use super::pod_node::{GO_FILES, INTERFACE, LabVf, PodNode, sriov};

const VF: LabVf = LabVf::new(1, 4);
const OTHER_VF: LabVf = LabVf::new(1, 5);
const MAC: &str = "02:00:00:00:0d:01";

/// Neither plugin gives out a VF of the other one's pods, and pods of the Go plugin are released.
pub(in super::super) fn works_beside_the_go_plugin(node: &PodNode<'_>) {
    node.create_pods(&["go", "ours", "lost"]);
    releases_pod_of_the_go_plugin(node);
    respects_allocation(node);
    waits_for_lock(node);
}

/// DEL of a pod that the Go plugin has attached, first alive, then with a lost namespace.
fn releases_pod_of_the_go_plugin(node: &PodNode<'_>) {
    for (pod, vf) in [("go", VF), ("lost", OTHER_VF)] {
        attach_as_go_plugin(node, pod, vf);
    }
    let refused = node.call("ADD", "ours", &sriov(VF, &json!({}))).error();
    assert!(refused.text.contains("/run/netns/go"), "{refused:?}");
    node.delete_pods(&["lost"]);
    for (pod, vf) in [("go", VF), ("lost", OTHER_VF)] {
        node.call("DEL", pod, &go_config(vf)).assert_silent_success();
    }
    node.assert_restored("after pods of the Go plugin");
}

/// Attaches a pod and writes the files of the Go plugin.
fn attach_as_go_plugin(node: &PodNode<'_>, pod: &str, vf: LabVf) {
    let (pf, index, name) = (vf.pf(), vf.index, vf.name());
    let settings = node.vf_settings(vf);
    let mac = node.guest.address(&name);
    let original = json!({
        "HostIFName": name, "SpoofChk": true, "Trust": false, "AdminMAC": settings["address"],
        "EffectiveMAC": mac, "Vlan": 0, "VlanQoS": 0, "VlanProto": 33024, "MinTxRate": 0, "MaxTxRate": 0,
        "LinkState": 0, "MTU": 1500,
    });
    let mut cache = go_config(vf);
    for (key, value) in
        [("OrigVfState", original), ("Master", json!(pf)), ("VFID", json!(index)), ("MTU", json!(1500))]
    {
        cache[key] = value;
    }
    node.guest.run(&format!(
        "ip link set {pf} vf {index} vlan 700 trust on spoofchk off
        ip link set {name} netns {pod} name {INTERFACE}
        ip -n {pod} link set {INTERFACE} up mtu 1300
        mkdir -p {GO_FILES}/pci
        printf %s '{cache}' >{GO_FILES}/{pod}-{INTERFACE}
        printf %s /run/netns/{pod} >{GO_FILES}/pci/{vf}"
    ));
}

fn go_config(vf: LabVf) -> Value {
    sriov(vf, &json!({ "cniVersion": "1.0.0", "vlan": 700, "trust": "on", "spoofchk": "off" }))
}

/// The allocation of a pod that exists is respected, that of a lost one is not. Ours has the path of the namespace.
fn respects_allocation(node: &PodNode<'_>) {
    let file = format!("{GO_FILES}/pci/{VF}");
    let config = sriov(VF, &json!({ "mac": MAC }));
    node.guest.run(&format!("printf %s /run/netns/go >{file}"));
    node.call("ADD", "ours", &config).assert_error(11, &[&VF.to_string(), "/run/netns/go"]);
    node.delete_pods(&["go"]);
    node.call("ADD", "ours", &config).result();
    assert_eq!(node.guest.run(&format!("cat {file}")), "/run/netns/ours");
    node.call("DEL", "ours", &config).assert_silent_success();
    node.assert_restored("after an allocation of a lost pod");
}

/// The lock of a VF is the one of the Go plugin.
fn waits_for_lock(node: &PodNode<'_>) {
    let config = sriov(VF, &json!({}));
    node.guest.run(&format!(
        "mkdir -p {GO_FILES}/pci/vf_lock
        exec {{lock}}>>{GO_FILES}/pci/vf_lock/{VF}.lock
        flock $lock
        CONFIG='{config}' /run/cni/call ADD ours {{lock}}>&- >/run/cni/locked &
        sleep 1
        test ! -s /run/cni/locked
        exec {{lock}}>&-
        wait $!
        grep -q sandbox /run/cni/locked"
    ));
    node.call("DEL", "ours", &config).assert_silent_success();
    node.assert_restored("after waiting for a lock");
}
