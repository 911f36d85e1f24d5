//! Objects of all kinds, and their CustomResourceDefinitions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

pub use crate::network::{BridgeNetwork, OVSNetwork, SriovIBNetwork, SriovNetwork};
pub use crate::node_policy::SriovNetworkNodePolicy;
pub use crate::node_state::SriovNetworkNodeState;
pub use crate::operator_config::SriovOperatorConfig;
pub use crate::pool_config::SriovNetworkPoolConfig;

/// Returns all CustomResourceDefinitions.
pub fn all() -> Vec<CustomResourceDefinition> {
    [
        SriovNetwork::crd(),
        SriovIBNetwork::crd(),
        OVSNetwork::crd(),
        BridgeNetwork::crd(),
        SriovNetworkNodePolicy::crd(),
        SriovNetworkNodeState::crd(),
        SriovNetworkPoolConfig::crd(),
        SriovOperatorConfig::crd(),
    ]
    .into_iter()
    .map(adjust_schema)
    .collect()
}

/// Adjusts what the derive macro cannot express: no field is nullable, conditions are a map by type and only in the
/// status, and a kind whose spec has no required field may omit its spec, as in the Go API.
fn adjust_schema(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(CustomResourceValidation { open_api_v3_schema: Some(root) }) = &mut version.schema {
            visit(root, &mut |schema| {
                forbid_null(schema);
                make_conditions_a_map(schema);
            });
            remove_conditions_from_spec(root);
            allow_empty_spec(root);
        }
    }
    crd
}

fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(values) = &mut schema.enum_ {
        values.retain(|JSON(value)| !value.is_null());
    }
}

/// Makes conditions a map by type, so that each writer owns its own conditions in server-side apply.
fn make_conditions_a_map(schema: &mut JSONSchemaProps) {
    let conditions = schema.properties.as_mut().and_then(|properties| properties.get_mut("conditions"));
    if let Some(conditions) = conditions {
        conditions.x_kubernetes_list_type = Some("map".to_owned());
        conditions.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
    }
}

/// Removes the conditions of types that spec and status share.
fn remove_conditions_from_spec(root: &mut JSONSchemaProps) {
    if let Some(spec) = root.properties.as_mut().and_then(|properties| properties.get_mut("spec")) {
        visit(spec, &mut |schema| {
            schema.properties.as_mut().and_then(|properties| properties.remove("conditions"));
        });
    }
}

fn allow_empty_spec(root: &mut JSONSchemaProps) {
    let Some(spec) = root.properties.as_mut().and_then(|properties| properties.get_mut("spec")) else {
        return;
    };
    if spec.required.as_ref().is_none_or(Vec::is_empty) {
        // The default also applies to stored objects without spec, so that every reader gets one.
        spec.default = Some(JSON(serde_json::json!({})));
        root.required = None;
    }
}

/// Applies `change` to `schema` and all schemas below it.
fn visit(schema: &mut JSONSchemaProps, change: &mut impl FnMut(&mut JSONSchemaProps)) {
    change(schema);
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        visit(property, change);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => visit(item, change),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => {
            for item in items {
                visit(item, change);
            }
        }
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        visit(values, change);
    }
}
