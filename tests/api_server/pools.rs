//! Pools: the default pool always exists, and odd limits are reported. The real operator with a real API server.

use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use vfleet_api::SriovNetworkPoolConfig;
use vfleet_tests::cluster::Cluster;
use vfleet_tests::objects::condition;
use vfleet_tests::plane::Plane;

#[tokio::test]
async fn the_default_pool_is_created_and_created_again_and_never_changed() {
    let cluster = Cluster::new("default-pool", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let created: SriovNetworkPoolConfig = cluster.wait_for("default", "there", |_| true).await;
    let limit = |pool: &SriovNetworkPoolConfig| {
        pool.spec.drain_config.as_ref().and_then(|config| config.max_parallel_node_configuration)
    };
    assert_eq!((created.spec.priority, limit(&created)), (Some(0), Some(1)));
    cluster.expect_pool("default", "Limit", "True", "LimitSet").await;

    cluster.api::<SriovNetworkPoolConfig>().delete("default", &DeleteParams::default()).await.unwrap();
    let is_new = |pool: &SriovNetworkPoolConfig| pool.uid() != created.uid();
    cluster.wait_for("default", "there again", is_new).await;

    cluster.apply_pool("default", &json!({ "drainConfig": { "maxParallelNodeConfiguration": 5 } })).await;
    let text = cluster.expect_pool("default", "Limit", "True", "LimitSet").await;
    let changed: SriovNetworkPoolConfig =
        cluster.wait_for("default", "5", |pool| limit(pool) == Some(5)).await;
    // Wait until the operator has processed the change.
    let is_reported = |pool: &SriovNetworkPoolConfig| {
        let conditions = pool.status.as_ref().and_then(|status| status.conditions.as_ref());
        condition(conditions, "Limit").2.contains("5 nodes")
    };
    let after: SriovNetworkPoolConfig = cluster.wait_for("default", "limit of 5 nodes", is_reported).await;
    assert_eq!(after.spec, changed.spec, "{text}");
}

#[tokio::test]
async fn a_missing_limit_and_a_limit_of_zero_are_reported() {
    let cluster = Cluster::new("limits", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let selector = json!({ "matchLabels": { "nobody": "has-it" } });
    cluster.apply_pool("old", &json!({ "nodeSelector": selector })).await;
    let text = cluster.expect_pool("old", "Limit", "False", "NoLimitSet").await;
    assert!(text.contains("maxParallelNodeConfiguration"), "no remedy: {text}");
    cluster.expect_event("old", "Warning", "NoLimitSet").await;

    cluster.apply_pool("never", &json!({ "nodeSelector": selector, "maxUnavailable": 0 })).await;
    cluster.expect_pool("never", "Limit", "False", "MaxUnavailableZero").await;
    cluster.expect_event("never", "Warning", "MaxUnavailableZero").await;
    cluster.apply_pool("never", &json!({ "nodeSelector": selector, "maxUnavailable": 2 })).await;
    cluster.expect_pool("never", "Limit", "True", "LimitSet").await;

    cluster.apply_pool("offload", &json!({ "ovsHardwareOffloadConfig": { "name": "worker" } })).await;
    let text = cluster.expect_pool("offload", "Ready", "True", "OffloadOnly").await;
    assert!(text.contains("does not limit drains"), "{text}");
}
