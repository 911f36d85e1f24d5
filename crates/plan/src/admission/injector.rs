//! Pods that name networks are given the resources of those networks.

mod annotation;

use core::fmt;

use serde_json::{Value, json};
use thiserror::Error;
use vfleet_api::keys::{POD_DEFAULT_NETWORK, POD_NETWORKS};

use self::annotation::Unsaid;
use super::PatchOperation;
use super::names::{is_extended_resource, is_label_value, is_qualified};
use crate::prelude::*;

/// A NetworkAttachmentDefinition that a pod names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for NetworkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A network as a pod names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedNetwork {
    /// Where it is looked for.
    pub network: NetworkRef,
    /// Multus looks for it in its own namespace, which is not known here: that it is not found means nothing.
    pub may_be_elsewhere: bool,
}

/// What counts of a NetworkAttachmentDefinition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NadSight {
    /// Its annotation [`vfleet_api::keys::NAD_RESOURCE`].
    pub resource: Option<String>,
    /// Its annotation [`vfleet_api::keys::NAD_NODE_SELECTOR`].
    pub node_selector: Option<String>,
}

/// The networks of a pod cannot be read. The text is the warning that its user gets.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{annotation} cannot be read: {problem}; no resources are requested")]
pub struct BadNetworks {
    /// The annotation.
    pub annotation: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

/// What is done to a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Injection {
    /// What is added to it.
    pub patch: Vec<PatchOperation>,
    /// What its user should know.
    pub warnings: Vec<String>,
}

/// The networks that a pod names, one for each time that it does. `namespace` is the pod's.
pub fn networks_of_pod(pod: &Value, namespace: &str) -> Result<Vec<NamedNetwork>, BadNetworks> {
    let read = |annotation: &'static str, or_elsewhere: bool| {
        let text = pod.pointer("/metadata/annotations").and_then(|all| all.get(annotation)?.as_str());
        let networks = annotation::networks(text.unwrap_or_default(), Unsaid { namespace, or_elsewhere });
        networks.map_err(|problem| BadNetworks { annotation, problem: problem.to_string() })
    };
    let mut networks = read(POD_DEFAULT_NETWORK, true)?;
    // There is no second place to be the first of.
    networks.truncate(1);
    networks.extend(read(POD_NETWORKS, false)?);
    Ok(networks)
}

/// What is added to a pod that names these networks: the resources of those that have one, each as often as it is named,
/// in the first container; and where the nodes with such devices are.
pub fn inject(pod: &Value, networks: &[(NamedNetwork, NadSight)]) -> Injection {
    let mut injection = Injection::default();
    let Some(containers) = pod.pointer("/spec/containers").and_then(Value::as_array) else {
        return injection;
    };
    let Some(first) = containers.first() else { return injection };
    injection.warnings.extend(networks.iter().filter_map(|(named, _)| found_elsewhere(named)));
    let mut missing = BTreeMap::new();
    for (resource, count) in counted(networks) {
        // With it the API server would refuse the pod, or take it for a resource of its own.
        if !is_extended_resource(resource) {
            let warning = format!(
                "{resource:?} cannot be the name of a device's resource, as in openshift.io/nics, so nothing of it is requested"
            );
            injection.warnings.push(warning);
            continue;
        }
        match asked_for(pod, resource) {
            None => drop(missing.insert(resource, count.to_string())),
            Some(asked) if asked < count => injection
                .warnings
                .push(format!("the pod names {count} networks of {resource}, but asks for {asked}")),
            Some(_) => {}
        }
    }
    injection.patch.extend(requests(first, &missing));
    node_selectors(pod, networks, &mut injection);
    injection
}

/// What was found in the pod's namespace, while Multus looks for it in another.
fn found_elsewhere(NamedNetwork { network, may_be_elsewhere }: &NamedNetwork) -> Option<String> {
    may_be_elsewhere.then(|| {
        format!(
            "network {network} is meant here, but Multus looks for a default network without a namespace in its own only: name the namespace"
        )
    })
}

/// How often each resource is named.
fn counted(networks: &[(NamedNetwork, NadSight)]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    let resources = networks.iter().filter_map(|(_, nad)| nad.resource.as_deref());
    for resource in resources.filter(|resource| !resource.is_empty()) {
        *counts.entry(resource).or_default() += 1;
    }
    counts
}

/// How much of a resource the containers ask for; `None` when none of them does. Init containers do not count: what they
/// are given is gone when the others start. Sidecars do: they are init containers that go on.
fn asked_for(pod: &Value, resource: &str) -> Option<u64> {
    let all = |list: &str| pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
    let is_sidecar = |container: &&Value| {
        container.get("restartPolicy").is_some_and(|policy| policy.as_str() == Some("Always"))
    };
    let containers = all("/spec/containers").chain(all("/spec/initContainers").filter(is_sidecar));
    let asked = |container: &Value| {
        let of = |part: &str| container.get("resources")?.get(part)?.get(resource);
        of("limits").or_else(|| of("requests")).map(quantity)
    };
    let asked: Vec<u64> = containers.filter_map(asked).collect();
    (!asked.is_empty()).then(|| asked.iter().fold(0, |sum, one| one.saturating_add(sum)))
}

/// Devices are whole. What is written in another way, as in `1k`, is not looked into: it is more than enough.
fn quantity(value: &Value) -> u64 {
    let number = match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    };
    number.unwrap_or(u64::MAX)
}

/// What the first container is given. Members are added one by one, so that nothing of it is lost. The API server itself
/// refuses a pod whose parts are of other types than they should be.
fn requests(first: &Value, missing: &BTreeMap<&str, String>) -> Vec<PatchOperation> {
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
    let of_part = |part: &'static str| {
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
    ["requests", "limits"].into_iter().flat_map(of_part).collect()
}

/// Where the nodes with the devices of these networks are.
fn node_selectors(pod: &Value, networks: &[(NamedNetwork, NadSight)], injection: &mut Injection) {
    let given = pod.pointer("/spec/nodeSelector").filter(|selector| !selector.is_null());
    let mut added: BTreeMap<&str, &str> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (NamedNetwork { network, .. }, nad) in
        networks.iter().filter(|(named, _)| seen.insert(&named.network))
    {
        let Some(text) = nad.node_selector.as_deref().filter(|text| !text.trim().is_empty()) else {
            continue;
        };
        let Some((key, value)) = label(text) else {
            let warning = format!(
                "network {network}: its node selector {text:?} is not read, since it is not a label as in rack=a"
            );
            injection.warnings.push(warning);
            continue;
        };
        let by_pod = given.and_then(|given| given.get(key)?.as_str());
        let who = if by_pod.is_some() { "the pod" } else { "another network of the pod" };
        match by_pod.or(added.get(key).copied()) {
            None => drop(added.insert(key, value)),
            Some(asked) if asked == value => {}
            Some(asked) => injection.warnings.push(format!(
                "network {network} is on nodes with {key}={value}, but {who} asks for {key}={asked}"
            )),
        }
    }
    let member = |(key, value): (&&str, &&str)| PatchOperation::add(&["spec", "nodeSelector", key], *value);
    match given {
        Some(Value::Object(_)) => injection.patch.extend(added.iter().map(member)),
        None if !added.is_empty() => {
            injection.patch.push(PatchOperation::add(&["spec", "nodeSelector"], json!(added)));
        }
        None | Some(_) => {}
    }
}

/// `key=value`, or a key whose value is empty.
fn label(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.trim().split_once('=').unwrap_or((text.trim(), ""));
    let (key, value) = (key.trim(), value.trim());
    (is_qualified(key) && is_label_value(value)).then_some((key, value))
}
