//! Defaults of policy fields that are set before a policy is stored.

use serde_json::Value;
use vfleet_api::keys::IGNORED_POLICY;
use vfleet_api::node_policy::DeviceType;

use super::PatchOperation;
use crate::policy::DEFAULT_PRIORITY;
use crate::prelude::*;

/// Returns the patch that sets the defaults of a policy. The object has not been validated against the schema yet, so
/// fields of an unexpected type are left unchanged.
pub fn patch_policy_defaults(object: &Value) -> Vec<PatchOperation> {
    let Some(spec) = object["spec"].as_object() else { return Vec::new() };
    if object["metadata"]["name"] == IGNORED_POLICY {
        return Vec::new();
    }
    let is_set = |name: &str| spec.get(name).is_some_and(|value| !value.is_null());
    let text = |name: &str| spec.get(name).and_then(Value::as_str);
    let is_infiniband = text("linkType").is_some_and(|kind| kind.eq_ignore_ascii_case("ib"));
    let needs_rdma = is_infiniband && text("deviceType") != Some(DeviceType::VfioPci.as_str());
    let has_rdma = spec.get("isRdma") == Some(&Value::Bool(true));

    let priority =
        (!is_set("priority")).then(|| PatchOperation::add(&["spec", "priority"], DEFAULT_PRIORITY));
    let set_rdma = if needs_rdma { !has_rdma } else { !is_set("isRdma") };
    let rdma = set_rdma.then(|| PatchOperation::add(&["spec", "isRdma"], needs_rdma));
    priority.into_iter().chain(rdma).collect()
}
