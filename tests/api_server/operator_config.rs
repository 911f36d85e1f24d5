//! Operator config: deployed components and conditions, with the real operator on a real API server.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, PodSpec, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vfleet_api::SriovOperatorConfig;
use vfleet_tests::cluster::{Cluster, NodeStateView, machine};
use vfleet_tests::plane::Plane;

const DEADLINE: Duration = Duration::from_mins(2);
const AGENT: &str = "sriov-network-config-daemon";
const PLUGIN: &str = "sriov-device-plugin";
const GO: &str = "sriov-network-operator";
const GO_FINALIZER: &str = "operatorconfig.finalizers.sriovnetwork.openshift.io";
/// Name of the replica: an operator that restarts with the same name leads immediately.
const NAME: (&str, &str) = ("POD_NAME", "operator-0");
const IMAGE: (&str, &str) = ("SRIOV_NETWORK_CONFIG_DAEMON_IMAGE", "vfleet:test");

/// Cluster with accessors for deployed components.
struct Deployment(Cluster);

impl Deployment {
    async fn new(name: &str) -> Self {
        Self(Cluster::new(name, Plane::Deployment).await)
    }

    fn all<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.0.admin_client(), self.0.namespace())
    }

    /// Waits until the object meets `condition`.
    async fn wait<K>(&self, api: Api<K>, name: &str, what: &str, condition: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let matches = |object: Option<&K>| object.is_some_and(&condition);
        let found = tokio::time::timeout(DEADLINE, await_condition(api.clone(), name, matches)).await;
        let Ok(found) = found else {
            panic!(
                "timed out waiting for {name}: {what}; current object: {:#?}\n{}",
                api.get_opt(name).await,
                self.0.log()
            )
        };
        found.unwrap().unwrap()
    }

    async fn wait_until_deleted<K>(&self, api: Api<K>, name: &str)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let is_deleted = |object: Option<&K>| object.is_none();
        let result = tokio::time::timeout(DEADLINE, await_condition(api, name, is_deleted)).await;
        result.unwrap_or_else(|_| panic!("{name} is not deleted\n{}", self.0.log())).unwrap();
    }

    async fn config(
        &self,
        what: &str,
        condition: impl Fn(&SriovOperatorConfig) -> bool,
    ) -> SriovOperatorConfig {
        self.wait(self.all(), "default", what, condition).await
    }

    /// Changes the operator config as a user.
    async fn configure(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        let configs: Api<SriovOperatorConfig> = self.all();
        configs.patch("default", &PatchParams::default(), &patch).await.unwrap();
    }

    async fn daemon_set(&self, name: &str, what: &str, condition: impl Fn(&PodSpec) -> bool) -> DaemonSet {
        self.wait(self.all(), name, what, |daemon_set: &DaemonSet| condition(&pod(daemon_set))).await
    }
}

fn pod(daemon_set: &DaemonSet) -> PodSpec {
    daemon_set.spec.clone().unwrap().template.spec.unwrap()
}

fn image(pod: &PodSpec) -> &str {
    pod.containers[0].image.as_deref().unwrap()
}

fn init_containers(pod: &PodSpec) -> Vec<String> {
    pod.init_containers.iter().flatten().map(|container| container.name.clone()).collect()
}

fn variable(pod: &PodSpec, name: &str) -> Option<String> {
    let variables = pod.containers[0].env.iter().flatten();
    variables.clone().find(|variable| variable.name == name).and_then(|variable| variable.value.clone())
}

/// Returns status, reason and message of a current condition.
fn condition(config: &SriovOperatorConfig, type_: &str) -> Option<(String, String, String)> {
    let conditions = config.status.clone().unwrap_or_default().conditions.unwrap_or_default();
    let condition = conditions.into_iter().find(|condition| condition.type_ == type_)?;
    let is_current = condition.observed_generation == config.metadata.generation;
    is_current.then_some((condition.status, condition.reason, condition.message))
}

fn has_reason(config: &SriovOperatorConfig, type_: &str, reason: &str) -> bool {
    condition(config, type_).is_some_and(|(_, found, _)| found == reason)
}

fn is_owned_by(object: &impl ResourceExt, config: &SriovOperatorConfig) -> bool {
    object.owner_references().iter().any(|owner| Some(&owner.uid) == config.metadata.uid.as_ref())
}

#[tokio::test]
async fn a_missing_or_deleted_config_is_created() {
    let deployment = Deployment::new("config").await;
    let _operator = deployment.0.start_operator_with(&[NAME, IMAGE]);
    let config =
        deployment.config("ready", |config| has_reason(config, "Ready", "OperatorConfigReady")).await;
    deployment.0.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", "sriovoperatorconfigs/default"]);
    let daemon_set = deployment.daemon_set(AGENT, "there", |pod| image(pod) == "vfleet:test").await;
    assert!(is_owned_by(&daemon_set, &config), "{daemon_set:?}");
    deployment.0.expect_event("default", "Normal", "OperatorConfigReady").await;

    let configs: Api<SriovOperatorConfig> = deployment.all();
    configs.delete("default", &DeleteParams::default()).await.unwrap();
    let again = deployment
        .config("created again, ready", |again| {
            again.uid() != config.uid() && condition(again, "Ready").is_some()
        })
        .await;
    let is_adopted =
        |daemon_set: &DaemonSet| is_owned_by(daemon_set, &again) && !is_owned_by(daemon_set, &config);
    deployment.wait(deployment.all(), AGENT, "owned by the new config", is_adopted).await;
}

#[tokio::test]
async fn objects_that_are_up_to_date_are_not_written_again() {
    let deployment = Deployment::new("at-rest").await;
    let operator = deployment.0.start_operator_with(&[NAME, IMAGE]);
    deployment.config("ready", |config| has_reason(config, "Ready", "OperatorConfigReady")).await;
    let daemon_set = deployment.daemon_set(AGENT, "there", |pod| image(pod) == "vfleet:test").await;
    operator.kill();

    let before = deployment.0.log().matches(r#"applied kind="DaemonSet""#).count();
    let _operator = deployment.0.start_operator_with(&[NAME, IMAGE]);
    for level in [1, 0] {
        // Settings that do not change the DaemonSet; the condition shows that the operator has handled them.
        deployment.configure(json!({ "logLevel": level, "disableDrain": level == 1 })).await;
        let is_handled = |config: &SriovOperatorConfig| {
            config.spec.log_level == Some(level) && condition(config, "Ready").is_some()
        };
        deployment.config("handled", is_handled).await;
    }
    let after = deployment.0.log().matches(r#"applied kind="DaemonSet""#).count();
    assert_eq!(after - before, 1, "a new operator applies the DaemonSet once\n{}", deployment.0.log());
    let still = deployment.all::<DaemonSet>().get(AGENT).await.unwrap();
    assert_eq!(still.metadata.generation, daemon_set.metadata.generation);
}

#[tokio::test]
async fn the_agent_is_deployed_according_to_config_and_environment() {
    let deployment = Deployment::new("agents").await;
    let environment = [
        NAME,
        IMAGE,
        ("SRIOV_CNI_IMAGE", "sriov-cni:1"),
        ("OVS_CNI_IMAGE", ""),
        ("IMAGE_PULL_SECRETS", "one,two"),
    ];
    let operator = deployment.0.start_operator_with(&environment);
    let daemon_set = deployment.daemon_set(AGENT, "there", |pod| image(pod) == "vfleet:test").await;
    let default_pod = pod(&daemon_set);
    assert_eq!(init_containers(&default_pod), ["vfleet-cni", "sriov-cni"]);
    assert_eq!(default_pod.image_pull_secrets.clone().unwrap().len(), 2);
    assert_eq!(default_pod.node_selector, None);
    assert_eq!(variable(&default_pod, "PARALLEL_NIC_CONFIG").as_deref(), Some("true"));

    deployment
        .configure(json!({
            "configDaemonNodeSelector": { "rack": "a" },
            "featureGates": { "parallelNicConfig": false },
            "configDaemonEnvVars": { "EXTRA": "yes", "EMPTY": "" },
        }))
        .await;
    let is_changed =
        |pod: &PodSpec| pod.node_selector == Some(BTreeMap::from([("rack".to_owned(), "a".to_owned())]));
    let changed = pod(&deployment.daemon_set(AGENT, "on other nodes", is_changed).await);
    assert_eq!(changed.affinity, None);
    assert_eq!(variable(&changed, "PARALLEL_NIC_CONFIG").as_deref(), Some("false"));
    assert_eq!(variable(&changed, "EXTRA").as_deref(), Some("yes"));

    deployment.configure(json!({ "configDaemonNodeSelector": null, "configDaemonEnvVars": null })).await;
    let is_reverted = |pod: &PodSpec| pod.node_selector.is_none() && pod.affinity == default_pod.affinity;
    let reverted = pod(&deployment.daemon_set(AGENT, "back on workers", is_reverted).await);
    assert_eq!(variable(&reverted, "EXTRA"), None, "the variable is removed");

    // A new operator with another image.
    operator.kill();
    let other = [NAME, ("SRIOV_NETWORK_CONFIG_DAEMON_IMAGE", "vfleet:next")];
    let _operator = deployment.0.start_operator_with(&other);
    let next = pod(&deployment.daemon_set(AGENT, "the next image", |pod| image(pod) == "vfleet:next").await);
    assert_eq!((init_containers(&next), next.image_pull_secrets), (vec!["vfleet-cni".to_owned()], None));
}

#[tokio::test]
async fn agents_use_the_image_of_the_pod_of_the_operator() {
    let deployment = Deployment::new("own-image").await;
    for file in ["operator.yaml", "network-policies.yaml"] {
        let manifest = deployment.0.manifests().join(file);
        deployment.0.kubectl(&["apply", "--server-side", "-f", manifest.to_str().unwrap()]);
    }
    let pods: Api<Pod> = deployment.all();
    let config = watcher::Config::default().labels("app=vfleet-operator");
    let mut changes = watcher(pods, config).applied_objects().boxed();
    let first =
        tokio::time::timeout(DEADLINE, changes.next()).await.expect("a pod of the Deployment").unwrap();
    let pod = first.unwrap();

    let _operator = deployment.0.start_operator_with(&[("POD_NAME", &pod.name_any())]);
    let own = pod.spec.unwrap().containers[0].image.clone().unwrap();
    assert!(own.starts_with("vfleet:"), "{own}");
    deployment.daemon_set(AGENT, "the operator's image", |pod| image(pod) == own).await;
    deployment.config("ready", |config| has_reason(config, "Ready", "OperatorConfigReady")).await;
}

#[tokio::test]
async fn changes_of_managed_fields_are_reverted_and_other_fields_are_kept() {
    let deployment = Deployment::new("edits").await;
    let _operator = deployment.0.start_operator_with(&[NAME, IMAGE]);
    deployment.daemon_set(AGENT, "there", |pod| image(pod) == "vfleet:test").await;
    deployment.config("ready", |config| condition(config, "Ready").is_some()).await;

    let daemon_sets: Api<DaemonSet> = deployment.all();
    let edit = json!({
        "metadata": { "labels": { "team": "network", "app.kubernetes.io/managed-by": "me" } },
        "spec": { "template": { "spec": {
            "hostPID": false,
            "containers": [{ "name": AGENT, "image": "somebody-elses", "env": [{ "name": "THEIRS", "value": "1" }] }],
        } } },
    });
    daemon_sets
        .patch(AGENT, &PatchParams::apply("somebody").force(), &Patch::Apply(with_type(&edit)))
        .await
        .unwrap();
    let is_reverted = |daemon_set: &DaemonSet| {
        let pod = pod(daemon_set);
        image(&pod) == "vfleet:test"
            && pod.host_pid == Some(true)
            && daemon_set.labels()["app.kubernetes.io/managed-by"] == "vfleet-operator"
    };
    let daemon_set = deployment.wait(daemon_sets.clone(), AGENT, "reverted", is_reverted).await;
    assert_eq!(daemon_set.labels()["team"], "network");
    assert_eq!(variable(&pod(&daemon_set), "THEIRS").as_deref(), Some("1"));

    let args = |pod: &PodSpec| pod.containers[0].args.clone().unwrap();
    let default_args = args(&pod(&daemon_set));
    let more = [default_args.clone(), vec!["--more".to_owned()]].concat();
    let edit =
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": AGENT, "args": more }] } } } });
    daemon_sets.patch(AGENT, &PatchParams::default(), &Patch::Strategic(edit)).await.unwrap();
    deployment.daemon_set(AGENT, "without another argument", |pod| args(pod) == default_args).await;

    daemon_sets.delete(AGENT, &DeleteParams::default()).await.unwrap();
    let is_new = |again: &DaemonSet| again.uid() != daemon_set.uid() && image(&pod(again)) == "vfleet:test";
    deployment.wait(daemon_sets, AGENT, "created again", is_new).await;
}

fn with_type(daemon_set: &Value) -> Value {
    let mut object = daemon_set.clone();
    object["apiVersion"] = json!("apps/v1");
    object["kind"] = json!("DaemonSet");
    object
}

#[tokio::test]
async fn the_separate_device_plugin_is_deployed_only_with_its_image() {
    let deployment = Deployment::new("plugin").await;
    let operator =
        deployment.0.start_operator_with(&[NAME, IMAGE, ("SRIOV_DEVICE_PLUGIN_IMAGE", "plugin:1")]);
    let config =
        deployment.config("ready", |config| has_reason(config, "Ready", "OperatorConfigReady")).await;
    assert!(condition(&config, "Ready").unwrap().2.contains(PLUGIN));
    let daemon_set = deployment.daemon_set(PLUGIN, "there", |pod| image(pod) == "plugin:1").await;
    let accounts: Api<ServiceAccount> = deployment.all();
    accounts.get(PLUGIN).await.expect("the service account of the plugin");

    // Policies must not restart the pods of the plugin.
    deployment.0.apply_policy("p", json!({ "numVfs": 4, "nicSelector": { "vendor": "8086" } })).await;
    deployment.configure(json!({ "useCDI": true })).await;
    let uses_cdi = |pod: &PodSpec| pod.containers[0].args.iter().flatten().any(|word| word == "--use-cdi");
    let with_cdi = deployment.daemon_set(PLUGIN, "with CDI", uses_cdi).await;
    let generation = |daemon_set: &DaemonSet| daemon_set.metadata.generation.unwrap();
    assert_eq!(generation(&with_cdi), generation(&daemon_set) + 1, "one change causes one rollout");

    // A service account of another owner.
    let theirs = ServiceAccount {
        metadata: kube::api::ObjectMeta { name: Some("theirs".to_owned()), ..Default::default() },
        ..Default::default()
    };
    accounts.create(&PostParams::default(), &theirs).await.unwrap();
    operator.kill();
    let _operator = deployment.0.start_operator_with(&[NAME, IMAGE]);
    deployment.wait_until_deleted(deployment.all::<DaemonSet>(), PLUGIN).await;
    deployment.wait_until_deleted(accounts.clone(), PLUGIN).await;
    accounts.get("theirs").await.expect("objects of others are kept");
    deployment.daemon_set(AGENT, "still exists", |pod| image(pod) == "vfleet:test").await;
}

/// Returns a DaemonSet like that of the Go operator, written by hand. `takeover.rs` uses the real one.
fn go_daemon_set(owner: &SriovOperatorConfig) -> DaemonSet {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {
            "name": AGENT,
            "annotations": { "release.openshift.io/version": "" },
            "ownerReferences": [{
                "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovOperatorConfig", "name": "default",
                "uid": owner.uid(), "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "selector": { "matchLabels": { "app": AGENT } },
            "template": {
                "metadata": { "labels": { "app": AGENT, "component": "network", "type": "infra" } },
                "spec": {
                    "hostNetwork": true, "hostPID": true, "serviceAccountName": AGENT,
                    "nodeSelector": { "kubernetes.io/os": "linux", "node-role.kubernetes.io/worker": "" },
                    "initContainers": [{ "name": "sriov-cni", "image": "go-cni", "args": ["--no-sleep"] }],
                    "containers": [{
                        "name": AGENT, "image": "go-daemon", "command": [AGENT], "args": ["start"],
                        "env": [{ "name": "GO_ONLY", "value": "1" }, { "name": "CLUSTER_TYPE", "value": "kubernetes" }],
                        "lifecycle": { "preStop": { "exec": { "command": ["/bindata/scripts/clean.sh"] } } },
                        "volumeMounts": [{ "name": "host", "mountPath": "/host" }],
                    }],
                    "volumes": [
                        { "name": "host", "hostPath": { "path": "/" } },
                        { "name": "go-volume", "emptyDir": {} },
                    ],
                },
            },
        },
    });
    serde_json::from_value(object).unwrap()
}

async fn create_config(deployment: &Deployment, spec: Value) -> SriovOperatorConfig {
    let mut config = SriovOperatorConfig::new("default", serde_json::from_value(spec).unwrap());
    config.metadata.finalizers = Some(vec![GO_FINALIZER.to_owned()]);
    deployment.all().create(&PostParams::default(), &config).await.unwrap()
}

#[tokio::test]
async fn the_daemon_set_of_the_go_operator_is_taken_over_completely() {
    let deployment = Deployment::new("take-over").await;
    let config = create_config(&deployment, json!({})).await;
    let daemon_sets: Api<DaemonSet> = deployment.all();
    let as_go = PostParams { field_manager: Some(GO.to_owned()), ..Default::default() };
    let old = daemon_sets.create(&as_go, &go_daemon_set(&config)).await.unwrap();
    let label = Patch::Merge(json!({ "metadata": { "labels": { "team": "network" } } }));
    daemon_sets.patch(AGENT, &PatchParams::default(), &label).await.unwrap();

    let _operator = deployment.0.start_operator_with(&[NAME, IMAGE]);
    let new = deployment.daemon_set(AGENT, "taken over", |pod| image(pod) == "vfleet:test").await;
    assert_eq!(new.uid(), old.uid(), "the same object");
    assert_eq!(new.labels()["team"], "network");
    assert!(!new.annotations().contains_key("release.openshift.io/version"), "{:?}", new.annotations());
    let template = serde_json::to_string(&new.spec.clone().unwrap().template).unwrap();
    for left in
        ["go-cni", "go-daemon", "GO_ONLY", "lifecycle", "go-volume", "\"start\"", "nodeSelector\"", "infra"]
    {
        assert!(!template.contains(left), "{left} is left in {template}");
    }
    assert!(is_owned_by(&new, &config));
}

#[tokio::test]
async fn missing_and_invalid_settings_are_reported_in_conditions() {
    let deployment = Deployment::new("conditions").await;
    let operator = deployment.0.start_operator_with(&[NAME]);
    let config =
        deployment.config("no image", |config| has_reason(config, "Ready", "OperatorConfigReady")).await;
    let message = condition(&config, "Ready").unwrap().2;
    assert!(message.contains("SRIOV_NETWORK_CONFIG_DAEMON_IMAGE"), "{message}");
    assert!(message.contains("CNI plugins") && message.contains("SRIOV_DEVICE_PLUGIN_IMAGE"), "{message}");
    operator.kill();

    let operator = deployment.0.start_operator_with(&[NAME, IMAGE]);
    deployment.config("ready", |config| has_reason(config, "Ready", "OperatorConfigReady")).await;
    deployment.configure(json!({ "configDaemonEnvVars": { "no=name": "x" } })).await;
    let config =
        deployment.config("refused", |config| has_reason(config, "Ready", "OperatorConfigSyncFailed")).await;
    let (status, _, message) = condition(&config, "Degraded").unwrap();
    assert_eq!(status, "True");
    assert!(message.contains(AGENT) && message.contains("no=name"), "{message}");
    deployment.0.expect_event("default", "Warning", "OperatorConfigSyncFailed").await;
    deployment.configure(json!({ "configDaemonEnvVars": null })).await;

    let gates = json!({ "unheardOf": true, "metricsExporter": true });
    let spec = json!({ "featureGates": gates, "enableOperatorWebhook": true });
    deployment.configure(spec).await;
    let matches = |config: &SriovOperatorConfig| {
        let has_warnings = |valid: (String, String, String)| {
            valid.0 == "True" && valid.2.contains("unheardOf") && valid.2.contains("metrics exporter")
        };
        has_reason(config, "Ready", "OperatorConfigReady")
            && has_reason(config, "Admission", "NotListening")
            && condition(config, "Valid").is_some_and(has_warnings)
    };
    let config = deployment.config("ready, with warnings", matches).await;
    let (status, _, message) = condition(&config, "Admission").unwrap();
    assert_eq!(status, "False");
    assert!(message.contains("--webhook-bind-address"), "{message}");

    operator.kill();
    let _operator = deployment.0.start_operator_with(&[NAME]);
    let names_variable = |config: &SriovOperatorConfig| {
        condition(config, "Ready").is_some_and(|ready| ready.2.contains("SRIOV_NETWORK_CONFIG_DAEMON_IMAGE"))
    };
    deployment.config("no image", names_variable).await;
    deployment.daemon_set(AGENT, "not removed", |pod| image(pod) == "vfleet:test").await;
}

const GO_WEBHOOK: &str = "sriov-operator-webhook-config";

async fn create_go_webhook(deployment: &Deployment, service_namespace: &str) {
    // Selects no objects, because other tests share the API server.
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": "no-namespace" } });
    let configuration = json!({
        "metadata": { "name": GO_WEBHOOK },
        "webhooks": [{
            "name": "operator-webhook.sriovnetwork.openshift.io", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "namespaceSelector": selector,
            "clientConfig": { "service": { "name": "operator-webhook-service", "namespace": service_namespace } },
            "rules": [{
                "apiGroups": ["sriovnetwork.openshift.io"], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["sriovnetworknodepolicies"],
            }],
        }],
    });
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(deployment.0.admin_client());
    let configuration = serde_json::from_value(configuration).unwrap();
    webhooks.create(&PostParams::default(), &configuration).await.unwrap();
}

/// Creates the DaemonSet of the webhook of the Go operator.
async fn create_go_server(deployment: &Deployment, owner: &SriovOperatorConfig) {
    let mut server = go_daemon_set(owner);
    server.metadata.name = Some("operator-webhook".to_owned());
    let as_go = PostParams { field_manager: Some(GO.to_owned()), ..Default::default() };
    deployment.all().create(&as_go, &server).await.unwrap();
}

#[tokio::test]
async fn webhooks_of_the_go_operator_are_kept_while_they_are_enabled_and_served() {
    let deployment = Deployment::new("webhooks").await;
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(deployment.0.admin_client());
    let config = create_config(&deployment, json!({ "enableOperatorWebhook": true })).await;
    create_go_server(&deployment, &config).await;
    create_go_webhook(&deployment, deployment.0.namespace()).await;

    let _operator = deployment.0.start_operator_with(&[NAME, IMAGE]);
    let config = deployment.config("ready", |config| condition(config, "Admission").is_some()).await;
    let message = condition(&config, "Admission").unwrap().2;
    assert!(message.contains("Go operator stay until then: operator-webhook"), "{message}");
    webhooks.get(GO_WEBHOOK).await.expect("an enabled and served webhook is kept");

    deployment.configure(json!({ "enableOperatorWebhook": false })).await;
    deployment.wait_until_deleted(deployment.all::<DaemonSet>(), "operator-webhook").await;
    deployment.wait_until_deleted(webhooks.clone(), GO_WEBHOOK).await;

    // A webhook of another installation is kept; an unserved one is deleted with the config at the latest.
    create_go_webhook(&deployment, "another-namespace").await;
    deployment.configure(json!({ "enableOperatorWebhook": true })).await;
    let configs: Api<SriovOperatorConfig> = deployment.all();
    let old = configs.get("default").await.unwrap();
    assert!(old.finalizers().iter().any(|name| name == GO_FINALIZER));
    configs.delete("default", &DeleteParams::default()).await.unwrap();
    let new = deployment.config("created again", |new| new.uid() != old.uid()).await;
    assert!(new.finalizers().is_empty(), "a finalizer would block the deletion of the namespace");
    webhooks.get(GO_WEBHOOK).await.expect("the webhook of another installation is kept");
    webhooks.delete(GO_WEBHOOK, &DeleteParams::default()).await.unwrap();

    let config = deployment.config("ready", |config| condition(config, "Ready").is_some()).await;
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": [GO_FINALIZER] } }));
    configs.patch("default", &PatchParams::default(), &patch).await.unwrap();
    create_go_webhook(&deployment, deployment.0.namespace()).await;
    configs.delete("default", &DeleteParams::default()).await.unwrap();
    deployment.wait_until_deleted(webhooks, GO_WEBHOOK).await;
    deployment.config("created again", |new| new.uid() != config.uid()).await;
}

/// Changes the config repeatedly until the log contains a line that meets `condition`.
async fn wait_until_logged(deployment: &Deployment, what: &str, condition: impl Fn(&str) -> bool) {
    let waiting = async {
        for number in 0.. {
            let value = format!("{what}-{number}");
            deployment.configure(json!({ "configDaemonEnvVars": { "ROUND": value } })).await;
            let matches = |pod: &PodSpec| variable(pod, "ROUND").as_deref() == Some(value.as_str());
            deployment.daemon_set(AGENT, "the next round", matches).await;
            if deployment.0.log().lines().any(&condition) {
                break;
            }
        }
    };
    tokio::time::timeout(DEADLINE, waiting)
        .await
        .unwrap_or_else(|_| panic!("timed out waiting for the log: {what}\n{}", deployment.0.log()));
}

#[tokio::test]
async fn the_log_level_changes_while_operator_and_agents_run() {
    let deployment = Deployment::new("log-level").await;
    let _operator = deployment.0.start_operator_with(&[NAME, IMAGE]);
    let _agent = deployment.0.start_agent("log-level-1", &machine()).await;
    deployment.0.wait("log-level-1", "cards reported", NodeStateView::is_synced).await;
    deployment.daemon_set(AGENT, "there", |pod| image(pod) == "vfleet:test").await;
    assert!(!deployment.0.log().contains("DEBUG"), "{}", deployment.0.log());

    deployment.configure(json!({ "logLevel": 1 })).await;
    wait_until_logged(&deployment, "operator", |line| line.contains("DEBUG vfleet_operator")).await;
    let count_lines = |log: &str| log.matches("log level set by the operator config level=1").count();
    wait_until_logged(&deployment, "both", |_| count_lines(&deployment.0.log()) == 2).await;
    let policy = json!({ "numVfs": 2, "nicSelector": { "pfNames": ["enp1s0"] } });
    deployment.0.apply_policy("p", policy).await;
    deployment
        .0
        .wait("log-level-1", "2 VFs", |state| state.is_synced() && state.vfs("enp1s0").len() == 2)
        .await;
    wait_until_logged(&deployment, "agent", |line| line.contains("DEBUG vfleet_agent")).await;
}

#[tokio::test]
async fn logs_are_json_if_configured_and_rust_log_overrides_the_config() {
    let deployment = Deployment::new("json-log").await;
    let _operator =
        deployment.0.start_operator_with(&[NAME, IMAGE, ("LOG_FORMAT", "json"), ("RUST_LOG", "info")]);
    let daemon_set = deployment.daemon_set(AGENT, "there", |pod| image(pod) == "vfleet:test").await;
    assert_eq!(
        variable(&pod(&daemon_set), "LOG_FORMAT").as_deref(),
        Some("json"),
        "agents use the same format"
    );

    deployment.configure(json!({ "logLevel": 2 })).await;
    wait_until_logged(&deployment, "refusal", |line| line.contains("RUST_LOG is set")).await;
    for line in deployment.0.log().lines() {
        let event: Value = serde_json::from_str(line).expect(line);
        assert!(event["level"] == "INFO" || event["level"] == "WARN", "{line}");
    }
}
