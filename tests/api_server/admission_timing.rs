//! Requests are not refused because of an outdated index: the first of two writes makes the second one valid, and the
//! second follows at once, as in a script or a GitOps tool. The operator is suspended during the first write, so that
//! its index is behind when the second request arrives.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeState, SriovOperatorConfig};
use vfleet_tests::admission::{CaseCluster, Replica};
use vfleet_tests::cluster::OPERATOR;
use vfleet_tests::plane::Plane;

const NODE: &str = "timing-n1";

/// Number of repetitions of each pair of writes.
const ROUNDS: usize = 2;

/// Number of changes that the operator must process before the relevant one.
const BACKLOG: usize = 100;

/// APIs that are written to.
struct Apis {
    policies: Api<SriovNetworkNodePolicy>,
    configs: Api<SriovOperatorConfig>,
    maps: Api<ConfigMap>,
    states: Api<SriovNetworkNodeState>,
}

impl Apis {
    fn new(client: &Client, namespace: &str) -> Self {
        Self {
            policies: Api::namespaced(client.clone(), namespace),
            configs: Api::namespaced(client.clone(), namespace),
            maps: Api::namespaced(client.clone(), namespace),
            states: Api::namespaced(client.clone(), namespace),
        }
    }
}

/// Pairs of writes: the first while the operator is suspended, and the second when it continues.
struct Script {
    /// APIs of a user whose writes are not sent to the webhooks.
    first: Apis,
    /// APIs of a normal user.
    then: Apis,
    operator: Replica,
    refused: Vec<String>,
}

impl Script {
    async fn new(cluster: &CaseCluster, operator: Replica) -> Self {
        let cluster = &cluster.admission.cluster;
        let account = format!("system:serviceaccount:{}:{OPERATOR}", cluster.namespace());
        let exempt = cluster.plane().client_for(&account, &["system:masters"]).await.unwrap();
        Self {
            first: Apis::new(&exempt, cluster.namespace()),
            then: Apis::new(&cluster.admin_client(), cluster.namespace()),
            operator,
            refused: Vec::new(),
        }
    }

    /// Suspends the operator and changes this object many times.
    async fn suspend<K: Writable>(&self, api: &Api<K>, name: &str) {
        self.operator.program.signal("STOP");
        for number in 0..BACKLOG {
            let noise = json!({ "metadata": { "annotations": { "number": number.to_string() } } });
            change(api, name, &noise, false).await.unwrap();
        }
    }

    /// Continues the operator while this request is sent.
    async fn send<T>(&mut self, what: &str, request: impl Future<Output = kube::Result<T>>) {
        let (response, ()) =
            futures::future::join(request, async { self.operator.program.signal("CONT") }).await;
        match response {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.message.starts_with("admission webhook ") => {
                self.refused.push(format!("{what}: {}", status.message));
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

trait Writable: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug {}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug> Writable for K {}

async fn change<K: Writable>(api: &Api<K>, name: &str, patch: &Value, dry_run: bool) -> kube::Result<K> {
    let parameters = PatchParams { dry_run, ..Default::default() };
    api.patch(name, &parameters, &Patch::Merge(patch)).await
}

async fn create(
    api: &Api<SriovNetworkNodePolicy>,
    policy: &SriovNetworkNodePolicy,
    dry_run: bool,
) -> kube::Result<()> {
    api.create(&PostParams { dry_run, ..Default::default() }, policy).await.map(drop)
}

async fn delete<K: Writable>(api: &Api<K>, name: &str, dry_run: bool) -> kube::Result<()> {
    api.delete(name, &DeleteParams { dry_run, ..Default::default() }).await.map(drop)
}

fn selects(pf: &str) -> Value {
    json!({ "nicSelector": { "pfNames": [pf] } })
}

fn policy(name: &str, more: &Value) -> SriovNetworkNodePolicy {
    let mut policy = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy",
        "metadata": { "name": name },
        "spec": { "resourceName": format!("of-{name}"), "numVfs": 8, "nodeSelector": {}, "nicSelector": {} },
    });
    json_patch::merge(&mut policy["spec"], more);
    serde_json::from_value(policy).unwrap()
}

fn objects() -> Vec<Value> {
    let labels = json!({ "kubernetes.io/os": "linux", "node-role.kubernetes.io/worker": "" });
    let card = json!({
        "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086", "deviceID": "158b", "driver": "i40e",
        "mtu": 1500, "linkType": "ETH", "eSwitchMode": "legacy", "totalvfs": 64,
    });
    vec![
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE, "labels": labels } }),
        json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
            "metadata": { "name": NODE }, "spec": {},
            "status": { "syncStatus": "Succeeded", "interfaces": [card] },
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "supported-nic-ids" },
            "data": { "i40e": "8086 158b 154c" },
        }),
        json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovOperatorConfig",
            "metadata": { "name": "default" }, "spec": { "enableOperatorWebhook": true },
        }),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outdated_index_refuses_nothing() {
    let mut cluster = CaseCluster::new("timing", Plane::AdmissionUnasked).await;
    cluster.replace_objects(&objects()).await;
    let operator = cluster.start_follower(&[]).await;
    let mut script = Script::new(&cluster, operator).await;
    for _ in 0..ROUNDS {
        delete_all(&mut script).await;
        share_a_card(&mut script).await;
        switch_bridges_on(&mut script).await;
        list_a_card(&mut script).await;
        wait_for_a_node(&mut script).await;
    }
    let refused = std::mem::take(&mut script.refused);
    assert!(refused.is_empty(), "{} in {ROUNDS} rounds:\n{}", refused.len(), refused.join("\n"));
    current_conflicts_are_refused(&mut script).await;
    cluster.end(script.operator);
}

/// Deletes the last policy, and then the config.
async fn delete_all(script: &mut Script) {
    let (policies, configs) = (script.first.policies.clone(), script.then.configs.clone());
    create(&policies, &policy("last", &selects("ens1f0")), false).await.unwrap();
    script.suspend(&policies, "last").await;
    delete(&policies, "last", false).await.unwrap();
    script.send("deletion of the config", delete(&configs, "default", true)).await;
}

/// One policy gives VFs to another, and takes them back.
async fn share_a_card(script: &mut Script) {
    let (first, then) = (script.first.policies.clone(), script.then.policies.clone());
    create(&first, &policy("all", &selects("ens1f0#0-7")), false).await.unwrap();
    script.suspend(&first, "all").await;
    change(&first, "all", &json!({ "spec": selects("ens1f0#0-3") }), false).await.unwrap();
    script
        .send("policy for the other VFs", create(&then, &policy("rest", &selects("ens1f0#4-7")), false))
        .await;
    script.suspend(&first, "all").await;
    let _ = delete(&first, "rest", false).await;
    let back = json!({ "spec": selects("ens1f0#0-7") });
    script.send("policy for all VFs again", change(&then, "all", &back, false)).await;
    delete(&first, "all", false).await.unwrap();
}

async fn switch_bridges_on(script: &mut Script) {
    let (configs, policies) = (script.first.configs.clone(), script.then.policies.clone());
    let gate = |is_on: bool| json!({ "spec": { "featureGates": { "manageSoftwareBridges": is_on } } });
    let mut spec = selects("ens1f0");
    spec["eSwitchMode"] = json!("switchdev");
    spec["bridge"] = json!({ "ovs": {} });
    script.suspend(&configs, "default").await;
    change(&configs, "default", &gate(true), false).await.unwrap();
    script.send("policy with a bridge", create(&policies, &policy("with-bridge", &spec), true)).await;
    change(&configs, "default", &gate(false), false).await.unwrap();
}

async fn list_a_card(script: &mut Script) {
    let (maps, policies) = (script.first.maps.clone(), script.then.policies.clone());
    let listed = |ids: Value| json!({ "data": { "enic": ids } });
    let of_vendor = policy("of-vendor", &json!({ "nicSelector": { "vendor": "1137" } }));
    script.suspend(&maps, "supported-nic-ids").await;
    change(&maps, "supported-nic-ids", &listed(json!("1137 0043 0071")), false).await.unwrap();
    script.send("policy for a card that was just listed", create(&policies, &of_vendor, true)).await;
    change(&maps, "supported-nic-ids", &listed(Value::Null), false).await.unwrap();
}

async fn wait_for_a_node(script: &mut Script) {
    let (states, configs) = (script.first.states.clone(), script.then.configs.clone());
    let sync = |status: &str| Patch::Merge(json!({ "status": { "syncStatus": status } }));
    states.patch_status(NODE, &PatchParams::default(), &sync("InProgress")).await.unwrap();
    script.suspend(&states, NODE).await;
    states.patch_status(NODE, &PatchParams::default(), &sync("Succeeded")).await.unwrap();
    let no_drains = json!({ "spec": { "disableDrain": true } });
    script.send("disableDrain", change(&configs, "default", &no_drains, true)).await;
}

/// Conflicts in the current state are still refused.
async fn current_conflicts_are_refused(script: &mut Script) {
    let (first, then) = (script.first.policies.clone(), script.then.policies.clone());
    let configs = script.then.configs.clone();
    create(&first, &policy("all", &selects("ens1f0#0-7")), false).await.unwrap();
    script
        .send("policy for the other VFs", create(&then, &policy("rest", &selects("ens1f0#4-7")), true))
        .await;
    script.send("deletion of the config", delete(&configs, "default", true)).await;
    assert_eq!(script.refused.len(), 2, "{:?}", script.refused);
}
