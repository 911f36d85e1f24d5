//! Pools: the default one is always there, limits are told, and what OpenShift's machine config pools have to do with
//! them. The real operator against a real API server.

use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use vfleet_api::SriovNetworkPoolConfig;
use vfleet_tests::cluster::Cluster;
use vfleet_tests::objects::condition;
use vfleet_tests::plane::Plane;

#[tokio::test]
async fn the_default_pool_is_made_and_made_again_and_never_changed() {
    let cluster = Cluster::new("default-pool", Plane::Fleet).await;
    let _operator = cluster.operator();
    let made: SriovNetworkPoolConfig = cluster.wait_for("default", "there", |_| true).await;
    let limit = |pool: &SriovNetworkPoolConfig| {
        pool.spec.drain_config.as_ref().and_then(|config| config.max_parallel_node_configuration)
    };
    assert_eq!((made.spec.priority, limit(&made)), (Some(0), Some(1)));
    cluster.expect_pool("default", "Limit", "True", "Given").await;

    cluster.api::<SriovNetworkPoolConfig>().delete("default", &DeleteParams::default()).await.unwrap();
    let is_new = |pool: &SriovNetworkPoolConfig| pool.uid() != made.uid();
    cluster.wait_for("default", "there again", is_new).await;

    cluster.apply_pool("default", &json!({ "drainConfig": { "maxParallelNodeConfiguration": 5 } })).await;
    let text = cluster.expect_pool("default", "Limit", "True", "Given").await;
    let changed: SriovNetworkPoolConfig =
        cluster.wait_for("default", "5", |pool| limit(pool) == Some(5)).await;
    // Told once more, with the operator having seen the change.
    let told = |pool: &SriovNetworkPoolConfig| {
        let conditions = pool.status.as_ref().and_then(|status| status.conditions.as_ref());
        condition(conditions, "Limit").2.contains("5 nodes")
    };
    let after: SriovNetworkPoolConfig = cluster.wait_for("default", "5 nodes at once", told).await;
    assert_eq!(after.spec, changed.spec, "{text}");
}

#[tokio::test]
async fn a_limit_that_is_not_given_or_never_lets_anybody_through_is_told() {
    let cluster = Cluster::new("limits", Plane::Fleet).await;
    let _operator = cluster.operator();
    let selector = json!({ "matchLabels": { "nobody": "has-it" } });
    cluster.apply_pool("old", &json!({ "nodeSelector": selector })).await;
    let text = cluster.expect_pool("old", "Limit", "False", "NoLimitGiven").await;
    assert!(text.contains("maxParallelNodeConfiguration"), "what to do: {text}");
    cluster.expect_event("old", "Warning", "NoLimitGiven").await;

    cluster.apply_pool("never", &json!({ "nodeSelector": selector, "maxUnavailable": 0 })).await;
    cluster.expect_pool("never", "Limit", "False", "NeverDrained").await;
    cluster.expect_event("never", "Warning", "NeverDrained").await;
    cluster.apply_pool("never", &json!({ "nodeSelector": selector, "maxUnavailable": 2 })).await;
    cluster.expect_pool("never", "Limit", "True", "Given").await;

    cluster.apply_pool("offload", &json!({ "ovsHardwareOffloadConfig": { "name": "worker" } })).await;
    let text = cluster.expect_pool("offload", "Ready", "True", "OffloadOnly").await;
    assert!(text.contains("no part in draining"), "{text}");
}
