//! Agent and separate Go device plugin on one node: the plugin is held back while VFs change, and restarted once.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use vfleet_plan::Step;
use vfleet_tests::agent::{Agent, lab};
use vfleet_tests::cluster::{Cluster, DEVICE_PLUGIN, NodeStateView};
use vfleet_tests::plane::Plane;

/// Images of the plugin and the agent. With the image of the agent the plugin has an init container that waits.
const IMAGES: [(&str, &str); 2] =
    [("SRIOV_DEVICE_PLUGIN_IMAGE", "plugin:1"), ("SRIOV_NETWORK_CONFIG_DAEMON_IMAGE", "vfleet:1")];
const PF: &str = "enp1s0";
const NODE: &str = "once-1";
/// Annotation that the init container of the plugin sets while it waits.
const WAITS: &str = "sriovnetwork.openshift.io/device-plugin-wait-config";
/// Deadline of waits; generous, because the machine may be busy.
const DEADLINE: Duration = Duration::from_mins(1);

/// Creates a pod of the plugin, as its DaemonSet does. kwok simulates the pod.
fn create_plugin_pod(cluster: &Cluster, node: &str, name: &str, annotations: &Value) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "labels": { "app": "sriov-device-plugin" }, "annotations": annotations,
        },
        "spec": {
            "nodeName": node, "serviceAccountName": DEVICE_PLUGIN,
            "containers": [{ "name": "plugin", "image": "none" }],
        },
    });
    cluster.kubectl(&[
        "apply",
        "--server-side",
        "-f",
        &cluster.write_file(&format!("{name}.json"), &pod.to_string()),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_device_plugin_is_held_back_while_vfs_change() {
    let cluster = Cluster::new("held", Plane::Deployment).await;
    let _operator = cluster.start_operator();
    let host = lab();
    let pods: Api<Pod> = cluster.api();
    cluster.create_worker("held-1").await;
    cluster.create_worker("held-2").await;
    cluster.kubectl(&["create", "serviceaccount", DEVICE_PLUGIN]);
    let waiting = json!({ WAITS: "true" });
    create_plugin_pod(&cluster, "held-1", "first", &waiting);
    create_plugin_pod(&cluster, "held-2", "elsewhere", &waiting);
    let agent = Agent::start(&cluster, "held-1", Arc::clone(&host), |config| {
        config.go_plugin = vfleet_agent::GoPlugin::HeldBack;
    })
    .await;
    // Without a policy there is nothing to wait for.
    let is_released = |pod: &Pod| !is_waiting(pod);
    cluster.wait_for("first", "released", is_released).await;

    let first = pods.get("first").await.unwrap().uid().unwrap();
    let (started, is_started) = mpsc::channel::<()>();
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    host.set_step_hook(move |step| {
        if matches!(step, Step::SetNumVfs { .. }) {
            let _ = started.send(());
            let _ = held.lock().unwrap().recv_timeout(2 * DEADLINE);
        }
    });
    cluster.apply_policy("p", json!({ "numVfs": 2, "nicSelector": { "pfNames": [PF] } })).await;
    let deleted = await_condition(pods.clone(), "first", conditions::is_deleted(&first));
    tokio::time::timeout(DEADLINE, deleted).await.expect("the pod is deleted").unwrap();
    tokio::task::spawn_blocking(move || is_started.recv_timeout(DEADLINE)).await.unwrap().unwrap();
    // The next pod, with the real init container.
    create_plugin_pod(&cluster, "held-1", "second", &json!({}));
    let mut init_container = cluster.start_plugin_init_container("second");
    cluster.wait_for("second", "waiting", is_waiting).await;
    release.send(()).unwrap();
    drop(release);
    cluster.wait_for("second", "released", is_released).await;
    let ended = tokio::task::spawn_blocking(move || init_container.wait()).await.unwrap();
    assert!(ended.success(), "{ended}\n{}", cluster.log());
    let has_vfs = |state: &NodeStateView| state.vfs(PF).len() == 2;
    cluster.wait("held-1", "2 VFs", has_vfs).await;

    // Changes that are not relevant for the plugin do not restart it.
    let second = pods.get("second").await.unwrap().uid();
    let policy = json!({ "numVfs": 2, "mtu": 2000, "nicSelector": { "pfNames": [PF] } });
    cluster.apply_policy("p", policy).await;
    cluster.wait("held-1", "MTU 2000", |state| state.is_synced() && state.card(PF).mtu == Some(2000)).await;
    assert_eq!(pods.get("second").await.unwrap().uid(), second);
    assert!(is_waiting(&pods.get("elsewhere").await.unwrap()), "the agent released a pod of another node");
    agent.end().await;

    // A pod that waited while no agent ran is released by the next agent.
    create_plugin_pod(&cluster, "held-1", "third", &waiting);
    let agent = Agent::start(&cluster, "held-1", Arc::new(host.new_process()), |config| {
        config.go_plugin = vfleet_agent::GoPlugin::HeldBack;
    })
    .await;
    cluster.wait_for("third", "released", is_released).await;
    agent.end().await;
}

fn is_waiting(pod: &Pod) -> bool {
    pod.annotations().contains_key(WAITS)
}

/// Kubelet of [`NODE`] for pods of the plugin, because kwok does not run their init container.
#[derive(Default)]
struct Kubelet {
    /// UIDs of started pods.
    started: Mutex<HashSet<String>>,
    /// UIDs of deleted pods.
    deleted: Mutex<BTreeSet<String>>,
    /// Number of pods whose plugin is running.
    running: AtomicUsize,
}

impl Kubelet {
    /// Returns the number of started and of deleted pods.
    fn counts(&self) -> (usize, usize) {
        (self.started.lock().unwrap().len(), self.deleted.lock().unwrap().len())
    }

    /// Simulates the kubelet; never returns.
    async fn run(&self, cluster: &Cluster) {
        let pods: Api<Pod> = cluster.api();
        let plugin = watcher::Config::default().labels("app=sriov-device-plugin");
        let mut changes = watcher(pods.clone(), plugin).default_backoff().applied_objects().boxed();
        let mut init_containers = JoinSet::new();
        let mut with_plugin = HashSet::new();
        loop {
            tokio::select! {
                Some(Ok(pod)) = changes.next() => {
                    let (name, uid) = (pod.name_any(), pod.uid().unwrap());
                    if pod.metadata.deletion_timestamp.is_some() {
                        if self.deleted.lock().unwrap().insert(uid.clone()) && with_plugin.remove(&uid) {
                            self.running.fetch_sub(1, Ordering::SeqCst);
                        }
                        let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
                    } else if is_scheduled(&pod) && self.started.lock().unwrap().insert(uid.clone()) {
                        let mut init_container = cluster.start_plugin_init_container(&name);
                        init_containers.spawn_blocking(move || (init_container.wait(), name, uid));
                    }
                }
                Some(ended) = init_containers.join_next() => {
                    let (status, name, uid) = ended.unwrap();
                    if self.deleted.lock().unwrap().contains(&uid) {
                        continue;
                    }
                    assert!(status.success(), "{status}\n{}", cluster.log());
                    self.running.fetch_add(1, Ordering::SeqCst);
                    with_plugin.insert(uid);
                    let running = json!({ "status": { "phase": "Running", "conditions": [
                        { "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "True" },
                    ] } });
                    let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&running)).await;
                }
            }
        }
    }
}

/// Creates a node that kwok does not simulate.
async fn create_node(cluster: &Cluster) {
    let resources = json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
    let node: Node = serde_json::from_value(json!({
        "metadata": {
            "name": NODE,
            "labels": {
                "kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "node-role.kubernetes.io/worker": "",
            },
        },
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Test", "message": "" }],
        },
    }))
    .unwrap();
    let nodes: Api<Node> = Api::all(cluster.admin_client());
    nodes.create(&PostParams::default(), &node).await.unwrap();
}

async fn apply_policy(cluster: &Cluster, count: usize, mtu: i64) {
    let spec = json!({
        "resourceName": "nics", "nodeSelector": { "kubernetes.io/hostname": NODE }, "numVfs": count, "mtu": mtu,
        "nicSelector": { "vendor": "8086", "deviceID": "10c9", "pfNames": [PF] },
    });
    cluster.apply("SriovNetworkNodePolicy", "sriovnetworknodepolicies", "p", &spec).await;
}

async fn wait_for_vfs(cluster: &Cluster, count: usize, mtu: i64) {
    let has_vfs = |state: &NodeStateView| {
        state.is_synced() && state.vfs(PF).len() == count && state.card(PF).mtu == Some(mtu)
    };
    cluster.wait(NODE, &format!("{count} VFs, MTU {mtu}"), has_vfs).await;
}

/// Waits until the plugin runs and its configuration is annotated, so that the operator has nothing left to do.
async fn wait_for_plugin(cluster: &Cluster) {
    let is_settled = |pod: &Pod| {
        pod.annotations().contains_key("vfleet.io/started-with")
            && !is_waiting(pod)
            && pod.metadata.deletion_timestamp.is_none()
    };
    cluster.wait_for_any("app=sriov-device-plugin", "a running plugin", is_settled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_vfs_restarts_the_plugin_exactly_once() {
    let cluster = Cluster::new("once", Plane::Deployment).await;
    let nics = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "supported-nic-ids" },
                       "data": { "igb": "8086 10c9 10ca" } });
    cluster.kubectl(&["apply", "-f", &cluster.write_file("nics.json", &nics.to_string())]);
    let _operator = cluster.start_operator_with(&IMAGES);
    create_node(&cluster).await;
    let kubelet = Arc::<Kubelet>::default();
    tokio::select! {
        () = kubelet.run(&cluster) => {}
        () = change_vfs(&cluster, &kubelet) => {}
    }
}

async fn change_vfs(cluster: &Cluster, kubelet: &Arc<Kubelet>) {
    let host = lab();
    let (started, is_started) = mpsc::channel::<()>();
    let (release, held) = mpsc::channel::<()>();
    let (held, watched) = (Mutex::new(held), Arc::clone(kubelet));
    let running_during_change = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&running_during_change);
    host.set_step_hook(move |step| {
        if let Step::SetNumVfs { count, .. } = step {
            counter.fetch_add(watched.running.load(Ordering::SeqCst), Ordering::SeqCst);
            if *count == 5 {
                let _ = started.send(());
                let _ = held.lock().unwrap().recv_timeout(2 * DEADLINE);
            }
        }
    });
    let hold_plugin = |config: &mut vfleet_agent::Config| config.go_plugin = vfleet_agent::GoPlugin::HeldBack;
    let agent = Agent::start(cluster, NODE, Arc::clone(&host), hold_plugin).await;
    apply_policy(cluster, 3, 1500).await;
    wait_for_vfs(cluster, 3, 1500).await;
    wait_for_plugin(cluster).await;
    assert_eq!(kubelet.counts(), (1, 0), "the plugin started once");

    // An MTU is not relevant for the plugin.
    apply_policy(cluster, 3, 2000).await;
    wait_for_vfs(cluster, 3, 2000).await;
    assert_eq!(kubelet.counts(), (1, 0));

    apply_policy(cluster, 4, 2000).await;
    wait_for_vfs(cluster, 4, 2000).await;
    wait_for_plugin(cluster).await;
    apply_policy(cluster, 4, 2500).await;
    wait_for_vfs(cluster, 4, 2500).await;
    wait_for_plugin(cluster).await;
    assert_eq!(
        kubelet.counts(),
        (2, 1),
        "one restart for other VFs, by the agent or the operator, not by both"
    );

    // The agent is killed while VFs are created; the next agent completes this and releases the waiting plugin.
    apply_policy(cluster, 5, 2500).await;
    tokio::task::spawn_blocking(move || is_started.recv_timeout(DEADLINE)).await.unwrap().unwrap();
    agent.kill();
    host.kill_at(0);
    drop(release);
    cluster.wait_for_any("app=sriov-device-plugin", "a waiting plugin", is_waiting).await;
    let agent = Agent::start(cluster, NODE, Arc::new(host.new_process()), hold_plugin).await;
    wait_for_vfs(cluster, 5, 2500).await;
    wait_for_plugin(cluster).await;
    assert_eq!(kubelet.counts(), (3, 2));
    assert_eq!(running_during_change.load(Ordering::SeqCst), 0, "the plugin ran while VFs were created");
    agent.end().await;
}

/// Returns whether the pod has a node. A kubelet does not start others, and their tokens name no node.
fn is_scheduled(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}
