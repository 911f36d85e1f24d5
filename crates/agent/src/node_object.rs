//! The Node object of the agent's node: the cloud that it is in, which never changes, and its addresses, which may.

use std::fmt::Display;
use std::net::IpAddr;
use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use vfleet_host::{NodeContext, Platform};

/// Taint of a node that its cloud has not initialized yet.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// What is known about the node; or why nothing is yet.
pub type NodeContextState = Result<NodeContext, String>;

/// Follows the Node object `node` for as long as somebody listens. `told` are addresses that the agent was told besides.
/// Until the object was read once, nothing is known: an agent that took the node for hardware would take VFs away from a
/// node of a cloud. An object that is gone does not change what is known.
pub fn follow(client: Client, node: &str, told: Vec<IpAddr>) -> watch::Receiver<NodeContextState> {
    let waiting = format!("Node {node} was not read yet: waiting for the API server");
    let (sender, receiver) = watch::channel(Err(waiting));
    let node = node.to_owned();
    tokio::spawn(async move {
        tokio::select! {
            () = feed(client, &node, &told, &sender) => {}
            () = sender.closed() => {}
        }
    });
    receiver
}

async fn feed(client: Client, node: &str, told: &[IpAddr], sender: &watch::Sender<NodeContextState>) {
    let only_ours = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let mut changes = pin!(watcher(Api::<Node>::all(client), only_ours).default_backoff());
    while let Some(change) = changes.next().await {
        match change {
            Ok(Event::Apply(found) | Event::InitApply(found)) if is_uninitialized(&found) => {
                say_why(sender, || {
                    format!("Node {node} was not initialized by its cloud yet: waiting for that")
                });
            }
            Ok(Event::Apply(found) | Event::InitApply(found)) => {
                let context = context(&found, told);
                sender.send_if_modified(|known| replace(known, Ok(after(known, context))));
            }
            Ok(Event::InitDone) => {
                say_why(sender, || format!("there is no Node {node}: is the agent's --node right?"));
            }
            Ok(Event::Init | Event::Delete(_)) => {}
            Err(error) => {
                tracing::warn!(node, %error, "cannot follow the Node, will go on");
                say_why(sender, || cannot_read(node, &error));
            }
        }
    }
}

/// Returns whether a cloud has still to say what the node is: it sets the providerID, and takes the taint away.
fn is_uninitialized(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let has_provider = spec.is_some_and(|spec| spec.provider_id.as_ref().is_some_and(|id| !id.is_empty()));
    let mut taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    !has_provider && taints.any(|taint| taint.key == UNINITIALIZED)
}

/// Returns `new`, with the platform that is known already: a node does not leave its cloud, but its object may be made
/// anew, without a providerID at first.
fn after(known: &NodeContextState, new: NodeContext) -> NodeContext {
    match known {
        Ok(known) if known.platform.has_lone_vfs() => NodeContext { platform: known.platform, ..new },
        _ => new,
    }
}

fn cannot_read(node: &str, error: &dyn Display) -> String {
    format!(
        "Node {node} cannot be read: {error}; look whether the agent's role allows it to list and watch nodes"
    )
}

/// Says why nothing is known. What is known already stays.
fn say_why(sender: &watch::Sender<NodeContextState>, why: impl FnOnce() -> String) {
    sender.send_if_modified(|known| known.is_err() && replace(known, Err(why())));
}

fn replace(known: &mut NodeContextState, new: NodeContextState) -> bool {
    let is_new = *known != new;
    *known = new;
    is_new
}

fn context(node: &Node, told: &[IpAddr]) -> NodeContext {
    let provider = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    // Names are among them.
    let mut addresses: Vec<IpAddr> =
        addresses.filter_map(|address| address.address.parse().ok()).chain(told.iter().copied()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    NodeContext { platform: Platform::of_provider(provider), addresses }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_tells_its_cloud_and_its_addresses() {
        let node = json!({
            "spec": { "providerID": "aws:///eu-west-1a/i-0123" },
            "status": { "addresses": [
                { "type": "Hostname", "address": "worker-1" },
                { "type": "InternalIP", "address": "10.0.0.2" },
            ] },
        });
        let told = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let found = context(&serde_json::from_value(node).unwrap(), &told);
        assert_eq!(found, NodeContext { platform: Platform::Aws, addresses: told.to_vec() });
        assert_eq!(context(&Node::default(), &[]).platform, Platform::BareMetal);
    }

    #[test]
    fn a_node_that_its_cloud_has_not_initialized_is_not_taken_for_hardware() {
        let node = |spec| -> Node { serde_json::from_value(json!({ "spec": spec })).unwrap() };
        let taints = json!([{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }]);
        assert!(is_uninitialized(&node(json!({ "taints": taints }))));
        assert!(!is_uninitialized(&node(json!({ "taints": taints, "providerID": "openstack:///a" }))));
        assert!(!is_uninitialized(&node(json!({}))));
        // Its object was deleted, and is made anew.
        let known = Ok(NodeContext { platform: Platform::OpenStack, addresses: Vec::new() });
        let anew =
            NodeContext { platform: Platform::BareMetal, addresses: vec!["10.0.0.1".parse().unwrap()] };
        let expected = NodeContext { platform: Platform::OpenStack, ..anew.clone() };
        assert_eq!(after(&known, anew), expected);
    }

    #[test]
    fn what_is_known_stays_when_the_object_cannot_be_read_any_more() {
        let (sender, mut receiver) = watch::channel(Err("not yet".to_owned()));
        say_why(&sender, || "forbidden".to_owned());
        assert_eq!(*receiver.borrow_and_update(), Err("forbidden".to_owned()));
        sender.send(Ok(NodeContext::default())).unwrap();
        receiver.borrow_and_update();
        say_why(&sender, || "gone".to_owned());
        assert!(receiver.borrow().is_ok() && !receiver.has_changed().unwrap());
    }
}
