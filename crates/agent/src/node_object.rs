//! Node object of the agent's node: its cloud, which never changes, and its addresses, which may change.

use std::fmt::Display;
use std::net::IpAddr;
use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use vfleet_host::NodeContext;
use vfleet_plan::Platform;

use crate::watch_log::WatchLog;

/// Taint of a node that its cloud has not initialized yet.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Platform and addresses of the node, or the reason why they are not known yet.
pub type NodeContextState = Result<NodeContext, String>;

/// Watches the Node object `node` until the receiver is dropped. `configured` are further addresses of the node.
///
/// The context is unknown before the object was read: an agent that mistakes a virtual machine for hardware would
/// remove its VFs. A deleted object does not change the context.
pub fn watch_node(client: Client, node: &str, configured: Vec<IpAddr>) -> watch::Receiver<NodeContextState> {
    let waiting = format!("Node {node} was not read yet: waiting for the API server");
    let (sender, receiver) = watch::channel(Err(waiting));
    let node = node.to_owned();
    tokio::spawn(async move {
        tokio::select! {
            () = send_updates(client, &node, &configured, &sender) => {}
            () = sender.closed() => {}
        }
    });
    receiver
}

async fn send_updates(
    client: Client,
    node: &str,
    configured: &[IpAddr],
    sender: &watch::Sender<NodeContextState>,
) {
    let only_ours = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let mut changes = pin!(watcher(Api::<Node>::all(client), only_ours).default_backoff());
    let mut watch_log = WatchLog::new(format!("Node {node}"));
    while let Some(change) = changes.next().await {
        if let Ok(event) = &change {
            watch_log.received(event);
        }
        match change {
            Ok(Event::Apply(found) | Event::InitApply(found)) if is_uninitialized(&found) => {
                set_unknown(sender, || {
                    format!("Node {node} has the taint {UNINITIALIZED}: waiting for its cloud controller")
                });
            }
            Ok(Event::Apply(found) | Event::InitApply(found)) => {
                let context = node_context(&found, configured);
                sender.send_if_modified(|current| replace(current, Ok(keep_platform(current, context))));
            }
            Ok(Event::InitDone) => {
                set_unknown(sender, || format!("Node {node} does not exist: check the agent's --node"));
            }
            Ok(Event::Init | Event::Delete(_)) => {}
            Err(error) => {
                watch_log.failed(&error);
                set_unknown(sender, || read_error(node, &error));
            }
        }
    }
}

/// Returns whether the cloud controller has not initialized the node yet: it sets the providerID and removes the taint.
fn is_uninitialized(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let has_provider = spec.is_some_and(|spec| spec.provider_id.as_ref().is_some_and(|id| !id.is_empty()));
    let mut taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    !has_provider && taints.any(|taint| taint.key == UNINITIALIZED)
}

/// Returns `new` with the platform that is known already: a node does not leave its cloud, but its object may be
/// created again, without a providerID at first.
fn keep_platform(current: &NodeContextState, new: NodeContext) -> NodeContext {
    match current {
        Ok(current) if current.platform.has_lone_vfs() => NodeContext { platform: current.platform, ..new },
        _ => new,
    }
}

fn read_error(node: &str, error: &dyn Display) -> String {
    format!("cannot read Node {node}: {error}; check that the agent's role allows it to list and watch nodes")
}

/// Sets the reason why the context is unknown, unless it is known already.
fn set_unknown(sender: &watch::Sender<NodeContextState>, reason: impl FnOnce() -> String) {
    sender.send_if_modified(|current| current.is_err() && replace(current, Err(reason())));
}

fn replace(current: &mut NodeContextState, new: NodeContextState) -> bool {
    let is_new = *current != new;
    *current = new;
    is_new
}

fn node_context(node: &Node, configured: &[IpAddr]) -> NodeContext {
    let provider = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    // Some of them are host names.
    let mut addresses: Vec<IpAddr> = addresses
        .filter_map(|address| address.address.parse().ok())
        .chain(configured.iter().copied())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    NodeContext { platform: Platform::from_provider_id(provider), addresses, reads_ovs: false }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cloud_and_addresses_are_read_from_the_node() {
        let node = json!({
            "spec": { "providerID": "aws:///eu-west-1a/i-0123" },
            "status": { "addresses": [
                { "type": "Hostname", "address": "worker-1" },
                { "type": "InternalIP", "address": "10.0.0.2" },
            ] },
        });
        let configured = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let found = node_context(&serde_json::from_value(node).unwrap(), &configured);
        assert_eq!(
            found,
            NodeContext { platform: Platform::Aws, addresses: configured.to_vec(), ..NodeContext::default() }
        );
        assert_eq!(node_context(&Node::default(), &[]).platform, Platform::BareMetal);
    }

    #[test]
    fn a_node_that_its_cloud_has_not_initialized_is_not_taken_for_hardware() {
        let node = |spec| -> Node { serde_json::from_value(json!({ "spec": spec })).unwrap() };
        let taints = json!([{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }]);
        assert!(is_uninitialized(&node(json!({ "taints": taints }))));
        assert!(!is_uninitialized(&node(json!({ "taints": taints, "providerID": "openstack:///a" }))));
        assert!(!is_uninitialized(&node(json!({}))));
        // The object was deleted and created again.
        let current = Ok(NodeContext { platform: Platform::OpenStack, ..NodeContext::default() });
        let recreated =
            NodeContext { addresses: vec!["10.0.0.1".parse().unwrap()], ..NodeContext::default() };
        let expected = NodeContext { platform: Platform::OpenStack, ..recreated.clone() };
        assert_eq!(keep_platform(&current, recreated), expected);
    }

    #[test]
    fn the_context_stays_known_when_the_object_cannot_be_read_any_more() {
        let (sender, mut receiver) = watch::channel(Err("not yet".to_owned()));
        set_unknown(&sender, || "forbidden".to_owned());
        assert_eq!(*receiver.borrow_and_update(), Err("forbidden".to_owned()));
        sender.send(Ok(NodeContext::default())).unwrap();
        receiver.borrow_and_update();
        set_unknown(&sender, || "gone".to_owned());
        assert!(receiver.borrow().is_ok() && !receiver.has_changed().unwrap());
    }
}
