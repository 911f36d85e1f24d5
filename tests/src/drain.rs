//! Drains: pods, pools and budgets of nodes, agents that the test simulates, and logs of drains.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "a failed expectation is explained where it fails")]

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use vfleet_api::keys::AGENT_FIELD_MANAGER;
use vfleet_api::node_state::DrainStatus;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkPoolConfig};

use crate::cluster::Cluster;
use crate::objects::condition;

pub mod history;
pub mod hold;
pub mod log;

const DEADLINE: Duration = Duration::from_mins(2);

/// Resource that pods with VFs request.
pub const RESOURCE: &str = "openshift.io/nics";

impl Cluster {
    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.admin_client())
    }

    pub fn states(&self) -> Api<SriovNetworkNodeState> {
        self.api()
    }

    /// Creates a pool of these nodes.
    pub async fn create_pool(&self, name: &str, nodes: &[&str], mut spec: Value) {
        // A field selector takes only one value.
        spec["nodeSelectorTerms"] = nodes
            .iter()
            .map(|node| json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] }))
            .collect();
        self.apply("SriovNetworkPoolConfig", "sriovnetworkpoolconfigs", name, &spec).await;
    }

    /// Creates workers and waits for their node states.
    pub async fn create_workers(&self, nodes: &[&str]) {
        futures::future::join_all(nodes.iter().map(|node| async move {
            self.create_worker(node).await;
            self.wait_for::<SriovNetworkNodeState>(node, "exists", |_| true).await;
        }))
        .await;
    }

    /// Writes the status of a node state as the agent of `node`.
    pub async fn write_agent_status(&self, node: &str, status: Value) {
        let params =
            PatchParams { field_manager: Some(AGENT_FIELD_MANAGER.to_owned()), ..Default::default() };
        let patch = Patch::Merge(json!({ "status": status }));
        self.states().patch_status(node, &params, &patch).await.unwrap();
    }

    /// Requests a drain as the agent of `node`.
    pub async fn request_drain(&self, node: &str, scope: &str) {
        let now = vfleet_api::meta::MicroTime(Timestamp::now());
        let status = json!({
            "drainStatus": "Drain_Required", "drainScope": scope, "drainRequestedAt": now, "drainRetry": null,
        });
        self.write_agent_status(node, status).await;
    }

    /// Reports as the agent of `node` that it needs no drain any more.
    pub async fn set_idle(&self, node: &str) {
        self.write_agent_status(node, json!({ "drainStatus": "Idle" })).await;
    }

    pub async fn drain_status(&self, node: &str) -> DrainStatus {
        status_of(&self.states().get(node).await.unwrap())
    }

    /// Waits until the drain of `node` has this status.
    pub async fn expect_drain(&self, node: &str, status: DrainStatus) -> SriovNetworkNodeState {
        self.wait_for(node, status.as_str(), |state| status_of(state) == status).await
    }

    /// Waits until the Node meets `condition`.
    pub async fn expect_node(&self, node: &str, what: &str, condition: impl Fn(&Node) -> bool) -> Node {
        let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
        let mut nodes = watcher(self.nodes(), config).default_backoff().applied_objects().boxed();
        let mut last = None;
        let found = async {
            loop {
                match nodes.next().await.unwrap() {
                    Ok(node) if condition(&node) => return node,
                    Ok(node) => last = Some(node),
                    Err(_) => {}
                }
            }
        };
        let Ok(found) = tokio::time::timeout(DEADLINE, found).await else {
            panic!("timed out waiting for node {node}: {what}; last version: {last:#?}\n{}", self.log());
        };
        found
    }

    /// Waits until `node` is uncordoned and has no cordon mark of vfleet.
    pub async fn expect_uncordoned(&self, node: &str) {
        self.expect_node(node, "uncordoned, without the mark of vfleet", |node| {
            !is_cordoned(node) && cordon_mark(node).is_none()
        })
        .await;
    }

    /// Creates a pod on `node`, which kwok simulates. The pod requests one device of `resource`.
    pub async fn create_pod(&self, name: &str, node: &str, metadata: Value, resource: Option<&str>) {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "none" }], "tolerations": [
                { "operator": "Exists" },
            ] },
        });
        object["metadata"]["name"] = json!(name);
        if let Some(resource) = resource {
            object["spec"]["containers"][0]["resources"] =
                json!({ "requests": { resource: "1" }, "limits": { resource: "1" } });
        }
        let pod: Pod = serde_json::from_value(object).unwrap();
        self.api::<Pod>().create(&PostParams::default(), &pod).await.unwrap();
    }

    /// Waits until the pod runs.
    pub async fn expect_running(&self, name: &str) -> Pod {
        let is_running =
            |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        self.wait_for(name, "Running", is_running).await
    }

    pub async fn has_pod(&self, name: &str) -> bool {
        self.api::<Pod>().get_opt(name).await.unwrap().is_some()
    }

    /// Creates a PodDisruptionBudget: at least `min_available` pods with this label must run.
    pub fn create_budget(&self, name: &str, label: &str, min_available: u32) {
        let object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name },
            "spec": { "minAvailable": min_available, "selector": { "matchLabels": { "app": label } } },
        });
        let file = self.write_file(&format!("{name}.json"), &object.to_string());
        self.apply_file(&file);
    }

    /// Creates a pod with VFs that cannot be evicted because of its PodDisruptionBudget.
    pub async fn create_protected_pod(&self, pod: &str, node: &str) {
        self.create_budget(&format!("{pod}-budget"), pod, 1);
        self.create_pod(pod, node, json!({ "labels": { "app": pod } }), Some(RESOURCE)).await;
        self.expect_running(pod).await;
        let budget = format!("{pod}-budget");
        let has_counted_pod = |budget: &PodDisruptionBudget| {
            budget.status.as_ref().is_some_and(|status| status.current_healthy == 1)
        };
        self.wait_for(&budget, "has counted its pod", has_counted_pod).await;
    }

    /// Waits until the operator reports that the drain of `node` is blocked for this reason; returns the message.
    pub async fn expect_blocked(&self, node: &str, reason: &str) -> String {
        let matches = |state: &SriovNetworkNodeState| {
            let (status, found, _) = blocked_condition(state);
            status == "True" && found == reason
        };
        let state = self.wait_for(node, &format!("Blocked: {reason}"), matches).await;
        blocked_condition(&state).2
    }

    /// Waits until the operator reports that the drain of `node` is not blocked any more.
    pub async fn expect_not_blocked(&self, node: &str) {
        let is_free = |state: &SriovNetworkNodeState| blocked_condition(state).0 == "False";
        self.wait_for(node, "not blocked", is_free).await;
    }

    pub async fn delete_pod(&self, name: &str) {
        self.api::<Pod>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until exactly these nodes have the slots of a pool.
    pub async fn expect_slots(&self, pool: &str, nodes: &[&str]) {
        let matches = |pool: &SriovNetworkPoolConfig| {
            let slots = pool.status.as_ref().and_then(|status| status.slots.as_deref()).unwrap_or_default();
            slots.iter().map(|slot| slot.node.as_str()).eq(nodes.iter().copied())
        };
        self.wait_for(pool, &format!("slots for {nodes:?}"), matches).await;
    }

    /// Waits until the drain of one of `nodes` has this status; returns the name of the node.
    pub async fn expect_one_drain(&self, nodes: &[String], status: DrainStatus) -> String {
        let matches =
            |state: &SriovNetworkNodeState| nodes.contains(&state.name_any()) && status_of(state) == status;
        self.wait_for_any("", &format!("{} for one of {nodes:?}", status.as_str()), matches).await.name_any()
    }

    /// Returns the nodes that have slots of a pool.
    pub async fn slots(&self, pool: &str) -> Vec<String> {
        let pool: SriovNetworkPoolConfig = self.api().get(pool).await.unwrap();
        let slots = pool.status.and_then(|status| status.slots).unwrap_or_default();
        slots.into_iter().map(|slot| slot.node).collect()
    }
}

/// Returns status, reason and message of the condition `Blocked`.
fn blocked_condition(state: &SriovNetworkNodeState) -> (String, String, String) {
    let conditions = state.status.as_ref().and_then(|status| status.conditions.as_ref());
    condition(conditions, "Blocked")
}

pub fn status_of(state: &SriovNetworkNodeState) -> DrainStatus {
    state.status.as_ref().and_then(|status| status.drain_status).unwrap_or(DrainStatus::Idle)
}

pub fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

/// Returns the annotation that marks a cordon of vfleet.
pub fn cordon_mark(node: &Node) -> Option<&str> {
    node.annotations().get(vfleet_api::keys::CORDON).map(String::as_str)
}
