//! No admission at all: nobody is asked when an object is written, and its status says the sentence that admission would
//! have said. The real operator and agent against a real API server.

use serde::Serialize;
use serde_json::{Value, json};
use vfleet_api::meta::Condition;
use vfleet_api::{
    BridgeNetwork, OVSNetwork, SriovIBNetwork, SriovNetwork, SriovNetworkNodePolicy, SriovNetworkPoolConfig,
    SriovOperatorConfig,
};
use vfleet_tests::cluster::{Cluster, machine};
use vfleet_tests::objects::{Watched, condition};
use vfleet_tests::plane::Plane;

const NODE: &str = "admission-off-1";

/// A condition of any object of ours: status, reason and message.
fn find<K: Serialize>(object: &K, type_: &str) -> (String, String, String) {
    let object = serde_json::to_value(object).unwrap();
    let conditions: Option<Vec<Condition>> =
        serde_json::from_value(object["status"]["conditions"].clone()).unwrap();
    condition(conditions.as_ref(), type_)
}

/// Waits until condition `Valid` is so; gives its message.
async fn valid<K: Watched + Serialize>(cluster: &Cluster, name: &str, status: &str, reason: &str) -> String {
    let is_so = |object: &K| {
        let (found, why, _) = find(object, "Valid");
        (found.as_str(), why.as_str()) == (status, reason)
    };
    find(&cluster.wait_for(name, &format!("Valid {status} {reason}"), is_so).await, "Valid").2
}

/// Writes something bad, and waits for the sentence; then something good, and waits until nothing is wrong with it.
async fn bad_then_good<K: Watched + Serialize>(
    cluster: &Cluster,
    [plural, name]: [&str; 2],
    [bad, good]: [&Value; 2],
    [reason, sentence]: [&str; 2],
) {
    let kind = K::kind(&());
    cluster.apply(&kind, plural, name, bad).await;
    let said = valid::<K>(cluster, name, "False", reason).await;
    assert!(said.starts_with(sentence), "{kind} {name} says {said:?} and not {sentence:?}");
    cluster.apply(&kind, plural, name, good).await;
    // As a user would.
    let object = format!("{plural}.sriovnetwork.openshift.io/{name}");
    cluster.kubectl(&["wait", "--for=condition=Valid", "--timeout=120s", &object]);
}

#[tokio::test]
async fn status_says_what_admission_would() {
    let cluster = Cluster::new("admission-off", Plane::AdmissionUnasked).await;
    let _operator = cluster.operator();
    let _agent = cluster.agent(NODE, &machine()).await;
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
    // Without any node that it selects.
    let bad = policy("no/name", 2, "nowhere");
    let sentence = "spec.resourceName: resourceName \"no/name\": only letters, digits, - and _ are possible";
    let told = ["InvalidResourceName", sentence];
    let versions = [&bad, &policy("name", 2, "nowhere")];
    bad_then_good::<SriovNetworkNodePolicy>(cluster, object("by-itself"), versions, told).await;
    let said = valid::<SriovNetworkNodePolicy>(cluster, "by-itself", "True", "AsItShouldBe").await;
    assert!(said.contains("note: spec.nodeSelector: no node has these labels yet"), "{said}");

    // The machine's cards have 7 VFs at most.
    let told = ["TooManyVfs", "spec.numVfs: 8 VFs are wanted, but"];
    let versions = [&policy("name", 8, NODE), &policy("name", 2, NODE)];
    bad_then_good::<SriovNetworkNodePolicy>(cluster, object("on-a-node"), versions, told).await;

    // What is wrong with one is because of the other, and is put right with the other.
    let rival = policy("rival", 2, NODE);
    cluster.apply("SriovNetworkNodePolicy", "sriovnetworknodepolicies", "rival", &rival).await;
    for name in ["on-a-node", "rival"] {
        let said = cluster
            .wait_for(name, "not valid", |policy: &SriovNetworkNodePolicy| find(policy, "Valid").0 == "False")
            .await;
        assert!(find(&said, "Valid").2.contains("of the same priority"), "{:?}", find(&said, "Valid"));
    }
    cluster.kubectl(&["delete", "sriovnetworknodepolicy", "rival"]);
    valid::<SriovNetworkNodePolicy>(cluster, "on-a-node", "True", "AsItShouldBe").await;
}

async fn pools(cluster: &Cluster) {
    let pool = |operator: &str| {
        json!({
            "nodeSelector": { "matchExpressions": [{ "key": "rack", "operator": operator, "values": ["a"] }] },
            "maxUnavailable": 0,
        })
    };
    let sentence = "spec.nodeSelector: operator \"Near\" of rack is not known here: use In, NotIn, Exists or DoesNotExist";
    let versions = [&pool("Near"), &pool("In")];
    let object = ["sriovnetworkpoolconfigs", "pool"];
    let told = ["InvalidSelector", sentence];
    bad_then_good::<SriovNetworkPoolConfig>(cluster, object, versions, told).await;
    let said = valid::<SriovNetworkPoolConfig>(cluster, "pool", "True", "AsItShouldBe").await;
    for note in
        ["note: spec.maxUnavailable: maxUnavailable is 0", "note: spec.nodeSelector: it selects no node yet"]
    {
        assert!(said.contains(note), "{said}");
    }
    // The one that the operator makes itself is as it should be.
    let said = valid::<SriovNetworkPoolConfig>(cluster, "default", "True", "AsItShouldBe").await;
    assert!(!said.contains("note"), "{said}");
    // Two that are good, each by itself.
    let everywhere = json!({ "nodeSelector": {}, "maxUnavailable": 1, "priority": 5 });
    for name in ["twin-a", "twin-b"] {
        cluster.apply("SriovNetworkPoolConfig", "sriovnetworkpoolconfigs", name, &everywhere).await;
    }
    for (name, other) in [("twin-a", "twin-b"), ("twin-b", "twin-a")] {
        let tells = |pool: &SriovNetworkPoolConfig| {
            find(pool, "Valid").2.contains(&format!("pool {other} of the same priority"))
        };
        cluster.wait_for(name, "tells of its twin", tells).await;
    }
}

async fn operator_config(cluster: &Cluster) {
    let config = |variable: &str| json!({ "configDaemonEnvVars": { variable: "x" }, "disableDrain": true });
    let sentence = "spec.configDaemonEnvVars: \"no=name\" cannot be the name of an environment variable";
    let versions = [&config("no=name"), &config("NAME")];
    let object = ["sriovoperatorconfigs", "default"];
    bad_then_good::<SriovOperatorConfig>(cluster, object, versions, ["InvalidVariable", sentence]).await;
    let said = valid::<SriovOperatorConfig>(cluster, "default", "True", "AsItShouldBe").await;
    assert!(said.contains("note: spec.disableDrain: disableDrain is set"), "{said}");
}

async fn networks(cluster: &Cluster) {
    let good = json!({ "resourceName": "nics" });
    let with = |field: &str, value: Value| {
        let mut spec = good.clone();
        spec[field] = value;
        spec
    };
    let told =
        ["InvalidJson", "spec.ipam: ipam must be a JSON object such as {\"type\": \"dhcp\"}, but at line 1"];
    let versions = [&with("ipam", json!("dhcp")), &good];
    bad_then_good::<SriovNetwork>(cluster, ["sriovnetworks", "net"], versions, told).await;
    let said = valid::<SriovNetwork>(cluster, "net", "True", "AsItShouldBe").await;
    assert!(said.contains("note: spec.resourceName: no policy offers the resource nics yet"), "{said}");

    let told = ["InvalidCapability", "spec.capabilities: capability mac must be true or false"];
    let versions = [&with("capabilities", json!("{\"mac\": \"on\"}")), &good];
    bad_then_good::<SriovIBNetwork>(cluster, ["sriovibnetworks", "net"], versions, told).await;

    let told = ["EmptyTrunk", "spec.trunk: the trunk names no VLAN: give id, or minID and maxID"];
    let versions = [&with("trunk", json!([{}])), &good];
    bad_then_good::<OVSNetwork>(cluster, ["ovsnetworks", "net"], versions, told).await;

    // All that is wrong is said at once, in both conditions.
    let mut bad = with("resourceName", json!(""));
    bad["metaPlugins"] = json!("{}");
    cluster.apply("BridgeNetwork", "bridgenetworks", "net", &bad).await;
    let faults = [
        "name the resource that VFs are taken from: resourceName of a policy",
        "plugin 1 of metaPlugins has no type: set type to the name of its program",
    ];
    let said = valid::<BridgeNetwork>(cluster, "net", "False", "InvalidResourceName").await;
    assert_eq!(said, format!("spec.resourceName: {}; spec.metaPlugins: {}", faults[0], faults[1]));
    let network: BridgeNetwork = cluster.api().get("net").await.unwrap();
    let (status, reason, said) = find(&network, "Ready");
    assert_eq!(
        [status.as_str(), &reason, &said],
        ["False", "NetworkAttachmentDefinitionInvalid", &faults.join("; ")]
    );
}
