//! The writes of the operator: server-side apply under its own name, so that what others own stays theirs.

use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::Resource;
use serde_json::json;
use vfleet_api::keys::OPERATOR_FIELD_MANAGER;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec};

/// Creates the node state of `node` without a spec, unless it exists.
pub(crate) async fn create(api: &Api<SriovNetworkNodeState>, node: &str) -> Result<(), kube::Error> {
    apply(api, node, &json!({})).await
}

/// Writes the spec of the node state of `node`.
pub(crate) async fn apply_spec(
    api: &Api<SriovNetworkNodeState>,
    node: &str,
    spec: &SriovNetworkNodeStateSpec,
) -> Result<(), kube::Error> {
    apply(api, node, &json!({ "spec": spec })).await
}

async fn apply(
    api: &Api<SriovNetworkNodeState>,
    node: &str,
    content: &serde_json::Value,
) -> Result<(), kube::Error> {
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
    api.patch(node, &params, &Patch::Apply(&object)).await.map(drop)
}
