//! What the API server asks the operator, and what happens when nobody answers.

use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use vfleet_tests::door::{Door, Load, Replica, SECRET, policy};
use vfleet_tests::plane::Plane;

/// kubectl, as the administrator; gives what it says when it is refused.
fn kubectl(door: &Door, arguments: &[&str]) -> Result<(), String> {
    let output = door.cluster.plane().kubectl(arguments).unwrap();
    if output.status.success() { Ok(()) } else { Err(output.stderr) }
}

fn create(door: &Door, namespace: &str, object: &Value) -> Result<(), String> {
    let file = door.cluster.file("object.json", &object.to_string());
    kubectl(door, &["--namespace", namespace, "create", "-f", &file])
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec,
    })
}

fn pod(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "annotations": annotations },
        "spec": { "containers": [{ "name": "a", "image": "none" }] },
    })
}

/// How often the operator was asked, by path.
fn asked(operator: &Replica) -> [u64; 3] {
    ["validate", "mutate", "pod"].map(|webhook| operator.asked(webhook))
}

/// The conditions and selectors of the webhooks, as the API server reads them.
#[tokio::test]
async fn the_api_server_asks_about_what_is_wanted_and_about_nothing_else() {
    let door = Door::new("asked", Plane::AdmissionQuestions).await;
    let operator = door.replica("operator", &[], &[]);
    door.open().await;
    let home = door.cluster.namespace().to_owned();
    let apps = door.cluster.plane().namespace("asked-apps").await.unwrap();
    let as_operator = format!("--as=system:serviceaccount:{home}:vfleet-operator");
    wait_until_asked(&door, &operator).await;
    let run = |what: &str, expected: [u64; 3], deed: &dyn Fn() -> Result<(), String>| {
        let before = asked(&operator);
        deed().unwrap_or_else(|error| panic!("{what}: {error}"));
        let after = asked(&operator);
        let delta = [0, 1, 2].map(|at| after[at] - before[at]);
        assert_eq!(delta, expected, "{what} (judged, added to, pods)");
    };
    let home_do = |arguments: &[&str]| kubectl(&door, &[&["--namespace", &home], arguments].concat());
    let patch =
        |what: &str, patch: &Value| home_do(&["patch", what, "--type=merge", "-p", &patch.to_string()]);
    let pool = object("SriovNetworkPoolConfig", "p", &json!({}));
    let no_spec = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkPoolConfig", "metadata": { "name": "q" },
    });
    let network = object("SriovNetwork", "net", &json!({ "resourceName": "nics" }));
    let a_policy = "sriovnetworknodepolicy/a";

    let mut held = policy("a", 2);
    held["metadata"]["finalizers"] = json!(["test.io/held"]);
    run("a policy", [1, 1, 0], &|| create(&door, &home, &held));
    run("its label", [0, 0, 0], &|| patch(a_policy, &json!({ "metadata": { "labels": { "x": "y" } } })));
    run("its status", [0, 0, 0], &|| {
        let status = json!({ "status": { "conditions": [] } }).to_string();
        home_do(&["patch", a_policy, "--subresource=status", "--type=merge", "-p", &status])
    });
    run("its spec", [1, 1, 0], &|| patch(a_policy, &json!({ "spec": { "numVfs": 3 } })));
    run("a policy's deletion", [0, 0, 0], &|| home_do(&["delete", a_policy, "--wait=false"]));
    run("the spec of one that goes", [0, 0, 0], &|| patch(a_policy, &json!({ "spec": { "numVfs": 4 } })));
    run("its finalizer", [0, 0, 0], &|| patch(a_policy, &json!({ "metadata": { "finalizers": null } })));

    run("a pool", [1, 0, 0], &|| create(&door, &home, &pool));
    run("a pool's deletion", [1, 0, 0], &|| home_do(&["delete", "sriovnetworkpoolconfig", "p"]));
    run("a pool without a spec", [1, 0, 0], &|| create(&door, &home, &no_spec));
    run("its first spec", [1, 0, 0], &|| {
        patch("sriovnetworkpoolconfig/q", &json!({ "spec": { "priority": 3 } }))
    });
    run("what the operator writes", [0, 0, 0], &|| {
        home_do(&["delete", "sriovnetworkpoolconfig", "q", &as_operator, "--as-group=system:masters"])
    });
    // The API server asks about each of them, without its name.
    run("pools that are deleted together, default among them", [1, 0, 0], &|| {
        let pools = format!("/apis/sriovnetwork.openshift.io/v1/namespaces/{home}/sriovnetworkpoolconfigs");
        match kubectl(&door, &["delete", "--raw", &pools]) {
            Err(error) if error.contains("change it instead of deleting it") => Ok(()),
            other => Err(format!(
                "it is not kept: {other:?}, asked {:?}\n{}",
                asked(&operator),
                door.cluster.log()
            )),
        }
    });
    run("the operator config", [1, 0, 0], &|| {
        patch("sriovoperatorconfig/default", &json!({ "spec": { "logLevel": 1 } }))
    });
    for (kind, name) in [("SriovIBNetwork", "ib"), ("OVSNetwork", "ovs"), ("BridgeNetwork", "bridge")] {
        let network = object(kind, name, &json!({ "resourceName": "nics" }));
        run(kind, [1, 0, 0], &|| create(&door, &home, &network));
    }

    run("a network elsewhere", [1, 0, 0], &|| create(&door, &apps, &network));
    run("its deletion", [0, 0, 0], &|| {
        kubectl(&door, &["--namespace", &apps, "delete", "sriovnetwork", "net"])
    });
    run("a policy elsewhere", [1, 0, 0], &|| create(&door, &apps, &policy("b", 1)));
    run("a pod", [0, 0, 0], &|| create(&door, &apps, &pod("plain", &json!({ "a": "b" }))));
    run("a pod with no network in its list", [0, 0, 0], &|| {
        create(&door, &apps, &pod("blank", &json!({ "k8s.v1.cni.cncf.io/networks": "" })))
    });
    run("a pod that names a network", [0, 0, 1], &|| {
        create(&door, &apps, &pod("networks", &json!({ "k8s.v1.cni.cncf.io/networks": "a" })))
    });
    run("a pod that names its default network", [0, 0, 1], &|| {
        create(&door, &apps, &pod("default", &json!({ "v1.multus-cni.io/default-network": "a" })))
    });
    run("a pod at home", [0, 0, 0], &|| {
        create(&door, &home, &pod("home", &json!({ "k8s.v1.cni.cncf.io/networks": "a" })))
    });
    run("a change of a pod", [0, 0, 0], &|| {
        kubectl(&door, &["--namespace", &apps, "label", "pod", "networks", "x=y"])
    });

    // Another installation's namespace is not ours to judge.
    let theirs = door.cluster.plane().namespace("asked-theirs").await.unwrap();
    kubectl(&door, &["label", "namespace", &theirs, &format!("vfleet.io/installation={theirs}")]).unwrap();
    run("another installation's policy", [0, 0, 0], &|| create(&door, &theirs, &policy("b", 1)));
}

/// The API server sees new configurations a moment after they were written, and no event says when.
async fn wait_until_asked(door: &Door, operator: &Replica) {
    let start = Instant::now();
    let apps = door.cluster.plane().namespace("probe").await.unwrap();
    let is_asked = |at: usize, object: &Value, namespace: &str| {
        let before = asked(operator)[at];
        let file = door.cluster.file("probe.json", &object.to_string());
        kubectl(door, &["--namespace", namespace, "create", "--dry-run=server", "-f", &file]).unwrap();
        asked(operator)[at] > before
    };
    let network = json!({ "k8s.v1.cni.cncf.io/networks": "a" });
    while !(is_asked(0, &policy("probe", 1), door.cluster.namespace())
        && is_asked(1, &policy("probe", 1), door.cluster.namespace())
        && is_asked(0, &policy("probe", 1), &apps)
        && is_asked(2, &pod("probe", &network), &apps))
    {
        assert!(start.elapsed() < Duration::from_mins(1), "it is never asked\n{}", door.cluster.log());
    }
}

/// Longer than the API server waits for any of us, on a machine that has much else to do.
const IN_TIME: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_dead_operator_holds_up_nobody_but_its_own_namespace() {
    // Nobody listens.
    nobody_else_is_held_up("dead", "KILL").await;
}

#[tokio::test]
async fn a_hung_operator_holds_up_nobody_but_its_own_namespace() {
    // Connections are still made by the kernel, and nobody ever says a word.
    nobody_else_is_held_up("hung", "STOP").await;
}

async fn nobody_else_is_held_up(fate: &str, signal: &str) {
    let door = Door::new(fate, Plane::Admission).await;
    let operator = door.replica("operator", &[], &[]);
    door.open().await;
    let home = door.cluster.namespace().to_owned();
    let apps = door.cluster.plane().namespace(&format!("{fate}-apps")).await.unwrap();
    wait_until_asked(&door, &operator).await;
    let mut held = policy("held", 2);
    held["metadata"]["finalizers"] = json!(["test.io/held"]);
    create(&door, &home, &held).unwrap();
    operator.program.signal(signal);

    let in_time = |what: &str, deed: &dyn Fn() -> Result<(), String>| {
        let start = Instant::now();
        deed().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(start.elapsed() < IN_TIME, "{what} took {:?}", start.elapsed());
    };
    let networks = json!({ "k8s.v1.cni.cncf.io/networks": "a" });
    in_time("a pod", &|| create(&door, &apps, &pod("plain", &json!({}))));
    in_time("a pod that names a network", &|| create(&door, &apps, &pod("networks", &networks)));
    in_time("somebody's ConfigMap", &|| {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
        create(&door, &apps, &object)
    });
    in_time("a network elsewhere", &|| {
        create(&door, &apps, &object("SriovNetwork", "net", &json!({ "resourceName": "nics" })))
    });
    in_time("a ConfigMap at home", &|| {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
        create(&door, &home, &object)
    });
    let at_home = |arguments: &[&str]| kubectl(&door, &[&["--namespace", &home], arguments].concat());
    let a_policy = "sriovnetworknodepolicy/held";
    in_time("a label", &|| at_home(&["label", a_policy, "x=y"]));
    in_time("a status", &|| {
        let status = r#"{"status":{"conditions":[]}}"#;
        at_home(&["patch", a_policy, "--subresource=status", "--type=merge", "-p", status])
    });
    in_time("a deletion", &|| at_home(&["delete", a_policy, "--wait=false"]));
    in_time("a finalizer", &|| {
        at_home(&["patch", a_policy, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])
    });
    let start = Instant::now();
    let refused = create(&door, &home, &policy("new", 1)).expect_err("at home nothing passes unseen");
    assert!(start.elapsed() < IN_TIME, "it is said after {:?}", start.elapsed());
    assert!(refused.contains("home.operator-webhook.sriovnetwork.openshift.io"), "{refused}");

    kubectl(&door, &["delete", "namespace", &apps, "--timeout=60s"]).unwrap();
    kubectl(&door, &["delete", "namespace", &home, "--timeout=60s"]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_stops_answers_until_nobody_asks_it() {
    let door = Door::new("stops", Plane::Admission).await;
    let mut first = door.replica("first", &[], &[]);
    door.open().await;
    wait_until_asked(&door, &first).await;
    let second = door.replica("second", &[], &[]);
    door.take_out(&second);
    door.served_by(&second).await;
    let fresh = door.fresh(&first).await;
    let load = Load::start(&door);
    first.program.signal("TERM");
    while !fresh.is_stopping().await {
        fresh.ask().await.expect("who does not stop yet answers");
    }
    // The cluster hears of both later: until then this one is asked as before, over new connections, too.
    for _ in 0..50 {
        let answered = fresh.ask().await;
        answered.unwrap_or_else(|error| panic!("{error}\n{}", door.cluster.log()));
    }
    let connections = door.connections(&first);
    load.more(100).await;
    let connections = door.connections(&first) - connections;
    assert!(connections > 50, "the API server connects anew to the one that stops: {connections}");
    door.put_in(&second);
    door.take_out(&first);
    let before = second.asked("validate");
    let ended = tokio::task::spawn_blocking(move || first.program.wait()).await.unwrap();
    assert!(ended.success(), "{ended}\n{}", door.cluster.log());
    let (writes, failed) = load.end().await;
    assert!(failed.is_empty(), "{} of {writes}: {failed:?}\n{}", failed.len(), door.cluster.log());
    assert!(writes > 100 && second.asked("validate") > before, "{writes} writes");
    door.admission("Serving").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_fails_what_it_was_asked_at_home_and_nothing_else() {
    let door = Door::new("killed", Plane::Admission).await;
    let first = door.replica("first", &[], &[]);
    door.open().await;
    wait_until_asked(&door, &first).await;
    let second = door.replica("second", &[], &[]);
    door.served_by(&second).await;
    let apps = door.cluster.plane().namespace("killed-apps").await.unwrap();
    let (home, elsewhere) = (Load::start(&door), Load::start_in(&door, &apps));
    home.more(50).await;
    door.take_out(&first);
    first.program.kill();
    home.more(50).await;
    let (writes, failed) = home.end().await;
    // Those that were under way when it died: the API server asks nobody a second time.
    assert!(failed.len() <= 10, "{} of {writes}: {failed:?}", failed.len());
    elsewhere.more(50).await;
    let (writes, failed) = elsewhere.end().await;
    assert!(failed.is_empty(), "{} of {writes}: {failed:?}", failed.len());
    let after = Load::start(&door);
    after.more(50).await;
    assert_eq!(after.end().await.1, [""; 0], "the other one answers");
    assert!(second.asked("validate") > 50);
}

#[tokio::test]
async fn it_can_be_switched_off_and_needs_what_was_shipped() {
    let door = Door::new("switched", Plane::Admission).await;
    let operator = door.replica("operator", &[], &[]);
    door.configure(json!({ "enableInjector": true })).await;
    door.admission("Serving").await;
    let validating = door.validating("there", |_| true).await;
    assert_eq!(validating.webhooks.iter().flatten().count(), 0, "only what is wanted is filled");
    let fails = |policy: &'static str| {
        move |now: &k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration| {
            now.webhooks.iter().flatten().any(|webhook| webhook.failure_policy.as_deref() == Some(policy))
        }
    };
    door.injector("which lets pods through", fails("Ignore")).await;
    let gates = json!({ "resourceInjectorMatchCondition": true });
    door.configure(json!({ "enableInjector": true, "enableOperatorWebhook": true, "featureGates": gates }))
        .await;
    door.injector("which holds pods back", fails("Fail")).await;
    door.validating("filled", |now| now.webhooks.iter().flatten().count() == 3).await;

    door.configure(json!({})).await;
    let start = Instant::now();
    door.validating("empty", |now| now.webhooks.iter().flatten().count() == 0).await;
    door.injector("empty", |now| now.webhooks.iter().flatten().count() == 0).await;
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    door.admission("Disabled").await;

    kubectl(&door, &["delete", "validatingwebhookconfiguration", &door.name("vfleet-admission")]).unwrap();
    door.configure(json!({ "enableOperatorWebhook": true })).await;
    let message = door.admission("NoConfiguration").await;
    assert!(message.contains(&door.name("vfleet-admission")), "{message}");
    door.cluster.install().unwrap();
    door.admission("Serving").await;

    // An operator that serves nothing takes back what another has told the API server.
    operator.program.kill();
    let _operator = door.cluster.operator_with(&[("POD_NAME", "operator")]);
    door.admission("NotListening").await;
    door.validating("empty", |now| now.webhooks.iter().flatten().count() == 0).await;
}

const GO_CONFIGURATION: &str = "sriov-operator-webhook-config";

#[tokio::test]
async fn webhooks_of_the_go_operator_go_when_ours_are_served() {
    let door = Door::new("go-webhooks", Plane::Admission).await;
    door.configure(json!({ "enableOperatorWebhook": true })).await;
    let config: vfleet_api::SriovOperatorConfig = door.cluster.api().get("default").await.unwrap();
    let owner = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovOperatorConfig", "name": "default",
        "uid": config.metadata.uid, "controller": true,
    });
    let server = json!({
        "metadata": { "name": "operator-webhook", "ownerReferences": [owner] },
        "spec": {
            "selector": { "matchLabels": { "app": "operator-webhook" } },
            "template": {
                "metadata": { "labels": { "app": "operator-webhook" } },
                "spec": { "containers": [{ "name": "a", "image": "none" }], "nodeSelector": { "no": "node" } },
            },
        },
    });
    let servers: Api<DaemonSet> = door.cluster.api();
    servers.create(&PostParams::default(), &serde_json::from_value(server).unwrap()).await.unwrap();
    let configuration = json!({
        "metadata": { "name": GO_CONFIGURATION },
        "webhooks": [{
            "name": "operator-webhook.sriovnetwork.openshift.io", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            // For nobody's objects: other tests share the API server.
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "no-namespace" } },
            "clientConfig": {
                "service": { "name": "operator-webhook-service", "namespace": door.cluster.namespace() },
            },
            "rules": [{
                "apiGroups": ["sriovnetwork.openshift.io"], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["sriovnetworknodepolicies"],
            }],
        }],
    });
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(door.cluster.administrator());
    let configuration = serde_json::from_value(configuration).unwrap();
    configurations.create(&PostParams::default(), &configuration).await.unwrap();

    // Without its Secret it cannot serve yet.
    let secrets: Api<Secret> = door.cluster.api();
    secrets.delete(SECRET, &kube::api::DeleteParams::default()).await.unwrap();
    let _operator = door.replica("operator", &[], &[]);
    let message = door.admission("NoCertificateSecret").await;
    assert!(message.contains("Go operator stay until then: operator-webhook"), "{message}");
    configurations.get(GO_CONFIGURATION).await.expect("it stays as long as nobody else checks");

    door.cluster.install().unwrap();
    let message = door.admission("Serving").await;
    assert!(message.contains("objects are checked"), "{message}");
    let gone = |object: Option<&DaemonSet>| object.is_none();
    let waiting = kube::runtime::wait::await_condition(servers, "operator-webhook", gone);
    tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("its server goes").unwrap();
    assert!(
        configurations.get_opt(GO_CONFIGURATION).await.unwrap().is_none(),
        "and went after its configuration"
    );
}
