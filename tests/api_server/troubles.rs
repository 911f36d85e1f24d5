//! The operator when its API server is in trouble: restarted, busy, with objects that others change at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use serde_json::json;
use vfleet_api::SriovNetworkNodeState;
use vfleet_tests::cluster::{Cluster, machine};
use vfleet_tests::plane::Plane;

const PF: &str = "enp1s0";

/// One after the other: the first one takes the API server away from everybody.
#[tokio::test]
async fn the_operator_survives_its_api_server() {
    restarted().await;
    busy().await;
    changed_by_others().await;
}

/// Its watches end, and where it was is forgotten: the new server answers that this is too old.
async fn restarted() {
    let cluster = Cluster::new("restarted", Plane::Troubles).await;
    let _operator = cluster.operator();
    let _agent = cluster.agent("restarted-1", &machine()).await;
    cluster.make_vfs("restarted-1", PF, 2).await;
    let plane = Arc::clone(cluster.plane());
    tokio::task::spawn_blocking(move || plane.restart_apiserver()).await.unwrap().unwrap();
    cluster.make_vfs("restarted-1", PF, 4).await;
    assert!(cluster.log().contains("watching is interrupted"), "{}", cluster.log());
}

/// The API server answers 429 to everything that the operator asks.
async fn busy() {
    let cluster = Cluster::new("busy", Plane::Troubles).await;
    let _operator = cluster.operator();
    let _agent = cluster.agent("busy-1", &machine()).await;
    cluster.make_vfs("busy-1", PF, 2).await;

    let namespace = cluster.namespace();
    let file = cluster.file(
        "fairness.json",
        &json!({ "apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
                "metadata": { "name": namespace },
                "spec": { "type": "Limited", "limited": {
                    "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
                    "limitResponse": { "type": "Reject" },
                } },
            },
            {
                "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
                "metadata": { "name": namespace },
                "spec": {
                    "priorityLevelConfiguration": { "name": namespace }, "matchingPrecedence": 2,
                    "rules": [{
                        "subjects": [{ "kind": "ServiceAccount",
                                       "serviceAccount": { "namespace": namespace, "name": "vfleet-operator" } }],
                        "resourceRules": [{ "verbs": ["*"], "apiGroups": ["sriovnetwork.openshift.io"],
                                            "resources": ["*"], "namespaces": ["*"] }],
                    }],
                },
            },
        ] })
        .to_string(),
    );
    cluster.kubectl(&["apply", "-f", &file]);
    // The server needs a moment to follow its new rules: something to write until it does.
    let since = Instant::now();
    for count in [3, 4].into_iter().cycle() {
        cluster.apply_policy("p", json!({ "numVfs": count, "nicSelector": { "pfNames": [PF] } })).await;
        cluster.kubectl(&["get", "flowschemas"]);
        if cluster.log().contains("TooManyRequests") {
            break;
        }
        assert!(
            since.elapsed() < Duration::from_mins(2),
            "the operator was never refused:\n{}",
            cluster.log()
        );
    }
    cluster.apply_policy("p", json!({ "numVfs": 5, "nicSelector": { "pfNames": [PF] } })).await;
    cluster.kubectl(&["delete", "-f", &file]);
    cluster.wait("busy-1", "5 VFs", |state| state.is_synced() && state.vfs(PF).len() == 5).await;
}

/// Somebody annotates the node state all the time, and writes into the spec, which is not theirs.
async fn changed_by_others() {
    let cluster = Cluster::new("others", Plane::Troubles).await;
    let _operator = cluster.operator();
    let _agent = cluster.agent("others-1", &machine()).await;
    cluster.make_vfs("others-1", PF, 1).await;
    let api = cluster.api::<SriovNetworkNodeState>();
    let enough = AtomicBool::new(false);
    let disturb = async {
        for number in 0.. {
            if enough.load(Ordering::Relaxed) {
                break;
            }
            let patch = json!({ "metadata": { "annotations": { "somebody": number.to_string() } } });
            api.patch("others-1", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    };
    let work = async {
        for count in 2..=5 {
            cluster.make_vfs("others-1", PF, count).await;
        }
        enough.store(true, Ordering::Relaxed);
    };
    futures::join!(disturb, work);

    let foreign = json!({ "spec": { "interfaces": [], "system": { "rdmaMode": "exclusive" } } });
    api.patch("others-1", &PatchParams::default(), &Patch::Merge(foreign)).await.unwrap();
    let put_right = |state: &SriovNetworkNodeState| {
        state.spec.system.is_none() && state.spec.interfaces.as_ref().is_some_and(|list| list.len() == 1)
    };
    cluster.wait_for("others-1", "the spec is as the policies want", put_right).await;
}
