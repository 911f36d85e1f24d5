use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use fixture_kube::{ControlPlane, network_attachment_crds};
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::watch;
use vfleet_api::SriovOperatorConfig;
use vfleet_plan::admission::Operation;

use super::*;

/// Returns an operator config with or without the injector.
fn config(injector: bool) -> OperatorConfigState {
    let spec = serde_json::from_value(json!({ "enableInjector": injector })).unwrap();
    OperatorConfigState::Config(Box::new(SriovOperatorConfig::new("default", spec)))
}

fn injector(
    client: Client,
    config: OperatorConfigState,
) -> (PodInjector, watch::Sender<OperatorConfigState>) {
    let (publish, settings) = watch::channel(config);
    (PodInjector::new(client, Arc::default(), settings), publish)
}

/// Handles a request about a pod that names these networks.
async fn handle(injector: &PodInjector, namespace: &str, networks: &str) -> AdmissionResponse {
    let pod = json!({
        "metadata": { "annotations": { "k8s.v1.cni.cncf.io/networks": networks } },
        "spec": { "containers": [{ "name": "a" }] },
    });
    let object = RawValue::from_string(pod.to_string()).unwrap();
    let operation = Operation::Create;
    let (uid, kind, name, old) = ("u", "Pod", "pod", None);
    injector.handle(ReviewRequest { uid, kind, operation, namespace, name, object: Some(&object), old }).await
}

fn warnings(response: &AdmissionResponse) -> &[String] {
    match response {
        AdmissionResponse::Allow { warnings, patch } if patch.is_empty() => warnings,
        other => panic!("not only warnings: {other:?}"),
    }
}

/// Starts an API server that accepts connections and never answers. Counts the connections.
async fn silent_api_server() -> (Client, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            held.push(stream);
        }
    });
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    (Client::try_from(config).unwrap(), requests)
}

#[tokio::test]
async fn parallel_lookups_are_limited() {
    let (client, requests) = silent_api_server().await;
    let (injector, _sender) = injector(client, config(true));
    let responses = (0..40).map(|pod| {
        let networks: Vec<_> = (0..MAX_LOOKUPS).map(|network| format!("n{pod}-{network}")).collect();
        let injector = &injector;
        async move { handle(injector, "ns", &networks.join(",")).await }
    });
    let start = Instant::now();
    let mut responses = pin!(futures::future::join_all(responses));
    assert!(timeout(LOOKUP_TIMEOUT / 2, responses.as_mut()).await.is_err(), "the API server does not answer");
    // Until the first lookups time out, no other one starts.
    let parallel = requests.load(Ordering::Relaxed);
    if start.elapsed() < LOOKUP_TIMEOUT {
        assert!((1..=MAX_PARALLEL_LOOKUPS).contains(&parallel), "{parallel}");
    }
    let responses = timeout(LOOKUP_TIMEOUT * 5, responses).await.expect("in time");
    for response in &responses {
        assert!(warnings(response)[0].contains("timed out"), "{response:?}");
        assert_eq!(warnings(response).len(), 8, "the number of warnings is limited");
    }
}

#[tokio::test]
async fn nothing_is_looked_up_while_the_injector_is_disabled() {
    let (client, requests) = silent_api_server().await;
    let (injector, sender) = injector(client, config(false));
    for off in [config(false), OperatorConfigState::Missing] {
        sender.send_replace(off);
        assert_eq!(warnings(&handle(&injector, "ns", "a").await), [""; 0]);
    }
    assert_eq!(requests.load(Ordering::Relaxed), 0);
    sender.send_replace(OperatorConfigState::Unknown);
    let response = handle(&injector, "ns", "a").await;
    assert!(
        warnings(&response)[0].contains("timed out"),
        "an unknown config counts as enabled: {response:?}"
    );
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

/// Like a tool that installs everything at once.
#[tokio::test]
async fn new_networks_and_a_new_crd_are_found_at_once() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("pods").await.unwrap();
    let (injector, _sender) = injector(plane.client().await.unwrap(), config(true));
    injector.index.set_nad_crd_missing();
    let before = handle(&injector, &namespace, "net").await;
    assert!(warnings(&before)[0].contains("has no CRD NetworkAttachmentDefinition"), "{before:?}");

    plane.apply_crds(network_attachment_crds()).unwrap();
    let missing = handle(&injector, &namespace, "net").await;
    assert!(matches!(missing, AdmissionResponse::Deny { code: 404, .. }), "{missing:?}");
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    let kind = ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions");
    let api: Api<DynamicObject> = Api::namespaced_with(plane.client().await.unwrap(), &namespace, &kind);
    let nad = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": "net", "annotations": { "k8s.v1.cni.cncf.io/resourceName": "openshift.io/a" } },
        "spec": { "config": "{}" },
    });
    api.create(&PostParams::default(), &serde_json::from_value(nad).unwrap()).await.unwrap();
    let after = handle(&injector, &namespace, "net").await;
    assert!(matches!(&after, AdmissionResponse::Allow { patch, .. } if patch.len() == 1), "{after:?}");
}
