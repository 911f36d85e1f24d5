//! A cluster with one node only: its control plane is not shared with other tests, who would bring more.

use serde_json::json;
use vfleet_api::node_state::DrainStatus::{DrainDisabled, DrainingComplete};
use vfleet_tests::cluster::Cluster;
use vfleet_tests::drain::{RESOURCE, is_cordoned, mark};
use vfleet_tests::plane::Plane;

#[tokio::test]
async fn the_only_node_is_not_emptied() {
    let cluster = Cluster::new("single", Plane::SingleNode).await;
    let _operator = cluster.operator();
    cluster.workers(&["only"]).await;
    cluster.pod("with-vf", "only", json!({}), Some(RESOURCE)).await;
    cluster.pod("without", "only", json!({}), None).await;
    cluster.expect_running("with-vf").await;
    cluster.expect_running("without").await;

    cluster.ask("only", "Full").await;
    cluster.expect_drain("only", DrainDisabled).await;
    let node = cluster.nodes().get("only").await.unwrap();
    assert!(!is_cordoned(&node) && mark(&node).is_none());
    assert!(cluster.slots("default").await.is_empty());
    assert!(cluster.has_pod("with-vf").await && cluster.has_pod("without").await);
    cluster.be_idle("only").await;

    // Who has VFs that change goes all the same.
    cluster.ask("only", "Partial").await;
    cluster.expect_drain("only", DrainingComplete).await;
    assert!(!cluster.has_pod("with-vf").await && cluster.has_pod("without").await);
    cluster.be_idle("only").await;
    cluster.expect_at_rest("only").await;

    // With a second one it is not alone any more.
    cluster.workers(&["second"]).await;
    cluster.ask("only", "Full").await;
    cluster.expect_drain("only", DrainingComplete).await;
    assert!(!cluster.has_pod("without").await);
    cluster.be_idle("only").await;
    cluster.expect_at_rest("only").await;
}
