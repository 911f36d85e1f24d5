//! Software bridges on a machine without Kubernetes.

use serde_json::{Value, json};

use super::{APPLY, PF, node, report};

const BRIDGE: &str = "br-0000_3b_00.0";
const MANAGED: &str = "--manage-software-bridges";

/// Returns a machine with one card that supports switchdev mode.
fn machine(more: &Value) -> String {
    let card = json!({
        "address": PF, "name": "ens1f0", "vendor": "15b3", "device": "101d", "vfDevice": "101e",
        "driver": "mlx5_core", "vfDriver": "mlx5_core", "totalVfs": 8, "eswitch": "legacy", "tcOffload": false,
    });
    let mut machine = json!({ "pfs": [card] });
    machine.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    machine.to_string()
}

fn policy(bridge: &Value) -> String {
    let policy = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1",
        "kind": "SriovNetworkNodePolicy",
        "metadata": { "name": "two" },
        "spec": {
            "resourceName": "two", "numVfs": 2, "nodeSelector": {}, "nicSelector": { "pfNames": ["ens1f0"] },
            "eSwitchMode": "switchdev", "bridge": bridge,
        },
    });
    format!("---\n{policy}\n")
}

#[test]
fn apply_creates_bridges_of_both_kinds() {
    for (bridge, kind) in [("ovs", "Open vSwitch"), ("linux", "Linux")] {
        let output =
            node(&[&APPLY[..], &[MANAGED]].concat(), &machine(&json!({})), &policy(&json!({ bridge: {} })));
        let parsed = report(&output);
        assert_eq!(output.status.code(), Some(0), "{parsed}");
        let steps = parsed["steps"].to_string();
        assert!(steps.contains(&format!("create {kind} bridge {BRIDGE}")), "{steps}");
        assert_eq!(parsed["cards"][0]["vfs"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_bridge_that_is_not_possible_fails_with_the_remedy_and_the_vfs_are_there() {
    let stopped = machine(&json!({ "openVswitch": { "running": false } }));
    let output = node(&[&APPLY[..], &[MANAGED]].concat(), &stopped, &policy(&json!({ "ovs": {} })));
    let parsed = report(&output);
    assert_eq!(output.status.code(), Some(1), "{parsed}");
    let text = parsed.to_string();
    assert!(
        [BRIDGE, "Open vSwitch is not running", "install and start"].iter().all(|word| text.contains(word)),
        "{text}"
    );
    let vfs = parsed["cards"][0]["vfs"].as_array().unwrap();
    assert!(vfs.len() == 2 && vfs.iter().all(|vf| vf["driver"] == "mlx5_core"), "{parsed}");
}

#[test]
fn bridges_need_the_flag() {
    let output = node(&APPLY, &machine(&json!({})), &policy(&json!({ "ovs": {} })));
    let parsed = report(&output);
    assert_ne!(output.status.code(), Some(0), "{parsed}");
    assert!(parsed.to_string().contains("manageSoftwareBridges"), "{parsed}");
}

#[test]
fn show_and_reset_know_the_bridge_in_the_record() {
    let record = json!({
        "pf": PF,
        "interface": { "pciAddress": PF, "numVfs": 0, "name": "ens1f0" },
        "firstSeen": { "mtu": 1500, "driversAutoprobe": true },
        "making": false,
        "bridge": { "kind": "linux", "name": BRIDGE },
    });
    let machine = machine(&json!({ "records": [record] }));
    let shown = report(&node(&["show", "--format", "json"], &machine, ""));
    assert!(shown["steps"].to_string().contains(&format!("create Linux bridge {BRIDGE}")), "{shown}");
    let output = node(&["reset", "--force", "--format", "json"], &machine, "");
    let reset = report(&output);
    assert_eq!((output.status.code(), &reset["cards"][0]["record"]), (Some(0), &Value::Null), "{reset}");
}
