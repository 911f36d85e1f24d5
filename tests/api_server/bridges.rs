//! Software bridges from the policy to the status, with the real operator and agent; the machine is simulated.

use serde_json::{Value, json};
use vfleet_api::bridge::Bridges;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeState};
use vfleet_tests::cluster::{Cluster, NodeStateView, Program};
use vfleet_tests::objects::condition;
use vfleet_tests::plane::Plane;

const MANAGED: [(&str, &str); 1] = [("MANAGE_SOFTWARE_BRIDGES", "true")];
const OVS_BRIDGE: &str = "br-0000_01_00.0";
const LINUX_BRIDGE: &str = "br-0000_02_00.0";

/// Returns a machine with two cards that have an embedded switch.
fn machine(open_vswitch: &Value) -> String {
    let pf = |bus: u8| {
        json!({
            "address": format!("0000:0{bus}:00.0"), "name": format!("enp{bus}s0"), "vendor": "15b3",
            "device": "101d", "vfDevice": "101e", "driver": "mlx5_core", "vfDriver": "mlx5_core", "totalVfs": 8,
            "eswitch": "legacy", "tcOffload": false,
        })
    };
    json!({ "pfs": [pf(1), pf(2)], "openVswitch": open_vswitch }).to_string()
}

fn policy(node: &str, pf: &str) -> Value {
    json!({
        "resourceName": pf, "nodeSelector": { "kubernetes.io/hostname": node }, "numVfs": 2,
        "nicSelector": { "pfNames": [pf] }, "eSwitchMode": "switchdev",
    })
}

async fn set_gate(cluster: &Cluster, is_on: bool) {
    let spec = json!({ "featureGates": { "manageSoftwareBridges": is_on } });
    cluster.apply("SriovOperatorConfig", "sriovoperatorconfigs", "default", &spec).await;
}

/// Applies one policy for each kind of bridge.
async fn apply_policies(cluster: &Cluster, node: &str) {
    let policies = [
        ("ovs", "enp1s0", json!({ "ovs": { "bridge": { "externalIDs": { "owner": "net" } } } })),
        ("linux", "enp2s0", json!({ "linux": { "uplink": { "learning": "off" } } })),
    ];
    for (name, pf, bridge) in policies {
        let mut spec = policy(node, pf);
        spec["bridge"] = bridge;
        cluster.apply("SriovNetworkNodePolicy", "sriovnetworknodepolicies", name, &spec).await;
    }
}

async fn start_agent(cluster: &Cluster, node: &str, open_vswitch: &Value) -> Program {
    let file = cluster.write_file("machine.yaml", &machine(open_vswitch));
    cluster.start_agent_with(node, &["--sim", &file], &MANAGED).await
}

fn bridges(state: &NodeStateView) -> Bridges {
    state.status().bridges.unwrap_or_default()
}

/// Returns name, status and reason of `Ready`, and its message, of each bridge.
fn ready(state: &NodeStateView) -> Vec<(String, String, String, String)> {
    let Bridges { ovs, linux } = bridges(state);
    let ovs = ovs.into_iter().flatten().map(|bridge| (bridge.name, bridge.conditions));
    let linux = linux.into_iter().flatten().map(|bridge| (bridge.name, bridge.conditions));
    let to_row = |(name, conditions): (String, Option<Vec<_>>)| {
        let (status, reason, message) = condition(conditions.as_ref(), "Ready");
        (name, status, reason, message)
    };
    ovs.chain(linux).map(to_row).collect()
}

async fn wait_for_policy(cluster: &Cluster, name: &str, status: &str, counts: [i64; 3]) {
    let matches = |policy: &SriovNetworkNodePolicy| {
        let Some(found) = &policy.status else { return false };
        condition(found.conditions.as_ref(), "Ready").0 == status
            && [found.matched_node_count, found.ready_node_count, found.failed_node_count] == counts.map(Some)
    };
    let _: SriovNetworkNodePolicy =
        cluster.wait_for(name, &format!("Ready {status} {counts:?}"), matches).await;
}

#[tokio::test]
async fn bridges_of_both_kinds_are_reported_with_the_representors_and_go_with_the_policies() {
    let cluster = Cluster::new("bridges", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    set_gate(&cluster, true).await;
    let node = "bridges-1";
    let foreign = json!({ "bridges": [{ "name": "br-ex", "ports": ["eth7"] }] });
    let agent = start_agent(&cluster, node, &foreign).await;
    apply_policies(&cluster, node).await;
    wait_for_policy(&cluster, "ovs", "True", [1, 1, 0]).await;
    wait_for_policy(&cluster, "linux", "True", [1, 1, 0]).await;
    let state = cluster.wait(node, "two bridges", |state| state.is_synced() && ready(state).len() == 2).await;
    let found: Vec<_> =
        ready(&state).into_iter().map(|(name, status, reason, _)| (name, status, reason)).collect();
    let is_ready = |name: &str| (name.to_owned(), "True".to_owned(), "Reconciled".to_owned());
    assert_eq!(found, [is_ready(OVS_BRIDGE), is_ready(LINUX_BRIDGE)]);
    let Bridges { ovs, linux } = bridges(&state);
    let uplink = ovs.unwrap().remove(0).uplinks.unwrap().remove(0);
    assert_eq!((uplink.name.as_deref(), uplink.pci_address.text()), (Some("enp1s0"), "0000:01:00.0"));
    let settings = linux.unwrap().remove(0).uplinks.unwrap().remove(0).uplink.unwrap();
    assert_eq!(settings.get("learning").map(String::as_str), Some("off"));
    for pf in ["enp1s0", "enp2s0"] {
        assert!(state.vfs(pf).iter().all(|vf| vf.representor_name.is_some()), "{:?}", state.vfs(pf));
    }
    let described = cluster.kubectl(&["describe", "sriovnetworknodestates", node]);
    assert!(
        described.contains(&format!("bridge {OVS_BRIDGE} is configured, with PF 0000:01:00.0")),
        "{described}"
    );
    let table = cluster.kubectl(&["get", "sriovnetworknodestates", node, "--output=wide"]);
    assert!(table.contains("BRIDGES") && table.contains("2/2"), "{table}");

    set_gate(&cluster, false).await;
    let has_vfs = |state: &NodeStateView| {
        state.is_synced() && ["enp1s0", "enp2s0"].iter().all(|pf| state.vfs(pf).len() == 2)
    };
    let is_gone = |state: &NodeStateView| has_vfs(state) && state.status().bridges.is_none();
    cluster.wait(node, "no bridges, but VFs", is_gone).await;
    set_gate(&cluster, true).await;
    cluster.wait(node, "two bridges again", |state| state.is_synced() && ready(state).len() == 2).await;

    for (name, pf) in [("ovs", "enp1s0"), ("linux", "enp2s0")] {
        cluster.apply("SriovNetworkNodePolicy", "sriovnetworknodepolicies", name, &policy(node, pf)).await;
    }
    cluster.wait(node, "no bridges, but VFs", is_gone).await;
    drop(agent);
}

#[tokio::test]
async fn without_open_vswitch_only_its_policy_fails_and_says_what_to_do() {
    let cluster = Cluster::new("no-ovs", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    set_gate(&cluster, true).await;
    let node = "no-ovs-1";
    let _agent = start_agent(&cluster, node, &json!({ "installed": false })).await;
    apply_policies(&cluster, node).await;
    wait_for_policy(&cluster, "ovs", "False", [1, 0, 1]).await;
    wait_for_policy(&cluster, "linux", "True", [1, 1, 0]).await;
    let failed = cluster.wait(node, "Failed", |state| state.sync_status() == "Failed").await;
    for word in [OVS_BRIDGE, "Open vSwitch", "db.sock", "install and start"] {
        assert!(failed.error().contains(word), "{word}: {}", failed.error());
    }
    let reasons: Vec<_> = ready(&failed).into_iter().map(|(name, _, reason, _)| (name, reason)).collect();
    assert_eq!(
        reasons,
        [
            (OVS_BRIDGE.to_owned(), "OvsNotRunning".to_owned()),
            (LINUX_BRIDGE.to_owned(), "Reconciled".to_owned())
        ]
    );
    let _: SriovNetworkNodeState = cluster
        .wait_for(node, "the uplink is not ready", |state: &SriovNetworkNodeState| {
            let cards = state.status.as_ref().and_then(|status| status.interfaces.as_ref());
            let of_card = cards.and_then(|cards| cards.first()).and_then(|card| card.conditions.as_ref());
            condition(of_card, "Ready").1 == "OvsNotRunning"
        })
        .await;
}
