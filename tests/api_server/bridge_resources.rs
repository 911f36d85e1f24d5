//! Open vSwitch bridges as resources of the Node, with the real operator and scheduler; the machine is simulated.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use vfleet_host::SimHost;
use vfleet_plan::bridge_resources::BridgeResourceMode;
use vfleet_tests::agent::Agent;
use vfleet_tests::cluster::{Cluster, NodeStateView, Program};
use vfleet_tests::objects::bridge_capacity;
use vfleet_tests::plane::Plane;

const BRIDGES: &str = "BridgeResources";

/// Node whose agent reports bridges, in a cluster of its own.
struct Scene {
    cluster: Cluster,
    node: &'static str,
    host: Arc<SimHost>,
    _operator: Program,
}

impl Scene {
    /// Starts an operator, and creates a node on whose machine are these bridges.
    async fn new(node: &'static str, bridges: &[&str]) -> Self {
        let cluster = Cluster::new(node, Plane::Fleet).await;
        let operator = cluster.start_operator();
        cluster.create_worker(node).await;
        let bridges: Vec<_> = bridges.iter().map(|name| json!({ "name": name })).collect();
        let machine = json!({ "pfs": [], "openVswitch": { "bridges": bridges } });
        let host = Arc::new(SimHost::from_yaml(&machine.to_string(), node).unwrap());
        Self { cluster, node, host, _operator: operator }
    }

    async fn start_agent(&self, mode: BridgeResourceMode) -> Agent {
        let host = Arc::new(self.host.new_process());
        Agent::start(&self.cluster, self.node, host, |config| config.bridge_resources = mode).await
    }

    /// Waits until the Node has these resources of bridges, and returns its capacity without them.
    async fn expect_resources(&self, bridges: &[(&str, &str)]) -> BTreeMap<String, String> {
        let expected: BTreeMap<_, _> =
            bridges.iter().map(|(name, quantity)| ((*name).to_owned(), (*quantity).to_owned())).collect();
        let has_expected =
            |node: &Node| !other_capacity(node).is_empty() && bridge_capacity(node) == expected;
        let what = format!("resources of bridges {bridges:?}");
        other_capacity(&self.cluster.wait_for_node(self.node, &what, has_expected).await)
    }

    /// Writes to the status of the Node as another program.
    async fn write_as(&self, manager: &str, patch: &Patch<Value>) {
        let nodes: Api<Node> = Api::all(self.cluster.admin_client());
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        nodes.patch_status(self.node, &params, patch).await.unwrap();
    }

    /// Computes what pods may allocate from the capacity, like a kubelet.
    async fn update_allocatable(&self) {
        let nodes: Api<Node> = Api::all(self.cluster.admin_client());
        let capacity = nodes.get(self.node).await.unwrap().status.unwrap().capacity;
        self.write_as("kubelet", &Patch::Merge(json!({ "status": { "allocatable": capacity } }))).await;
    }

    async fn expect_condition(&self, expected: Option<&str>) {
        let reason = |state: &NodeStateView| state.find_condition(BRIDGES).map(|(_, reason)| reason);
        let what = format!("{BRIDGES} {expected:?}");
        self.cluster.wait(self.node, &what, |state| reason(state).as_deref() == expected).await;
    }
}

fn resource(bridge: &str) -> String {
    format!("ovs-cni.network.kubevirt.io/{bridge}")
}

/// Returns the capacity of a Node without resources of bridges.
fn other_capacity(node: &Node) -> BTreeMap<String, String> {
    let capacity = node.status.iter().flat_map(|status| status.capacity.iter().flatten());
    let capacity = capacity.map(|(name, quantity)| (name.clone(), quantity.0.clone()));
    capacity.filter(|(name, _)| !name.starts_with("ovs-cni.network.kubevirt.io/")).collect()
}

/// Creates a pod that runs only on `node` and requests a resource.
async fn create_pod(scene: &Scene, name: &str, resource: &str) {
    let requested = json!({ resource: "1" });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "nodeSelector": { "kubernetes.io/hostname": scene.node },
            "containers": [{
                "name": "c", "image": "none", "resources": { "requests": requested, "limits": requested },
            }],
        },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    scene.cluster.api::<Pod>().create(&PostParams::default(), &pod).await.unwrap();
}

fn is_unschedulable(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_requests_a_bridge_is_scheduled_once_the_node_reports_it() {
    let scene = Scene::new("bridge-resources-1", &["br0"]).await;
    scene.cluster.allow_bridge_resources();
    let others = scene.expect_resources(&[]).await;
    create_pod(&scene, "pod", &resource("br0")).await;
    scene.cluster.wait_for("pod", "is not scheduled", is_unschedulable).await;

    let agent = scene.start_agent(BridgeResourceMode::Reported).await;
    assert_eq!(scene.expect_resources(&[("br0", "1k")]).await, others);
    scene.update_allocatable().await;
    let is_running =
        |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let pod = scene.cluster.wait_for("pod", "runs", is_running).await;
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some(scene.node));
    scene.cluster.expect_event(scene.node, "Normal", "BridgeResourcesChanged").await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_resources_follow_the_bridges_and_are_repaired() {
    let scene = Scene::new("bridge-resources-2", &["br0", "br:1"]).await;
    scene.cluster.allow_bridge_resources();
    let others = scene.expect_resources(&[]).await;
    let agent = scene.start_agent(BridgeResourceMode::Reported).await;
    scene.expect_resources(&[("br0", "1k")]).await;
    scene.expect_condition(Some("InvalidName")).await;
    scene.cluster.expect_event(scene.node, "Warning", "InvalidName").await;
    scene.host.modify_kernel(|kernel| {
        kernel.ovs.remove_bridge("br:1");
        kernel.ovs.add_bridge("br2");
    });
    scene.expect_resources(&[("br0", "1k"), ("br2", "1k")]).await;
    scene.expect_condition(None).await;

    // A kubelet that registers its node again.
    let zero = json!({ "status": { "capacity": { resource("br0"): "0", resource("br2"): "0" } } });
    scene.write_as("kubelet", &Patch::Merge(zero)).await;
    scene.expect_resources(&[("br0", "1k"), ("br2", "1k")]).await;
    // A bridge that the marker of ovs-cni reported, and that was removed since.
    scene
        .write_as("marker", &Patch::Merge(json!({ "status": { "capacity": { resource("old"): "1000" } } })))
        .await;
    scene.expect_resources(&[("br0", "1k"), ("br2", "1k")]).await;

    scene.host.modify_kernel(|kernel| kernel.ovs.has_server = false);
    scene.expect_condition(Some("OvsNotRunning")).await;
    scene.expect_resources(&[("br0", "1k"), ("br2", "1k")]).await;
    scene.host.modify_kernel(|kernel| {
        kernel.ovs.has_server = true;
        kernel.ovs.remove_bridge("br0");
    });
    scene.expect_condition(None).await;
    assert_eq!(scene.expect_resources(&[("br2", "1k")]).await, others);
    agent.end().await;
    assert_eq!(scene.expect_resources(&[("br2", "1k")]).await, others, "the next agent continues");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_is_switched_off_takes_back_only_the_resources_of_the_agent() {
    let scene = Scene::new("bridge-resources-3", &["br0", "br1"]).await;
    let marker = json!({ "status": { "capacity": { resource("br1"): "1000" } } });
    scene.expect_resources(&[]).await;
    scene.write_as("marker", &Patch::Merge(marker)).await;
    let others = scene.expect_resources(&[("br1", "1k")]).await;

    // Without permission the remedy is reported, and the agent tries again.
    let agent = scene.start_agent(BridgeResourceMode::Reported).await;
    scene.expect_condition(Some("WriteForbidden")).await;
    let described = scene.cluster.kubectl(&["describe", "sriovnetworknodestates", scene.node]);
    assert!(described.contains("apply deploy/ovs-bridge-resources.yaml"), "{described}");
    scene.cluster.expect_event(scene.node, "Warning", "WriteForbidden").await;
    scene.cluster.allow_bridge_resources();
    scene.expect_resources(&[("br0", "1k"), ("br1", "1k")]).await;
    scene.expect_condition(None).await;
    agent.end().await;

    let agent = scene.start_agent(BridgeResourceMode::Withdrawn).await;
    // The agent applied this one, too, but the marker of ovs-cni had reported it before.
    assert_eq!(scene.expect_resources(&[("br1", "1k")]).await, others);
    scene.cluster.expect_event(scene.node, "Normal", "BridgeResourcesChanged").await;
    agent.end().await;
}
