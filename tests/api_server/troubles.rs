//! Operator with problems of the API server: a restart, overload, and concurrent changes by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use serde_json::json;
use vfleet_api::SriovNetworkNodeState;
use vfleet_tests::cluster::{Cluster, machine};
use vfleet_tests::plane::Plane;

const PF: &str = "enp1s0";

/// In sequence, because the first part restarts the API server.
#[tokio::test]
async fn the_operator_survives_problems_of_its_api_server() {
    survive_restart().await;
    survive_overload().await;
    survive_changes_by_others().await;
}

/// Watches end, and the new server reports that their resource version is too old.
async fn survive_restart() {
    let cluster = Cluster::new("restarted", Plane::Troubles).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("restarted-1", &machine()).await;
    cluster.create_vfs("restarted-1", PF, 2).await;
    let plane = Arc::clone(cluster.plane());
    tokio::task::spawn_blocking(move || plane.restart_apiserver()).await.unwrap().unwrap();
    cluster.create_vfs("restarted-1", PF, 4).await;
    assert!(cluster.log().contains("watch interrupted"), "{}", cluster.log());
}

/// The API server responds with 429 to all requests of the operator.
async fn survive_overload() {
    let cluster = Cluster::new("busy", Plane::Troubles).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("busy-1", &machine()).await;
    cluster.create_vfs("busy-1", PF, 2).await;

    let namespace = cluster.namespace();
    let file = cluster.write_file(
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
    // The server enforces its new rules after a moment: cause writes until then.
    let since = Instant::now();
    for count in [3, 4].into_iter().cycle() {
        cluster.apply_policy("p", json!({ "numVfs": count, "nicSelector": { "pfNames": [PF] } })).await;
        cluster.kubectl(&["get", "flowschemas"]);
        if cluster.log().contains("TooManyRequests") {
            break;
        }
        assert!(
            since.elapsed() < Duration::from_mins(2),
            "no request of the operator was refused:\n{}",
            cluster.log()
        );
    }
    cluster.apply_policy("p", json!({ "numVfs": 5, "nicSelector": { "pfNames": [PF] } })).await;
    cluster.kubectl(&["delete", "-f", &file]);
    cluster.wait("busy-1", "5 VFs", |state| state.is_synced() && state.vfs(PF).len() == 5).await;
}

/// Another client continuously annotates the node state, and writes to its spec.
async fn survive_changes_by_others() {
    let cluster = Cluster::new("others", Plane::Troubles).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("others-1", &machine()).await;
    cluster.create_vfs("others-1", PF, 1).await;
    let api = cluster.api::<SriovNetworkNodeState>();
    let is_done = AtomicBool::new(false);
    let disturb = async {
        for number in 0.. {
            if is_done.load(Ordering::Relaxed) {
                break;
            }
            let patch = json!({ "metadata": { "annotations": { "somebody": number.to_string() } } });
            api.patch("others-1", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    };
    let work = async {
        for count in 2..=5 {
            cluster.create_vfs("others-1", PF, count).await;
        }
        is_done.store(true, Ordering::Relaxed);
    };
    futures::join!(disturb, work);

    let foreign = json!({ "spec": { "interfaces": [], "system": { "rdmaMode": "exclusive" } } });
    api.patch("others-1", &PatchParams::default(), &Patch::Merge(foreign)).await.unwrap();
    let is_reverted = |state: &SriovNetworkNodeState| {
        state.spec.system.is_none() && state.spec.interfaces.as_ref().is_some_and(|list| list.len() == 1)
    };
    cluster.wait_for("others-1", "the spec matches the policies", is_reverted).await;
}
