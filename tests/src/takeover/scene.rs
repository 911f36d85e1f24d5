//! From the Go operator's start to vfleet's.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fixture_kube::{ControlPlane, network_attachment_crds};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::Kind;
use crate::cluster::{Cluster, Program};
use crate::plane::Plane;

/// Generous: other tests run at the same time.
const DEADLINE: Duration = Duration::from_secs(30);

const AGENT_IMAGE: (&str, &str) = ("SRIOV_NETWORK_CONFIG_DAEMON_IMAGE", "vfleet:test");
const PLUGIN_IMAGE: (&str, &str) = ("SRIOV_DEVICE_PLUGIN_IMAGE", "plugin:test");

/// Nodes; each has the label `role` with its own name. `gone`, `expired` and `returns` are deleted meanwhile.
const NODES: [&str; 11] = [
    "stays", "other", "unwanted", "changes", "loses", "pool", "bridge", "canary", "gone", "expired",
    "returns",
];
const DELETED: [&str; 3] = ["gone", "expired", "returns"];

/// Networks that have their NetworkAttachmentDefinitions, and whether those are in the other namespace.
const NETWORKS: [(Kind, &str, bool); 8] = [
    (Kind::Network, "net-least", false),
    (Kind::Network, "net-full", false),
    (Kind::Network, "net-meta", false),
    (Kind::Network, "net-elsewhere", true),
    (Kind::Network, "net-goes", false),
    (Kind::IbNetwork, "ib-full", false),
    (Kind::IbNetwork, "ib-goes", true),
    (Kind::OvsNetwork, "ovs-full", false),
];

/// The cluster after the take-over, and what the Go operator had left.
pub struct Scene {
    cluster: Cluster,
    plane: Arc<ControlPlane>,
    /// By kind, namespace and name.
    before: BTreeMap<(String, String, String), DynamicObject>,
    /// What was said when vfleet was installed beside what the Go operator had left.
    pub installed: anyhow::Result<()>,
    /// What the Go operator's device plugin was told when vfleet had worked without that plugin's image.
    pub without_plugin_image: Option<DynamicObject>,
    operator: Option<Program>,
}

/// Whoever asks first makes it.
///
/// Made by a thread that never ends: the operator's life is tied to the thread that starts it.
fn shared() -> &'static Scene {
    static SCENE: LazyLock<&'static Scene> = LazyLock::new(|| {
        let (sender, made) = channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let scene = runtime.block_on(Scene::make());
            sender.send(&*Box::leak(Box::new(scene))).unwrap();
            loop {
                std::thread::park();
            }
        });
        made.recv().expect("the take-over, see above")
    });
    &SCENE
}

impl Scene {
    /// The one scene of all tests of a process.
    pub fn shared() -> &'static Self {
        shared()
    }

    async fn make() -> Self {
        let cluster = Cluster::before_install("takeover", Plane::TakeOver).await;
        let plane = Plane::TakeOver.get();
        let mut scene = Self {
            cluster,
            plane,
            before: BTreeMap::new(),
            installed: Ok(()),
            without_plugin_image: None,
            operator: None,
        };
        scene.run_go().await;
        scene.leave_old_traces().await;
        scene.before = scene.snapshot().await;
        scene.installed = scene.cluster.install();
        let mut operator = scene.cluster.operator_with(&[AGENT_IMAGE]);
        scene.see_it_work([2, 3]).await;
        scene.without_plugin_image = scene.plugin_config().await;
        operator.signal("TERM");
        operator.wait();
        scene.operator = Some(scene.cluster.operator_with(&[AGENT_IMAGE, PLUGIN_IMAGE]));
        scene.see_it_work([4, 5]).await;
        scene
    }

    pub fn namespace(&self) -> &str {
        self.cluster.namespace()
    }

    /// The namespace of pods that use networks.
    pub fn pods(&self) -> String {
        format!("{}-pods", self.namespace())
    }

    /// A namespace that a network names and that does not exist.
    pub fn late(&self) -> String {
        format!("{}-late", self.namespace())
    }

    /// The name of a node in this cluster.
    pub fn node(&self, role: &str) -> String {
        format!("{}-{role}", self.namespace())
    }

    /// What the Go operator had left.
    pub fn before(&self, kind: Kind, namespace: &str, name: &str) -> &DynamicObject {
        let key = (kind.plural(), namespace.to_owned(), name.to_owned());
        self.before.get(&key).unwrap_or_else(|| panic!("{key:?} was not there"))
    }

    /// With a client of the caller's runtime: one of a test that has ended hangs.
    async fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        kind.api(&self.plane.client().await.unwrap(), namespace)
    }

    /// The nodes of the cluster, with a client of the caller's runtime, too.
    pub async fn nodes(&self) -> Api<Node> {
        Api::all(self.plane.client().await.unwrap())
    }

    /// What is there now.
    pub async fn now(&self, kind: Kind, namespace: &str, name: &str) -> DynamicObject {
        self.api(kind, namespace).await.get(name).await.unwrap()
    }

    /// Waits for an object like this.
    pub async fn wait(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        what: &str,
        like: impl Fn(&DynamicObject) -> bool + Send,
    ) -> DynamicObject {
        let api = self.api(kind, namespace).await;
        let condition = |object: Option<&DynamicObject>| object.is_some_and(&like);
        let found = tokio::time::timeout(DEADLINE, await_condition(api.clone(), name, condition)).await;
        let Ok(found) = found else {
            panic!("{name} never came to: {what}; it is {}", shown(api.get_opt(name).await.unwrap()));
        };
        found.unwrap().unwrap()
    }

    /// Waits until an object is not there.
    pub async fn wait_gone(&self, kind: Kind, namespace: &str, name: &str) {
        let api = self.api(kind, namespace).await;
        let gone = |object: Option<&DynamicObject>| object.is_none();
        let found = tokio::time::timeout(DEADLINE, await_condition(api.clone(), name, gone)).await;
        assert!(found.is_ok(), "{name} does not go: {}", shown(api.get_opt(name).await.unwrap()));
    }

    /// What vfleet's programs have logged so far.
    pub fn log(&self) -> String {
        self.cluster.log()
    }

    /// The administrator changes something.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl(arguments)
    }

    /// The administrator applies something.
    pub fn apply(&self, objects: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), objects).unwrap();
        self.cluster.apply_file(file.path().to_str().unwrap());
    }

    /// Creates a node as its kubelet would.
    pub async fn create_node(&self, role: &str) {
        let labels = [("node-role.kubernetes.io/worker", ""), ("kubernetes.io/os", "linux"), ("role", role)];
        self.plane.create_node(&self.node(role), &labels).await.unwrap();
    }

    async fn run_go(&self) {
        self.plane.apply_crds(network_attachment_crds()).unwrap();
        self.kubectl(&["create", "namespace", &self.pods()]);
        self.apply(include_str!("settings.yaml"));
        join_all(NODES.map(|role| self.create_node(role))).await;
        let go = self.plane.go_operator(self.namespace()).unwrap();
        join_all(NODES.map(|role| self.report(role))).await;
        self.apply(include_str!("policies.yaml"));
        let networks = include_str!("networks.yaml").replace("PODS", &self.pods());
        self.apply(&networks.replace("LATE", &self.late()));
        self.go_is_done().await;
        for role in DELETED {
            self.kubectl(&["delete", "node", &self.node(role)]);
        }
        join_all(DELETED.map(|role| self.stale(role))).await;
        go.stop().unwrap();
    }

    /// The daemon of a node reports its cards, once it has something to report to.
    async fn report(&self, role: &str) {
        let node = self.node(role);
        self.wait(Kind::State, self.namespace(), &node, "a node state", |_| true).await;
        let status = json!({ "status": { "interfaces": cards(), "syncStatus": "Succeeded" } });
        let daemon = ["--subresource=status", "--type=merge", "--field-manager=sriov-network-config-daemon"];
        let patch = ["patch", "sriovnetworknodestates", &node, "--patch", &status.to_string()];
        self.kubectl(&[&patch[..], &daemon].concat());
    }

    async fn go_is_done(&self) {
        let expected = [("stays", 4), ("other", 2), ("changes", 1), ("loses", 1), ("pool", 1), ("bridge", 1)];
        for (role, count) in expected {
            let is_written = |state: &DynamicObject| {
                let annotations = state.annotations();
                let idle = |key| annotations.get(key).is_some_and(|value| value == "Idle");
                interfaces(state).len() == count
                    && idle("sriovnetwork.openshift.io/current-state")
                    && idle("sriovnetwork.openshift.io/desired-state")
            };
            self.wait(Kind::State, self.namespace(), &self.node(role), "Go's spec", is_written).await;
        }
        for (kind, name, elsewhere) in NETWORKS {
            let namespace = self.network_namespace(elsewhere);
            self.wait(Kind::Attachment, &namespace, name, "Go's attachment", |_| true).await;
            let has_finalizer = |network: &DynamicObject| !network.finalizers().is_empty();
            self.wait(kind, self.namespace(), name, "Go's finalizer", has_finalizer).await;
        }
        let all_nodes =
            |map: &DynamicObject| map.data["data"].as_object().is_some_and(|data| data.len() == NODES.len());
        self.wait(Kind::ConfigMap, self.namespace(), "device-plugin-config", "all nodes", all_nodes).await;
        let has_finalizer = |pool: &DynamicObject| !pool.finalizers().is_empty();
        self.wait(Kind::Pool, self.namespace(), "offload", "Go's finalizer", has_finalizer).await;
        for name in ["sriov-network-config-daemon", "sriov-device-plugin"] {
            self.wait(Kind::DaemonSet, self.namespace(), name, "Go's DaemonSet", |_| true).await;
        }
    }

    async fn stale(&self, role: &str) {
        let is_stale = |state: &DynamicObject| {
            state.annotations().contains_key("sriovnetwork.openshift.io/keep-state-until")
        };
        self.wait(Kind::State, self.namespace(), &self.node(role), "to be kept for a while", is_stale).await;
    }

    /// What only time or an older version can have left.
    async fn leave_old_traces(&self) {
        let past = "sriovnetwork.openshift.io/keep-state-until=2001-01-01T00:00:00Z";
        self.kubectl(&["annotate", "--overwrite", "sriovnetworknodestates", &self.node("expired"), past]);
        let policy = self.now(Kind::Policy, self.namespace(), "default").await;
        let owner = json!({ "metadata": { "ownerReferences": [{
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy", "name": "default",
            "uid": policy.uid(), "controller": true, "blockOwnerDeletion": true,
        }] } });
        let patch = ["patch", "sriovnetworknodestates", &self.node("other"), "--type=merge", "--patch"];
        self.kubectl(&[&patch[..], &[&owner.to_string()]].concat());
    }

    async fn snapshot(&self) -> BTreeMap<(String, String, String), DynamicObject> {
        let (own, pods) = (self.namespace().to_owned(), self.pods());
        let kinds = [Kind::State, Kind::Attachment, Kind::Network, Kind::IbNetwork, Kind::OvsNetwork];
        let kinds = kinds.into_iter().chain([Kind::Config, Kind::Pool, Kind::DaemonSet, Kind::ConfigMap]);
        let mut found = BTreeMap::new();
        for (kind, namespace) in kinds.map(|kind| (kind, &own)).chain([(Kind::Attachment, &pods)]) {
            for object in self.api(kind, namespace).await.list(&ListParams::default()).await.unwrap() {
                found.insert((kind.plural(), namespace.clone(), object.name_any()), object);
            }
        }
        found
    }

    /// What the separate device plugin is told.
    async fn plugin_config(&self) -> Option<DynamicObject> {
        let maps = self.api(Kind::ConfigMap, self.namespace()).await;
        maps.get_opt("device-plugin-config").await.unwrap()
    }

    /// A node that nothing was wanted of gets a policy: what vfleet wanted to do at its start, it has begun by then.
    async fn see_it_work(&self, counts: [i32; 2]) {
        for count in counts {
            self.apply(&policy_for("canary", count));
            let is_written = |state: &DynamicObject| {
                interfaces(state).first().is_some_and(|interface| interface["numVfs"] == count)
            };
            self.wait(Kind::State, self.namespace(), &self.node("canary"), "vfleet's spec", is_written).await;
        }
    }

    /// The networks that had their attachments, and the namespaces of those.
    pub fn networks(&self) -> Vec<(Kind, &'static str, String)> {
        NETWORKS.map(|(kind, name, elsewhere)| (kind, name, self.network_namespace(elsewhere))).to_vec()
    }

    fn network_namespace(&self, elsewhere: bool) -> String {
        if elsewhere { self.pods() } else { self.namespace().to_owned() }
    }
}

fn shown(object: Option<DynamicObject>) -> String {
    let without_noise = |mut object: DynamicObject| {
        object.metadata.managed_fields = None;
        object
    };
    serde_json::to_string_pretty(&object.map(without_noise)).unwrap()
}

/// What a node state wants of cards.
pub fn interfaces(state: &DynamicObject) -> Vec<Value> {
    state.data["spec"]["interfaces"].as_array().cloned().unwrap_or_default()
}

fn policy_for(role: &str, count: i32) -> String {
    json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy",
        "metadata": { "name": role },
        "spec": {
            "resourceName": role, "nodeSelector": { "role": role },
            "nicSelector": { "pfNames": ["ens1f0"] }, "numVfs": count,
        },
    })
    .to_string()
}

/// The cards of each node, with what the daemon of that version knows of them (no alternative names).
fn cards() -> Value {
    let card = |name: &str, address: &str, ids: (&str, &str), driver: &str, link: &str| {
        json!({
            "name": name, "pciAddress": address, "vendor": ids.0, "deviceID": ids.1, "driver": driver,
            "mac": "02:00:00:00:00:01", "mtu": 1500, "totalvfs": 16, "linkType": link,
            "linkSpeed": "25000 Mb/s", "linkAdminState": "up", "eSwitchMode": "legacy",
        })
    };
    json!([
        card("ens1f0", "0000:18:00.0", ("8086", "158b"), "i40e", "ETH"),
        card("ens2f0", "0000:3b:00.0", ("15b3", "101d"), "mlx5_core", "ETH"),
        card("ens3f0", "0000:5e:00.0", ("15b3", "101d"), "mlx5_core", "ETH"),
        card("ib0", "0000:86:00.0", ("15b3", "101b"), "mlx5_core", "IB"),
    ])
}
