//! The cloud that the agent's node is in: the Node object says so, and it never changes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use vfleet_host::Platform;

/// An API server that does not answer must not keep the agent from its machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// What the node runs on. Hardware, when that cannot be found out: most nodes do.
pub(super) async fn of_node(client: Client, node: &str) -> Platform {
    let nodes: Api<Node> = Api::all(client);
    let why_not = match tokio::time::timeout(DEADLINE, nodes.get(node)).await {
        Ok(Ok(found)) => {
            let provider = found.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
            return Platform::of_provider(&provider);
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("the API server did not answer within {DEADLINE:?}"),
    };
    tracing::warn!(node, error = why_not, "cannot look at the node; it is taken for no cloud's");
    Platform::default()
}
