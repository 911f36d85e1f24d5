//! Hardware offload of Open vSwitch: the operator writes a machine config for a pool that requests it.

use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject};
use serde_json::json;
use vfleet_api::SriovNetworkPoolConfig;
use vfleet_tests::cluster::Cluster;
use vfleet_tests::plane::Plane;

use crate::ALONE;

#[tokio::test]
async fn a_machine_config_for_offload_is_written_and_deleted_with_the_last_pool() {
    let _alone = ALONE.lock().await;
    let cluster = Cluster::new("offload", Plane::OpenShift).await;
    cluster.install_openshift_crds();
    cluster.set_control_plane_topology("HighlyAvailable").await;
    cluster.create_machine_config_pool("hw-workers", &[]).await;
    let _operator = cluster.start_operator();
    let offload = |mcp: &str| json!({ "ovsHardwareOffloadConfig": { "name": mcp } });
    cluster.apply_pool("one", &offload("hw-workers")).await;
    cluster.apply_pool("two", &offload("hw-workers")).await;
    cluster.apply_pool("nowhere", &offload("no-such")).await;
    cluster.apply_pool("masters", &offload("master")).await;

    let name = "00-hw-workers-ovs-hw-offload";
    let configs = cluster.machine_configs();
    let exists = |config: Option<&DynamicObject>| config.is_some();
    let config = cluster.wait_for_cluster_object(configs.clone(), name, "exists", exists).await.unwrap();
    assert_eq!(config.labels()["machineconfiguration.openshift.io/role"], "hw-workers");
    let unit = &config.data["spec"]["config"]["systemd"]["units"][0];
    assert_eq!(unit["name"], "ovs-vswitchd.service");
    assert!(unit["dropins"][0]["contents"].as_str().unwrap().contains("other_config:hw-offload=true"));
    cluster.expect_pool("one", "HardwareOffload", "True", "MachineConfigWritten").await;
    cluster.expect_pool("nowhere", "HardwareOffload", "False", "MachineConfigPoolNotFound").await;
    cluster.expect_pool("masters", "HardwareOffload", "False", "MasterNotSupported").await;
    let one: SriovNetworkPoolConfig = cluster.api().get("one").await.unwrap();
    assert!(one.finalizers().is_empty(), "the pool has a finalizer");

    // A machine config pool that is created later.
    cluster.create_machine_config_pool("no-such", &[]).await;
    cluster.expect_pool("nowhere", "HardwareOffload", "True", "MachineConfigWritten").await;

    cluster.api::<SriovNetworkPoolConfig>().delete("one", &DeleteParams::default()).await.unwrap();
    cluster.apply_pool("two", &json!({ "maxUnavailable": 1, "nodeSelector": {} })).await;
    cluster.wait_for_cluster_object(configs.clone(), name, "deleted", |config| config.is_none()).await;
    let left = configs.get_opt("00-no-such-ovs-hw-offload").await.unwrap();
    assert!(left.is_some(), "another pool still requests this one");
}
