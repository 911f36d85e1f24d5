//! Fleet with nodes, node states and policies, as if agents had reported. Written directly, without agents.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeState, SriovOperatorConfig};

/// Number of concurrent writes, here and in the bare loop; the same as in the operator.
pub(crate) const CONCURRENT_WRITES: usize = 32;

/// Number of nodes that the small change affects.
pub(crate) const FEW: usize = 10;

const FEW_LABEL: &str = "bench.vfleet.io/few";
const MTU: i64 = 9000;
const VFS: usize = 8;

/// Cards of each node.
#[derive(Clone, Copy)]
pub(crate) struct Cards {
    pub(crate) count: usize,
    pub(crate) vfs_each: usize,
}

impl Cards {
    /// Cards for most measurements.
    pub(crate) const FEW: Self = Self { count: 2, vfs_each: 0 };
    /// Cards for the measurement of memory.
    pub(crate) const MANY: Self = Self { count: 8, vfs_each: VFS };
}

pub(crate) fn node_name(number: usize) -> String {
    format!("bench-{number:05}")
}

pub(crate) fn names(nodes: usize) -> impl Iterator<Item = String> {
    (0..nodes).map(node_name)
}

/// Runs an action for many items, several at a time.
pub(crate) async fn for_each<T, F>(items: impl IntoIterator<Item = T>, action: impl Fn(T) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    stream::iter(items)
        .map(|item| Ok(action(item)))
        .try_for_each_concurrent(CONCURRENT_WRITES, |write| write)
        .await
}

pub(crate) async fn create_namespace(client: &Client, name: &str) -> Result<()> {
    let namespace = object("v1", "Namespace", name);
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &parse(namespace)?).await?;
    Ok(())
}

/// Creates the nodes of a range of numbers. The first nodes get the label for the small change.
pub(crate) async fn create_nodes(client: &Client, numbers: std::ops::Range<usize>) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for_each(numbers, async |number| {
        let mut node = object("v1", "Node", &node_name(number));
        // As after a first start of an operator: a change is measured, not the first start.
        node["metadata"]["annotations"] = json!({ "sriovnetwork.openshift.io/state": "Idle" });
        node["metadata"]["labels"] = json!({
            "node-role.kubernetes.io/worker": "", "kubernetes.io/os": "linux",
            "sriovnetwork.openshift.io/device-plugin": "Disabled",
        });
        if number < FEW {
            node["metadata"]["labels"][FEW_LABEL] = json!("yes");
        }
        api.create(&PostParams::default(), &parse(node)?).await?;
        Ok(())
    })
    .await
}

pub(crate) async fn delete_node(client: &Client, namespace: &str, name: &str) -> Result<()> {
    Api::<Node>::all(client.clone()).delete(name, &DeleteParams::default()).await?;
    states(client, namespace).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Creates the operator config and the node states with reports.
pub(crate) async fn create_states(
    client: &Client,
    namespace: &str,
    nodes: usize,
    cards: Cards,
) -> Result<()> {
    let mut config = object("sriovnetwork.openshift.io/v1", "SriovOperatorConfig", "default");
    config["spec"] = json!({ "enableInjector": false, "enableOperatorWebhook": false, "logLevel": 0 });
    let configs: Api<SriovOperatorConfig> = Api::namespaced(client.clone(), namespace);
    let config = configs.create(&PostParams::default(), &parse(config)?).await?;
    let owner = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovOperatorConfig", "name": "default",
        "uid": config.uid(), "controller": true, "blockOwnerDeletion": true,
    });
    let api = states(client, namespace);
    for_each(names(nodes), async |name| {
        let mut state = object("sriovnetwork.openshift.io/v1", "SriovNetworkNodeState", &name);
        state["metadata"]["ownerReferences"] = json!([owner]);
        state["metadata"]["annotations"] = json!({
            "sriovnetwork.openshift.io/desired-state": "Idle",
            "sriovnetwork.openshift.io/current-state": "Idle",
        });
        state["spec"] = json!({});
        api.create(&PostParams::default(), &parse(state)?).await?;
        report(client, namespace, &name, cards).await
    })
    .await
}

/// Reports the cards of a node, as its agent does.
pub(crate) async fn report(client: &Client, namespace: &str, name: &str, cards: Cards) -> Result<()> {
    report_kind(client, namespace, name, cards, 0).await
}

/// Reports the cards of a node of one of several kinds.
pub(crate) async fn report_kind(
    client: &Client,
    namespace: &str,
    name: &str,
    cards: Cards,
    kind: usize,
) -> Result<()> {
    let mut state = object("sriovnetwork.openshift.io/v1", "SriovNetworkNodeState", name);
    let interface = |card: usize| {
        let mut interface = interface(card, cards.vfs_each);
        interface["totalvfs"] = json!(64 + kind);
        interface
    };
    let interfaces: Vec<_> = (0..cards.count).map(interface).collect();
    state["status"] = json!({ "interfaces": interfaces, "syncStatus": "Succeeded" });
    let params = PatchParams::apply("agent").force();
    states(client, namespace).patch_status(name, &params, &Patch::Apply(&state)).await?;
    Ok(())
}

fn interface(card: usize, vfs: usize) -> Value {
    json!({
        "name": format!("ens{card}f0"), "mac": format!("02:00:00:00:00:{card:02x}"), "driver": "i40e",
        "pciAddress": address(card, 0), "vendor": "8086", "deviceID": "158b", "mtu": 1500,
        "numVfs": vfs, "totalvfs": 64, "linkSpeed": "25000 Mb/s", "linkType": "ETH", "linkAdminState": "up",
        "eSwitchMode": "legacy", "Vfs": (0..vfs).map(|vf| virtual_function(card, vf)).collect::<Vec<_>>(),
    })
}

fn virtual_function(card: usize, vf: usize) -> Value {
    json!({
        "name": format!("ens{card}f0v{vf}"), "mac": format!("02:00:00:01:{card:02x}:{vf:02x}"),
        "driver": "iavf", "pciAddress": address(card, vf + 2), "vendor": "8086", "deviceID": "154c",
        "mtu": 1500, "vfID": vf,
    })
}

fn address(card: usize, function: usize) -> String {
    format!("0000:{:02x}:{:02x}.{}", 0x18 + card, function / 8, function % 8)
}

/// Returns the policy for all nodes and cards.
pub(crate) fn policy_for_all() -> Value {
    let mut policy = object("sriovnetwork.openshift.io/v1", "SriovNetworkNodePolicy", "all");
    policy["spec"] = json!({
        "resourceName": "all", "nodeSelector": {}, "nicSelector": { "vendor": "8086" }, "priority": 50,
        "numVfs": VFS, "mtu": MTU, "deviceType": "netdevice",
    });
    policy
}

/// Returns the spec of a node state for that policy, which the bare loop and the operator write.
pub(crate) fn spec_for_all(cards: Cards) -> Value {
    let interface = |card: usize| {
        json!({
            "pciAddress": address(card, 0), "name": format!("ens{card}f0"), "numVfs": VFS, "mtu": MTU,
            "vfGroups": [{
                "resourceName": "all", "deviceType": "netdevice", "vfRange": format!("0-{}", VFS - 1),
                "policyName": "all", "mtu": MTU,
            }],
        })
    };
    json!({ "interfaces": (0..cards.count).map(interface).collect::<Vec<_>>() })
}

/// Returns the policy for few nodes, which takes precedence on one card.
pub(crate) fn policy_for_few() -> Value {
    let mut policy = object("sriovnetwork.openshift.io/v1", "SriovNetworkNodePolicy", "few");
    policy["spec"] = json!({
        "resourceName": "few", "nodeSelector": { FEW_LABEL: "yes" }, "nicSelector": { "pfNames": ["ens1f0"] },
        "priority": 10, "numVfs": 4, "deviceType": "vfio-pci",
    });
    policy
}

pub(crate) async fn create_policy(client: &Client, namespace: &str, policy: Value) -> Result<()> {
    policies(client, namespace).create(&PostParams::default(), &parse(policy)?).await?;
    Ok(())
}

pub(crate) async fn delete_policy(client: &Client, namespace: &str, name: &str) -> Result<()> {
    policies(client, namespace).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

fn policies(client: &Client, namespace: &str) -> Api<SriovNetworkNodePolicy> {
    Api::namespaced(client.clone(), namespace)
}

pub(crate) fn states(client: &Client, namespace: &str) -> Api<SriovNetworkNodeState> {
    Api::namespaced(client.clone(), namespace)
}

pub(crate) fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name } })
}

fn parse<T: serde::de::DeserializeOwned>(object: Value) -> Result<T> {
    Ok(serde_json::from_value(object)?)
}
