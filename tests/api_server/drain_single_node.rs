//! Cluster with a single node. Its control plane is not shared with other tests, which would add nodes.

use serde_json::json;
use vfleet_api::node_state::DrainStatus::{DrainDisabled, DrainingComplete};
use vfleet_tests::cluster::Cluster;
use vfleet_tests::drain::{RESOURCE, cordon_mark, is_cordoned};
use vfleet_tests::plane::Plane;

#[tokio::test]
async fn the_only_node_is_not_fully_drained() {
    let cluster = Cluster::new("single", Plane::SingleNode).await;
    let _operator = cluster.start_operator();
    cluster.create_workers(&["only"]).await;
    cluster.create_pod("with-vf", "only", json!({}), Some(RESOURCE)).await;
    cluster.create_pod("without", "only", json!({}), None).await;
    cluster.expect_running("with-vf").await;
    cluster.expect_running("without").await;

    cluster.request_drain("only", "Full").await;
    cluster.expect_drain("only", DrainDisabled).await;
    let node = cluster.nodes().get("only").await.unwrap();
    assert!(!is_cordoned(&node) && cordon_mark(&node).is_none());
    assert!(cluster.slots("default").await.is_empty());
    assert!(cluster.has_pod("with-vf").await && cluster.has_pod("without").await);
    cluster.set_idle("only").await;

    // Pods with VFs are evicted.
    cluster.request_drain("only", "Partial").await;
    cluster.expect_drain("only", DrainingComplete).await;
    assert!(!cluster.has_pod("with-vf").await && cluster.has_pod("without").await);
    cluster.set_idle("only").await;
    cluster.expect_uncordoned("only").await;

    // With a second node it is fully drained.
    cluster.create_workers(&["second"]).await;
    cluster.request_drain("only", "Full").await;
    cluster.expect_drain("only", DrainingComplete).await;
    assert!(!cluster.has_pod("without").await);
    cluster.set_idle("only").await;
    cluster.expect_uncordoned("only").await;
}
