//! What is wrong with a network, before its NAD is written.

use serde_json::{Map, Value};

use super::{Common, NetworkFault, NetworkId, NetworkSpec, json, vlans};
use crate::admission::{NameFault, resource_name};
use crate::prelude::*;

const AN_IPAM: &str = r#"a JSON object such as {"type": "dhcp"}"#;
const CAPABILITIES: &str = r#"a JSON object such as {"mac": true}"#;
const META_PLUGINS: &str =
    r#"JSON objects with commas between them, such as {"type": "tuning"}, {"type": "rdma"}"#;

/// A fault, behind the field that it is about.
pub(super) type FieldFault = (String, NetworkFault);

/// All faults.
pub(super) fn faults(
    id: &NetworkId,
    spec: &NetworkSpec,
    common: &Common<'_>,
    operator_namespace: &str,
) -> Vec<FieldFault> {
    let mut faults = Vec::new();
    if common.network_namespace.is_some() && id.namespace != operator_namespace {
        let operator_namespace = operator_namespace.to_owned();
        let fault = NetworkFault::NamespaceNotAllowed { operator_namespace };
        faults.push(("spec.networkNamespace".to_owned(), fault));
    }
    faults.extend(resource_name(common.resource_name).map(|fault| {
        let fault = match fault {
            NameFault::Empty => NetworkFault::NoResource,
            fault => NetworkFault::ResourceName(fault),
        };
        ("spec.resourceName".to_owned(), fault)
    }));
    faults.extend(vlans::faults(spec));
    faults.extend(common.capabilities.into_iter().flat_map(capabilities));
    faults.extend(common.ipam.and_then(ipam));
    faults.extend(common.meta_plugins.into_iter().flat_map(meta_plugins));
    faults
}

/// Whether there is an `ipam` that says something, but not who gives the addresses.
pub(crate) fn has_ipam_without_type(spec: &NetworkSpec) -> bool {
    let ipam = spec.common().ipam.and_then(|text| json::object("ipam", AN_IPAM, text).ok());
    ipam.is_some_and(|ipam| !ipam.is_empty() && type_of(&ipam).is_none())
}

/// The value of `type`, in letters of either case: so do those who read it match keys.
fn type_of(object: &Map<String, Value>) -> Option<&Value> {
    object.iter().find(|(key, _)| key.eq_ignore_ascii_case("type")).map(|(_, value)| value)
}

fn capabilities(text: &str) -> Vec<FieldFault> {
    const FIELD: &str = "spec.capabilities";
    match json::object("capabilities", CAPABILITIES, text) {
        Err(fault) => vec![(FIELD.to_owned(), fault)],
        Ok(capabilities) => capabilities
            .into_iter()
            // Who reads it takes null as not given.
            .filter(|(_, value)| !(value.is_boolean() || value.is_null()))
            .map(|(name, _)| (FIELD.to_owned(), NetworkFault::Capability { name }))
            .collect(),
    }
}

fn ipam(text: &str) -> Option<FieldFault> {
    json::object("ipam", AN_IPAM, text).err().map(|fault| ("spec.ipam".to_owned(), fault))
}

fn meta_plugins(text: &str) -> Vec<FieldFault> {
    const FIELD: &str = "spec.metaPlugins";
    match json::objects("metaPlugins", META_PLUGINS, text) {
        Err(fault) => vec![(FIELD.to_owned(), fault)],
        Ok(plugins) => (1..)
            .zip(plugins)
            .filter(|(_, plugin)| type_of(plugin).and_then(Value::as_str).is_none_or(str::is_empty))
            .map(|(number, _)| (FIELD.to_owned(), NetworkFault::PluginWithoutType { number }))
            .collect(),
    }
}
