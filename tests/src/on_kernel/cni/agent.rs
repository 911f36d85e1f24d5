//! Agent beside a container runtime: it releases VFs of pods that are gone, and leaves all others alone.

use serde_json::{Value, json};

use super::super::lab_cluster::{LabCluster, NODE, kill};
use super::crashes::{CRASHING_PLUGIN, install_crashing_plugin};
use super::pod_node::{INTERFACE, JOURNALS, LabVf, PodNode, sriov};

/// VF with the driver `vfio-pci`: no event of an interface announces that its pod is gone.
const VFIO: LabVf = LabVf::new(1, 6);
const LOST: LabVf = LabVf::new(1, 0);
/// VF of a pod with an IP address.
const ADDRESSED: LabVf = LabVf::new(2, 0);
/// VF of a pod that is gone, whose ADD was killed.
const KILLED: LabVf = LabVf::new(2, 4);
/// VF of a pod that exists, whose ADD was killed.
const INTERRUPTED: LabVf = LabVf::new(2, 5);
const RUNNING: LabVf = LabVf::new(1, 3);

/// All pods with their VFs.
const PODS: [(&str, LabVf); 6] = [
    ("vfio", VFIO),
    ("lost", LOST),
    ("addressed", ADDRESSED),
    ("killed", KILLED),
    ("interrupted", INTERRUPTED),
    ("running", RUNNING),
];

/// Network namespaces are deleted without DEL while an agent runs. It restores the VFs; the late DEL succeeds. What a killed
/// plugin has left in a pod that exists, `vfleet node pods --repair` releases beside the agent.
pub(in super::super) async fn agent_releases_lost_vfs(node: &PodNode<'_>, lab: &LabCluster<'_>) {
    let guest = &node.guest;
    let agent = lab.start_agent();
    install_crashing_plugin(node);
    let pods = format!("{} node pods", guest.install(node.programs.vfleet));
    node.bind_to_vfio(VFIO);
    let vfio_before = node.vf_settings(VFIO);
    node.create_pods(&PODS.map(|(pod, _)| pod));
    for (pod, vf) in PODS {
        let crash = [("PLUGIN", CRASHING_PLUGIN), ("CRASH", "after Delegate")];
        match pod {
            "killed" | "interrupted" => {
                assert_eq!(node.call_with("ADD", pod, &config(pod, vf), &crash).status, 137, "{pod}");
            }
            _ => drop(node.call("ADD", pod, &config(pod, vf)).result()),
        }
    }
    guest.wait_until_idle();
    lists_running_pods(node, &pods);

    node.delete_pods(&["vfio"]);
    guest.wait_until("the VF without an interface is released", &format!("! {}", has_journal("vfio", VFIO)));
    assert_eq!(node.vf_settings(VFIO), vfio_before, "released by the agent");
    node.delete_pods(&["lost", "addressed", "killed"]);
    let returned = format!("grep -q '\"phase\":\"returned\"' {JOURNALS}/sriov:");
    guest.wait_until(
        "all VFs of pods that are gone are released",
        &format!("! {} && {returned}addressed:* && {returned}killed:*", has_journal("lost", LOST)),
    );
    node.assert_vfs_restored(&[LOST, ADDRESSED, KILLED], "although the agent has released it");
    lab.cluster.expect_event(NODE, "Normal", "AttachmentReleased").await;

    for (pod, vf) in &PODS[..4] {
        node.call("DEL", pod, &config(pod, *vf)).assert_silent_success();
    }
    repairs_beside_the_agent(node, &pods);
    for (pod, vf) in &PODS[4..] {
        node.call("DEL", pod, &config(pod, *vf)).assert_silent_success();
    }
    assert_eq!(guest.executed_steps(), [""; 0], "no policy requests anything");
    kill(agent);
    node.bind_to_kernel(VFIO);
}

/// Returns a configuration that changes all that is restored.
fn config(pod: &str, vf: LabVf) -> Value {
    let ipam = json!({ "type": "host-local", "ranges": [[{ "subnet": "198.51.100.0/24" }]] });
    let (vlan, mac) = (500 + vf.index, format!("02:00:00:00:1{}:0{}", vf.card, vf.index));
    match pod {
        "vfio" => sriov(vf, &json!({ "vlan": vlan, "mac": mac })),
        "addressed" | "killed" | "interrupted" => {
            sriov(vf, &json!({ "vlan": vlan, "mac": mac, "ipam": ipam }))
        }
        _ => sriov(vf, &json!({ "vlan": vlan, "mac": mac, "trust": "on", "mtu": 1400 })),
    }
}

fn has_journal(pod: &str, vf: LabVf) -> String {
    format!("test -e {JOURNALS}/sriov:{pod}:{INTERFACE}:{vf}")
}

/// Runs `vfleet node pods`; returns its exit status and its report.
fn report(node: &PodNode<'_>, command: &str) -> (String, Value) {
    let output = node.guest.run(&format!("status=0; {command} -o json || status=$?; echo $status"));
    let (report, status) = output.rsplit_once('\n').expect("a report and a status");
    let report = serde_json::from_str(report).unwrap_or_else(|error| panic!("{error}: {output}"));
    (status.to_owned(), report)
}

/// Returns the pods in a report with the states of their attachments.
fn states(report: &Value) -> Vec<(&str, &str)> {
    let lines = report["attachments"].as_array().into_iter().flatten();
    lines.filter_map(|line| Some((line["containerId"].as_str()?, line["state"].as_str()?))).collect()
}

fn lists_running_pods(node: &PodNode<'_>, pods: &str) {
    let (status, listed) = report(node, pods);
    let expected = [
        ("addressed", "attached"),
        ("interrupted", "interrupted"),
        ("killed", "interrupted"),
        ("lost", "attached"),
        ("running", "attached"),
        ("vfio", "attached"),
    ];
    assert_eq!((status.as_str(), states(&listed)), ("1", expected.to_vec()), "{listed:#}");
    for (pod, vf) in [("lost", LOST), ("vfio", VFIO)] {
        let mut lines = listed["attachments"].as_array().into_iter().flatten();
        let line = lines.find(|line| line["containerId"] == pod).expect("it is listed");
        let settings = node.vf_settings(vf);
        let vlan = format!("{} qos 0 proto 802.1q", settings["vlan_list"][0]["vlan"]);
        let expected = json!({
            "device": vf.to_string(), "pf": vf.pf(), "vfIndex": vf.index, "network": "red",
            "interface": INTERFACE, "namespace": format!("/run/netns/{pod}"),
        });
        for (key, value) in expected.as_object().into_iter().flatten() {
            assert_eq!(line[key], *value, "{line:#}");
        }
        let has = |key: &str, value: &Value| {
            let mut settings = line["settings"].as_array().into_iter().flatten();
            settings.any(|setting| setting["key"] == key && setting["value"] == *value)
        };
        assert!(has("vlan", &json!(vlan)) && has("mac", &settings["address"]), "{line:#}");
    }
}

fn repairs_beside_the_agent(node: &PodNode<'_>, pods: &str) {
    let (status, listed) = report(node, pods);
    let expected = [("interrupted", "interrupted"), ("running", "attached")];
    assert_eq!((status.as_str(), states(&listed)), ("1", expected.to_vec()), "{listed:#}");
    let running = (node.vf_settings(RUNNING), node.pod_link("running"));
    let (status, repaired) = report(node, &format!("{pods} --repair"));
    assert_eq!((status.as_str(), states(&repaired)), ("0", vec![("running", "attached")]), "{repaired:#}");
    assert_eq!(repaired["repairs"][0]["isReleased"], true, "{repaired:#}");
    node.assert_vfs_restored(&[INTERRUPTED], "although it was repaired");
    assert_eq!(running, (node.vf_settings(RUNNING), node.pod_link("running")), "the running pod was changed");
    let addresses = "find /var/lib/cni/networks -type f -name '198*'";
    assert_eq!(node.guest.run(addresses), "", "the address of the interrupted ADD is free");
}
