//! Nothing is refused for what the operator has not heard of yet: one write makes the next one good, which follows it
//! without a pause, as in a script or a GitOps tool. That the operator is behind is made sure of: it is stopped while much
//! happens, and goes on when the question comes.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeState, SriovOperatorConfig};
use vfleet_tests::cluster::OPERATOR;
use vfleet_tests::door::{Replica, Stage};
use vfleet_tests::plane::Plane;

const NODE: &str = "timing-n1";

/// So often each pair is tried.
const ROUNDS: usize = 2;

/// Changes that the operator has to take in before the one that counts.
const BACKLOG: usize = 100;

/// What is written to.
struct Cluster {
    policies: Api<SriovNetworkNodePolicy>,
    configs: Api<SriovOperatorConfig>,
    maps: Api<ConfigMap>,
    states: Api<SriovNetworkNodeState>,
}

impl Cluster {
    fn new(client: &Client, namespace: &str) -> Self {
        Self {
            policies: Api::namespaced(client.clone(), namespace),
            configs: Api::namespaced(client.clone(), namespace),
            maps: Api::namespaced(client.clone(), namespace),
            states: Api::namespaced(client.clone(), namespace),
        }
    }
}

/// One write that makes another one good, while the operator sleeps; and the other one when it wakes up.
struct Script {
    /// Writes of whom nobody is asked about.
    first: Cluster,
    /// Writes of a user.
    then: Cluster,
    operator: Replica,
    refused: Vec<String>,
}

impl Script {
    async fn new(stage: &Stage, operator: Replica) -> Self {
        let cluster = &stage.door.cluster;
        let account = format!("system:serviceaccount:{}:{OPERATOR}", cluster.namespace());
        let unasked = cluster.plane().client_for(&account, &["system:masters"]).await.unwrap();
        Self {
            first: Cluster::new(&unasked, cluster.namespace()),
            then: Cluster::new(&cluster.administrator(), cluster.namespace()),
            operator,
            refused: Vec::new(),
        }
    }

    /// From now on the operator does not hear of anything, and much happens to this object.
    async fn fall_asleep<K: Written>(&self, api: &Api<K>, name: &str) {
        self.operator.program.signal("STOP");
        for number in 0..BACKLOG {
            let noise = json!({ "metadata": { "annotations": { "number": number.to_string() } } });
            change(api, name, &noise, false).await.unwrap();
        }
    }

    /// The operator wakes up to this question, and to all that it has not heard of.
    async fn ask<T>(&mut self, what: &str, question: impl Future<Output = kube::Result<T>>) {
        let (answer, ()) =
            futures::future::join(question, async { self.operator.program.signal("CONT") }).await;
        match answer {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.message.starts_with("admission webhook ") => {
                self.refused.push(format!("{what}: {}", status.message));
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

trait Written: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug {}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug> Written for K {}

async fn change<K: Written>(api: &Api<K>, name: &str, patch: &Value, dry_run: bool) -> kube::Result<K> {
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

async fn delete<K: Written>(api: &Api<K>, name: &str, dry_run: bool) -> kube::Result<()> {
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

fn world() -> Vec<Value> {
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
async fn what_was_true_a_moment_ago_is_no_reason() {
    let mut stage = Stage::new("timing", Plane::AdmissionUnasked).await;
    stage.set(&world()).await;
    let operator = stage.follower(&[]).await;
    let mut script = Script::new(&stage, operator).await;
    for _ in 0..ROUNDS {
        delete_all(&mut script).await;
        share_a_card(&mut script).await;
        switch_bridges_on(&mut script).await;
        list_a_card(&mut script).await;
        wait_for_a_node(&mut script).await;
    }
    let refused = std::mem::take(&mut script.refused);
    assert!(refused.is_empty(), "{} in {ROUNDS} rounds:\n{}", refused.len(), refused.join("\n"));
    what_is_true_now_is_one(&mut script).await;
    stage.end(script.operator);
}

/// The last policy, and then the config.
async fn delete_all(script: &mut Script) {
    let (policies, configs) = (script.first.policies.clone(), script.then.configs.clone());
    create(&policies, &policy("last", &selects("ens1f0")), false).await.unwrap();
    script.fall_asleep(&policies, "last").await;
    delete(&policies, "last", false).await.unwrap();
    script.ask("the config is deleted", delete(&configs, "default", true)).await;
}

/// One policy leaves VFs to another, and takes them back.
async fn share_a_card(script: &mut Script) {
    let (first, then) = (script.first.policies.clone(), script.then.policies.clone());
    create(&first, &policy("all", &selects("ens1f0#0-7")), false).await.unwrap();
    script.fall_asleep(&first, "all").await;
    change(&first, "all", &json!({ "spec": selects("ens1f0#0-3") }), false).await.unwrap();
    script.ask("the rest is given away", create(&then, &policy("rest", &selects("ens1f0#4-7")), false)).await;
    script.fall_asleep(&first, "all").await;
    let _ = delete(&first, "rest", false).await;
    let back = json!({ "spec": selects("ens1f0#0-7") });
    script.ask("the rest is taken back", change(&then, "all", &back, false)).await;
    delete(&first, "all", false).await.unwrap();
}

async fn switch_bridges_on(script: &mut Script) {
    let (configs, policies) = (script.first.configs.clone(), script.then.policies.clone());
    let gate = |is_on: bool| json!({ "spec": { "featureGates": { "manageSoftwareBridges": is_on } } });
    let mut wants = selects("ens1f0");
    wants["eSwitchMode"] = json!("switchdev");
    wants["bridge"] = json!({ "ovs": {} });
    script.fall_asleep(&configs, "default").await;
    change(&configs, "default", &gate(true), false).await.unwrap();
    script.ask("a bridge is wanted", create(&policies, &policy("with-bridge", &wants), true)).await;
    change(&configs, "default", &gate(false), false).await.unwrap();
}

async fn list_a_card(script: &mut Script) {
    let (maps, policies) = (script.first.maps.clone(), script.then.policies.clone());
    let listed = |ids: Value| json!({ "data": { "enic": ids } });
    let of_vendor = policy("of-vendor", &json!({ "nicSelector": { "vendor": "1137" } }));
    script.fall_asleep(&maps, "supported-nic-ids").await;
    change(&maps, "supported-nic-ids", &listed(json!("1137 0043 0071")), false).await.unwrap();
    script.ask("a card that was just listed is selected", create(&policies, &of_vendor, true)).await;
    change(&maps, "supported-nic-ids", &listed(Value::Null), false).await.unwrap();
}

async fn wait_for_a_node(script: &mut Script) {
    let (states, configs) = (script.first.states.clone(), script.then.configs.clone());
    let sync = |status: &str| Patch::Merge(json!({ "status": { "syncStatus": status } }));
    states.patch_status(NODE, &PatchParams::default(), &sync("InProgress")).await.unwrap();
    script.fall_asleep(&states, NODE).await;
    states.patch_status(NODE, &PatchParams::default(), &sync("Succeeded")).await.unwrap();
    let no_drains = json!({ "spec": { "disableDrain": true } });
    script.ask("drains are switched off", change(&configs, "default", &no_drains, true)).await;
}

/// Reading once more has not made the rules blind.
async fn what_is_true_now_is_one(script: &mut Script) {
    let (first, then) = (script.first.policies.clone(), script.then.policies.clone());
    let configs = script.then.configs.clone();
    create(&first, &policy("all", &selects("ens1f0#0-7")), false).await.unwrap();
    script.ask("the rest is given away", create(&then, &policy("rest", &selects("ens1f0#4-7")), true)).await;
    script.ask("the config is deleted", delete(&configs, "default", true)).await;
    assert_eq!(script.refused.len(), 2, "{:?}", script.refused);
}
