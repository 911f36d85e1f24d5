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

/// What the operator config says of the injector.
fn seen(injector: bool) -> Seen {
    let spec = serde_json::from_value(json!({ "enableInjector": injector })).unwrap();
    Seen::Config(Box::new(SriovOperatorConfig::new("default", spec)))
}

fn pods(client: Client, seen: Seen) -> (Pods, watch::Sender<Seen>) {
    let (publish, settings) = watch::channel(seen);
    (Pods::new(client, Arc::default(), settings), publish)
}

/// What is answered about a pod that names these networks.
async fn answered(pods: &Pods, namespace: &str, networks: &str) -> Answer {
    let pod = json!({
        "metadata": { "annotations": { "k8s.v1.cni.cncf.io/networks": networks } },
        "spec": { "containers": [{ "name": "a" }] },
    });
    let object = RawValue::from_string(pod.to_string()).unwrap();
    let operation = Operation::Create;
    let (uid, kind, name, old) = ("u", "Pod", "pod", None);
    pods.answer(ReviewRequest { uid, kind, operation, namespace, name, object: Some(&object), old }).await
}

fn warnings(answer: &Answer) -> &[String] {
    match answer {
        Answer::Admit { warnings, patch } if patch.is_empty() => warnings,
        other => panic!("it is not only warned of: {other:?}"),
    }
}

/// An API server that takes every question and never answers; counts them.
async fn silent_api_server() -> (Client, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            held.push(stream);
        }
    });
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    (Client::try_from(config).unwrap(), asked)
}

#[tokio::test]
async fn whoever_names_many_networks_has_the_api_server_asked_about_few_at_once() {
    let (client, asked) = silent_api_server().await;
    let (pods, _publish) = pods(client, seen(true));
    let answers = (0..40).map(|pod| {
        let networks: Vec<_> = (0..MOST_LOOK_UPS).map(|network| format!("n{pod}-{network}")).collect();
        let pods = &pods;
        async move { answered(pods, "ns", &networks.join(",")).await }
    });
    let start = Instant::now();
    let mut answers = pin!(futures::future::join_all(answers));
    assert!(timeout(LOOK_UP_DEADLINE / 2, answers.as_mut()).await.is_err(), "nobody answers");
    // Until the first give up, nobody else gets a turn.
    let at_once = asked.load(Ordering::Relaxed);
    if start.elapsed() < LOOK_UP_DEADLINE {
        assert!((1..=MOST_LOOK_UPS_AT_ONCE).contains(&at_once), "{at_once}");
    }
    let answers = timeout(LOOK_UP_DEADLINE * 5, answers).await.expect("in time");
    for answer in &answers {
        assert!(warnings(answer)[0].contains("could not be looked up in time"), "{answer:?}");
        assert_eq!(warnings(answer).len(), 8, "not more than a person reads");
    }
}

#[tokio::test]
async fn nothing_is_looked_up_while_nobody_wants_it() {
    let (client, asked) = silent_api_server().await;
    let (pods, publish) = pods(client, seen(false));
    for off in [seen(false), Seen::Missing] {
        publish.send_replace(off);
        assert_eq!(warnings(&answered(&pods, "ns", "a").await), [""; 0]);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    publish.send_replace(Seen::Unknown);
    let answer = answered(&pods, "ns", "a").await;
    assert!(warnings(&answer)[0].contains("in time"), "what is not known yet may be wanted: {answer:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

/// As a tool does that installs all at once.
#[tokio::test]
async fn a_network_counts_as_soon_as_it_is_there_and_so_does_its_kind() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("pods").await.unwrap();
    let (pods, _publish) = pods(plane.client().await.unwrap(), seen(true));
    pods.index.see_no_kind_of_nads();
    let before = answered(&pods, &namespace, "net").await;
    assert!(warnings(&before)[0].contains("knows no NetworkAttachmentDefinitions"), "{before:?}");

    plane.apply_crds(network_attachment_crds()).unwrap();
    let missing = answered(&pods, &namespace, "net").await;
    assert!(matches!(missing, Answer::Refuse { code: 404, .. }), "{missing:?}");
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    let kind = ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions");
    let api: Api<DynamicObject> = Api::namespaced_with(plane.client().await.unwrap(), &namespace, &kind);
    let nad = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": "net", "annotations": { "k8s.v1.cni.cncf.io/resourceName": "openshift.io/a" } },
        "spec": { "config": "{}" },
    });
    api.create(&PostParams::default(), &serde_json::from_value(nad).unwrap()).await.unwrap();
    let after = answered(&pods, &namespace, "net").await;
    assert!(matches!(&after, Answer::Admit { patch, .. } if patch.len() == 1), "{after:?}");
}
