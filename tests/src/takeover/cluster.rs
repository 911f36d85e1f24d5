//! Cluster that the Go operator has managed and vfleet has taken over.

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

/// Deadline of waits; generous, because other tests run at the same time.
const DEADLINE: Duration = Duration::from_secs(30);

const AGENT_IMAGE: (&str, &str) = ("SRIOV_NETWORK_CONFIG_DAEMON_IMAGE", "vfleet:test");
const PLUGIN_IMAGE: (&str, &str) = ("SRIOV_DEVICE_PLUGIN_IMAGE", "plugin:test");

/// Nodes, each with its name in the label `role`. `gone`, `expired` and `returns` are deleted before the take-over.
const NODES: [&str; 11] = [
    "stays", "other", "unwanted", "changes", "loses", "pool", "bridge", "canary", "gone", "expired",
    "returns",
];
const DELETED: [&str; 3] = ["gone", "expired", "returns"];

/// Networks with a NetworkAttachmentDefinition, and whether it is in the namespace of pods.
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

/// Cluster after the take-over, with the objects before it.
pub struct TakeoverCluster {
    cluster: Cluster,
    plane: Arc<ControlPlane>,
    /// Objects that the Go operator had left, by kind, namespace and name.
    before: BTreeMap<(String, String, String), DynamicObject>,
    /// Result of the installation of vfleet next to the objects of the Go operator.
    pub installed: anyhow::Result<()>,
    /// Configuration of the device plugin after vfleet has run without the image of the plugin.
    pub without_plugin_image: Option<DynamicObject>,
    operator: Option<Program>,
}

/// Returns the shared cluster, which the first caller creates.
///
/// A thread that never ends creates it, because the operator ends with the thread that starts it.
fn shared() -> &'static TakeoverCluster {
    static CLUSTER: LazyLock<&'static TakeoverCluster> = LazyLock::new(|| {
        let (sender, created) = channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let cluster = runtime.block_on(TakeoverCluster::create());
            sender.send(&*Box::leak(Box::new(cluster))).unwrap();
            loop {
                std::thread::park();
            }
        });
        created.recv().expect("the take-over succeeds")
    });
    &CLUSTER
}

impl TakeoverCluster {
    /// Returns the cluster that all tests of a process share.
    pub fn shared() -> &'static Self {
        shared()
    }

    async fn create() -> Self {
        let cluster = Cluster::without_vfleet("takeover", Plane::TakeOver).await;
        let plane = Plane::TakeOver.get();
        let mut takeover = Self {
            cluster,
            plane,
            before: BTreeMap::new(),
            installed: Ok(()),
            without_plugin_image: None,
            operator: None,
        };
        takeover.run_go().await;
        takeover.create_old_traces().await;
        takeover.before = takeover.snapshot().await;
        takeover.installed = takeover.cluster.install();
        let mut operator = takeover.cluster.start_operator_with(&[AGENT_IMAGE]);
        takeover.wait_for_vfleet([2, 3]).await;
        takeover.without_plugin_image = takeover.plugin_config().await;
        operator.signal("TERM");
        operator.wait();
        takeover.operator = Some(takeover.cluster.start_operator_with(&[AGENT_IMAGE, PLUGIN_IMAGE]));
        takeover.wait_for_vfleet([4, 5]).await;
        takeover
    }

    pub fn namespace(&self) -> &str {
        self.cluster.namespace()
    }

    /// Returns the namespace of pods that use networks.
    pub fn pod_namespace(&self) -> String {
        format!("{}-pods", self.namespace())
    }

    /// Returns the name of a namespace that a network refers to and that does not exist.
    pub fn missing_namespace(&self) -> String {
        format!("{}-late", self.namespace())
    }

    /// Returns the name of a node.
    pub fn node(&self, role: &str) -> String {
        format!("{}-{role}", self.namespace())
    }

    /// Returns an object as the Go operator had left it.
    pub fn before(&self, kind: Kind, namespace: &str, name: &str) -> &DynamicObject {
        let key = (kind.plural(), namespace.to_owned(), name.to_owned());
        self.before.get(&key).unwrap_or_else(|| panic!("{key:?} did not exist before the take-over"))
    }

    /// Returns an API with a client of the runtime of the caller: a client of an ended runtime hangs.
    async fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        kind.api(&self.plane.client().await.unwrap(), namespace)
    }

    /// Returns the API of nodes, with a client of the runtime of the caller.
    pub async fn nodes(&self) -> Api<Node> {
        Api::all(self.plane.client().await.unwrap())
    }

    /// Reads an object.
    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> DynamicObject {
        self.api(kind, namespace).await.get(name).await.unwrap()
    }

    /// Waits until the object meets `condition`.
    pub async fn wait(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        what: &str,
        condition: impl Fn(&DynamicObject) -> bool + Send,
    ) -> DynamicObject {
        let api = self.api(kind, namespace).await;
        let matches = |object: Option<&DynamicObject>| object.is_some_and(&condition);
        let found = tokio::time::timeout(DEADLINE, await_condition(api.clone(), name, matches)).await;
        let Ok(found) = found else {
            panic!(
                "timed out waiting for {name}: {what}; current object: {}",
                pretty(api.get_opt(name).await.unwrap())
            );
        };
        found.unwrap().unwrap()
    }

    /// Waits until an object is deleted.
    pub async fn wait_until_deleted(&self, kind: Kind, namespace: &str, name: &str) {
        let api = self.api(kind, namespace).await;
        let is_deleted = |object: Option<&DynamicObject>| object.is_none();
        let found = tokio::time::timeout(DEADLINE, await_condition(api.clone(), name, is_deleted)).await;
        assert!(found.is_ok(), "{name} is not deleted: {}", pretty(api.get_opt(name).await.unwrap()));
    }

    /// Returns the log of the programs of vfleet so far.
    pub fn log(&self) -> String {
        self.cluster.log()
    }

    /// Runs kubectl as administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl(arguments)
    }

    /// Applies objects as administrator.
    pub fn apply(&self, objects: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), objects).unwrap();
        self.cluster.apply_file(file.path().to_str().unwrap());
    }

    /// Creates a node, as its kubelet does.
    pub async fn create_node(&self, role: &str) {
        let labels = [("node-role.kubernetes.io/worker", ""), ("kubernetes.io/os", "linux"), ("role", role)];
        self.plane.create_node(&self.node(role), &labels).await.unwrap();
    }

    async fn run_go(&self) {
        self.plane.apply_crds(network_attachment_crds()).unwrap();
        self.kubectl(&["create", "namespace", &self.pod_namespace()]);
        self.apply(include_str!("settings.yaml"));
        join_all(NODES.map(|role| self.create_node(role))).await;
        let go = self.plane.go_operator(self.namespace()).unwrap();
        join_all(NODES.map(|role| self.report_cards(role))).await;
        self.apply(include_str!("policies.yaml"));
        let networks = include_str!("networks.yaml").replace("PODS", &self.pod_namespace());
        self.apply(&networks.replace("LATE", &self.missing_namespace()));
        self.wait_for_go_operator().await;
        for role in DELETED {
            self.kubectl(&["delete", "node", &self.node(role)]);
        }
        join_all(DELETED.map(|role| self.wait_until_stale(role))).await;
        go.stop().unwrap();
    }

    /// Reports the cards of a node as its daemon, once the node state exists.
    async fn report_cards(&self, role: &str) {
        let node = self.node(role);
        self.wait(Kind::State, self.namespace(), &node, "a node state", |_| true).await;
        let status = json!({ "status": { "interfaces": cards(), "syncStatus": "Succeeded" } });
        let daemon = ["--subresource=status", "--type=merge", "--field-manager=sriov-network-config-daemon"];
        let patch = ["patch", "sriovnetworknodestates", &node, "--patch", &status.to_string()];
        self.kubectl(&[&patch[..], &daemon].concat());
    }

    async fn wait_for_go_operator(&self) {
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
        for (kind, name, is_in_pod_namespace) in NETWORKS {
            let namespace = self.network_namespace(is_in_pod_namespace);
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

    async fn wait_until_stale(&self, role: &str) {
        let is_stale = |state: &DynamicObject| {
            state.annotations().contains_key("sriovnetwork.openshift.io/keep-state-until")
        };
        self.wait(Kind::State, self.namespace(), &self.node(role), "keep-state-until is set", is_stale).await;
    }

    /// Creates traces that only elapsed time or an older version leaves.
    async fn create_old_traces(&self) {
        let past = "sriovnetwork.openshift.io/keep-state-until=2001-01-01T00:00:00Z";
        self.kubectl(&["annotate", "--overwrite", "sriovnetworknodestates", &self.node("expired"), past]);
        let policy = self.get(Kind::Policy, self.namespace(), "default").await;
        let owner = json!({ "metadata": { "ownerReferences": [{
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy", "name": "default",
            "uid": policy.uid(), "controller": true, "blockOwnerDeletion": true,
        }] } });
        let patch = ["patch", "sriovnetworknodestates", &self.node("other"), "--type=merge", "--patch"];
        self.kubectl(&[&patch[..], &[&owner.to_string()]].concat());
    }

    async fn snapshot(&self) -> BTreeMap<(String, String, String), DynamicObject> {
        let (own, pods) = (self.namespace().to_owned(), self.pod_namespace());
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

    /// Reads the configuration of the separate device plugin.
    async fn plugin_config(&self) -> Option<DynamicObject> {
        let maps = self.api(Kind::ConfigMap, self.namespace()).await;
        maps.get_opt("device-plugin-config").await.unwrap()
    }

    /// Applies policies for an unconfigured node and waits for their effect. By then vfleet has handled all older
    /// objects.
    async fn wait_for_vfleet(&self, counts: [i32; 2]) {
        for count in counts {
            self.apply(&policy_for("canary", count));
            let is_written = |state: &DynamicObject| {
                interfaces(state).first().is_some_and(|interface| interface["numVfs"] == count)
            };
            self.wait(Kind::State, self.namespace(), &self.node("canary"), "vfleet's spec", is_written).await;
        }
    }

    /// Returns the networks with a NAD, and the namespace of each NAD.
    pub fn networks(&self) -> Vec<(Kind, &'static str, String)> {
        NETWORKS
            .map(|(kind, name, is_in_pod_namespace)| {
                (kind, name, self.network_namespace(is_in_pod_namespace))
            })
            .to_vec()
    }

    fn network_namespace(&self, is_in_pod_namespace: bool) -> String {
        if is_in_pod_namespace { self.pod_namespace() } else { self.namespace().to_owned() }
    }
}

fn pretty(object: Option<DynamicObject>) -> String {
    let without_managed_fields = |mut object: DynamicObject| {
        object.metadata.managed_fields = None;
        object
    };
    serde_json::to_string_pretty(&object.map(without_managed_fields)).unwrap()
}

/// Returns the desired PFs of a node state.
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

/// Returns the cards of each node as the Go daemon reports them, without alternative names.
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
