//! Permissions of the service accounts of vfleet, checked by the API server.

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

/// Action: verb, group and resource, in a scope.
#[derive(Clone, Copy, Debug)]
struct Action(&'static str, &'static str, &'static str, Scope);

#[derive(Clone, Copy, Debug)]
enum Scope {
    OwnNamespace,
    OtherNamespace,
    Cluster,
}

async fn is_allowed(cluster: &Cluster, account: &str, action: Action) -> bool {
    let Action(verb, group, resource, scope) = action;
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (resource, None),
    };
    let namespace = match scope {
        Scope::OwnNamespace => Some(cluster.namespace().to_owned()),
        Scope::OtherNamespace => Some("default".to_owned()),
        Scope::Cluster => None,
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
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.admin_client());
    reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
}

#[tokio::test]
async fn operator_and_agents_have_only_the_permissions_that_they_need() {
    use Scope::{Cluster as All, OtherNamespace as Other, OwnNamespace as Own};
    let cluster = Cluster::new("rights", Plane::Rights).await;
    let allowed = [
        (OPERATOR, Action("patch", SRIOV, "sriovnetworknodestates", Own)),
        (OPERATOR, Action("patch", SRIOV, "sriovoperatorconfigs/status", Own)),
        (OPERATOR, Action("patch", SRIOV, "sriovnetworknodestates/status", Own)),
        (OPERATOR, Action("create", SRIOV, "sriovnetworkpoolconfigs", Own)),
        (OPERATOR, Action("patch", "machineconfiguration.openshift.io", "machineconfigpools", All)),
        (OPERATOR, Action("create", "apps", "daemonsets", Own)),
        (OPERATOR, Action("create", "k8s.cni.cncf.io", "network-attachment-definitions", Other)),
        (OPERATOR, Action("get", "k8s.cni.cncf.io", "network-attachment-definitions", Other)),
        (OPERATOR, Action("watch", "", "nodes", All)),
        (OPERATOR, Action("get", "", "nodes", All)),
        (OPERATOR, Action("create", "events.k8s.io", "events", Other)),
        (OPERATOR, Action("watch", "", "pods", All)),
        (OPERATOR, Action("delete", "", "pods", Other)),
        (OPERATOR, Action("create", "", "pods/eviction", Other)),
        (OPERATOR, Action("list", "policy", "poddisruptionbudgets", Other)),
        (AGENT, Action("patch", SRIOV, "sriovnetworknodestates/status", Own)),
        (AGENT, Action("watch", SRIOV, "sriovoperatorconfigs", Own)),
        (AGENT, Action("delete", "", "pods", Own)),
        (AGENT, Action("get", "", "nodes", All)),
        (AGENT, Action("watch", "", "nodes", All)),
        (SIM, Action("create", "", "nodes", All)),
        (SIM, Action("patch", SRIOV, "sriovnetworknodestates/status", Own)),
    ];
    for (account, action) in allowed {
        assert!(is_allowed(&cluster, account, action).await, "{account} may not {action:?}");
    }
    let denied = [
        (OPERATOR, Action("get", "", "secrets", Own)),
        (OPERATOR, Action("list", "", "secrets", All)),
        (OPERATOR, Action("list", "", "secrets", Own)),
        (OPERATOR, Action("patch", "", "secrets", Own)),
        (OPERATOR, Action("create", "", "secrets", Own)),
        (OPERATOR, Action("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations", All)),
        (OPERATOR, Action("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", All)),
        (OPERATOR, Action("patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations", All)),
        (OPERATOR, Action("list", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", All)),
        (OPERATOR, Action("delete", "", "nodes", All)),
        (OPERATOR, Action("update", "", "nodes", All)),
        (OPERATOR, Action("get", "", "namespaces", All)),
        (OPERATOR, Action("get", SRIOV, "sriovnetworks", Other)),
        (OPERATOR, Action("update", SRIOV, "sriovnetworks", Other)),
        (OPERATOR, Action("update", "k8s.cni.cncf.io", "network-attachment-definitions", Other)),
        (OPERATOR, Action("get", "", "configmaps", Own)),
        (OPERATOR, Action("patch", "coordination.k8s.io", "leases", Own)),
        (OPERATOR, Action("patch", "events.k8s.io", "events", Other)),
        (OPERATOR, Action("create", "", "pods", Own)),
        (OPERATOR, Action("create", "", "pods/exec", Own)),
        (OPERATOR, Action("get", "", "pods", Other)),
        (OPERATOR, Action("patch", "", "pods", Other)),
        (OPERATOR, Action("deletecollection", "", "pods", Other)),
        (OPERATOR, Action("delete", "policy", "poddisruptionbudgets", Other)),
        (OPERATOR, Action("create", "apps", "daemonsets", Other)),
        (OPERATOR, Action("patch", "", "configmaps", Other)),
        (OPERATOR, Action("create", "", "serviceaccounts/token", Own)),
        (OPERATOR, Action("create", "rbac.authorization.k8s.io", "roles", Own)),
        (OPERATOR, Action("create", "rbac.authorization.k8s.io", "clusterrolebindings", All)),
        (OPERATOR, Action("escalate", "rbac.authorization.k8s.io", "clusterroles", All)),
        (OPERATOR, Action("impersonate", "", "users", All)),
        (OPERATOR, Action("delete", "admissionregistration.k8s.io", "validatingwebhookconfigurations", All)),
        (OPERATOR, Action("delete", SRIOV, "sriovnetworknodepolicies", Own)),
        (OPERATOR, Action("delete", SRIOV, "sriovnetworkpoolconfigs", Own)),
        (OPERATOR, Action("delete", "machineconfiguration.openshift.io", "machineconfigpools", All)),
        (OPERATOR, Action("list", "config.openshift.io", "infrastructures", All)),
        (OPERATOR, Action("patch", SRIOV, "sriovnetworknodestates", Other)),
        (OPERATOR, Action("delete", "", "namespaces", All)),
        (AGENT, Action("update", SRIOV, "sriovnetworknodestates", Own)),
        (AGENT, Action("delete", SRIOV, "sriovnetworknodestates", Own)),
        (AGENT, Action("patch", SRIOV, "sriovoperatorconfigs", Own)),
        (AGENT, Action("list", SRIOV, "sriovnetworknodepolicies", Own)),
        (AGENT, Action("list", "", "pods", Other)),
        (AGENT, Action("create", "", "pods", Own)),
        (AGENT, Action("list", "", "configmaps", Own)),
        (AGENT, Action("update", "", "nodes", All)),
        (AGENT, Action("patch", "", "nodes", All)),
        (AGENT, Action("patch", SRIOV, "sriovnetworknodestates", Own)),
        (AGENT, Action("patch", "", "nodes/status", All)),
        (AGENT, Action("get", "", "secrets", Own)),
        (AGENT, Action("create", "events.k8s.io", "events", Other)),
        (AGENT, Action("patch", "events.k8s.io", "events", Own)),
        (SIM, Action("get", "", "secrets", Own)),
        (SIM, Action("patch", "", "nodes", All)),
        (SIM, Action("patch", SRIOV, "sriovnetworknodestates", Own)),
    ];
    for (account, action) in denied {
        assert!(!is_allowed(&cluster, account, action).await, "{account} may {action:?}");
    }
}

#[tokio::test]
async fn agents_may_request_drains_from_an_external_drainer_only_if_it_is_enabled() {
    let cluster = Cluster::new("rights-drainer", Plane::Rights).await;
    let requests = [
        Action("patch", "", "nodes", Scope::Cluster),
        Action("patch", SRIOV, "sriovnetworknodestates", Scope::OwnNamespace),
    ];
    for action in requests {
        assert!(!is_allowed(&cluster, AGENT, action).await, "{action:?}");
    }
    cluster.allow_external_drainer();
    for action in requests {
        // Roles take effect after a moment, without an event.
        let waiting = async { while !is_allowed(&cluster, AGENT, action).await {} };
        tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("the role takes effect");
        assert!(!is_allowed(&cluster, SIM, action).await, "{action:?}");
    }
    let elsewhere = Action("patch", SRIOV, "sriovnetworknodestates", Scope::OtherNamespace);
    assert!(!is_allowed(&cluster, AGENT, elsewhere).await);
}

#[tokio::test]
async fn agents_may_write_the_status_of_nodes_only_if_that_is_enabled() {
    let cluster = Cluster::new("rights-capacity", Plane::Rights).await;
    let write = Action("patch", "", "nodes/status", Scope::Cluster);
    assert!(!is_allowed(&cluster, AGENT, write).await);
    cluster.allow_bridge_resources();
    // Roles take effect after a moment, without an event.
    let waiting = async { while !is_allowed(&cluster, AGENT, write).await {} };
    tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("the role takes effect");
    assert!(!is_allowed(&cluster, SIM, write).await);
    for verb in ["update", "create", "delete"] {
        assert!(
            !is_allowed(&cluster, AGENT, Action(verb, "", "nodes/status", Scope::Cluster)).await,
            "{verb}"
        );
    }
    assert!(!is_allowed(&cluster, AGENT, Action("patch", "", "nodes", Scope::Cluster)).await);
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
        Ok(_) => panic!("not refused: {because}"),
    }
}

async fn create_two_nodes(cluster: &Cluster, nodes: [&str; 2]) {
    let states: Api<SriovNetworkNodeState> = Api::namespaced(cluster.admin_client(), cluster.namespace());
    for node in nodes {
        cluster.create_worker(node).await;
        let state = serde_json::from_value(json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
            "metadata": { "name": node }, "spec": {},
        }));
        states.create(&PostParams::default(), &state.unwrap()).await.unwrap();
    }
}

/// Waits until an admission policy is enforced, which causes no event. `action` is refused then.
async fn wait_until_enforced<T>(action: impl AsyncFn() -> Result<T, kube::Error>) {
    let is_refused = |result: Result<T, kube::Error>| match result {
        Err(kube::Error::Api(status)) => status.is_forbidden(),
        _ => false,
    };
    let waiting = async { while !is_refused(action().await) {} };
    tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("the policy is enforced");
}

/// Waits until a role takes effect, which causes no event. `action` is allowed then.
async fn wait_until_allowed<T>(action: impl AsyncFn() -> Result<T, kube::Error>) {
    let waiting = async { while action().await.is_err() {} };
    tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("the role takes effect");
}

#[tokio::test]
async fn an_agent_writes_only_the_node_state_of_its_own_node() {
    let cluster = Cluster::new("node-scope", Plane::Rights).await;
    create_two_nodes(&cluster, ["scope-a", "scope-b"]).await;
    let a = cluster.client_as(AGENT, Some(&cluster.agent_pod("scope-a"))).await;
    let b = cluster.client_as(AGENT, Some(&cluster.agent_pod("scope-b"))).await;
    wait_until_enforced(async || report(&a, &cluster, "scope-b").await).await;

    report(&a, &cluster, "scope-a").await.expect("the agent may write its own objects");
    report(&b, &cluster, "scope-b").await.expect("the agent may write its own objects");
    assert_refused(
        report(&a, &cluster, "scope-b").await,
        "the agent of node scope-a may not write the node state scope-b: \
         an agent writes only what belongs to its own node",
    );
    assert_refused(report(&b, &cluster, "scope-a").await, "the agent of node scope-b may not write");

    let without_a_pod = cluster.client_as(AGENT, None).await;
    assert_refused(report(&without_a_pod, &cluster, "scope-a").await, "does not contain its node");
}

#[tokio::test]
async fn an_agent_changes_only_pods_of_its_own_node() {
    let cluster = Cluster::new("pod-scope", Plane::Rights).await;
    create_two_nodes(&cluster, ["pods-a", "pods-b"]).await;
    let (pod_a, pod_b) = (cluster.agent_pod("pods-a"), cluster.agent_pod("pods-b"));
    let a = cluster.client_as(AGENT, Some(&pod_a)).await;
    let pods: Api<Pod> = Api::namespaced(a, cluster.namespace());
    let label = Patch::Merge(json!({ "metadata": { "labels": { "touched": "yes" } } }));
    wait_until_enforced(async || pods.patch(&pod_b, &PatchParams::default(), &label).await).await;
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

/// Checks that an agent may write only the annotations for drain requests.
async fn expect_only_annotations<K>(api: &Api<K>, own: &str, of_another: &str, allowed: [&str; 2])
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let patch =
        async |name: &str, patch: Value| api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    wait_until_allowed(async || patch(own, annotation(allowed[0], Some("Idle"))).await).await;
    // A different value each time, because a patch without a change is never refused.
    let tries = AtomicU32::new(0);
    wait_until_enforced(async || {
        let value = tries.fetch_add(1, Ordering::Relaxed).to_string();
        patch(own, annotation("other", Some(&value))).await
    })
    .await;
    for name in allowed {
        for value in [Some("Drain_Required"), Some("Idle"), None] {
            patch(own, annotation(name, value)).await.expect("the agent may write its own objects");
        }
        assert_refused(
            patch(of_another, annotation(name, Some("Drain_Required"))).await,
            "an agent writes only what belongs to its own node",
        );
    }
    let but = format!("but its status and the annotations {} and {}", allowed[0], allowed[1]);
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
    create_two_nodes(&cluster, names).await;
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
    report(&agent, &cluster, names[0]).await.expect("the agent may write its status");

    let nodes: Api<Node> = Api::all(agent);
    expect_only_annotations(&nodes, names[0], names[1], [desired, "sriovnetwork.openshift.io/state"]).await;
    let cordon = json!({ "spec": { "unschedulable": true } });
    let written = nodes.patch(names[0], &PatchParams::default(), &Patch::Merge(cordon)).await;
    assert_refused(written, "may change nothing of the node drain-scope-a");
}

#[tokio::test]
async fn an_agent_changes_only_resources_of_bridges_in_the_status_of_its_node() {
    let cluster = Cluster::new("capacity-scope", Plane::Rights).await;
    cluster.allow_bridge_resources();
    let [own, of_another] = ["capacity-scope-a", "capacity-scope-b"];
    create_two_nodes(&cluster, [own, of_another]).await;
    let is_running = |node: &Node| {
        let status = node.status.as_ref();
        status.is_some_and(|status| status.phase.as_deref() == Some("Running") && status.capacity.is_some())
    };
    // kwok writes the status of a new node.
    for node in [own, of_another] {
        cluster.wait_for_node(node, "its kubelet runs", is_running).await;
    }
    let agent = cluster.client_as(AGENT, Some(&cluster.agent_pod(own))).await;
    let nodes: Api<Node> = Api::all(agent);
    let patch = async |name: &str, patch: Value| {
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await
    };
    let resource =
        |quantity: &str| json!({ "status": { "capacity": { "ovs-cni.network.kubevirt.io/br0": quantity } } });
    wait_until_allowed(async || patch(own, resource("1")).await).await;
    // A different value each time, because a patch without a change is never refused.
    let tries = AtomicU32::new(1);
    wait_until_enforced(async || {
        let value = tries.fetch_add(1, Ordering::Relaxed).to_string();
        patch(of_another, resource(&value)).await
    })
    .await;
    assert_refused(
        patch(of_another, resource("1k")).await,
        "an agent writes only what belongs to its own node",
    );

    for change in [
        resource("1k"),
        json!({ "status": { "capacity": { "ovs-cni.network.kubevirt.io/br0": null } } }),
        json!({ "status": { "allocatable": { "ovs-cni.network.kubevirt.io/br0": "1k" } } }),
    ] {
        patch(own, change).await.expect("the agent may write resources of bridges");
    }
    let but =
        "may change nothing of the node capacity-scope-a but the resources ovs-cni.network.kubevirt.io/*";
    for change in [
        json!({ "status": { "capacity": { "cpu": "2k" } } }),
        json!({ "status": { "capacity": { "cpu": null } } }),
        json!({ "status": { "capacity": { "openshift.io/nics": "4" } } }),
        json!({ "status": { "capacity": { "ovs-cni.network.kubevirt.io.evil/br0": "4" } } }),
        json!({ "status": { "capacity": null } }),
        json!({ "status": { "allocatable": { "cpu": "2k" } } }),
        json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }] } }),
        json!({ "status": { "conditions": null } }),
        json!({ "status": { "phase": "Pending" } }),
        json!({ "metadata": { "labels": { "other": "yes" } } }),
        json!({ "metadata": { "annotations": { "other": "yes" } } }),
        json!({ "metadata": { "finalizers": ["vfleet.io/test"] } }),
    ] {
        let text = change.to_string();
        let written = patch(own, change).await;
        assert!(written.is_err(), "{text} is not refused");
        assert_refused(written, but);
    }
}
