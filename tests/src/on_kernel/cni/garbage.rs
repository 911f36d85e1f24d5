//! Commands for a whole network: GC, STATUS and VERSION.

use serde_json::{Value, json};

use super::pod_node::{INTERFACE, LabVf, PodNode, sriov};

/// Pods with their networks and VFs.
const PODS: [(&str, &str, LabVf); 4] = [
    ("valid", "red", LabVf::new(1, 0)),
    ("stale", "red", LabVf::new(1, 1)),
    ("lost", "red", LabVf::new(2, 0)),
    ("blue", "blue", LabVf::new(2, 1)),
];

/// GC releases attachments of its network that are not valid, and no others. STATUS and VERSION work.
pub(in super::super) fn collects_garbage(node: &PodNode<'_>) {
    node.create_pods(&PODS.map(|(pod, ..)| pod));
    for (pod, network, vf) in PODS {
        node.call("ADD", pod, &config(network, vf)).result();
    }
    node.delete_pods(&["lost"]);
    let interfaces =
        |pods: &[&str]| pods.iter().map(|pod| node.pod_interfaces(pod).len()).collect::<Vec<_>>();

    let valid = json!([{ "containerID": "valid", "ifname": INTERFACE }]);
    assert_eq!(interfaces(&["valid", "stale", "blue"]), [1, 1, 1]);
    for _ in 0..2 {
        gc(node, "red", &valid);
        assert_eq!(interfaces(&["valid", "stale", "blue"]), [1, 0, 1]);
    }
    let vlans = PODS.map(|(.., vf)| node.vf_settings(vf)["vlan_list"][0]["vlan"].clone());
    assert_eq!(vlans, [json!(800), Value::Null, Value::Null, json!(800)]);

    // cnitool passes no list to the plugin, after DEL of all attachments that it knows: none of these.
    let outcome = node.cnitool("gc", "valid", "red", &json!([config("red", PODS[0].2)]));
    assert!(outcome.status != 0 && outcome.stderr.contains("cni.dev/valid-attachments"), "{outcome:#?}");
    assert_eq!(interfaces(&["valid", "blue"]), [1, 1]);
    gc(node, "red", &json!([]));
    assert_eq!(interfaces(&["valid", "blue"]), [0, 1]);
    gc(node, "blue", &json!([]));
    node.assert_restored("after GC");

    let outcome = node.cnitool("status", "valid", "red", &json!([config("red", PODS[0].2)]));
    assert_eq!(outcome.status, 0, "{outcome:#?}");
    for plugin in ["sriov", "ib-sriov", "rdma"] {
        let variables = [("PLUGIN", format!("/opt/cni/bin/{plugin}"))];
        let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
        let versions = node.call_with("VERSION", "", &json!({ "cniVersion": "1.1.0" }), &variables).result();
        let supported = json!(["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
        assert_eq!(versions["supportedVersions"], supported, "{plugin}");
    }
}

fn config(network: &str, vf: LabVf) -> Value {
    let ipam = json!({ "type": "host-local", "ranges": [[{ "subnet": "198.51.100.0/24" }]] });
    sriov(vf, &json!({ "name": network, "vlan": 800, "ipam": ipam }))
}

/// Calls the plugin as a runtime does: a network configuration has no device.
fn gc(node: &PodNode<'_>, network: &str, valid: &Value) {
    let ipam = json!({ "type": "host-local", "ranges": [[{ "subnet": "198.51.100.0/24" }]] });
    let config = json!({
        "cniVersion": "1.1.0", "name": network, "type": "sriov", "ipam": ipam,
        "cni.dev/valid-attachments": valid, "cni.dev/attachments": valid,
    });
    let variables = [("ID", ""), ("CNI_NETNS", ""), ("CNI_IFNAME", "")];
    node.call_with("GC", "", &config, &variables).assert_silent_success();
}
