//! Doing what was decided for one network.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::Patch;
use kube::core::{ObjectMeta, PartialObjectMeta, PartialObjectMetaExt, Resource};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use vfleet_api::conditions::{READY, Verdict, updated};
use vfleet_api::keys::{LAST_NETWORK_NAMESPACE, NAD_OWNER, NAD_RESOURCE, NETWORK_FINALIZER};
use vfleet_api::meta::Condition;
use vfleet_api::network::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};
use vfleet_api::{BridgeNetwork, OVSNetwork, SriovIBNetwork, SriovNetwork};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::status::Subject;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::network::{Nad, NetworkId, NetworkKind, NetworkStep, reasons};

use crate::networks::changes::{NetworkObject, SeenNad};
use crate::networks::known::Todo;
use crate::networks::objects::Version;
use crate::replica::context::Context;

/// Something that was written.
pub(super) enum News {
    Nad(Box<SeenNad>),
    Prepared { id: NetworkId, version: Version, finalizers: Vec<String>, last_namespace: Option<String> },
    Said { id: NetworkId, uid: String, conditions: Vec<Condition> },
}

/// All that is to do for one network now.
pub(super) struct Task {
    pub(super) context: Context,
    pub(super) tell: UnboundedSender<News>,
    pub(super) todo: Todo,
}

impl Task {
    pub(super) async fn run(self) -> Result<(), WriteError> {
        match self.todo.network.id.kind {
            NetworkKind::Sriov => self.run_as::<SriovNetwork>().await,
            NetworkKind::InfiniBand => self.run_as::<SriovIBNetwork>().await,
            NetworkKind::Ovs => self.run_as::<OVSNetwork>().await,
            NetworkKind::Bridge => self.run_as::<BridgeNetwork>().await,
        }
    }

    async fn run_as<K: NetworkObject>(&self) -> Result<(), WriteError> {
        for step in &self.todo.decision.steps {
            if let Err(error) = self.step::<K>(step).await {
                if let Some(verdict) = refusal(step, &error) {
                    self.say::<K>(&verdict).await?;
                }
                return Err(error);
            }
        }
        match &self.todo.decision.verdict {
            Some(verdict) => self.say::<K>(verdict).await,
            None => Ok(()),
        }
    }

    async fn step<K: NetworkObject>(&self, step: &NetworkStep) -> Result<(), WriteError> {
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
            let ours = std::iter::once(NETWORK_FINALIZER);
            let all: Vec<_> = self.todo.network.finalizers.iter().map(String::as_str).chain(ours).collect();
            metadata["finalizers"] = json!(all);
        }
        let written = self.patch_network::<K>(metadata).await?.metadata;
        let mut annotations = written.annotations.clone().unwrap_or_default();
        self.tell(News::Prepared {
            id: self.todo.network.id.clone(),
            version: Version::of(&written),
            finalizers: written.finalizers.unwrap_or_default(),
            last_namespace: annotations.remove(LAST_NETWORK_NAMESPACE),
        });
        Ok(())
    }

    async fn remove_finalizer<K: NetworkObject>(&self) -> Result<(), WriteError> {
        let others = self.todo.network.finalizers.iter().filter(|finalizer| *finalizer != NETWORK_FINALIZER);
        match self.patch_network::<K>(json!({ "finalizers": others.collect::<Vec<_>>() })).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Changes the network's metadata, if it is still as it was when that was decided: a list is written as a whole.
    async fn patch_network<K: NetworkObject>(
        &self,
        mut metadata: Value,
    ) -> Result<PartialObjectMeta<K>, WriteError> {
        let network = &self.todo.network;
        metadata["uid"] = json!(network.version.uid);
        metadata["resourceVersion"] = json!(network.version.resource_version);
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        self.writer().patch(&self.networks::<K>(), &network.id.name, &patch).await
    }

    async fn create<K: NetworkObject>(&self, wanted: &Nad) -> Result<(), WriteError> {
        let nad = NetworkAttachmentDefinition {
            metadata: ObjectMeta {
                name: Some(wanted.name.clone()),
                namespace: Some(wanted.namespace.clone()),
                annotations: Some(annotations(wanted).map(|(key, value)| (key.into(), value.into())).into()),
                owner_references: self.owner_reference::<K>(wanted).map(|reference| vec![reference]),
                ..Default::default()
            },
            spec: NetworkAttachmentDefinitionSpec { config: Some(wanted.config.clone()) },
        };
        let written = self.writer().create(&self.nads(&wanted.namespace), &nad).await?;
        tracing::info!(network = %self.todo.network.id, namespace = wanted.namespace, "NetworkAttachmentDefinition made");
        self.tell(News::Nad(Box::new(SeenNad::from(&Guarded(Ok(written))))));
        Ok(())
    }

    /// Sets what is ours and nothing else, if nobody has changed it meanwhile.
    async fn update<K: NetworkObject>(&self, wanted: &Nad) -> Result<(), WriteError> {
        let version = self.todo.nads.get(&wanted.namespace).cloned().unwrap_or_default();
        let mut object = json!({
            "apiVersion": NetworkAttachmentDefinition::api_version(&()),
            "kind": NetworkAttachmentDefinition::kind(&()),
            "metadata": {
                "name": wanted.name,
                "namespace": wanted.namespace,
                "uid": version.uid,
                "resourceVersion": version.resource_version,
                "annotations": serde_json::Map::from_iter(
                    annotations(wanted).map(|(key, value)| (key.to_owned(), json!(value)))
                ),
            },
            "spec": { "config": wanted.config },
        });
        if let Some(reference) = self.owner_reference::<K>(wanted) {
            object["metadata"]["ownerReferences"] = json!([reference]);
        }
        let written = self.writer().apply(&self.nads(&wanted.namespace), &wanted.name, &object).await?;
        tracing::info!(network = %self.todo.network.id, namespace = wanted.namespace, "NetworkAttachmentDefinition set right");
        self.tell(News::Nad(Box::new(SeenNad::from(&Guarded(Ok(written))))));
        Ok(())
    }

    fn owner_reference<K: NetworkObject>(&self, wanted: &Nad) -> Option<OwnerReference> {
        let network = &self.todo.network;
        wanted.owner_reference.then(|| OwnerReference {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            name: network.id.name.clone(),
            uid: network.version.uid.clone(),
            ..Default::default()
        })
    }

    async fn delete(&self, namespace: &str) -> Result<(), WriteError> {
        let version = self.todo.nads.get(namespace).cloned().unwrap_or_default();
        let metadata = ObjectMeta {
            name: Some(self.todo.network.id.name.clone()),
            uid: Some(version.uid),
            resource_version: version.resource_version,
            ..Default::default()
        };
        let nad: PartialObjectMeta<NetworkAttachmentDefinition> = metadata.into_response_partial();
        self.writer().delete(&Api::namespaced(self.context.client.clone(), namespace), &nad).await?;
        tracing::info!(network = %self.todo.network.id, namespace, "NetworkAttachmentDefinition deleted");
        Ok(())
    }

    /// Writes the conditions Ready and Valid.
    async fn say<K: NetworkObject>(&self, ready: &Verdict) -> Result<(), WriteError> {
        let network = &self.todo.network;
        let Some(conditions) = &network.conditions else { return Ok(()) };
        let metadata = ObjectMeta {
            name: Some(network.id.name.clone()),
            namespace: Some(network.id.namespace.clone()),
            uid: Some(network.version.uid.clone()),
            generation: network.generation,
            ..Default::default()
        };
        let subject = Subject::<PartialObjectMeta<K>> {
            api: &self.networks::<K>(),
            object: &metadata.into_response_partial(),
            conditions,
            rest_is_same: true,
        };
        let verdicts = self.todo.with_valid(ready);
        match self.context.report(&subject, &verdicts, json!({})).await {
            // It went meanwhile, and nobody asks any more.
            Err(error) if error.is_not_found() => return Ok(()),
            result => result?,
        }
        let conditions = updated(conditions, &verdicts, network.generation, Timestamp::now());
        let (id, uid) = (network.id.clone(), network.version.uid.clone());
        self.tell(News::Said { id, uid, conditions });
        Ok(())
    }

    fn networks<K: NetworkObject>(&self) -> Api<PartialObjectMeta<K>> {
        Api::namespaced(self.context.client.clone(), &self.todo.network.id.namespace)
    }

    fn nads(&self, namespace: &str) -> Api<NetworkAttachmentDefinition> {
        Api::namespaced(self.context.client.clone(), namespace)
    }

    fn writer(&self) -> Writer {
        Writer::new(self.context.leadership.clone())
    }

    /// Nobody listens any more when the controller has ended.
    fn tell(&self, news: News) {
        let _ = self.tell.send(news);
    }
}

fn annotations(wanted: &Nad) -> [(&'static str, &str); 2] {
    [(NAD_RESOURCE, &wanted.resource), (NAD_OWNER, &wanted.owner)]
}

/// What to say when a NAD could not be written, unless trying again is likely to help.
fn refusal(step: &NetworkStep, error: &WriteError) -> Option<Verdict> {
    let WriteError::Api(kube::Error::Api(status)) = error else { return None };
    let is_final = (400..500).contains(&status.code) && ![409, 429].contains(&status.code);
    let (reason, what) = match step {
        NetworkStep::Create(nad) => {
            (reasons::NOT_FOUND, format!("{}/{} cannot be made", nad.namespace, nad.name))
        }
        NetworkStep::Update(nad) => {
            (reasons::INVALID, format!("{}/{} cannot be set right", nad.namespace, nad.name))
        }
        _ => return None,
    };
    let message = format!("NetworkAttachmentDefinition {what}, will try again: {}", status.message);
    is_final.then_some(Verdict { type_: READY, holds: false, reason, message })
}
