//! Pools: the default one is always there, limits are told, and what OpenShift's machine config pools have to do with
//! them. The real operator against a real API server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]

use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject};
use serde_json::{Value, json};
use vfleet_api::SriovNetworkPoolConfig;
use vfleet_tests::cluster::Cluster;
use vfleet_tests::objects::condition;

const PROGRAM: &str = env!("CARGO_BIN_EXE_vfleet_under_test");

async fn apply_pool(cluster: &Cluster, name: &str, spec: &Value) {
    cluster.apply("SriovNetworkPoolConfig", "sriovnetworkpoolconfigs", name, spec).await;
}

/// Waits until the pool says so; gives the message.
async fn expect(cluster: &Cluster, pool: &str, type_: &str, status: &str, reason: &str) -> String {
    let find = |pool: &SriovNetworkPoolConfig| {
        condition(pool.status.as_ref().and_then(|status| status.conditions.as_ref()), type_)
    };
    let is_so = |pool: &SriovNetworkPoolConfig| {
        let (found, why, _) = find(pool);
        (found.as_str(), why.as_str()) == (status, reason)
    };
    find(&cluster.wait_for(pool, &format!("{type_} {status} {reason}"), is_so).await).2
}

#[tokio::test]
async fn the_default_pool_is_made_and_made_again_and_never_changed() {
    let cluster = Cluster::new("default-pool", PROGRAM).await;
    let _operator = cluster.operator();
    let made: SriovNetworkPoolConfig = cluster.wait_for("default", "there", |_| true).await;
    let limit = |pool: &SriovNetworkPoolConfig| {
        pool.spec.drain_config.as_ref().and_then(|config| config.max_parallel_node_configuration)
    };
    assert_eq!((made.spec.priority, limit(&made)), (Some(0), Some(1)));
    expect(&cluster, "default", "Limit", "True", "Given").await;

    cluster.api::<SriovNetworkPoolConfig>().delete("default", &DeleteParams::default()).await.unwrap();
    let is_new = |pool: &SriovNetworkPoolConfig| pool.uid() != made.uid();
    cluster.wait_for("default", "there again", is_new).await;

    apply_pool(&cluster, "default", &json!({ "drainConfig": { "maxParallelNodeConfiguration": 5 } })).await;
    let text = expect(&cluster, "default", "Limit", "True", "Given").await;
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
    let cluster = Cluster::new("limits", PROGRAM).await;
    let _operator = cluster.operator();
    let selector = json!({ "matchLabels": { "nobody": "has-it" } });
    apply_pool(&cluster, "old", &json!({ "nodeSelector": selector })).await;
    let text = expect(&cluster, "old", "Limit", "False", "NoLimitGiven").await;
    assert!(text.contains("maxParallelNodeConfiguration"), "what to do: {text}");
    cluster.expect_event("old", "Warning", "NoLimitGiven").await;

    apply_pool(&cluster, "never", &json!({ "nodeSelector": selector, "maxUnavailable": 0 })).await;
    expect(&cluster, "never", "Limit", "False", "NeverDrained").await;
    cluster.expect_event("never", "Warning", "NeverDrained").await;
    apply_pool(&cluster, "never", &json!({ "nodeSelector": selector, "maxUnavailable": 2 })).await;
    expect(&cluster, "never", "Limit", "True", "Given").await;

    apply_pool(&cluster, "offload", &json!({ "ovsHardwareOffloadConfig": { "name": "worker" } })).await;
    let text = expect(&cluster, "offload", "Ready", "True", "OffloadOnly").await;
    assert!(text.contains("no part in draining"), "{text}");
}

#[tokio::test]
async fn offload_becomes_a_machine_config_and_goes_with_the_last_pool() {
    let cluster = Cluster::new("offload", PROGRAM).await;
    cluster.become_openshift();
    cluster.make_machine_config_pool("hw-workers", &[]).await;
    let _operator = cluster.operator();
    let offload = |mcp: &str| json!({ "ovsHardwareOffloadConfig": { "name": mcp } });
    apply_pool(&cluster, "one", &offload("hw-workers")).await;
    apply_pool(&cluster, "two", &offload("hw-workers")).await;
    apply_pool(&cluster, "nowhere", &offload("no-such")).await;
    apply_pool(&cluster, "masters", &offload("master")).await;

    let name = "00-hw-workers-ovs-hw-offload";
    let configs = cluster.machine_configs();
    let is_there = |config: Option<&DynamicObject>| config.is_some();
    let config = cluster.wait_for_cluster_object(configs.clone(), name, "there", is_there).await.unwrap();
    assert_eq!(config.labels()["machineconfiguration.openshift.io/role"], "hw-workers");
    let unit = &config.data["spec"]["config"]["systemd"]["units"][0];
    assert_eq!(unit["name"], "ovs-vswitchd.service");
    assert!(unit["dropins"][0]["contents"].as_str().unwrap().contains("other_config:hw-offload=true"));
    expect(&cluster, "one", "HardwareOffload", "True", "MachineConfigWritten").await;
    expect(&cluster, "nowhere", "HardwareOffload", "False", "NoMachineConfigPool").await;
    expect(&cluster, "masters", "HardwareOffload", "False", "MasterIgnored").await;
    let one: SriovNetworkPoolConfig = cluster.api().get("one").await.unwrap();
    assert!(one.finalizers().is_empty(), "nothing of ours keeps a pool");

    // A machine config pool that comes later.
    cluster.make_machine_config_pool("no-such", &[]).await;
    expect(&cluster, "nowhere", "HardwareOffload", "True", "MachineConfigWritten").await;

    cluster.api::<SriovNetworkPoolConfig>().delete("one", &DeleteParams::default()).await.unwrap();
    apply_pool(&cluster, "two", &json!({ "maxUnavailable": 1, "nodeSelector": {} })).await;
    cluster.wait_for_cluster_object(configs.clone(), name, "gone", |config| config.is_none()).await;
    let left = configs.get_opt("00-no-such-ovs-hw-offload").await.unwrap();
    assert!(left.is_some(), "a pool still wants this one");
}
