//! Draining, on the real API server with pods that kwok plays. The tests play the agents.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]

use serde_json::json;
use vfleet_api::node_state::DrainStatus::{DrainRequired, Draining, DrainingComplete, Idle};
use vfleet_tests::cluster::Cluster;
use vfleet_tests::drain::{RESOURCE, is_cordoned, mark};

const PROGRAM: &str = env!("CARGO_BIN_EXE_vfleet_under_test");

#[tokio::test]
async fn a_node_is_drained_and_given_back() {
    let cluster = Cluster::new("drain", PROGRAM).await;
    let _operator = cluster.operator();
    cluster.workers(&["drain-1"]).await;
    cluster.pool("one", &["drain-1"], json!({ "drainConfig": { "maxParallelNodeConfiguration": 1 } })).await;
    cluster.pod("with-vf", "drain-1", json!({}), Some(RESOURCE)).await;
    cluster.pod("without", "drain-1", json!({}), None).await;
    cluster.expect_running("with-vf").await;
    cluster.expect_running("without").await;

    cluster.ask("drain-1", "Partial").await;
    cluster.expect_drain("drain-1", DrainingComplete).await;
    assert!(!cluster.has_pod("with-vf").await, "it is gone, not only told to go");
    assert!(cluster.has_pod("without").await);
    let node = cluster.nodes().get("drain-1").await.unwrap();
    assert!(is_cordoned(&node) && mark(&node) == Some("ours"));
    assert_eq!(cluster.slots("one").await, ["drain-1"]);

    cluster.be_idle("drain-1").await;
    cluster.expect_at_rest("drain-1").await;
    cluster.expect_event("drain-1", "Normal", "Uncordoned").await;
}

#[tokio::test]
async fn the_seeds_example() {
    let cluster = Cluster::new("example", PROGRAM).await;
    let _operator = cluster.operator();
    let [a, b, c, d, e] = ["example-a", "example-b", "example-c", "example-d", "example-e"];
    cluster.workers(&[a, b, c, d, e]).await;
    let limit = |priority: u32, most: u32| json!({ "priority": priority, "drainConfig": { "maxParallelNodeConfiguration": most } });
    cluster.pool("pool1", &[a, b, c], limit(1, 1)).await;
    cluster.pool("pool2", &[c, d, e], limit(99, 2)).await;
    for node in [c, d, e] {
        cluster.ask(node, "Partial").await;
    }
    for node in [c, d, e] {
        cluster.expect_drain(node, DrainingComplete).await;
    }
    // A and C share a pool that takes one at a time.
    cluster.ask(a, "Partial").await;
    cluster.ask(b, "Partial").await;
    cluster.be_idle(d).await;
    cluster.expect_at_rest(d).await;
    assert_eq!(
        [cluster.drain_status(a).await, cluster.drain_status(b).await],
        [DrainRequired, DrainRequired]
    );
    cluster.be_idle(c).await;
    cluster.expect_drain(a, DrainingComplete).await;
    assert_eq!(cluster.drain_status(b).await, DrainRequired);
    cluster.be_idle(a).await;
    cluster.expect_drain(b, DrainingComplete).await;
    assert_eq!(cluster.drain_status(a).await, Idle);
    let _ = Draining;
}
