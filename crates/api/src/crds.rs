//! The objects of all kinds, and their CustomResourceDefinitions as they are installed.

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

/// All of them.
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
    .map(as_installed)
    .collect()
}

/// What the derive cannot say: no field is nullable (absent is absent), conditions are one of each type, and a
/// kind whose spec has no required field may leave its spec out, as in the Go API.
fn as_installed(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(CustomResourceValidation { open_api_v3_schema: Some(root) }) = &mut version.schema {
            visit(root, &mut |schema| {
                forbid_null(schema);
                one_condition_of_each_type(schema);
            });
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

/// So that several writers can each own theirs in server-side apply.
fn one_condition_of_each_type(schema: &mut JSONSchemaProps) {
    let conditions = schema.properties.as_mut().and_then(|properties| properties.get_mut("conditions"));
    if let Some(conditions) = conditions {
        conditions.x_kubernetes_list_type = Some("map".to_owned());
        conditions.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
    }
}

fn allow_empty_spec(root: &mut JSONSchemaProps) {
    let Some(spec) = root.properties.as_mut().and_then(|properties| properties.get_mut("spec")) else {
        return;
    };
    if spec.required.as_ref().is_none_or(Vec::is_empty) {
        // The default is also applied to stored objects that have no spec, so that every reader sees one.
        spec.default = Some(JSON(serde_json::json!({})));
        root.required = None;
    }
}

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
