//! Requests that the API server sends to the webhooks, and the effects of an operator that does not answer.

use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use vfleet_tests::admission::{AdmissionCluster, Replica, SECRET, WriteLoad, policy};
use vfleet_tests::plane::Plane;

/// Runs kubectl as the administrator. Returns its error output on failure.
fn kubectl(admission: &AdmissionCluster, arguments: &[&str]) -> Result<(), String> {
    let output = admission.cluster.plane().kubectl(arguments).unwrap();
    if output.status.success() { Ok(()) } else { Err(output.stderr) }
}

fn create(admission: &AdmissionCluster, namespace: &str, object: &Value) -> Result<(), String> {
    let file = admission.cluster.write_file("object.json", &object.to_string());
    kubectl(admission, &["--namespace", namespace, "create", "-f", &file])
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

/// Returns the number of requests to each webhook.
fn request_counts(operator: &Replica) -> [u64; 3] {
    ["validate", "mutate", "pod"].map(|webhook| operator.count_requests(webhook))
}

/// Conditions and selectors of the webhooks, evaluated by the API server.
#[tokio::test]
async fn only_relevant_requests_are_sent_to_the_webhooks() {
    let admission = AdmissionCluster::new("asked", Plane::AdmissionQuestions).await;
    let operator = admission.start_replica("operator", &[], &[]);
    admission.enable().await;
    let home = admission.cluster.namespace().to_owned();
    let apps = admission.cluster.plane().namespace("asked-apps").await.unwrap();
    let as_operator = format!("--as=system:serviceaccount:{home}:vfleet-operator");
    wait_until_called(&admission, &operator).await;
    let run = |what: &str, expected: [u64; 3], action: &dyn Fn() -> Result<(), String>| {
        let before = request_counts(&operator);
        action().unwrap_or_else(|error| panic!("{what}: {error}"));
        let after = request_counts(&operator);
        let delta = [0, 1, 2].map(|index| after[index] - before[index]);
        assert_eq!(delta, expected, "{what} (validate, mutate, pod)");
    };
    let kubectl_home =
        |arguments: &[&str]| kubectl(&admission, &[&["--namespace", &home], arguments].concat());
    let patch =
        |what: &str, patch: &Value| kubectl_home(&["patch", what, "--type=merge", "-p", &patch.to_string()]);
    let pool = object("SriovNetworkPoolConfig", "p", &json!({}));
    let no_spec = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkPoolConfig", "metadata": { "name": "q" },
    });
    let network = object("SriovNetwork", "net", &json!({ "resourceName": "nics" }));
    let a_policy = "sriovnetworknodepolicy/a";

    let mut held = policy("a", 2);
    held["metadata"]["finalizers"] = json!(["test.io/held"]);
    run("a policy", [1, 1, 0], &|| create(&admission, &home, &held));
    run("its label", [0, 0, 0], &|| patch(a_policy, &json!({ "metadata": { "labels": { "x": "y" } } })));
    run("its status", [0, 0, 0], &|| {
        let status = json!({ "status": { "conditions": [] } }).to_string();
        kubectl_home(&["patch", a_policy, "--subresource=status", "--type=merge", "-p", &status])
    });
    run("its spec", [1, 1, 0], &|| patch(a_policy, &json!({ "spec": { "numVfs": 3 } })));
    run("a policy's deletion", [0, 0, 0], &|| kubectl_home(&["delete", a_policy, "--wait=false"]));
    run("the spec of a policy that is being deleted", [0, 0, 0], &|| {
        patch(a_policy, &json!({ "spec": { "numVfs": 4 } }))
    });
    run("its finalizer", [0, 0, 0], &|| patch(a_policy, &json!({ "metadata": { "finalizers": null } })));

    run("a pool", [1, 0, 0], &|| create(&admission, &home, &pool));
    run("a pool's deletion", [1, 0, 0], &|| kubectl_home(&["delete", "sriovnetworkpoolconfig", "p"]));
    run("a pool without a spec", [1, 0, 0], &|| create(&admission, &home, &no_spec));
    run("its first spec", [1, 0, 0], &|| {
        patch("sriovnetworkpoolconfig/q", &json!({ "spec": { "priority": 3 } }))
    });
    run("a write of the operator", [0, 0, 0], &|| {
        kubectl_home(&["delete", "sriovnetworkpoolconfig", "q", &as_operator, "--as-group=system:masters"])
    });
    // The API server sends a request for each pool, without its name.
    run("pools that are deleted together, default among them", [1, 0, 0], &|| {
        let pools = format!("/apis/sriovnetwork.openshift.io/v1/namespaces/{home}/sriovnetworkpoolconfigs");
        match kubectl(&admission, &["delete", "--raw", &pools]) {
            Err(error) if error.contains("change it instead of deleting it") => Ok(()),
            other => Err(format!(
                "pool default was not kept: {other:?}, requests {:?}\n{}",
                request_counts(&operator),
                admission.cluster.log()
            )),
        }
    });
    run("the operator config", [1, 0, 0], &|| {
        patch("sriovoperatorconfig/default", &json!({ "spec": { "logLevel": 1 } }))
    });
    for (kind, name) in [("SriovIBNetwork", "ib"), ("OVSNetwork", "ovs"), ("BridgeNetwork", "bridge")] {
        let network = object(kind, name, &json!({ "resourceName": "nics" }));
        run(kind, [1, 0, 0], &|| create(&admission, &home, &network));
    }

    run("a network elsewhere", [1, 0, 0], &|| create(&admission, &apps, &network));
    run("its deletion", [0, 0, 0], &|| {
        kubectl(&admission, &["--namespace", &apps, "delete", "sriovnetwork", "net"])
    });
    run("a policy elsewhere", [1, 0, 0], &|| create(&admission, &apps, &policy("b", 1)));
    run("a pod", [0, 0, 0], &|| create(&admission, &apps, &pod("plain", &json!({ "a": "b" }))));
    run("a pod with no network in its list", [0, 0, 0], &|| {
        create(&admission, &apps, &pod("blank", &json!({ "k8s.v1.cni.cncf.io/networks": "" })))
    });
    run("a pod that names a network", [0, 0, 1], &|| {
        create(&admission, &apps, &pod("networks", &json!({ "k8s.v1.cni.cncf.io/networks": "a" })))
    });
    run("a pod that names its default network", [0, 0, 1], &|| {
        create(&admission, &apps, &pod("default", &json!({ "v1.multus-cni.io/default-network": "a" })))
    });
    run("a pod at home", [0, 0, 0], &|| {
        create(&admission, &home, &pod("home", &json!({ "k8s.v1.cni.cncf.io/networks": "a" })))
    });
    run("a change of a pod", [0, 0, 0], &|| {
        kubectl(&admission, &["--namespace", &apps, "label", "pod", "networks", "x=y"])
    });

    // Objects in the namespace of another installation are not checked.
    let theirs = admission.cluster.plane().namespace("asked-theirs").await.unwrap();
    kubectl(&admission, &["label", "namespace", &theirs, &format!("vfleet.io/installation={theirs}")])
        .unwrap();
    run("another installation's policy", [0, 0, 0], &|| create(&admission, &theirs, &policy("b", 1)));
}

/// Waits until the API server has loaded the new configurations, for which there is no event.
async fn wait_until_called(admission: &AdmissionCluster, operator: &Replica) {
    let start = Instant::now();
    let apps = admission.cluster.plane().namespace("probe").await.unwrap();
    let is_called = |index: usize, object: &Value, namespace: &str| {
        let before = request_counts(operator)[index];
        let file = admission.cluster.write_file("probe.json", &object.to_string());
        kubectl(admission, &["--namespace", namespace, "create", "--dry-run=server", "-f", &file]).unwrap();
        request_counts(operator)[index] > before
    };
    let network = json!({ "k8s.v1.cni.cncf.io/networks": "a" });
    while !(is_called(0, &policy("probe", 1), admission.cluster.namespace())
        && is_called(1, &policy("probe", 1), admission.cluster.namespace())
        && is_called(0, &policy("probe", 1), &apps)
        && is_called(2, &pod("probe", &network), &apps))
    {
        assert!(
            start.elapsed() < Duration::from_mins(1),
            "the webhooks are never called\n{}",
            admission.cluster.log()
        );
    }
}

/// Limit for requests that webhooks do not block. The webhooks have a timeout of 3 s; the rest is for a busy machine, whose
/// processors a virtual machine may use at the same time.
const IN_TIME: Duration = Duration::from_mins(1);

/// Limit for the deletion of a namespace: the controller of namespaces repeats it until no object is left, and waits longer
/// each time.
const DELETION: &str = "--timeout=180s";

#[tokio::test]
async fn a_dead_operator_blocks_only_its_own_namespace() {
    // No process listens.
    check_other_namespaces("dead", "KILL").await;
}

#[tokio::test]
async fn a_hung_operator_blocks_only_its_own_namespace() {
    // The kernel still accepts connections, but no request is answered.
    check_other_namespaces("hung", "STOP").await;
}

async fn check_other_namespaces(name: &str, signal: &str) {
    let admission = AdmissionCluster::new(name, Plane::Admission).await;
    let operator = admission.start_replica("operator", &[], &[]);
    admission.enable().await;
    let home = admission.cluster.namespace().to_owned();
    let apps = admission.cluster.plane().namespace(&format!("{name}-apps")).await.unwrap();
    wait_until_called(&admission, &operator).await;
    let mut held = policy("held", 2);
    held["metadata"]["finalizers"] = json!(["test.io/held"]);
    create(&admission, &home, &held).unwrap();
    operator.program.signal(signal);

    let in_time = |what: &str, action: &dyn Fn() -> Result<(), String>| {
        let start = Instant::now();
        action().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(start.elapsed() < IN_TIME, "{what} took {:?}", start.elapsed());
    };
    let networks = json!({ "k8s.v1.cni.cncf.io/networks": "a" });
    in_time("a pod", &|| create(&admission, &apps, &pod("plain", &json!({}))));
    in_time("a pod that names a network", &|| create(&admission, &apps, &pod("networks", &networks)));
    in_time("another user's ConfigMap", &|| {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
        create(&admission, &apps, &object)
    });
    in_time("a network elsewhere", &|| {
        create(&admission, &apps, &object("SriovNetwork", "net", &json!({ "resourceName": "nics" })))
    });
    in_time("a ConfigMap at home", &|| {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
        create(&admission, &home, &object)
    });
    let at_home = |arguments: &[&str]| kubectl(&admission, &[&["--namespace", &home], arguments].concat());
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
    let refused = create(&admission, &home, &policy("new", 1))
        .expect_err("unchecked objects are refused in the operator's namespace");
    assert!(start.elapsed() < IN_TIME, "refused after {:?}", start.elapsed());
    assert!(refused.contains("home.operator-webhook.sriovnetwork.openshift.io"), "{refused}");

    for namespace in [&apps, &home] {
        kubectl(&admission, &["delete", "namespace", namespace, DELETION]).unwrap_or_else(|error| {
            let remaining = ["get", "namespace", namespace, "-o", "jsonpath={.status}"];
            let remaining = admission.cluster.plane().kubectl(&remaining).unwrap();
            panic!("{error}\nstatus of the namespace: {}\n{}", remaining.stdout, admission.cluster.log());
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_replica_answers_until_it_gets_no_requests() {
    let admission = AdmissionCluster::new("stops", Plane::Admission).await;
    let mut first = admission.start_replica("first", &[], &[]);
    admission.enable().await;
    wait_until_called(&admission, &first).await;
    let second = admission.start_replica("second", &[], &[]);
    admission.remove_endpoint(&second);
    admission.wait_until_serving(&second).await;
    let fresh = admission.direct_client(&first).await;
    let load = WriteLoad::start(&admission);
    first.program.signal("TERM");
    while !fresh.is_stopping().await {
        fresh.request_admission().await.expect("a replica that is not stopping answers");
    }
    // The endpoints change later. Until then the first replica gets requests, also over new connections.
    for _ in 0..50 {
        let result = fresh.request_admission().await;
        result.unwrap_or_else(|error| panic!("{error}\n{}", admission.cluster.log()));
    }
    let connections = admission.connections(&first);
    load.wait_for_more(100).await;
    let connections = admission.connections(&first) - connections;
    assert!(connections > 50, "the API server opens new connections to the stopping replica: {connections}");
    admission.add_endpoint(&second);
    admission.remove_endpoint(&first);
    let before = second.count_requests("validate");
    let ended = tokio::task::spawn_blocking(move || first.program.wait()).await.unwrap();
    assert!(ended.success(), "{ended}\n{}", admission.cluster.log());
    let (writes, failed) = load.end().await;
    assert!(failed.is_empty(), "{} of {writes}: {failed:?}\n{}", failed.len(), admission.cluster.log());
    assert!(writes > 100 && second.count_requests("validate") > before, "{writes} writes");
    admission.expect_condition("Serving").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_fails_only_requests_in_progress_in_its_namespace() {
    let admission = AdmissionCluster::new("killed", Plane::Admission).await;
    let first = admission.start_replica("first", &[], &[]);
    admission.enable().await;
    wait_until_called(&admission, &first).await;
    let second = admission.start_replica("second", &[], &[]);
    admission.wait_until_serving(&second).await;
    let apps = admission.cluster.plane().namespace("killed-apps").await.unwrap();
    let (home, elsewhere) = (WriteLoad::start(&admission), WriteLoad::start_in(&admission, &apps));
    home.wait_for_more(50).await;
    admission.remove_endpoint(&first);
    first.program.kill();
    home.wait_for_more(50).await;
    let (writes, failed) = home.end().await;
    // Requests in progress fail, because the API server does not retry.
    assert!(failed.len() <= 10, "{} of {writes}: {failed:?}", failed.len());
    elsewhere.wait_for_more(50).await;
    let (writes, failed) = elsewhere.end().await;
    assert!(failed.is_empty(), "{} of {writes}: {failed:?}", failed.len());
    let after = WriteLoad::start(&admission);
    after.wait_for_more(50).await;
    assert_eq!(after.end().await.1, [""; 0], "the other replica answers");
    assert!(second.count_requests("validate") > 50);
}

#[tokio::test]
async fn webhooks_can_be_disabled_and_need_their_configurations() {
    let admission = AdmissionCluster::new("switched", Plane::Admission).await;
    let operator = admission.start_replica("operator", &[], &[]);
    admission.configure(json!({ "enableInjector": true })).await;
    admission.expect_condition("Serving").await;
    let validating = admission.wait_for_validating("there", |_| true).await;
    assert_eq!(validating.webhooks.iter().flatten().count(), 0, "only enabled webhooks are configured");
    let fails = |policy: &'static str| {
        move |now: &k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration| {
            now.webhooks.iter().flatten().any(|webhook| webhook.failure_policy.as_deref() == Some(policy))
        }
    };
    admission.wait_for_injector("which lets pods through", fails("Ignore")).await;
    let gates = json!({ "resourceInjectorMatchCondition": true });
    admission
        .configure(json!({ "enableInjector": true, "enableOperatorWebhook": true, "featureGates": gates }))
        .await;
    admission.wait_for_injector("which holds pods back", fails("Fail")).await;
    admission.wait_for_validating("filled", |now| now.webhooks.iter().flatten().count() == 3).await;

    admission.configure(json!({})).await;
    let start = Instant::now();
    admission.wait_for_validating("empty", |now| now.webhooks.iter().flatten().count() == 0).await;
    admission.wait_for_injector("empty", |now| now.webhooks.iter().flatten().count() == 0).await;
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    admission.expect_condition("Disabled").await;

    kubectl(
        &admission,
        &["delete", "validatingwebhookconfiguration", &admission.configuration_name("vfleet-admission")],
    )
    .unwrap();
    admission.configure(json!({ "enableOperatorWebhook": true })).await;
    let message = admission.expect_condition("NoConfiguration").await;
    assert!(message.contains(&admission.configuration_name("vfleet-admission")), "{message}");
    admission.cluster.install().unwrap();
    admission.expect_condition("Serving").await;

    // An operator without a webhook server removes the webhooks.
    operator.program.kill();
    let _operator = admission.cluster.start_operator_with(&[("POD_NAME", "operator")]);
    admission.expect_condition("NotListening").await;
    admission.wait_for_validating("empty", |now| now.webhooks.iter().flatten().count() == 0).await;
}

const GO_CONFIGURATION: &str = "sriov-operator-webhook-config";

#[tokio::test]
async fn webhooks_of_the_go_operator_are_deleted_when_ours_are_served() {
    let admission = AdmissionCluster::new("go-webhooks", Plane::Admission).await;
    admission.configure(json!({ "enableOperatorWebhook": true })).await;
    let config: vfleet_api::SriovOperatorConfig = admission.cluster.api().get("default").await.unwrap();
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
    let servers: Api<DaemonSet> = admission.cluster.api();
    servers.create(&PostParams::default(), &serde_json::from_value(server).unwrap()).await.unwrap();
    let configuration = json!({
        "metadata": { "name": GO_CONFIGURATION },
        "webhooks": [{
            "name": "operator-webhook.sriovnetwork.openshift.io", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            // For no existing namespace: other tests share the API server.
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "no-namespace" } },
            "clientConfig": {
                "service": { "name": "operator-webhook-service", "namespace": admission.cluster.namespace() },
            },
            "rules": [{
                "apiGroups": ["sriovnetwork.openshift.io"], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["sriovnetworknodepolicies"],
            }],
        }],
    });
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(admission.cluster.admin_client());
    let configuration = serde_json::from_value(configuration).unwrap();
    configurations.create(&PostParams::default(), &configuration).await.unwrap();

    // Without its Secret the operator cannot serve yet.
    let secrets: Api<Secret> = admission.cluster.api();
    secrets.delete(SECRET, &kube::api::DeleteParams::default()).await.unwrap();
    let _operator = admission.start_replica("operator", &[], &[]);
    let message = admission.expect_condition("NoCertificateSecret").await;
    assert!(message.contains("Go operator stay until then: operator-webhook"), "{message}");
    configurations.get(GO_CONFIGURATION).await.expect("it stays until the new webhooks are served");

    admission.cluster.install().unwrap();
    let message = admission.expect_condition("Serving").await;
    assert!(message.contains("objects are checked"), "{message}");
    let gone = |object: Option<&DaemonSet>| object.is_none();
    let waiting = kube::runtime::wait::await_condition(servers, "operator-webhook", gone);
    tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("its server is deleted").unwrap();
    assert!(
        configurations.get_opt(GO_CONFIGURATION).await.unwrap().is_none(),
        "it is deleted after its configuration"
    );
}
