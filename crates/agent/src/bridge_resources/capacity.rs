//! Capacity of the Node: a watch of the Node object, and the resources of bridges in it.

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher;
use kube::{Api, Client};
use vfleet_api::keys::AGENT_FIELD_MANAGER;
use vfleet_plan::bridge_resources::BridgeCapacity;

use crate::single_object::{apply_event, is_older};
use crate::watch_log::WatchLog;

/// Resources of bridges in one version of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeCapacity {
    version: Option<String>,
    pub(super) resources: BridgeCapacity,
}

impl NodeCapacity {
    /// Returns the resources of bridges of a Node; `None` while it has no capacity. The API server would take resources of
    /// bridges alone for all that pods may allocate, so that the kubelet has to report first.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let capacity = node.status.as_ref()?.capacity.as_ref().filter(|capacity| !capacity.is_empty())?;
        let quantities = capacity.iter().map(|(name, quantity)| (name.clone(), quantity.0.clone()));
        let fields = node.metadata.managed_fields.iter().flatten();
        let resources = BridgeCapacity::new(quantities, fields.flat_map(owned_resources));
        Some(Self { version: node.metadata.resource_version.clone(), resources })
    }

    pub(super) fn is_older_than(&self, stored: &Self) -> bool {
        is_older(self.version.as_deref(), stored.version.as_deref())
    }
}

/// Returns the resources that the agent applied, according to an entry of managed fields.
fn owned_resources(entry: &ManagedFieldsEntry) -> Vec<String> {
    let is_ours = entry.manager.as_deref() == Some(AGENT_FIELD_MANAGER)
        && entry.operation.as_deref() == Some("Apply")
        && entry.subresource.as_deref() == Some("status");
    let fields = entry.fields_v1.as_ref().filter(|_| is_ours);
    let capacity = fields.and_then(|fields| fields.0.pointer("/f:status/f:capacity")?.as_object());
    let names = capacity.into_iter().flat_map(|capacity| capacity.keys());
    names.filter_map(|name| name.strip_prefix("f:")).map(str::to_owned).collect()
}

/// Watches the Node. Yields its capacity whenever it may have changed; `None` while it has none.
pub(super) fn watch_capacity(
    client: &Client,
    node: &str,
) -> impl Stream<Item = Option<NodeCapacity>> + Send + use<> {
    let selection = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let mut listed = None;
    let mut watch_log = WatchLog::new(format!("capacity of Node {node}"));
    let changes = watcher(Api::<Node>::all(client.clone()), selection).default_backoff();
    changes.filter_map(move |change| {
        let update = match change {
            Ok(event) => {
                watch_log.received(&event);
                apply_event(&mut listed, event).map(|node| node.as_ref().and_then(NodeCapacity::of))
            }
            Err(error) => {
                watch_log.failed(&error);
                None
            }
        };
        std::future::ready(update)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(capacity: &Value, managed_fields: &Value) -> Option<NodeCapacity> {
        let node = json!({
            "metadata": { "resourceVersion": "7", "managedFields": managed_fields },
            "status": { "capacity": capacity },
        });
        NodeCapacity::of(&serde_json::from_value(node).unwrap())
    }

    #[test]
    fn resources_that_the_agent_applied_to_the_status_are_its_own() {
        let fields = |names: &[&str]| -> Value {
            let names = names.iter().map(|name| (format!("f:ovs-cni.network.kubevirt.io/{name}"), json!({})));
            json!({ "f:status": { "f:capacity": names.collect::<serde_json::Map<_, _>>() } })
        };
        let entry = |manager, operation, subresource, names: &[&str]| {
            json!({
                "manager": manager, "operation": operation, "subresource": subresource,
                "fieldsType": "FieldsV1", "fieldsV1": fields(names),
            })
        };
        let managed = json!([
            entry("vfleet-agent", "Apply", Some("status"), &["br0"]),
            entry("vfleet-agent", "Update", Some("status"), &["br1"]),
            entry("vfleet-agent", "Apply", None, &["br2"]),
            entry("marker", "Update", Some("status"), &["br3"]),
            { "manager": "vfleet-agent", "operation": "Apply", "subresource": "status" },
        ]);
        let name = |bridge: &str| format!("ovs-cni.network.kubevirt.io/{bridge}");
        let capacity: Vec<_> =
            ["br0", "br1", "br2", "br3"].map(|bridge| (name(bridge), "1k".to_owned())).into();
        let expected = BridgeCapacity::new(capacity.clone(), [name("br0")]);
        let mut all: serde_json::Map<_, _> =
            capacity.into_iter().map(|(name, quantity)| (name, json!(quantity))).collect();
        all.insert("cpu".to_owned(), json!("8"));
        let found = node(&Value::Object(all), &managed).unwrap();
        assert_eq!(found, NodeCapacity { version: Some("7".to_owned()), resources: expected });
    }

    #[test]
    fn a_node_without_a_capacity_waits_for_its_kubelet() {
        assert_eq!(node(&Value::Null, &Value::Null), None);
        assert_eq!(node(&json!({}), &Value::Null), None);
        assert_eq!(NodeCapacity::of(&Node::default()), None);
        assert!(!node(&json!({ "cpu": "8" }), &Value::Null).unwrap().resources.has_own());
    }
}
