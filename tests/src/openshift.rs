//! Machine config operator of OpenShift, simulated by the test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "a failed expectation is explained where it fails")]

use std::time::Duration;

use fixture_kube::openshift_crds;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::Cluster;

const DEADLINE: Duration = Duration::from_mins(2);
const API_VERSION: &str = "machineconfiguration.openshift.io/v1";

impl Cluster {
    /// Makes this an OpenShift cluster. A running operator does not notice it.
    pub fn install_openshift_crds(&self) {
        self.plane().apply_crds(openshift_crds()).unwrap();
    }

    /// Returns the API of machine config pools.
    pub fn machine_config_pools(&self) -> Api<DynamicObject> {
        self.machine_configuration("MachineConfigPool", "machineconfigpools")
    }

    /// Returns the API of machine configs.
    pub fn machine_configs(&self) -> Api<DynamicObject> {
        self.machine_configuration("MachineConfig", "machineconfigs")
    }

    fn machine_configuration(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("machineconfiguration.openshift.io", "v1", kind);
        Api::all_with(self.admin_client(), &ApiResource::from_gvk_with_plural(&gvk, plural))
    }

    /// Creates a machine config pool of these nodes, which are all up to date.
    pub async fn create_machine_config_pool(&self, pool: &str, nodes: &[&str]) {
        let configuration = json!({ "name": rendered(pool, 1) });
        let object = json!({
            "apiVersion": API_VERSION, "kind": "MachineConfigPool", "metadata": { "name": pool },
            "spec": { "paused": false, "configuration": configuration },
        });
        let pools = self.machine_config_pools();
        let created = pools.patch(pool, &as_machine_config_operator(), &Patch::Apply(&object)).await.unwrap();
        let uid = created.uid().unwrap();
        self.finish_rollout(pool, 1).await;
        let config = json!({
            "apiVersion": API_VERSION, "kind": "MachineConfig",
            "metadata": {
                "name": rendered(pool, 1),
                "ownerReferences": [{
                    "apiVersion": API_VERSION, "kind": "MachineConfigPool", "name": pool, "uid": uid,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": { "config": { "ignition": { "version": "3.2.0" } } },
        });
        let configs = self.machine_configs();
        configs
            .patch(&rendered(pool, 1), &as_machine_config_operator(), &Patch::Apply(&config))
            .await
            .unwrap();
        let api: Api<Node> = Api::all(self.admin_client());
        for node in nodes {
            let annotations = json!({ "machineconfiguration.openshift.io/desiredConfig": rendered(pool, 1) });
            let patch = json!({ "metadata": { "annotations": annotations } });
            api.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    }

    /// Sets a new config of the pool: a rollout starts, unless the pool is paused.
    pub async fn begin_rollout(&self, pool: &str, number: u32) {
        let patch = json!({ "spec": { "configuration": { "name": rendered(pool, number) } } });
        self.machine_config_pools().patch(pool, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Reports that all nodes of the pool have the config.
    pub async fn finish_rollout(&self, pool: &str, number: u32) {
        let patch = json!({ "status": { "configuration": { "name": rendered(pool, number) } } });
        let api = self.machine_config_pools();
        api.patch_status(pool, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Pauses or resumes the pool as an administrator.
    pub async fn set_paused_by_administrator(&self, pool: &str, is_paused: bool) {
        let patch = json!({ "spec": { "paused": is_paused } });
        self.machine_config_pools().patch(pool, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Sets the topology of the control plane. If it is external (HyperShift), so is the machine config operator.
    pub async fn set_control_plane_topology(&self, topology: &str) {
        let gvk = GroupVersionKind::gvk("config.openshift.io", "v1", "Infrastructure");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "infrastructures");
        let api: Api<DynamicObject> = Api::all_with(self.admin_client(), &resource);
        let mut object = json!({
            "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": { "name": "cluster" },
            "spec": {},
        });
        api.patch("cluster", &as_machine_config_operator(), &Patch::Apply(&object)).await.unwrap();
        object["status"] = json!({ "controlPlaneTopology": topology });
        api.patch_status("cluster", &as_machine_config_operator(), &Patch::Apply(&object)).await.unwrap();
    }

    /// Waits until the pool is paused and marked as paused, or neither.
    pub async fn wait_for_pause(&self, pool: &str, is_paused: bool) {
        let matches = |found: Option<&DynamicObject>| {
            found.is_some_and(|found| {
                let is_marked = found
                    .annotations()
                    .get("sriovnetwork.openshift.io/state")
                    .is_some_and(|state| state == "Paused");
                let paused = found.data.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or(false);
                (is_marked, paused) == (is_paused, is_paused)
            })
        };
        self.wait_for_cluster_object(
            self.machine_config_pools(),
            pool,
            &format!("paused: {is_paused}"),
            matches,
        )
        .await;
    }

    /// Waits until a cluster-scoped object meets `condition`, which gets `None` if the object does not exist.
    pub async fn wait_for_cluster_object(
        &self,
        api: Api<DynamicObject>,
        name: &str,
        what: &str,
        condition: impl Fn(Option<&DynamicObject>) -> bool,
    ) -> Option<DynamicObject> {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = watcher(api, config).default_backoff().boxed();
        let found = async {
            let mut listed = None;
            loop {
                let current = match events.next().await.unwrap() {
                    Ok(watcher::Event::InitApply(object)) => {
                        listed = Some(object);
                        continue;
                    }
                    Ok(watcher::Event::Init) | Err(_) => continue,
                    Ok(watcher::Event::InitDone) => listed.take(),
                    Ok(watcher::Event::Apply(object)) => Some(object),
                    Ok(watcher::Event::Delete(_)) => None,
                };
                if condition(current.as_ref()) {
                    return current;
                }
            }
        };
        let waited = tokio::time::timeout(DEADLINE, found).await;
        waited.unwrap_or_else(|_| panic!("timed out waiting for {name}: {what}\n{}", self.log()))
    }
}

/// Describes whether a pool is paused, and the annotation of vfleet.
pub fn describe_pause(pool: &DynamicObject) -> String {
    let paused = pool.data.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or(false);
    let state = pool.annotations().get("sriovnetwork.openshift.io/state").map_or("", String::as_str);
    format!("{} {state}", if paused { "paused" } else { "active" }).trim_end().to_owned()
}

fn rendered(pool: &str, number: u32) -> String {
    format!("rendered-{pool}-{number}")
}

fn as_machine_config_operator() -> PatchParams {
    PatchParams::apply("machine-config-operator").force()
}
