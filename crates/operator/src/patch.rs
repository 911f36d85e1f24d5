//! The writes of the operator: server-side apply under its own name, so that what others own stays theirs.

use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::Resource;
use serde_json::json;
use thiserror::Error;
use vfleet_api::keys::OPERATOR_FIELD_MANAGER;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec};

/// An API server that does not answer must not hold up the nodes that wait.
const DEADLINE: Duration = Duration::from_secs(30);

/// Why something was not written.
#[derive(Debug, Error)]
pub(crate) enum WriteError {
    #[error("the API server refused it: {0}")]
    Api(#[from] kube::Error),
    #[error("the API server did not answer within {DEADLINE:?}")]
    Deadline(#[from] tokio::time::error::Elapsed),
    #[error("the write ended in the middle: {0}")]
    Thread(tokio::task::JoinError),
}

/// Creates the node state of `node` without a spec, unless it exists.
pub(crate) async fn create(api: &Api<SriovNetworkNodeState>, node: &str) -> Result<(), WriteError> {
    apply(api, node, &json!({})).await
}

/// Writes the spec of the node state of `node`.
pub(crate) async fn apply_spec(
    api: &Api<SriovNetworkNodeState>,
    node: &str,
    spec: &SriovNetworkNodeStateSpec,
) -> Result<(), WriteError> {
    apply(api, node, &json!({ "spec": spec })).await
}

async fn apply(
    api: &Api<SriovNetworkNodeState>,
    node: &str,
    content: &serde_json::Value,
) -> Result<(), WriteError> {
    let mut object = json!({
        "apiVersion": SriovNetworkNodeState::api_version(&()),
        "kind": SriovNetworkNodeState::kind(&()),
        "metadata": { "name": node },
    });
    if let (Some(object), Some(content)) = (object.as_object_mut(), content.as_object()) {
        object.extend(content.clone());
    }
    // Forced: a spec that another program wrote (the Go operator) is taken over.
    let params = PatchParams::apply(OPERATOR_FIELD_MANAGER).force();
    tokio::time::timeout(DEADLINE, api.patch(node, &params, &Patch::Apply(&object))).await??;
    Ok(())
}
