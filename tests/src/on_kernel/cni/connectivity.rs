//! Pods that reach each other through VFs, called with libcni.

use serde_json::{Value, json};

use super::pod_node::{INTERFACE, LabVf, PodNode, sriov};
use super::pods::{Capture, assert_not_reached, wait_until_reached};

const NETWORK: &str = "blue";
const FIRST: LabVf = LabVf::new(1, 0);
const SECOND: LabVf = LabVf::new(2, 0);
const OTHER: LabVf = LabVf::new(2, 1);
/// Pods with their VFs and VLANs.
const PODS: [(&str, LabVf, u32); 3] = [("first", FIRST, 100), ("second", SECOND, 100), ("other", OTHER, 200)];

/// Pods on VFs of two cards reach each other in their VLAN, and not another VLAN. CHECK finds changes by hand. After DEL
/// the cards are as before, and the second DEL succeeds.
pub(in super::super) fn connects_pods(node: &PodNode<'_>) {
    node.create_pods(&PODS.map(|(pod, ..)| pod));
    let mut addresses = Vec::new();
    let mut capture = None;
    for (pod, vf, vlan) in PODS {
        let result = node.cnitool("add", pod, NETWORK, &plugins(vf, vlan)).result();
        addresses.push(assert_result(node, pod, vf, &result));
        assert_eq!(node.vf_settings(vf)["vlan_list"][0]["vlan"], vlan);
        if pod == "first" {
            capture = Some(Capture::start(node, pod, "arp or icmp6"));
        }
    }
    let [second_ipv4, second_ipv6] = &addresses[1];
    let capture = capture.expect("a capture");
    capture.wait_for(&format!("who-has {second_ipv4} .*tell {second_ipv4}|Announcement {second_ipv4}"));
    capture.wait_for(&format!("neighbor advertisement, tgt is {second_ipv6}"));
    capture.stop();

    wait_until_reached(&node.guest, "first", second_ipv4);
    wait_until_reached(&node.guest, "first", second_ipv6);
    assert_not_reached(&node.guest, "first", &addresses[2][0]);

    check_finds_changes(node, &addresses[0]);
    for when in ["at the first DEL", "at the second DEL"] {
        for (pod, vf, vlan) in PODS {
            node.cnitool("del", pod, NETWORK, &plugins(vf, vlan)).assert_silent_success();
        }
        node.assert_restored(when);
    }
}

fn plugins(vf: LabVf, vlan: u32) -> Value {
    let ranges = json!([[{ "subnet": "198.51.100.0/24" }], [{ "subnet": "2001:db8::/64" }]]);
    let config = sriov(vf, &json!({ "vlan": vlan, "ipam": { "type": "host-local", "ranges": ranges } }));
    json!([config])
}

/// Checks that the result of ADD describes the interface of the pod; returns its addresses.
fn assert_result(node: &PodNode<'_>, pod: &str, vf: LabVf, result: &Value) -> [String; 2] {
    let link = node.pod_link(pod);
    assert_eq!(link["parentdev"], vf.to_string());
    assert_eq!(result["cniVersion"], "1.1.0");
    let interface = json!({
        "name": INTERFACE, "mac": link["address"], "mtu": link["mtu"], "sandbox": format!("/run/netns/{pod}"),
    });
    assert_eq!(result["interfaces"], json!([interface]));
    [0, 1].map(|number| {
        let ip = &result["ips"][number];
        assert_eq!(ip["interface"], 0);
        let (address, length) = ip["address"].as_str().and_then(|text| text.split_once('/')).expect("an IP");
        let found = link["addr_info"].as_array().into_iter().flatten().find(|info| info["local"] == address);
        let found = found.unwrap_or_else(|| panic!("{address} is not in {link:#}"));
        assert_eq!(found["prefixlen"].to_string(), length);
        assert_ne!(found["tentative"], true, "{address} cannot be used yet");
        address.to_owned()
    })
}

/// Changes the VF, the interface and its addresses by hand; CHECK names each difference, and succeeds without.
fn check_finds_changes(node: &PodNode<'_>, [ipv4, _]: &[String; 2]) {
    let (pod, vf, vlan) = PODS[0];
    let check = || node.cnitool("check", pod, NETWORK, &plugins(vf, vlan));
    check().assert_silent_success();
    let changes = [
        (
            format!("ip link set {} vf {} vlan 101", vf.pf(), vf.index),
            format!("ip link set {} vf {} vlan {vlan}", vf.pf(), vf.index),
            "vlan".to_owned(),
        ),
        (
            format!("ip -n {pod} address delete {ipv4}/24 dev {INTERFACE}"),
            format!("ip -n {pod} address add {ipv4}/24 dev {INTERFACE}"),
            ipv4.clone(),
        ),
        (
            format!("ip -n {pod} link set {INTERFACE} name other0"),
            format!(
                "ip -n {pod} link property delete dev other0 altname {INTERFACE} 2>/dev/null || true
                ip -n {pod} link set other0 name {INTERFACE}"
            ),
            INTERFACE.to_owned(),
        ),
    ];
    for (change, repair, word) in changes {
        node.guest.run(&change);
        let outcome = check();
        assert!(outcome.status != 0 && outcome.stderr.contains(&word), "{change}: {outcome:#?}");
        node.guest.run(&repair);
        check().assert_silent_success();
    }
}
