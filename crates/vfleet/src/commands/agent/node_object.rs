//! What the Node object says about the agent's node: the cloud that it is in, which never changes, and its addresses.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use vfleet_host::Platform;

/// An API server that does not answer must not keep the agent from its machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// What a Node object says.
#[derive(Default)]
pub(super) struct Told {
    /// What the node runs on. Hardware, when that cannot be found out: most nodes do.
    pub(super) platform: Platform,
    /// Where the cluster reaches it.
    pub(super) addresses: Vec<IpAddr>,
}

/// What the Node object of this name says.
pub(super) async fn read(client: Client, node: &str) -> Told {
    let nodes: Api<Node> = Api::all(client);
    let why_not = match tokio::time::timeout(DEADLINE, nodes.get(node)).await {
        Ok(Ok(found)) => return told(found),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("the API server did not answer within {DEADLINE:?}"),
    };
    let error = why_not;
    tracing::warn!(
        node,
        error,
        "cannot look at the node; it is taken for no cloud's, and its addresses are unknown"
    );
    Told::default()
}

fn told(node: Node) -> Told {
    let provider = node.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
    let addresses = node.status.and_then(|status| status.addresses).into_iter().flatten();
    Told {
        platform: Platform::of_provider(&provider),
        // Names are among them.
        addresses: addresses.filter_map(|address| address.address.parse().ok()).collect(),
    }
}
