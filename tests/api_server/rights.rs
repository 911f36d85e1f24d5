//! What the accounts of vfleet may do, and may not, as the API server sees it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use vfleet_api::SriovNetworkNodeState;
use vfleet_tests::cluster::{AGENT, Cluster, OPERATOR, SIM};
use vfleet_tests::plane::Plane;

const SRIOV: &str = "sriovnetwork.openshift.io";

/// Something that one could do: verb, group, resource; in the own namespace, another one, or none.
#[derive(Clone, Copy, Debug)]
struct Deed(&'static str, &'static str, &'static str, Place);

#[derive(Clone, Copy, Debug)]
enum Place {
    Home,
    Elsewhere,
    Cluster,
}

async fn may(cluster: &Cluster, account: &str, deed: Deed) -> bool {
    let Deed(verb, group, resource, place) = deed;
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (resource, None),
    };
    let namespace = match place {
        Place::Home => Some(cluster.namespace().to_owned()),
        Place::Elsewhere => Some("default".to_owned()),
        Place::Cluster => None,
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{}:{account}", cluster.namespace())),
            groups: Some(vec!["system:serviceaccounts".to_owned(), "system:authenticated".to_owned()]),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource,
                namespace,
                ..Default::default()
            }),
            ..Default::default()
        },
        ..Default::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.administrator());
    reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
}

#[tokio::test]
async fn the_operator_and_the_agents_may_do_their_work_and_nothing_else() {
    use Place::{Cluster as All, Elsewhere, Home};
    let cluster = Cluster::new("rights", Plane::Rights).await;
    let may_do = [
        (OPERATOR, Deed("patch", SRIOV, "sriovnetworknodestates", Home)),
        (OPERATOR, Deed("patch", SRIOV, "sriovoperatorconfigs/status", Home)),
        (OPERATOR, Deed("patch", SRIOV, "sriovnetworknodestates/status", Home)),
        (OPERATOR, Deed("create", SRIOV, "sriovnetworkpoolconfigs", Home)),
        (OPERATOR, Deed("patch", "machineconfiguration.openshift.io", "machineconfigpools", All)),
        (OPERATOR, Deed("create", "apps", "daemonsets", Home)),
        (OPERATOR, Deed("create", "k8s.cni.cncf.io", "network-attachment-definitions", Elsewhere)),
        (OPERATOR, Deed("get", "k8s.cni.cncf.io", "network-attachment-definitions", Elsewhere)),
        (OPERATOR, Deed("watch", "", "nodes", All)),
        (OPERATOR, Deed("get", "", "nodes", All)),
        (OPERATOR, Deed("create", "events.k8s.io", "events", Elsewhere)),
        (OPERATOR, Deed("watch", "", "pods", All)),
        (OPERATOR, Deed("delete", "", "pods", Elsewhere)),
        (OPERATOR, Deed("create", "", "pods/eviction", Elsewhere)),
        (OPERATOR, Deed("list", "policy", "poddisruptionbudgets", Elsewhere)),
        (AGENT, Deed("patch", SRIOV, "sriovnetworknodestates/status", Home)),
        (AGENT, Deed("watch", SRIOV, "sriovoperatorconfigs", Home)),
        (AGENT, Deed("delete", "", "pods", Home)),
        (AGENT, Deed("get", "", "nodes", All)),
        (AGENT, Deed("watch", "", "nodes", All)),
        (SIM, Deed("create", "", "nodes", All)),
        (SIM, Deed("patch", SRIOV, "sriovnetworknodestates/status", Home)),
    ];
    for (account, deed) in may_do {
        assert!(may(&cluster, account, deed).await, "{account} may not {deed:?}");
    }
    let may_not_do = [
        (OPERATOR, Deed("get", "", "secrets", Home)),
        (OPERATOR, Deed("list", "", "secrets", All)),
        (OPERATOR, Deed("list", "", "secrets", Home)),
        (OPERATOR, Deed("patch", "", "secrets", Home)),
        (OPERATOR, Deed("create", "", "secrets", Home)),
        (OPERATOR, Deed("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations", All)),
        (OPERATOR, Deed("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", All)),
        (OPERATOR, Deed("patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations", All)),
        (OPERATOR, Deed("list", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", All)),
        (OPERATOR, Deed("delete", "", "nodes", All)),
        (OPERATOR, Deed("update", "", "nodes", All)),
        (OPERATOR, Deed("get", "", "namespaces", All)),
        (OPERATOR, Deed("get", SRIOV, "sriovnetworks", Elsewhere)),
        (OPERATOR, Deed("update", SRIOV, "sriovnetworks", Elsewhere)),
        (OPERATOR, Deed("update", "k8s.cni.cncf.io", "network-attachment-definitions", Elsewhere)),
        (OPERATOR, Deed("get", "", "configmaps", Home)),
        (OPERATOR, Deed("patch", "coordination.k8s.io", "leases", Home)),
        (OPERATOR, Deed("patch", "events.k8s.io", "events", Elsewhere)),
        (OPERATOR, Deed("create", "", "pods", Home)),
        (OPERATOR, Deed("create", "", "pods/exec", Home)),
        (OPERATOR, Deed("get", "", "pods", Elsewhere)),
        (OPERATOR, Deed("patch", "", "pods", Elsewhere)),
        (OPERATOR, Deed("deletecollection", "", "pods", Elsewhere)),
        (OPERATOR, Deed("delete", "policy", "poddisruptionbudgets", Elsewhere)),
        (OPERATOR, Deed("create", "apps", "daemonsets", Elsewhere)),
        (OPERATOR, Deed("patch", "", "configmaps", Elsewhere)),
        (OPERATOR, Deed("create", "", "serviceaccounts/token", Home)),
        (OPERATOR, Deed("create", "rbac.authorization.k8s.io", "roles", Home)),
        (OPERATOR, Deed("create", "rbac.authorization.k8s.io", "clusterrolebindings", All)),
        (OPERATOR, Deed("escalate", "rbac.authorization.k8s.io", "clusterroles", All)),
        (OPERATOR, Deed("impersonate", "", "users", All)),
        (OPERATOR, Deed("delete", "admissionregistration.k8s.io", "validatingwebhookconfigurations", All)),
        (OPERATOR, Deed("delete", SRIOV, "sriovnetworknodepolicies", Home)),
        (OPERATOR, Deed("delete", SRIOV, "sriovnetworkpoolconfigs", Home)),
        (OPERATOR, Deed("delete", "machineconfiguration.openshift.io", "machineconfigpools", All)),
        (OPERATOR, Deed("list", "config.openshift.io", "infrastructures", All)),
        (OPERATOR, Deed("patch", SRIOV, "sriovnetworknodestates", Elsewhere)),
        (OPERATOR, Deed("delete", "", "namespaces", All)),
        (AGENT, Deed("update", SRIOV, "sriovnetworknodestates", Home)),
        (AGENT, Deed("delete", SRIOV, "sriovnetworknodestates", Home)),
        (AGENT, Deed("patch", SRIOV, "sriovoperatorconfigs", Home)),
        (AGENT, Deed("list", SRIOV, "sriovnetworknodepolicies", Home)),
        (AGENT, Deed("list", "", "pods", Elsewhere)),
        (AGENT, Deed("create", "", "pods", Home)),
        (AGENT, Deed("list", "", "configmaps", Home)),
        (AGENT, Deed("update", "", "nodes", All)),
        (AGENT, Deed("patch", "", "nodes", All)),
        (AGENT, Deed("patch", SRIOV, "sriovnetworknodestates", Home)),
        (AGENT, Deed("patch", "", "nodes/status", All)),
        (AGENT, Deed("get", "", "secrets", Home)),
        (AGENT, Deed("create", "events.k8s.io", "events", Elsewhere)),
        (AGENT, Deed("patch", "events.k8s.io", "events", Home)),
        (SIM, Deed("get", "", "secrets", Home)),
        (SIM, Deed("patch", "", "nodes", All)),
        (SIM, Deed("patch", SRIOV, "sriovnetworknodestates", Home)),
    ];
    for (account, deed) in may_not_do {
        assert!(!may(&cluster, account, deed).await, "{account} may {deed:?}");
    }
}

#[tokio::test]
async fn agents_may_tell_an_external_drainer_only_where_there_is_one() {
    let cluster = Cluster::new("rights-drainer", Plane::Rights).await;
    let telling = [
        Deed("patch", "", "nodes", Place::Cluster),
        Deed("patch", SRIOV, "sriovnetworknodestates", Place::Home),
    ];
    for deed in telling {
        assert!(!may(&cluster, AGENT, deed).await, "{deed:?}");
    }
    cluster.allow_external_drainer();
    for deed in telling {
        // The roles come into force a moment after they are written, and no event says when.
        let waiting = async { while !may(&cluster, AGENT, deed).await {} };
        tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("it may now");
        assert!(!may(&cluster, SIM, deed).await, "{deed:?}");
    }
    let elsewhere = Deed("patch", SRIOV, "sriovnetworknodestates", Place::Elsewhere);
    assert!(!may(&cluster, AGENT, elsewhere).await);
}

fn status_of(node: &str) -> Value {
    json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
        "metadata": { "name": node }, "status": { "syncStatus": "InProgress" },
    })
}

async fn report(client: &Client, cluster: &Cluster, node: &str) -> Result<(), kube::Error> {
    let states: Api<SriovNetworkNodeState> = Api::namespaced(client.clone(), cluster.namespace());
    let params = PatchParams::apply("test").force();
    states.patch_status(node, &params, &Patch::Apply(status_of(node))).await.map(drop)
}

fn assert_refused<T>(result: Result<T, kube::Error>, because: &str) {
    match result {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 403, "{status:?}");
            assert!(status.message.contains(because), "{:?} does not say {because:?}", status.message);
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused: {because}"),
    }
}

async fn two_nodes(cluster: &Cluster, nodes: [&str; 2]) {
    let states: Api<SriovNetworkNodeState> = Api::namespaced(cluster.administrator(), cluster.namespace());
    for node in nodes {
        cluster.create_worker(node).await;
        let state = serde_json::from_value(json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
            "metadata": { "name": node }, "spec": {},
        }));
        states.create(&PostParams::default(), &state.unwrap()).await.unwrap();
    }
}

/// Policies come into force a moment after they are written, and no event says when. `deed` is one that is refused then.
async fn until_in_force<T>(deed: impl AsyncFn() -> Result<T, kube::Error>) {
    let is_refused = |result: Result<T, kube::Error>| match result {
        Err(kube::Error::Api(status)) => status.is_forbidden(),
        _ => false,
    };
    let waiting = async { while !is_refused(deed().await) {} };
    tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("the policy comes into force");
}

/// The same of roles. `deed` is one that they allow.
async fn until_allowed<T>(deed: impl AsyncFn() -> Result<T, kube::Error>) {
    let waiting = async { while deed().await.is_err() {} };
    tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("the role comes into force");
}

#[tokio::test]
async fn an_agent_writes_only_the_node_state_of_its_own_node() {
    let cluster = Cluster::new("node-scope", Plane::Rights).await;
    two_nodes(&cluster, ["scope-a", "scope-b"]).await;
    let a = cluster.client_as(AGENT, Some(&cluster.agent_pod("scope-a"))).await;
    let b = cluster.client_as(AGENT, Some(&cluster.agent_pod("scope-b"))).await;
    until_in_force(async || report(&a, &cluster, "scope-b").await).await;

    report(&a, &cluster, "scope-a").await.expect("its own");
    report(&b, &cluster, "scope-b").await.expect("its own");
    assert_refused(
        report(&a, &cluster, "scope-b").await,
        "the agent of node scope-a may not write the node state scope-b: \
         an agent writes only what belongs to its own node",
    );
    assert_refused(report(&b, &cluster, "scope-a").await, "the agent of node scope-b may not write");

    let without_a_pod = cluster.client_as(AGENT, None).await;
    assert_refused(report(&without_a_pod, &cluster, "scope-a").await, "does not say on which node it runs");
}

#[tokio::test]
async fn an_agent_touches_only_pods_of_its_own_node() {
    let cluster = Cluster::new("pod-scope", Plane::Rights).await;
    two_nodes(&cluster, ["pods-a", "pods-b"]).await;
    let (pod_a, pod_b) = (cluster.agent_pod("pods-a"), cluster.agent_pod("pods-b"));
    let a = cluster.client_as(AGENT, Some(&pod_a)).await;
    let pods: Api<Pod> = Api::namespaced(a, cluster.namespace());
    let label = Patch::Merge(json!({ "metadata": { "labels": { "touched": "yes" } } }));
    until_in_force(async || pods.patch(&pod_b, &PatchParams::default(), &label).await).await;
    pods.patch(&pod_a, &PatchParams::default(), &label).await.expect("on its own node");
    assert_refused(
        pods.patch(&pod_b, &PatchParams::default(), &label).await,
        "the agent of node pods-a may not write a pod on node pods-b",
    );
    assert_refused(pods.delete(&pod_b, &DeleteParams::default()).await, "may not write a pod on node pods-b");
}

fn annotation(name: &str, value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { name: value } } })
}

/// Drain requests by annotation are all that an agent may write of these objects.
async fn expect_only_annotations<K>(api: &Api<K>, own: &str, of_another: &str, may: [&str; 2])
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let patch =
        async |name: &str, patch: Value| api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    until_allowed(async || patch(own, annotation(may[0], Some("Idle"))).await).await;
    // Each time another value: what changes nothing is never refused.
    let tries = AtomicU32::new(0);
    until_in_force(async || {
        let value = tries.fetch_add(1, Ordering::Relaxed).to_string();
        patch(own, annotation("other", Some(&value))).await
    })
    .await;
    for name in may {
        for value in [Some("Drain_Required"), Some("Idle"), None] {
            patch(own, annotation(name, value)).await.expect("its own");
        }
        assert_refused(
            patch(of_another, annotation(name, Some("Drain_Required"))).await,
            "an agent writes only what belongs to its own node",
        );
    }
    let but = format!("but its status and the annotations {} and {}", may[0], may[1]);
    assert_refused(patch(own, annotation("other", Some("yes"))).await, &but);
    assert_refused(patch(own, annotation("kept", Some("other"))).await, &but);
    assert_refused(patch(own, annotation("kept", None)).await, &but);
    assert_refused(patch(own, json!({ "metadata": { "labels": { "other": "yes" } } })).await, &but);
    assert_refused(patch(own, json!({ "metadata": { "finalizers": ["vfleet.io/test"] } })).await, &but);
}

#[tokio::test]
async fn an_agent_changes_only_its_drain_annotations_on_its_node_and_node_state() {
    let cluster = Cluster::new("drain-scope", Plane::Rights).await;
    cluster.allow_external_drainer();
    let names = ["drain-scope-a", "drain-scope-b"];
    two_nodes(&cluster, names).await;
    for (kind, name) in [("node", names[0]), ("sriovnetworknodestate", names[0])] {
        cluster.kubectl(&["annotate", kind, name, "kept=yes"]);
    }
    let agent = cluster.client_as(AGENT, Some(&cluster.agent_pod(names[0]))).await;

    let states: Api<SriovNetworkNodeState> = Api::namespaced(agent.clone(), cluster.namespace());
    let desired = "sriovnetwork.openshift.io/desired-state";
    let external = "sriovnetwork.openshift.io/use-external-drainer";
    expect_only_annotations(&states, names[0], names[1], [desired, external]).await;
    let spec = json!({ "spec": { "interfaces": [] } });
    let written = states.patch(names[0], &PatchParams::default(), &Patch::Merge(spec)).await;
    assert_refused(written, "may change nothing of the node state drain-scope-a");
    report(&agent, &cluster, names[0]).await.expect("its status");

    let nodes: Api<Node> = Api::all(agent);
    expect_only_annotations(&nodes, names[0], names[1], [desired, "sriovnetwork.openshift.io/state"]).await;
    let cordon = json!({ "spec": { "unschedulable": true } });
    let written = nodes.patch(names[0], &PatchParams::default(), &Patch::Merge(cordon)).await;
    assert_refused(written, "may change nothing of the node drain-scope-a");
}
