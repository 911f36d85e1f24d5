//! What a policy does not say and is given before it is stored.

use serde_json::Value;
use vfleet_api::keys::IGNORED_POLICY;
use vfleet_api::node_policy::DeviceType;

use super::PatchOperation;
use crate::policy::DEFAULT_PRIORITY;
use crate::prelude::*;

/// What is added to a policy. It is read as a tree, since the schema has not been asked yet: what cannot be understood
/// is left as it is.
pub fn policy_defaults(object: &Value) -> Vec<PatchOperation> {
    let Some(spec) = object["spec"].as_object() else { return Vec::new() };
    if object["metadata"]["name"] == IGNORED_POLICY {
        return Vec::new();
    }
    let is_given = |name: &str| spec.get(name).is_some_and(|value| !value.is_null());
    let text = |name: &str| spec.get(name).and_then(Value::as_str);
    let is_infiniband = text("linkType").is_some_and(|kind| kind.eq_ignore_ascii_case("ib"));
    let wants_rdma = is_infiniband && text("deviceType") != Some(DeviceType::VfioPci.as_str());
    let says_rdma = spec.get("isRdma") == Some(&Value::Bool(true));

    let priority =
        (!is_given("priority")).then(|| PatchOperation::add(&["spec", "priority"], DEFAULT_PRIORITY));
    let needs_rdma = if wants_rdma { !says_rdma } else { !is_given("isRdma") };
    let rdma = needs_rdma.then(|| PatchOperation::add(&["spec", "isRdma"], wants_rdma));
    priority.into_iter().chain(rdma).collect()
}
