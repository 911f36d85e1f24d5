//! Execution of the decisions about one network.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::Patch;
use kube::core::{ObjectMeta, PartialObjectMeta, PartialObjectMetaExt, Resource};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use vfleet_api::conditions::{ConditionUpdate, READY, update_conditions};
use vfleet_api::keys::{LAST_NETWORK_NAMESPACE, NAD_OWNER, NAD_RESOURCE, NETWORK_FINALIZER};
use vfleet_api::meta::Condition;
use vfleet_api::network::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};
use vfleet_api::{BridgeNetwork, OVSNetwork, SriovIBNetwork, SriovNetwork};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::status::StatusSubject;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::network::{DesiredNad, NetworkId, NetworkKind, NetworkStep, reasons};

use crate::networks::changes::{NetworkObject, StoredNad};
use crate::networks::index::NetworkPlan;
use crate::networks::versioned_store::ObjectVersion;
use crate::replica::context::Context;

/// Result of a write.
pub(super) enum NetworkWrite {
    Nad(Box<StoredNad>),
    Metadata {
        id: NetworkId,
        version: ObjectVersion,
        finalizers: Vec<String>,
        last_namespace: Option<String>,
    },
    Conditions {
        id: NetworkId,
        uid: String,
        conditions: Vec<Condition>,
    },
}

/// Execution of the plan of one network.
pub(super) struct NetworkExecution {
    pub(super) context: Context,
    pub(super) sender: UnboundedSender<NetworkWrite>,
    pub(super) plan: NetworkPlan,
}

impl NetworkExecution {
    pub(super) async fn run(self) -> Result<(), WriteError> {
        match self.plan.network.id.kind {
            NetworkKind::Sriov => self.run_as::<SriovNetwork>().await,
            NetworkKind::InfiniBand => self.run_as::<SriovIBNetwork>().await,
            NetworkKind::Ovs => self.run_as::<OVSNetwork>().await,
            NetworkKind::Bridge => self.run_as::<BridgeNetwork>().await,
        }
    }

    async fn run_as<K: NetworkObject>(&self) -> Result<(), WriteError> {
        for step in &self.plan.decision.steps {
            if let Err(error) = self.execute_step::<K>(step).await {
                if let Some(condition) = rejection_condition(step, &error) {
                    self.write_conditions::<K>(&condition).await?;
                }
                return Err(error);
            }
        }
        match &self.plan.decision.condition {
            Some(condition) => self.write_conditions::<K>(condition).await,
            None => Ok(()),
        }
    }

    async fn execute_step<K: NetworkObject>(&self, step: &NetworkStep) -> Result<(), WriteError> {
        match step {
            NetworkStep::Prepare { add_finalizer, namespace } => {
                self.prepare::<K>(*add_finalizer, namespace).await
            }
            NetworkStep::Create(nad) => self.create::<K>(nad).await,
            NetworkStep::Update(nad) => self.update::<K>(nad).await,
            NetworkStep::Delete { namespace } => self.delete(namespace).await,
            NetworkStep::RemoveFinalizer => self.remove_finalizer::<K>().await,
        }
    }

    async fn prepare<K: NetworkObject>(
        &self,
        add_finalizer: bool,
        namespace: &str,
    ) -> Result<(), WriteError> {
        let mut metadata = json!({ "annotations": { LAST_NETWORK_NAMESPACE: namespace } });
        if add_finalizer {
            let own = std::iter::once(NETWORK_FINALIZER);
            let all: Vec<_> = self.plan.network.finalizers.iter().map(String::as_str).chain(own).collect();
            metadata["finalizers"] = json!(all);
        }
        let written = self.patch_network::<K>(metadata).await?.metadata;
        let mut annotations = written.annotations.clone().unwrap_or_default();
        self.report(NetworkWrite::Metadata {
            id: self.plan.network.id.clone(),
            version: ObjectVersion::of(&written),
            finalizers: written.finalizers.unwrap_or_default(),
            last_namespace: annotations.remove(LAST_NETWORK_NAMESPACE),
        });
        Ok(())
    }

    async fn remove_finalizer<K: NetworkObject>(&self) -> Result<(), WriteError> {
        let others = self.plan.network.finalizers.iter().filter(|finalizer| *finalizer != NETWORK_FINALIZER);
        match self.patch_network::<K>(json!({ "finalizers": others.collect::<Vec<_>>() })).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Patches the metadata of the network. Fails with a conflict if the network has changed since the decision,
    /// because the list of finalizers is replaced as a whole.
    async fn patch_network<K: NetworkObject>(
        &self,
        mut metadata: Value,
    ) -> Result<PartialObjectMeta<K>, WriteError> {
        let network = &self.plan.network;
        metadata["uid"] = json!(network.version.uid);
        metadata["resourceVersion"] = json!(network.version.resource_version);
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        self.writer().patch(&self.networks::<K>(), &network.id.name, &patch).await
    }

    async fn create<K: NetworkObject>(&self, desired: &DesiredNad) -> Result<(), WriteError> {
        let nad = NetworkAttachmentDefinition {
            metadata: ObjectMeta {
                name: Some(desired.name.clone()),
                namespace: Some(desired.namespace.clone()),
                annotations: Some(annotations(desired).map(|(key, value)| (key.into(), value.into())).into()),
                owner_references: self.owner_reference::<K>(desired).map(|reference| vec![reference]),
                ..Default::default()
            },
            spec: NetworkAttachmentDefinitionSpec { config: Some(desired.config.clone()) },
        };
        let written = self.writer().create(&self.nads(&desired.namespace), &nad).await?;
        tracing::info!(network = %self.plan.network.id, namespace = desired.namespace, "created NetworkAttachmentDefinition");
        self.report(NetworkWrite::Nad(Box::new(StoredNad::from(&Guarded(Ok(written))))));
        Ok(())
    }

    /// Applies the fields of the operator. Fails with a conflict if the NAD has changed since the decision.
    async fn update<K: NetworkObject>(&self, desired: &DesiredNad) -> Result<(), WriteError> {
        let version = self.plan.nads.get(&desired.namespace).cloned().unwrap_or_default();
        let mut object = json!({
            "apiVersion": NetworkAttachmentDefinition::api_version(&()),
            "kind": NetworkAttachmentDefinition::kind(&()),
            "metadata": {
                "name": desired.name,
                "namespace": desired.namespace,
                "uid": version.uid,
                "resourceVersion": version.resource_version,
                "annotations": serde_json::Map::from_iter(
                    annotations(desired).map(|(key, value)| (key.to_owned(), json!(value)))
                ),
            },
            "spec": { "config": desired.config },
        });
        if let Some(reference) = self.owner_reference::<K>(desired) {
            object["metadata"]["ownerReferences"] = json!([reference]);
        }
        let written = self.writer().apply(&self.nads(&desired.namespace), &desired.name, &object).await?;
        tracing::info!(network = %self.plan.network.id, namespace = desired.namespace, "updated NetworkAttachmentDefinition");
        self.report(NetworkWrite::Nad(Box::new(StoredNad::from(&Guarded(Ok(written))))));
        Ok(())
    }

    fn owner_reference<K: NetworkObject>(&self, desired: &DesiredNad) -> Option<OwnerReference> {
        let network = &self.plan.network;
        desired.owner_reference.then(|| OwnerReference {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            name: network.id.name.clone(),
            uid: network.version.uid.clone(),
            ..Default::default()
        })
    }

    async fn delete(&self, namespace: &str) -> Result<(), WriteError> {
        let version = self.plan.nads.get(namespace).cloned().unwrap_or_default();
        let metadata = ObjectMeta {
            name: Some(self.plan.network.id.name.clone()),
            uid: Some(version.uid),
            resource_version: version.resource_version,
            ..Default::default()
        };
        let nad: PartialObjectMeta<NetworkAttachmentDefinition> = metadata.into_response_partial();
        self.writer().delete(&Api::namespaced(self.context.client.clone(), namespace), &nad).await?;
        tracing::info!(network = %self.plan.network.id, namespace, "deleted NetworkAttachmentDefinition");
        Ok(())
    }

    /// Writes the conditions Ready and Valid.
    async fn write_conditions<K: NetworkObject>(&self, ready: &ConditionUpdate) -> Result<(), WriteError> {
        let network = &self.plan.network;
        let Some(conditions) = &network.conditions else { return Ok(()) };
        let metadata = ObjectMeta {
            name: Some(network.id.name.clone()),
            namespace: Some(network.id.namespace.clone()),
            uid: Some(network.version.uid.clone()),
            generation: network.generation,
            ..Default::default()
        };
        let subject = StatusSubject::<PartialObjectMeta<K>> {
            api: &self.networks::<K>(),
            object: &metadata.into_response_partial(),
            conditions,
            rest_is_same: true,
        };
        let updates = self.plan.with_valid(ready);
        match self.context.report(&subject, &updates, json!({})).await {
            // The network was deleted meanwhile.
            Err(error) if error.is_not_found() => return Ok(()),
            result => result?,
        }
        let conditions = update_conditions(conditions, &updates, network.generation, Timestamp::now());
        let (id, uid) = (network.id.clone(), network.version.uid.clone());
        self.report(NetworkWrite::Conditions { id, uid, conditions });
        Ok(())
    }

    fn networks<K: NetworkObject>(&self) -> Api<PartialObjectMeta<K>> {
        Api::namespaced(self.context.client.clone(), &self.plan.network.id.namespace)
    }

    fn nads(&self, namespace: &str) -> Api<NetworkAttachmentDefinition> {
        Api::namespaced(self.context.client.clone(), namespace)
    }

    fn writer(&self) -> Writer {
        Writer::new(self.context.leadership.clone())
    }

    /// Reports a write to the controller. Sending fails only when the controller has ended.
    fn report(&self, write: NetworkWrite) {
        let _ = self.sender.send(write);
    }
}

fn annotations(desired: &DesiredNad) -> [(&'static str, &str); 2] {
    [(NAD_RESOURCE, &desired.resource), (NAD_OWNER, &desired.owner)]
}

/// Returns the condition for a NAD that the API server rejected, unless a retry is likely to help.
fn rejection_condition(step: &NetworkStep, error: &WriteError) -> Option<ConditionUpdate> {
    let WriteError::Api(kube::Error::Api(status)) = error else { return None };
    let is_final = (400..500).contains(&status.code) && ![409, 429].contains(&status.code);
    let (reason, problem) = match step {
        NetworkStep::Create(nad) => {
            (reasons::NOT_FOUND, format!("{}/{} cannot be created", nad.namespace, nad.name))
        }
        NetworkStep::Update(nad) => {
            (reasons::INVALID, format!("{}/{} cannot be updated", nad.namespace, nad.name))
        }
        _ => return None,
    };
    let message = format!("NetworkAttachmentDefinition {problem}: {}; retrying", status.message);
    is_final.then_some(ConditionUpdate { type_: READY, status: false, reason, message })
}
