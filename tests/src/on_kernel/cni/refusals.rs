//! Attachments that fail: the error says why, and nothing is left of them.

use serde_json::{Value, json};

use super::pod_node::{INTERFACE, JOURNALS, LabVf, PodNode, sriov};

const VF: LabVf = LabVf::new(2, 2);
/// Settings that come before the one that is refused.
const FIRST_SETTINGS: [(&str, u32); 2] = [("vlan", 42), ("vlanQoS", 2)];

/// Settings that the card, the plugin or the node refuses are undone.
pub(in super::super) fn undoes_what_is_refused(node: &PodNode<'_>) {
    node.create_pods(&["refused"]);
    let refused = |keys: &Value, code: u64, words: &[&str]| {
        node.call("ADD", "refused", &sriov(VF, keys)).assert_error(code, words);
        assert!(node.pod_interfaces("refused").is_empty(), "an interface is left after {keys}");
        node.assert_restored(&format!("after {keys}"));
    };
    for (key, value, word) in [
        ("link_state", json!("enable"), "link state"),
        ("min_tx_rate", json!(10), "rate"),
        ("vlanProto", json!("802.1ad"), "vlan"),
    ] {
        let mut keys = json!({ "mac": "02:00:00:00:0b:01" });
        for (first, value) in FIRST_SETTINGS {
            keys[first] = json!(value);
        }
        keys[key] = value;
        refused(&keys, 100, &[word, "0000:02:00.0 vf 2"]);
    }
    refused(&json!({ "vlan": 42, "spoofchk": "true" }), 7, &["spoofchk"]);
    refused(&json!({ "vlan": 42, "ipam": { "type": "missing-ipam" } }), 7, &["missing-ipam"]);
    undoes_failure_of_ipam(node);
    keeps_interface_with_same_name(node);
    refuses_namespaces(node);
    refuses_full_disk(node);
}

/// The only address of the network is taken. With an invalid configuration the IPAM plugin also refuses DEL; the next pod gets
/// the VF nevertheless.
fn undoes_failure_of_ipam(node: &PodNode<'_>) {
    let add = |subnet: &str| {
        let ipam = json!({ "type": "host-local", "ranges": [[{ "subnet": subnet }]] });
        node.call("ADD", "refused", &sriov(VF, &json!({ "vlan": 42, "ipam": ipam })))
    };
    node.guest.run("mkdir -p /var/lib/cni/networks/red; echo other >/var/lib/cni/networks/red/198.51.100.2");
    let outcome = add("198.51.100.0/30");
    assert!(outcome.error().text.contains("host-local"), "{outcome:#?}");
    node.guest.run("rm /var/lib/cni/networks/red/198.51.100.2");
    node.assert_restored("after a failure of IPAM");

    let outcome = add("198.51.100.0/31");
    assert!(outcome.error().text.contains("host-local"), "{outcome:#?}");
    let config = sriov(VF, &json!({ "vlan": 42 }));
    for command in ["ADD", "DEL"] {
        assert_eq!(node.call(command, "refused", &config).status, 0, "{command} after a failure of IPAM");
    }
    node.assert_restored("after a failure of IPAM with an invalid configuration");
}

/// An interface of the pod that has the name already is left alone, whether it is its name or an alternative name.
fn keeps_interface_with_same_name(node: &PodNode<'_>) {
    let add_dummies = [
        format!("ip -n refused link add {INTERFACE} up type dummy"),
        format!(
            "ip -n refused link add other0 up type dummy; ip -n refused link property add dev other0 altname {INTERFACE}"
        ),
    ];
    for add_dummy in add_dummies {
        node.guest.run(&add_dummy);
        let read = || node.guest.run("ip -n refused -json -details link | jq -S .");
        let before = read();
        let outcome = node.call("ADD", "refused", &sriov(VF, &json!({ "vlan": 42 })));
        assert!(outcome.error().text.contains(INTERFACE), "{outcome:#?}");
        assert_eq!(read(), before, "an interface of the pod was changed");
        node.assert_restored("after a clash of names");
        node.guest
            .run("for link in other0 net1; do ip -n refused link delete $link 2>/dev/null || true; done");
    }
}

fn refuses_namespaces(node: &PodNode<'_>) {
    let config = sriov(VF, &json!({ "vlan": 42 }));
    let add = |path: &str| node.call_with("ADD", "refused", &config, &[("CNI_NETNS", path)]);
    add("/proc/self/ns/net").assert_error(8, &["/proc/self/ns/net"]);
    let missing = add("/run/netns/missing").error();
    assert!([3, 4].contains(&missing.code) && missing.text.contains("CNI_NETNS"), "{missing:?}");
    node.assert_restored("after wrong namespaces");
}

/// The journal cannot be written: the attachment is refused before anything is touched.
fn refuses_full_disk(node: &PodNode<'_>) {
    node.guest.run(&format!(
        "mkdir -p {JOURNALS}
        mount -t tmpfs -o size=64k,mode=700 full {JOURNALS}
        head -c 1M /dev/zero >{JOURNALS}/.fill 2>/dev/null || true"
    ));
    node.call("ADD", "refused", &sriov(VF, &json!({ "vlan": 42 }))).assert_error(5, &["space"]);
    node.guest.run(&format!("rm {JOURNALS}/.fill; test -z \"$(ls -A {JOURNALS})\"; umount {JOURNALS}"));
    node.assert_restored("after a full disk");
}
