//! The agent and the separate Go device plugin on its node: held back while VFs come and go, and started once after.

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
use vfleet_tests::cluster::{Cluster, DEVICE_PLUGIN, State};
use vfleet_tests::plane::Plane;

/// With the agent's the plugin has an init container that waits for it.
const IMAGES: [(&str, &str); 2] =
    [("SRIOV_DEVICE_PLUGIN_IMAGE", "plugin:1"), ("SRIOV_NETWORK_CONFIG_DAEMON_IMAGE", "vfleet:1")];
const PF: &str = "enp1s0";
const NODE: &str = "once-1";
/// What the init container of the separate device plugin says while it waits.
const WAITS: &str = "sriovnetwork.openshift.io/device-plugin-wait-config";
/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_mins(1);

/// A pod of the separate device plugin, as its DaemonSet would make it. kwok plays it.
fn plugin_pod(cluster: &Cluster, node: &str, name: &str, annotations: &Value) {
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
        &cluster.file(&format!("{name}.json"), &pod.to_string()),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_device_plugin_is_held_back_while_vfs_come_and_go() {
    let cluster = Cluster::new("held", Plane::Deployment).await;
    let _operator = cluster.operator();
    let host = lab();
    let pods: Api<Pod> = cluster.api();
    cluster.create_worker("held-1").await;
    cluster.create_worker("held-2").await;
    cluster.kubectl(&["create", "serviceaccount", DEVICE_PLUGIN]);
    let waiting = json!({ WAITS: "true" });
    plugin_pod(&cluster, "held-1", "first", &waiting);
    plugin_pod(&cluster, "held-2", "elsewhere", &waiting);
    let agent = Agent::start(&cluster, "held-1", Arc::clone(&host), |config| {
        config.holds_go_plugin_back = true;
    })
    .await;
    // Nothing is wanted, and so nothing is to be waited for.
    let is_let_go = |pod: &Pod| !waits(pod);
    cluster.wait_for("first", "let go", is_let_go).await;

    let first = pods.get("first").await.unwrap().uid().unwrap();
    let (at_work, works) = mpsc::channel::<()>();
    let (let_go, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    host.before_each_step(move |step| {
        if matches!(step, Step::SetNumVfs { .. }) {
            let _ = at_work.send(());
            let _ = held.lock().unwrap().recv_timeout(2 * DEADLINE);
        }
    });
    cluster.apply_policy("p", json!({ "numVfs": 2, "nicSelector": { "pfNames": [PF] } })).await;
    let gone = await_condition(pods.clone(), "first", conditions::is_deleted(&first));
    tokio::time::timeout(DEADLINE, gone).await.expect("its pod ends").unwrap();
    tokio::task::spawn_blocking(move || works.recv_timeout(DEADLINE)).await.unwrap().unwrap();
    // Its next pod, with the real init container.
    plugin_pod(&cluster, "held-1", "second", &json!({}));
    let mut init_container = cluster.plugin_that_waits("second");
    cluster.wait_for("second", "waits", waits).await;
    let_go.send(()).unwrap();
    drop(let_go);
    cluster.wait_for("second", "let go", is_let_go).await;
    let ended = tokio::task::spawn_blocking(move || init_container.wait()).await.unwrap();
    assert!(ended.success(), "{ended}\n{}", cluster.log());
    let done = |state: &State| state.vfs(PF).len() == 2;
    cluster.wait("held-1", "2 VFs", done).await;

    // What is nothing to the plugin does not end it.
    let second = pods.get("second").await.unwrap().uid();
    let wish = json!({ "numVfs": 2, "mtu": 2000, "nicSelector": { "pfNames": [PF] } });
    cluster.apply_policy("p", wish).await;
    cluster.wait("held-1", "MTU 2000", |state| state.is_synced() && state.card(PF).mtu == Some(2000)).await;
    assert_eq!(pods.get("second").await.unwrap().uid(), second);
    assert!(waits(&pods.get("elsewhere").await.unwrap()), "another node's pod is another agent's business");
    agent.end().await;

    // One that waited while no agent ran is let go by the next.
    plugin_pod(&cluster, "held-1", "third", &waiting);
    let agent = Agent::start(&cluster, "held-1", Arc::new(host.another()), |config| {
        config.holds_go_plugin_back = true;
    })
    .await;
    cluster.wait_for("third", "let go", is_let_go).await;
    agent.end().await;
}

fn waits(pod: &Pod) -> bool {
    pod.annotations().contains_key(WAITS)
}

/// The kubelet of [`NODE`], as far as pods of the plugin need one: kwok would not wait for their init container.
#[derive(Default)]
struct Kubelet {
    /// Pods that were made, by uid.
    begun: Mutex<HashSet<String>>,
    /// Pods that were deleted.
    ended: Mutex<BTreeSet<String>>,
    /// How many have the plugin itself running.
    running: AtomicUsize,
}

impl Kubelet {
    /// How many pods were made, and how many deleted.
    fn counts(&self) -> (usize, usize) {
        (self.begun.lock().unwrap().len(), self.ended.lock().unwrap().len())
    }

    /// Never ends.
    async fn play(&self, cluster: &Cluster) {
        let pods: Api<Pod> = cluster.api();
        let plugin = watcher::Config::default().labels("app=sriov-device-plugin");
        let mut seen = watcher(pods.clone(), plugin).default_backoff().applied_objects().boxed();
        let mut init_containers = JoinSet::new();
        let mut started = HashSet::new();
        loop {
            tokio::select! {
                Some(Ok(pod)) = seen.next() => {
                    let (name, uid) = (pod.name_any(), pod.uid().unwrap());
                    if pod.metadata.deletion_timestamp.is_some() {
                        if self.ended.lock().unwrap().insert(uid.clone()) && started.remove(&uid) {
                            self.running.fetch_sub(1, Ordering::SeqCst);
                        }
                        let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
                    } else if self.begun.lock().unwrap().insert(uid.clone()) {
                        let mut init_container = cluster.plugin_that_waits(&name);
                        init_containers.spawn_blocking(move || (init_container.wait(), name, uid));
                    }
                }
                Some(ended) = init_containers.join_next() => {
                    let (status, name, uid) = ended.unwrap();
                    if self.ended.lock().unwrap().contains(&uid) {
                        continue;
                    }
                    assert!(status.success(), "{status}\n{}", cluster.log());
                    self.running.fetch_add(1, Ordering::SeqCst);
                    started.insert(uid);
                    let running = json!({ "status": { "phase": "Running", "conditions": [
                        { "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "True" },
                    ] } });
                    let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&running)).await;
                }
            }
        }
    }
}

/// A node that kwok does not play.
async fn create_node(cluster: &Cluster) {
    let room = json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
    let node: Node = serde_json::from_value(json!({
        "metadata": {
            "name": NODE,
            "labels": {
                "kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "node-role.kubernetes.io/worker": "",
            },
        },
        "status": {
            "capacity": room, "allocatable": room,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Test", "message": "" }],
        },
    }))
    .unwrap();
    let nodes: Api<Node> = Api::all(cluster.administrator());
    nodes.create(&PostParams::default(), &node).await.unwrap();
}

async fn make_vfs(cluster: &Cluster, count: usize, mtu: i64) {
    let spec = json!({
        "resourceName": "nics", "nodeSelector": { "kubernetes.io/hostname": NODE }, "numVfs": count, "mtu": mtu,
        "nicSelector": { "vendor": "8086", "deviceID": "10c9", "pfNames": [PF] },
    });
    cluster.apply("SriovNetworkNodePolicy", "sriovnetworknodepolicies", "p", &spec).await;
}

async fn have_vfs(cluster: &Cluster, count: usize, mtu: i64) {
    let done =
        |state: &State| state.is_synced() && state.vfs(PF).len() == count && state.card(PF).mtu == Some(mtu);
    cluster.wait(NODE, &format!("{count} VFs, MTU {mtu}"), done).await;
}

/// Waits until the plugin runs, and it is noted what it started with: the operator has nothing left to do then.
async fn plugin_settles(cluster: &Cluster) {
    let is_settled = |pod: &Pod| {
        pod.annotations().contains_key("vfleet.io/started-with")
            && !waits(pod)
            && pod.metadata.deletion_timestamp.is_none()
    };
    cluster.wait_for_any("app=sriov-device-plugin", "a plugin that runs", is_settled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_vfs_starts_the_plugin_again_exactly_once() {
    let cluster = Cluster::new("once", Plane::Deployment).await;
    let nics = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "supported-nic-ids" },
                       "data": { "igb": "8086 10c9 10ca" } });
    cluster.kubectl(&["apply", "-f", &cluster.file("nics.json", &nics.to_string())]);
    let _operator = cluster.operator_with(&IMAGES);
    create_node(&cluster).await;
    let kubelet = Arc::<Kubelet>::default();
    tokio::select! {
        () = kubelet.play(&cluster) => {}
        () = restarts(&cluster, &kubelet) => {}
    }
}

async fn restarts(cluster: &Cluster, kubelet: &Arc<Kubelet>) {
    let host = lab();
    let (at_work, works) = mpsc::channel::<()>();
    let (let_go, held) = mpsc::channel::<()>();
    let (held, watched) = (Mutex::new(held), Arc::clone(kubelet));
    let ran_meanwhile = Arc::<AtomicUsize>::default();
    let noticed = Arc::clone(&ran_meanwhile);
    host.before_each_step(move |step| {
        if let Step::SetNumVfs { count, .. } = step {
            noticed.fetch_add(watched.running.load(Ordering::SeqCst), Ordering::SeqCst);
            if *count == 5 {
                let _ = at_work.send(());
                let _ = held.lock().unwrap().recv_timeout(2 * DEADLINE);
            }
        }
    });
    let holds = |config: &mut vfleet_agent::Config| config.holds_go_plugin_back = true;
    let agent = Agent::start(cluster, NODE, Arc::clone(&host), holds).await;
    make_vfs(cluster, 3, 1500).await;
    have_vfs(cluster, 3, 1500).await;
    plugin_settles(cluster).await;
    assert_eq!(kubelet.counts(), (1, 0), "it started once");

    // An MTU is nothing to it.
    make_vfs(cluster, 3, 2000).await;
    have_vfs(cluster, 3, 2000).await;
    assert_eq!(kubelet.counts(), (1, 0));

    make_vfs(cluster, 4, 2000).await;
    have_vfs(cluster, 4, 2000).await;
    plugin_settles(cluster).await;
    make_vfs(cluster, 4, 2500).await;
    have_vfs(cluster, 4, 2500).await;
    plugin_settles(cluster).await;
    assert_eq!(
        kubelet.counts(),
        (2, 1),
        "once more for other VFs, by the agent or the operator, and not by both"
    );

    // The agent dies while VFs are made; the next one finishes that, and lets the plugin go that waits.
    make_vfs(cluster, 5, 2500).await;
    tokio::task::spawn_blocking(move || works.recv_timeout(DEADLINE)).await.unwrap().unwrap();
    agent.kill();
    host.cut_at(0);
    drop(let_go);
    cluster.wait_for_any("app=sriov-device-plugin", "a plugin that waits", waits).await;
    let agent = Agent::start(cluster, NODE, Arc::new(host.another()), holds).await;
    have_vfs(cluster, 5, 2500).await;
    plugin_settles(cluster).await;
    assert_eq!(kubelet.counts(), (3, 2));
    assert_eq!(ran_meanwhile.load(Ordering::SeqCst), 0, "never while VFs are made");
    agent.end().await;
}
