//! Clusters without admission webhooks: condition `Valid` of stored objects has the message that admission would
//! return. Real operator and agent with a real API server.

use serde::Serialize;
use serde_json::{Value, json};
use vfleet_api::meta::Condition;
use vfleet_api::{
    BridgeNetwork, OVSNetwork, SriovIBNetwork, SriovNetwork, SriovNetworkNodePolicy, SriovNetworkPoolConfig,
    SriovOperatorConfig,
};
use vfleet_tests::cluster::{Cluster, machine};
use vfleet_tests::objects::{Watchable, condition};
use vfleet_tests::plane::Plane;

const NODE: &str = "admission-off-1";

/// Returns status, reason and message of a condition.
fn find<K: Serialize>(object: &K, type_: &str) -> (String, String, String) {
    let object = serde_json::to_value(object).unwrap();
    let conditions: Option<Vec<Condition>> =
        serde_json::from_value(object["status"]["conditions"].clone()).unwrap();
    condition(conditions.as_ref(), type_)
}

/// Waits for condition `Valid` with this status and reason. Returns its message.
async fn valid<K: Watchable + Serialize>(
    cluster: &Cluster,
    name: &str,
    status: &str,
    reason: &str,
) -> String {
    let matches = |object: &K| {
        let (found_status, found_reason, _) = find(object, "Valid");
        (found_status.as_str(), found_reason.as_str()) == (status, reason)
    };
    find(&cluster.wait_for(name, &format!("Valid {status} {reason}"), matches).await, "Valid").2
}

/// Writes an invalid object and waits for the message, then a valid one and waits for `Valid`.
async fn invalid_then_valid<K: Watchable + Serialize>(
    cluster: &Cluster,
    [plural, name]: [&str; 2],
    [invalid, correct]: [&Value; 2],
    [reason, expected]: [&str; 2],
) {
    let kind = K::kind(&());
    cluster.apply(&kind, plural, name, invalid).await;
    let message = valid::<K>(cluster, name, "False", reason).await;
    assert!(message.starts_with(expected), "{kind} {name}: {message:?} does not start with {expected:?}");
    cluster.apply(&kind, plural, name, correct).await;
    // Like a user.
    let object = format!("{plural}.sriovnetwork.openshift.io/{name}");
    cluster.kubectl(&["wait", "--for=condition=Valid", "--timeout=120s", &object]);
}

#[tokio::test]
async fn status_has_the_messages_of_admission() {
    let cluster = Cluster::new("admission-off", Plane::AdmissionUnasked).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent(NODE, &machine()).await;
    tokio::join!(policies(&cluster), pools(&cluster), operator_config(&cluster), networks(&cluster));
}

async fn policies(cluster: &Cluster) {
    let policy = |resource: &str, num_vfs: i64, node: &str| {
        json!({
            "resourceName": resource, "numVfs": num_vfs, "nodeSelector": { "kubernetes.io/hostname": node },
            "nicSelector": { "pfNames": ["enp1s0"] },
        })
    };
    let object = |name| ["sriovnetworknodepolicies", name];
    // No node is selected.
    let bad = policy("no/name", 2, "nowhere");
    let text = "spec.resourceName: resourceName \"no/name\" is invalid: use only letters, digits, - and _";
    let expected = ["InvalidResourceName", text];
    let versions = [&bad, &policy("name", 2, "nowhere")];
    invalid_then_valid::<SriovNetworkNodePolicy>(cluster, object("by-itself"), versions, expected).await;
    let message = valid::<SriovNetworkNodePolicy>(cluster, "by-itself", "True", "Valid").await;
    assert!(message.contains("warning: spec.nodeSelector: no node has these labels yet"), "{message}");

    // The cards of the machine have at most 7 VFs.
    let expected = ["TooManyVfs", "spec.numVfs: 8 VFs are requested, but"];
    let versions = [&policy("name", 8, NODE), &policy("name", 2, NODE)];
    invalid_then_valid::<SriovNetworkNodePolicy>(cluster, object("on-a-node"), versions, expected).await;

    // Two policies conflict, and the deletion of one resolves the conflict.
    let rival = policy("rival", 2, NODE);
    cluster.apply("SriovNetworkNodePolicy", "sriovnetworknodepolicies", "rival", &rival).await;
    for name in ["on-a-node", "rival"] {
        let policy = cluster
            .wait_for(name, "not valid", |policy: &SriovNetworkNodePolicy| find(policy, "Valid").0 == "False")
            .await;
        assert!(find(&policy, "Valid").2.contains("of the same priority"), "{:?}", find(&policy, "Valid"));
    }
    cluster.kubectl(&["delete", "sriovnetworknodepolicy", "rival"]);
    valid::<SriovNetworkNodePolicy>(cluster, "on-a-node", "True", "Valid").await;
}

async fn pools(cluster: &Cluster) {
    let pool = |operator: &str| {
        json!({
            "nodeSelector": { "matchExpressions": [{ "key": "rack", "operator": operator, "values": ["a"] }] },
            "maxUnavailable": 0,
        })
    };
    let text = "spec.nodeSelector: operator \"Near\" of rack is not supported: use In, NotIn, Exists or DoesNotExist";
    let versions = [&pool("Near"), &pool("In")];
    let object = ["sriovnetworkpoolconfigs", "pool"];
    let expected = ["InvalidSelector", text];
    invalid_then_valid::<SriovNetworkPoolConfig>(cluster, object, versions, expected).await;
    let message = valid::<SriovNetworkPoolConfig>(cluster, "pool", "True", "Valid").await;
    for note in [
        "warning: spec.maxUnavailable: maxUnavailable is 0",
        "warning: spec.nodeSelector: the pool selects no node yet",
    ] {
        assert!(message.contains(note), "{message}");
    }
    // The pool that the operator creates has no findings.
    let message = valid::<SriovNetworkPoolConfig>(cluster, "default", "True", "Valid").await;
    assert!(!message.contains("warning"), "{message}");
    // Two pools that are valid, but have a node in common.
    let everywhere = json!({ "nodeSelector": {}, "maxUnavailable": 1, "priority": 5 });
    for name in ["twin-a", "twin-b"] {
        cluster.apply("SriovNetworkPoolConfig", "sriovnetworkpoolconfigs", name, &everywhere).await;
    }
    for (name, other) in [("twin-a", "twin-b"), ("twin-b", "twin-a")] {
        let names_twin = |pool: &SriovNetworkPoolConfig| {
            find(pool, "Valid").2.contains(&format!("pool {other} of the same priority"))
        };
        cluster.wait_for(name, "a warning about its twin", names_twin).await;
    }
}

async fn operator_config(cluster: &Cluster) {
    let config = |variable: &str| json!({ "configDaemonEnvVars": { variable: "x" }, "disableDrain": true });
    let text = "spec.configDaemonEnvVars: \"no=name\" is not a valid name of an environment variable";
    let versions = [&config("no=name"), &config("NAME")];
    let object = ["sriovoperatorconfigs", "default"];
    invalid_then_valid::<SriovOperatorConfig>(cluster, object, versions, ["InvalidVariable", text]).await;
    let message = valid::<SriovOperatorConfig>(cluster, "default", "True", "Valid").await;
    assert!(message.contains("warning: spec.disableDrain: disableDrain is set"), "{message}");
}

async fn networks(cluster: &Cluster) {
    let good = json!({ "resourceName": "nics" });
    let with = |field: &str, value: Value| {
        let mut spec = good.clone();
        spec[field] = value;
        spec
    };
    let expected =
        ["InvalidJson", "spec.ipam: ipam must be a JSON object such as {\"type\": \"dhcp\"}, but at line 1"];
    let versions = [&with("ipam", json!("dhcp")), &good];
    invalid_then_valid::<SriovNetwork>(cluster, ["sriovnetworks", "net"], versions, expected).await;
    let message = valid::<SriovNetwork>(cluster, "net", "True", "Valid").await;
    assert!(message.contains("warning: spec.resourceName: no policy offers resource nics yet"), "{message}");

    let expected = ["InvalidCapability", "spec.capabilities: capability mac must be true or false"];
    let versions = [&with("capabilities", json!("{\"mac\": \"on\"}")), &good];
    invalid_then_valid::<SriovIBNetwork>(cluster, ["sriovibnetworks", "net"], versions, expected).await;

    let expected = ["EmptyTrunk", "spec.trunk: the trunk names no VLAN: set id, or minID and maxID"];
    let versions = [&with("trunk", json!([{}])), &good];
    invalid_then_valid::<OVSNetwork>(cluster, ["ovsnetworks", "net"], versions, expected).await;

    // Both conditions have all errors.
    let mut bad = with("resourceName", json!(""));
    bad["metaPlugins"] = json!("{}");
    cluster.apply("BridgeNetwork", "bridgenetworks", "net", &bad).await;
    let faults = [
        "resourceName is empty: set it to the resourceName of a policy",
        "plugin 1 of metaPlugins has no type: set type to the name of its program",
    ];
    let message = valid::<BridgeNetwork>(cluster, "net", "False", "InvalidResourceName").await;
    assert_eq!(message, format!("spec.resourceName: {}; spec.metaPlugins: {}", faults[0], faults[1]));
    let network: BridgeNetwork = cluster.api().get("net").await.unwrap();
    let (status, reason, message) = find(&network, "Ready");
    assert_eq!(
        [status.as_str(), &reason, &message],
        ["False", "NetworkAttachmentDefinitionInvalid", &faults.join("; ")]
    );
}
