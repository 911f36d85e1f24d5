//! Settings of an agent from the operator and from the Node object.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failed expectation is the point")]

use std::path::Path;

use serde_json::json;
use vfleet_api::SriovNetworkNodeState;
use vfleet_tests::cluster::{Cluster, NodeStateView, machine};
use vfleet_tests::plane::Plane;

/// PF whose interface is the loopback interface, which has the address 127.0.0.1.
const PF: &str = "0000:01:00.0";
/// Network card without VFs: in a cloud it is a lone VF.
const LONE: &str = "0000:02:00.0";

fn write_file(root: &Path, card: &str, file: &str, text: &str) {
    let path = root.join("sys/bus/pci/devices").join(card).join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn two_cards() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for card in [PF, LONE] {
        for (file, text) in [("class", "0x020000\n"), ("vendor", "0x8086\n"), ("device", "0x10c9\n")] {
            write_file(root.path(), card, file, text);
        }
    }
    for (file, text) in [
        ("sriov_totalvfs", "7\n"),
        ("sriov_numvfs", "0\n"),
        ("sriov_drivers_autoprobe", "1\n"),
        ("net/lo/ifindex", "1\n"),
        ("net/lo/dev_port", "0\n"),
        ("net/lo/phys_port_name", "\n"),
        ("net/lo/speed", "-1\n"),
    ] {
        write_file(root.path(), PF, file, text);
    }
    root
}

/// Returns the cards of a node state, each with its host use.
fn cards(state: &SriovNetworkNodeState) -> Vec<(String, Option<String>)> {
    let cards = state.status.iter().flat_map(|status| status.interfaces.iter().flatten());
    cards.map(|card| (card.pci_address.to_string(), card.in_use_by.clone())).collect()
}

#[tokio::test]
async fn cloud_and_addresses_are_read_from_the_node() {
    let cluster = Cluster::new("told", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let root = two_cards();
    let arguments = ["--host-root", root.path().to_str().unwrap()];

    let _plain = cluster.start_agent_with("told-1", &arguments, &[]).await;
    let only_pf = |state: &SriovNetworkNodeState| cards(state) == [(PF.to_owned(), None)];
    cluster.wait_for("told-1", "the PF, not in use", only_pf).await;

    cluster.create_worker("told-2").await;
    let provider = json!({ "spec": { "providerID": "openstack:///d8e02d56" } });
    cluster.kubectl(&["patch", "node", "told-2", "-p", &provider.to_string()]);
    let _in_cloud =
        cluster.start_agent_with("told-2", &arguments, &[("HOST_IPS", "192.0.2.7,127.0.0.1")]).await;
    let both = |state: &SriovNetworkNodeState| {
        cards(state) == [(PF.to_owned(), Some("the node's own address".to_owned())), (LONE.to_owned(), None)]
    };
    cluster.wait_for("told-2", "a protected PF and a lone VF", both).await;

    // An agent that was started by hand gets the addresses from the Node object.
    cluster.create_worker("told-3").await;
    let addresses = json!([{ "type": "Hostname", "address": "told-3" }, { "type": "InternalIP", "address": "127.0.0.1" }]);
    let status = json!({ "status": { "addresses": addresses } }).to_string();
    cluster.kubectl(&["patch", "node", "told-3", "--subresource=status", "-p", &status]);
    let _by_hand = cluster.start_agent_with("told-3", &arguments, &[]).await;
    let protected = |state: &SriovNetworkNodeState| {
        cards(state) == [(PF.to_owned(), Some("the node's own address".to_owned()))]
    };
    cluster.wait_for("told-3", "a protected PF", protected).await;
    // The node of the first agent gets the address later, and its agent notices it.
    cluster.kubectl(&["patch", "node", "told-1", "--subresource=status", "-p", &status]);
    cluster.wait_for("told-1", "a PF that becomes protected", protected).await;
}

/// An agent that mistook a cloud machine for hardware, or vice versa, would remove VFs.
#[tokio::test]
async fn nothing_is_reported_before_the_platform_of_the_node_is_known() {
    let cluster = Cluster::new("unknown-node", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let root = two_cards();
    cluster.create_worker("unknown-1").await;
    cluster.wait_for("unknown-1", "a node state", |_: &SriovNetworkNodeState| true).await;
    cluster.remove_worker("unknown-1").await;
    let arguments = ["agent", "--node", "unknown-1", "--host-root", root.path().to_str().unwrap()];
    let _agent = cluster.start_agent_without_node("unknown-1", &arguments);
    let is_unknown = |state: &SriovNetworkNodeState| {
        let mut conditions = state.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|condition| condition.type_ == "Ready" && condition.reason == "PlatformUnknown")
    };
    cluster.wait_for("unknown-1", "PlatformUnknown", is_unknown).await;
    let state = cluster.wait("unknown-1", "no card", |_| true).await;
    assert_eq!((state.sync_status().as_str(), state.cards().len()), ("", 0));
    cluster.create_worker("unknown-1").await;
    let only_pf = |state: &SriovNetworkNodeState| cards(state) == [(PF.to_owned(), None)];
    cluster.wait_for("unknown-1", "the PF", only_pf).await;
}

#[tokio::test]
async fn cards_are_configured_one_after_the_other_if_parallel_nic_config_is_off() {
    let cluster = Cluster::new("slow", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let file = cluster.write_file("machine.yaml", &machine());
    let environment = [("PARALLEL_NIC_CONFIG", "false"), ("DISABLE_PLUGINS", "mellanox")];
    let _agent = cluster.start_agent_with("slow-1", &["--sim", &file], &environment).await;
    cluster.apply_policy("p", json!({ "numVfs": 7, "nicSelector": { "vendor": "8086" } })).await;
    let done = |state: &NodeStateView| {
        let cards = state.cards();
        state.is_synced() && cards.len() == 2 && cards.iter().all(|card| state.vfs(card).len() == 7)
    };
    cluster.wait("slow-1", "7 VFs on both cards", done).await;
    let log = cluster.log();
    assert!(log.contains("parallel_nic_config=false") && log.contains("mellanox=false"), "{log}");
    let steps = log.lines().filter(|line| line.contains("executing"));
    let mut order: Vec<&str> =
        steps.filter_map(|line| line.split(" pf=").nth(1)?.split(' ').next()).collect();
    order.dedup();
    assert_eq!(order.len(), 2, "the steps of the cards are interleaved: {order:?}");
}
