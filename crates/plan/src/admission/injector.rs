//! Resource injection: pods that name networks get the resources of those networks.

mod annotation;

use core::fmt;

use serde_json::{Value, json};
use thiserror::Error;
use vfleet_api::keys::{POD_DEFAULT_NETWORK, POD_NETWORKS};

use self::annotation::DefaultNamespace;
use super::PatchOperation;
use super::names::{is_extended_resource, is_label_value, is_qualified};
use crate::prelude::*;

/// Name of a NetworkAttachmentDefinition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkRef {
    /// Namespace of the NAD.
    pub namespace: String,
    /// Name of the NAD.
    pub name: String,
}

impl fmt::Display for NetworkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Network in an annotation of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedNetwork {
    /// NAD that is looked up.
    pub network: NetworkRef,
    /// True if Multus looks in its own namespace, which the operator does not know. Then a NAD that is not found may
    /// still exist.
    pub may_be_elsewhere: bool,
}

/// Facts of a NetworkAttachmentDefinition that injection uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NadAnnotations {
    /// Annotation [`vfleet_api::keys::NAD_RESOURCE`].
    pub resource: Option<String>,
    /// Annotation [`vfleet_api::keys::NAD_NODE_SELECTOR`].
    pub node_selector: Option<String>,
}

/// Error of an annotation that names networks. Its text is returned to the user as a warning.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("annotation {annotation} is invalid: {problem}; no resources are requested")]
pub struct NetworkAnnotationError {
    /// Key of the annotation.
    pub annotation: &'static str,
    /// Problem of its value.
    pub problem: String,
}

/// Changes of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Injection {
    /// Patch that adds resources and node selectors.
    pub patch: Vec<PatchOperation>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Returns the networks that a pod names, one entry for each time. `namespace` is the namespace of the pod.
pub fn read_pod_networks(pod: &Value, namespace: &str) -> Result<Vec<NamedNetwork>, NetworkAnnotationError> {
    let read = |annotation: &'static str, may_be_elsewhere: bool| {
        let text = pod.pointer("/metadata/annotations").and_then(|all| all.get(annotation)?.as_str());
        let default = DefaultNamespace { namespace, may_be_elsewhere };
        let networks = annotation::parse_networks(text.unwrap_or_default(), default);
        networks.map_err(|problem| NetworkAnnotationError { annotation, problem: problem.to_string() })
    };
    let mut networks = read(POD_DEFAULT_NETWORK, true)?;
    // A pod has only one default network.
    networks.truncate(1);
    networks.extend(read(POD_NETWORKS, false)?);
    Ok(networks)
}

/// Returns the changes of a pod that names these networks. The first container requests the resource of each network,
/// as many as there are networks with it, and the node selectors of the networks are added.
pub fn inject_resources(pod: &Value, networks: &[(NamedNetwork, NadAnnotations)]) -> Injection {
    let mut injection = Injection::default();
    let Some(containers) = pod.pointer("/spec/containers").and_then(Value::as_array) else {
        return injection;
    };
    let Some(first) = containers.first() else { return injection };
    injection.warnings.extend(networks.iter().filter_map(|(named, _)| warn_of_namespace(named)));
    let mut missing = BTreeMap::new();
    for (resource, count) in count_resources(networks) {
        // The API server would refuse the pod, or take the name for one of its own resources.
        if !is_extended_resource(resource) {
            let warning = format!(
                "resource {resource:?} is not a valid extended resource name such as openshift.io/nics: it is not requested"
            );
            injection.warnings.push(warning);
            continue;
        }
        match requested_count(pod, resource) {
            None => drop(missing.insert(resource, count.to_string())),
            Some(requested) if requested < count => injection.warnings.push(format!(
                "the pod names {count} networks of resource {resource}, but requests {requested}"
            )),
            Some(_) => {}
        }
    }
    injection.patch.extend(patch_requests(first, &missing));
    add_node_selectors(pod, networks, &mut injection);
    injection
}

/// Returns a warning for a network that was found in the namespace of the pod although Multus looks in another one.
fn warn_of_namespace(NamedNetwork { network, may_be_elsewhere }: &NamedNetwork) -> Option<String> {
    may_be_elsewhere.then(|| {
        format!(
            "default network {network} is named without a namespace, and Multus looks only in its own namespace: add the namespace"
        )
    })
}

/// Returns the number of networks of each resource.
fn count_resources(networks: &[(NamedNetwork, NadAnnotations)]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    let resources = networks.iter().filter_map(|(_, nad)| nad.resource.as_deref());
    for resource in resources.filter(|resource| !resource.is_empty()) {
        *counts.entry(resource).or_default() += 1;
    }
    counts
}

/// Returns how much of a resource the containers request; `None` if none of them does. Init containers do not count,
/// because their devices are released before the others start. Sidecars (init containers that keep running) count.
fn requested_count(pod: &Value, resource: &str) -> Option<u64> {
    let all = |list: &str| pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
    let is_sidecar = |container: &&Value| {
        container.get("restartPolicy").is_some_and(|policy| policy.as_str() == Some("Always"))
    };
    let containers = all("/spec/containers").chain(all("/spec/initContainers").filter(is_sidecar));
    let requested = |container: &Value| {
        let of = |part: &str| container.get("resources")?.get(part)?.get(resource);
        of("limits").or_else(|| of("requests")).map(parse_quantity)
    };
    let requested: Vec<u64> = containers.filter_map(requested).collect();
    (!requested.is_empty()).then(|| requested.iter().fold(0, |sum, one| one.saturating_add(sum)))
}

/// Returns a number of devices. Other notations, such as `1k`, are not parsed and count as enough.
fn parse_quantity(value: &Value) -> u64 {
    let number = match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    };
    number.unwrap_or(u64::MAX)
}

/// Returns the patch of the first container. Members are added one by one, so that existing ones stay. A part of an
/// unexpected type is left alone: the API server refuses such a pod.
fn patch_requests(first: &Value, missing: &BTreeMap<&str, String>) -> Vec<PatchOperation> {
    const PATH: [&str; 4] = ["spec", "containers", "0", "resources"];
    if missing.is_empty() || !first.is_object() {
        return Vec::new();
    }
    let resources = match first.get("resources") {
        Some(Value::Object(resources)) => resources,
        None | Some(Value::Null) => {
            let value = json!({ "limits": missing, "requests": missing });
            return vec![PatchOperation::add(&PATH, value)];
        }
        Some(_) => return Vec::new(),
    };
    let patch_part = |part: &'static str| {
        let whole = [&PATH[..], &[part]].concat();
        let member = |(resource, count): (&&str, &String)| {
            PatchOperation::add(&[&whole[..], &[resource]].concat(), count.as_str())
        };
        match resources.get(part) {
            Some(Value::Object(_)) => missing.iter().map(member).collect(),
            None | Some(Value::Null) => vec![PatchOperation::add(&whole, json!(missing))],
            Some(_) => Vec::new(),
        }
    };
    ["requests", "limits"].into_iter().flat_map(patch_part).collect()
}

/// Adds the node selectors of the networks.
fn add_node_selectors(pod: &Value, networks: &[(NamedNetwork, NadAnnotations)], injection: &mut Injection) {
    let existing = pod.pointer("/spec/nodeSelector").filter(|selector| !selector.is_null());
    let mut added: BTreeMap<&str, &str> = BTreeMap::new();
    let mut visited = BTreeSet::new();
    for (NamedNetwork { network, .. }, nad) in
        networks.iter().filter(|(named, _)| visited.insert(&named.network))
    {
        let Some(text) = nad.node_selector.as_deref().filter(|text| !text.trim().is_empty()) else {
            continue;
        };
        let Some((key, value)) = parse_label(text) else {
            let warning = format!(
                "network {network}: node selector {text:?} is not a label such as rack=a: it is ignored"
            );
            injection.warnings.push(warning);
            continue;
        };
        let by_pod = existing.and_then(|existing| existing.get(key)?.as_str());
        let requester = if by_pod.is_some() { "the pod" } else { "another network of the pod" };
        match by_pod.or(added.get(key).copied()) {
            None => drop(added.insert(key, value)),
            Some(current) if current == value => {}
            Some(current) => injection.warnings.push(format!(
                "network {network} needs nodes with {key}={value}, but {requester} requests {key}={current}"
            )),
        }
    }
    let member = |(key, value): (&&str, &&str)| PatchOperation::add(&["spec", "nodeSelector", key], *value);
    match existing {
        Some(Value::Object(_)) => injection.patch.extend(added.iter().map(member)),
        None if !added.is_empty() => {
            injection.patch.push(PatchOperation::add(&["spec", "nodeSelector"], json!(added)));
        }
        None | Some(_) => {}
    }
}

/// Parses `key=value`, or a key without a value.
fn parse_label(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.trim().split_once('=').unwrap_or((text.trim(), ""));
    let (key, value) = (key.trim(), value.trim());
    (is_qualified(key) && is_label_value(value)).then_some((key, value))
}
