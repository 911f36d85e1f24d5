//! Checks of networks before their NADs are written.

use serde_json::{Map, Value};

use super::{CommonFields, NetworkFault, NetworkId, NetworkSpec, json, vlans};
use crate::admission::{NameFault, check_resource_name};
use crate::prelude::*;

const IPAM_FORMAT: &str = r#"a JSON object such as {"type": "dhcp"}"#;
const CAPABILITIES_FORMAT: &str = r#"a JSON object such as {"mac": true}"#;
const META_PLUGINS_FORMAT: &str =
    r#"JSON objects with commas between them, such as {"type": "tuning"}, {"type": "rdma"}"#;

/// Field with its fault.
pub(super) type FieldFault = (String, NetworkFault);

/// Returns all faults of a network.
pub(super) fn find_faults(
    id: &NetworkId,
    spec: &NetworkSpec,
    common: &CommonFields<'_>,
    operator_namespace: &str,
) -> Vec<FieldFault> {
    let mut faults = Vec::new();
    if common.network_namespace.is_some() && id.namespace != operator_namespace {
        let operator_namespace = operator_namespace.to_owned();
        let fault = NetworkFault::NamespaceNotAllowed { operator_namespace };
        faults.push(("spec.networkNamespace".to_owned(), fault));
    }
    faults.extend(check_resource_name(common.resource_name).map(|fault| {
        let fault = match fault {
            NameFault::Empty => NetworkFault::NoResource,
            fault => NetworkFault::ResourceName(fault),
        };
        ("spec.resourceName".to_owned(), fault)
    }));
    faults.extend(vlans::find_faults(spec));
    faults.extend(common.capabilities.into_iter().flat_map(check_capabilities));
    faults.extend(common.ipam.and_then(check_ipam));
    faults.extend(common.meta_plugins.into_iter().flat_map(check_meta_plugins));
    faults
}

/// Returns whether `ipam` is a JSON object that is not empty and has no `type`.
pub(crate) fn has_ipam_without_type(spec: &NetworkSpec) -> bool {
    let ipam = spec.common().ipam.and_then(|text| json::parse_object("ipam", IPAM_FORMAT, text).ok());
    ipam.is_some_and(|ipam| !ipam.is_empty() && type_of(&ipam).is_none())
}

/// Returns the value of `type`. Upper and lower case are equal, as in the programs that read the configuration.
fn type_of(object: &Map<String, Value>) -> Option<&Value> {
    object.iter().find(|(key, _)| key.eq_ignore_ascii_case("type")).map(|(_, value)| value)
}

fn check_capabilities(text: &str) -> Vec<FieldFault> {
    const FIELD: &str = "spec.capabilities";
    match json::parse_object("capabilities", CAPABILITIES_FORMAT, text) {
        Err(fault) => vec![(FIELD.to_owned(), fault)],
        Ok(capabilities) => capabilities
            .into_iter()
            // Readers of the configuration treat null as absent.
            .filter(|(_, value)| !(value.is_boolean() || value.is_null()))
            .map(|(name, _)| (FIELD.to_owned(), NetworkFault::Capability { name }))
            .collect(),
    }
}

fn check_ipam(text: &str) -> Option<FieldFault> {
    json::parse_object("ipam", IPAM_FORMAT, text).err().map(|fault| ("spec.ipam".to_owned(), fault))
}

fn check_meta_plugins(text: &str) -> Vec<FieldFault> {
    const FIELD: &str = "spec.metaPlugins";
    match json::parse_objects("metaPlugins", META_PLUGINS_FORMAT, text) {
        Err(fault) => vec![(FIELD.to_owned(), fault)],
        Ok(plugins) => (1..)
            .zip(plugins)
            .filter(|(_, plugin)| type_of(plugin).and_then(Value::as_str).is_none_or(str::is_empty))
            .map(|(number, _)| (FIELD.to_owned(), NetworkFault::PluginWithoutType { number }))
            .collect(),
    }
}
