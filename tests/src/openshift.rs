//! OpenShift's machine config operator, played by the test: its objects, as it would write them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "what fails a test is said where it fails")]

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
    /// Makes this an OpenShift cluster. An operator that runs already does not see it.
    pub fn become_openshift(&self) {
        self.plane().apply_crds(openshift_crds()).unwrap();
    }

    /// Machine config pools, of the whole cluster.
    pub fn machine_config_pools(&self) -> Api<DynamicObject> {
        self.machine_configuration("MachineConfigPool", "machineconfigpools")
    }

    /// Machine configs, of the whole cluster.
    pub fn machine_configs(&self) -> Api<DynamicObject> {
        self.machine_configuration("MachineConfig", "machineconfigs")
    }

    fn machine_configuration(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("machineconfiguration.openshift.io", "v1", kind);
        Api::all_with(self.administrator(), &ApiResource::from_gvk_with_plural(&gvk, plural))
    }

    /// A machine config pool with these nodes, all of which have what they shall have.
    pub async fn make_machine_config_pool(&self, pool: &str, nodes: &[&str]) {
        let configuration = json!({ "name": rendered(pool, 1) });
        let object = json!({
            "apiVersion": API_VERSION, "kind": "MachineConfigPool", "metadata": { "name": pool },
            "spec": { "paused": false, "configuration": configuration },
        });
        let pools = self.machine_config_pools();
        let made = pools.patch(pool, &as_its_operator(), &Patch::Apply(&object)).await.unwrap();
        let uid = made.uid().unwrap();
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
        configs.patch(&rendered(pool, 1), &as_its_operator(), &Patch::Apply(&config)).await.unwrap();
        let api: Api<Node> = Api::all(self.administrator());
        for node in nodes {
            let annotations = json!({ "machineconfiguration.openshift.io/desiredConfig": rendered(pool, 1) });
            let patch = json!({ "metadata": { "annotations": annotations } });
            api.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    }

    /// There is a new config for the pool: its operator is at work, unless the pool is paused.
    pub async fn begin_rollout(&self, pool: &str, number: u32) {
        let patch = json!({ "spec": { "configuration": { "name": rendered(pool, number) } } });
        self.machine_config_pools().patch(pool, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// All nodes of the pool have the config.
    pub async fn finish_rollout(&self, pool: &str, number: u32) {
        let patch = json!({ "status": { "configuration": { "name": rendered(pool, number) } } });
        let api = self.machine_config_pools();
        api.patch_status(pool, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Its administrator pauses the pool, or lets it go on.
    pub async fn administrator_pauses(&self, pool: &str, is_paused: bool) {
        let patch = json!({ "spec": { "paused": is_paused } });
        self.machine_config_pools().patch(pool, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Whether the control plane of this cluster is elsewhere (HyperShift), and with it the machine config operator.
    pub async fn control_plane_is(&self, topology: &str) {
        let gvk = GroupVersionKind::gvk("config.openshift.io", "v1", "Infrastructure");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "infrastructures");
        let api: Api<DynamicObject> = Api::all_with(self.administrator(), &resource);
        let mut object = json!({
            "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": { "name": "cluster" },
            "spec": {},
        });
        api.patch("cluster", &as_its_operator(), &Patch::Apply(&object)).await.unwrap();
        object["status"] = json!({ "controlPlaneTopology": topology });
        api.patch_status("cluster", &as_its_operator(), &Patch::Apply(&object)).await.unwrap();
    }

    /// Waits until the pool is paused and marked so, or neither.
    pub async fn wait_for_pause(&self, pool: &str, is_paused: bool) {
        let is_so = |found: Option<&DynamicObject>| {
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
            is_so,
        )
        .await;
    }

    /// Waits until an object of the whole cluster is like this; `None` when it is not there.
    pub async fn wait_for_cluster_object(
        &self,
        api: Api<DynamicObject>,
        name: &str,
        what: &str,
        is_so: impl Fn(Option<&DynamicObject>) -> bool,
    ) -> Option<DynamicObject> {
        let only_it = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = watcher(api, only_it).default_backoff().boxed();
        let found = async {
            let mut listed = None;
            loop {
                let seen = match events.next().await.unwrap() {
                    Ok(watcher::Event::InitApply(object)) => {
                        listed = Some(object);
                        continue;
                    }
                    Ok(watcher::Event::Init) | Err(_) => continue,
                    Ok(watcher::Event::InitDone) => listed.take(),
                    Ok(watcher::Event::Apply(object)) => Some(object),
                    Ok(watcher::Event::Delete(_)) => None,
                };
                if is_so(seen.as_ref()) {
                    return seen;
                }
            }
        };
        let waited = tokio::time::timeout(DEADLINE, found).await;
        waited.unwrap_or_else(|_| panic!("{name} never came to: {what}\n{}", self.log()))
    }
}

/// Whether a pool goes on, and what our annotation says.
pub fn pause_of(pool: &DynamicObject) -> String {
    let paused = pool.data.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or(false);
    let said = pool.annotations().get("sriovnetwork.openshift.io/state").map_or("", String::as_str);
    format!("{} {said}", if paused { "paused" } else { "goes on" }).trim_end().to_owned()
}

fn rendered(pool: &str, number: u32) -> String {
    format!("rendered-{pool}-{number}")
}

fn as_its_operator() -> PatchParams {
    PatchParams::apply("machine-config-operator").force()
}
