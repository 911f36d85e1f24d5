//! Evictions against a real API server; kwok plays the kubelets.

use std::time::Duration;

use fixture_kube::ControlPlane;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, timeout};
use vfleet_api::node_state::DrainScope::{Full, Partial};
use vfleet_cluster::write::Writer;

use super::*;

/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_mins(1);
const REQUEST: Moment = Moment(7);
const OURS: &str = "openshift.io/fast";

/// Namespace, nodes and evictions of one test.
struct Scene {
    client: Client,
    namespace: String,
    context: Context,
    evictions: Evictions,
    eviction_progress: UnboundedReceiver<EvictionProgress>,
}

impl Scene {
    async fn new(name: &str) -> Self {
        Self::on(ControlPlane::shared(), name).await
    }

    async fn on(plane: &ControlPlane, name: &str) -> Self {
        let namespace = plane.namespace(name).await.unwrap();
        let client = client(plane).await;
        let context = crate::replica::context::testing::context(client.clone(), &namespace, name);
        context.leadership.extend(Instant::now() + Duration::from_hours(1));
        let (evictions, eviction_progress) = Evictions::new(&context);
        Self { client, namespace, context, evictions, eviction_progress }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + serde::Serialize
            + std::fmt::Debug,
    {
        let object = serde_json::from_value(object).unwrap();
        self.api::<K>().create(&PostParams::default(), &object).await.unwrap()
    }

    /// A pod on `node` that uses a VF; `more` is merged into its metadata.
    async fn pod(&self, node: &str, name: &str, more: Value) -> Pod {
        let mut metadata = json!({ "name": name, "labels": { "app": name } });
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let container = json!({
            "name": "c", "image": "none", "resources": { "requests": { OURS: "1" }, "limits": { OURS: "1" } },
        });
        self.create(json!({ "metadata": metadata, "spec": { "nodeName": node, "containers": [container] } }))
            .await
    }

    async fn budget(&self, name: &str, app: &str) {
        let selector = json!({ "matchLabels": { "app": app } });
        let spec = json!({ "minAvailable": 1, "selector": selector });
        self.create::<PodDisruptionBudget>(json!({ "metadata": { "name": name }, "spec": spec })).await;
    }

    async fn patch_pod(&self, name: &str, patch: Value) {
        self.api::<Pod>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits for progress that satisfies `is_it`.
    async fn wait(&mut self, what: &str, is_it: impl Fn(&EvictionProgress) -> bool) -> EvictionProgress {
        let mut last = None;
        let found = async {
            loop {
                let progress = self.eviction_progress.recv().await.unwrap();
                if is_it(&progress) {
                    return progress;
                }
                last = Some(progress);
            }
        };
        let in_time = timeout(DEADLINE, found).await;
        in_time.unwrap_or_else(|error| panic!("{what} does not come: {error}; last was {last:?}"))
    }

    async fn hold(&mut self, reason: &str) -> String {
        let progress = self
            .wait(reason, |progress| progress.hold.as_ref().is_some_and(|hold| hold.reason == reason))
            .await;
        assert_eq!(progress.pods, PodsState::Remaining);
        progress.hold.unwrap().message
    }

    async fn gone(&mut self) {
        let progress = self.wait("Gone", |progress| progress.pods == PodsState::Gone).await;
        assert_eq!((progress.request, progress.hold), (REQUEST, None));
    }

    async fn pods(&self) -> Vec<String> {
        let listed = self.api::<Pod>().list(&ListParams::default()).await.unwrap();
        listed.iter().map(ResourceExt::name_any).collect()
    }

    async fn until_gone(&self, pod: &Pod) {
        let (name, uid) = (pod.name_any(), pod.uid().unwrap());
        let gone = await_condition(self.api::<Pod>(), &name, conditions::is_deleted(&uid));
        timeout(DEADLINE, gone).await.expect("the pod is not gone").unwrap();
    }
}

/// Creates a client like that of the operator, which does not retry refused requests.
async fn client(plane: &ControlPlane) -> Client {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.proxy_url = None;
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

async fn node(name: &str) {
    ControlPlane::shared().create_node(name, &[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_refuses_an_eviction_is_named_while_other_pods_are_evicted() {
    let mut scene = Scene::new("refused").await;
    node("refused-1").await;
    let other = scene.pod("refused-1", "other", json!({})).await;
    let held = scene.pod("refused-1", "held", json!({})).await;
    scene.budget("guard", "held").await;
    scene.budget("not-this", "elsewhere").await;
    scene.evictions.start("refused-1", REQUEST, Partial);
    let message = scene.hold("EvictionRefused").await;
    let ns = scene.namespace.clone();
    assert!(
        message.contains(&format!("PDB {ns}/guard allows no eviction of pod {ns}/held now (")),
        "{message}"
    );
    assert!(!message.contains("other") && !message.contains("not-this"), "{message}");
    scene.until_gone(&other).await;

    let budgets: Api<PodDisruptionBudget> = scene.api();
    budgets.delete("guard", &DeleteParams::default()).await.unwrap();
    // A change of the pod triggers the next try at once.
    scene.patch_pod("held", json!({ "metadata": { "annotations": { "look": "again" } } })).await;
    scene.gone().await;
    assert_eq!(scene.pods().await, Vec::<String>::new());
    scene.until_gone(&held).await;
    let metrics = scene.context.metrics.encode().unwrap();
    assert!(metrics.contains("vfleet_evictions_total{result=\"evicted\"} 2"), "{metrics}");
    assert!(metrics.contains("vfleet_evictions_total{result=\"refused\"}"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_budgets_for_one_pod_are_both_named() {
    let mut scene = Scene::new("two").await;
    node("two-1").await;
    scene.pod("two-1", "both", json!({})).await;
    // The API server evicts a pending pod whatever its budgets say.
    await_condition(scene.api::<Pod>(), "both", conditions::is_pod_running()).await.unwrap();
    scene.budget("first", "both").await;
    scene.budget("second", "both").await;
    scene.evictions.start("two-1", REQUEST, Partial);
    let message = scene.hold("EvictionFailed").await;
    let ns = &scene.namespace;
    assert!(message.contains(&format!("cannot evict pod {ns}/both: This pod has more than")), "{message}");
    assert!(message.contains(&format!("(PDBs {ns}/first, {ns}/second)")), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_an_interrupted_eviction_is_deleted() {
    let mut scene = Scene::new("let-go").await;
    node("let-go-1").await;
    let pod = scene.pod("let-go-1", "web", json!({})).await;
    await_condition(scene.api::<Pod>(), "web", conditions::is_pod_running()).await.unwrap();
    scene.budget("guard", "web").await;
    // As the API server leaves it when it is interrupted between the budget update and the deletion.
    let later = pod.creation_timestamp().unwrap().0 + k8s_openapi::jiff::SignedDuration::from_secs(2);
    let patch = Patch::Merge(json!({ "status": {
        "disruptedPods": { "web": later.to_string() }, "currentHealthy": 0, "desiredHealthy": 1,
        "disruptionsAllowed": 0, "expectedPods": 1,
    } }));
    let budgets = scene.api::<PodDisruptionBudget>();
    budgets.patch_status("guard", &PatchParams::default(), &patch).await.unwrap();
    let counted = |budget: Option<&PodDisruptionBudget>| {
        let status = budget.and_then(|budget| budget.status.as_ref());
        status.is_some_and(|status| status.observed_generation == Some(1) && status.disrupted_pods.is_some())
    };
    timeout(DEADLINE, await_condition(budgets, "guard", counted)).await.unwrap().unwrap();

    scene.evictions.start("let-go-1", REQUEST, Partial);
    scene.gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_gone_only_after_their_deletion() {
    let mut scene = Scene::new("ends").await;
    node("ends-1").await;
    let finalizers = json!({ "finalizers": ["example.com/hold"] });
    scene.pod("ends-1", "evicted", finalizers.clone()).await;
    scene.pod("ends-1", "deleted-before", finalizers).await;
    scene.api::<Pod>().delete("deleted-before", &DeleteParams::default()).await.unwrap();
    scene.evictions.start("ends-1", REQUEST, Partial);
    scene.wait("Remaining", |progress| progress.pods == PodsState::Remaining).await;
    let is_terminating = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    let evicted = await_condition(scene.api(), "evicted", is_terminating);
    timeout(DEADLINE, evicted).await.expect("the pod is not evicted").unwrap();

    let free = json!({ "metadata": { "finalizers": null } });
    scene.patch_pod("evicted", free.clone()).await;
    let nothing = timeout(Duration::from_secs(1), scene.eviction_progress.recv()).await;
    assert!(nothing.is_err(), "one pod is left: {nothing:?}");
    // A pod that came in the meantime is evicted too.
    scene.pod("ends-1", "late", json!({})).await;
    scene.patch_pod("deleted-before", free).await;
    scene.gone().await;
    assert_eq!(scene.pods().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_eviction_evicts_no_more_pods() {
    let mut scene = Scene::new("stopped").await;
    node("stopped-1").await;
    scene.pod("stopped-1", "held", json!({})).await;
    scene.budget("guard", "held").await;
    scene.evictions.start("stopped-1", REQUEST, Full);
    scene.hold("EvictionRefused").await;
    scene.evictions.stop("stopped-1");
    scene.api::<PodDisruptionBudget>().delete("guard", &DeleteParams::default()).await.unwrap();
    scene.patch_pod("held", json!({ "metadata": { "annotations": { "look": "again" } } })).await;
    // Longer than the retry delay.
    let nothing = timeout(Duration::from_secs(4), async {
        while scene.eviction_progress.recv().await.is_some_and(|progress| progress.pods != PodsState::Gone) {}
    });
    assert!(nothing.await.is_err());
    assert_eq!(scene.pods().await, ["held"]);

    scene.evictions.start("stopped-1", REQUEST, Full);
    scene.gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_does_not_lead_evicts_nothing() {
    let mut scene = Scene::new("follows").await;
    node("follows-1").await;
    scene.pod("follows-1", "stays", json!({})).await;
    scene.context.leadership.end();
    scene.evictions.start("follows-1", REQUEST, Full);
    let failed = scene.wait("PodsUnreadable", |progress| progress.hold.is_some()).await;
    assert_eq!(failed.hold.unwrap().reason, "PodsUnreadable");
    assert_eq!(scene.pods().await, ["stays"]);
    scene.context.leadership.extend(Instant::now() + DEADLINE);
    scene.gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_the_same_name_that_came_later_is_not_evicted() {
    let scene = Scene::new("later").await;
    node("later-1").await;
    scene.pod("later-1", "again", json!({})).await;
    let writer = Writer::new(scene.context.leadership.clone());
    let error = writer.evict(&scene.api(), "again", "another").await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
    let pod = scene.api::<Pod>().get("again").await.unwrap();
    assert_eq!(pod.metadata.deletion_timestamp, None);
    writer.evict(&scene.api(), "again", &pod.uid().unwrap()).await.unwrap();
    scene.until_gone(&pod).await;
    assert!(writer.evict(&scene.api(), "again", "another").await.unwrap_err().is_not_found());
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_set_pods_stay_until_they_are_restarted() {
    let mut scene = Scene::new("daemons").await;
    node("daemons-1").await;
    let room = json!({ "status": { "capacity": { OURS: "8" }, "allocatable": { OURS: "8" } } });
    let nodes: Api<Node> = Api::all(scene.client.clone());
    nodes.patch_status("daemons-1", &PatchParams::default(), &Patch::Merge(room)).await.unwrap();
    let labels = json!({ "app": "daemon" });
    let resources = json!({ "limits": { OURS: "1" } });
    let pod = json!({
        "nodeSelector": { "kubernetes.io/hostname": "daemons-1" },
        "containers": [{ "name": "c", "image": "none", "resources": resources }],
    });
    let template = json!({ "metadata": { "labels": labels }, "spec": pod });
    let spec = json!({ "selector": { "matchLabels": labels }, "template": template });
    scene.create::<DaemonSet>(json!({ "metadata": { "name": "daemon" }, "spec": spec })).await;
    let runs = |daemon: Option<&DaemonSet>| {
        let status = daemon.and_then(|daemon| daemon.status.as_ref());
        status.is_some_and(|status| status.number_ready == 1)
    };
    timeout(DEADLINE, await_condition(scene.api(), "daemon", runs))
        .await
        .expect("its pod does not run")
        .unwrap();
    let user = scene.pod("daemons-1", "user", json!({})).await;
    scene.evictions.start("daemons-1", REQUEST, Full);
    scene.gone().await;
    scene.until_gone(&user).await;
    let pods = scene.pods().await;
    let [daemon] = pods.as_slice() else { panic!("{pods:?}") };

    let kept =
        scene.evictions.restart_daemon_pods("daemons-1", changed_except(&["fast"])).await.unwrap().pods;
    assert_eq!(kept, Vec::<String>::new());
    let before = scene.api::<Pod>().get(daemon).await.unwrap();
    let restarted = scene.evictions.restart_daemon_pods("daemons-1", changed_except(&[])).await.unwrap().pods;
    assert_eq!(restarted, [format!("{}/{daemon}", scene.namespace)]);
    let now = scene.api::<Pod>().get_opt(daemon).await.unwrap();
    assert_ne!(now.and_then(|pod| pod.uid()), before.uid(), "the old pod is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_nodes_share_one_watch_that_ends_with_them() {
    let mut scene = Scene::new("many").await;
    let names: Vec<_> = (0..20).map(|number| format!("many-{number}")).collect();
    for name in &names {
        node(name).await;
        for pod in 0..4 {
            scene.pod(name, &format!("{name}-{pod}"), json!({})).await;
        }
    }
    for name in &names {
        scene.evictions.start(name, REQUEST, Partial);
    }
    assert!(scene.evictions.pod_watch.is_open());
    for _ in &names {
        scene.gone().await;
    }
    assert_eq!(scene.pods().await, Vec::<String>::new());
    while scene.evictions.tasks.join_next().await.is_some() {}
    assert!(!scene.evictions.pod_watch.is_open(), "no subscription is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_survives_a_crash_of_the_api_server() {
    // A separate control plane, because it is restarted.
    let start = || ControlPlane::start(fixture_kube::Options::default()).unwrap();
    let plane = tokio::task::spawn_blocking(start).await.unwrap();
    let mut scene = Scene::on(&plane, "crash").await;
    plane.create_node("crash-1", &[]).await.unwrap();
    scene.pod("crash-1", "held", json!({ "finalizers": ["example.com/hold"] })).await;
    scene.evictions.start("crash-1", REQUEST, Partial);
    scene.wait("Remaining", |progress| progress.pods == PodsState::Remaining).await;
    let plane = tokio::task::spawn_blocking(move || {
        plane.restart_apiserver().unwrap();
        plane
    });
    let plane = plane.await.unwrap();
    scene.patch_pod("held", json!({ "metadata": { "finalizers": null } })).await;
    scene.gone().await;
    drop(plane);
}

/// All resources changed except these.
fn changed_except(kept: &[&str]) -> RestartFilter {
    RestartFilter {
        kept_resources: kept.iter().map(|name| (*name).to_owned()).collect(),
        created_until: None,
    }
}
