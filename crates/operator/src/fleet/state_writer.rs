//! Writer of node states.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ObjectMeta, Patch};
use kube::core::Resource;
use kube::{Api, ResourceExt};
use serde_json::json;
use vfleet_api::keys::KEEP_STATE_UNTIL;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec, SriovOperatorConfig};
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::{NodeStateAction, NodeStateUpdate};

use crate::components::config_watch::owner_reference;
use crate::fleet::index::remove_empty_sections;
use crate::replica::context::Context;

/// Maximum number of retries after conflicts with writers of other parts of the node state.
const MAX_CONFLICTS: usize = 20;

/// Versions of the node state that a decision was based on.
struct DecisionBase {
    version: Option<String>,
    generation: Option<i64>,
}

/// Executes decisions about node states.
#[derive(Clone)]
pub(crate) struct NodeStateWriter {
    api: Api<SriovNetworkNodeState>,
    writer: Writer,
    /// Reference to the operator config.
    owner: Option<OwnerReference>,
}

impl NodeStateWriter {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            api: Api::namespaced(context.client.clone(), &context.config.namespace),
            writer: Writer::new(context.leadership.clone()),
            owner: None,
        }
    }

    /// Sets the owner of all node states.
    pub(crate) fn set_owner(&mut self, config: Option<&SriovOperatorConfig>) {
        self.owner = config.and_then(owner_reference);
    }

    /// Executes `action` for `node`.
    pub(crate) fn execute(
        &self,
        node: &str,
        action: NodeStateAction,
    ) -> impl Future<Output = Result<(), WriteError>> + Send + use<> {
        let (writer, node) = (self.clone(), node.to_owned());
        async move {
            match action {
                NodeStateAction::None | NodeStateAction::CheckAgainAt(_) => Ok(()),
                NodeStateAction::Create => writer.create(&node).await,
                NodeStateAction::Update(update) => writer.update(&node, update).await,
                NodeStateAction::KeepUntil { until, version } => {
                    tracing::info!(node, %until, "node was deleted or runs no agent: keeping its node state for a while");
                    let annotation = json!({ KEEP_STATE_UNTIL: until.to_string() });
                    writer.annotate(&node, version, &annotation).await
                }
                NodeStateAction::Delete { uid, version } => {
                    tracing::info!(node, "node did not return: deleting its node state");
                    let metadata =
                        ObjectMeta { name: Some(node), uid, resource_version: version, ..Default::default() };
                    writer
                        .writer
                        .delete(&writer.api, &SriovNetworkNodeState { metadata, ..Default::default() })
                        .await
                }
            }
        }
    }

    async fn create(&self, node: &str) -> Result<(), WriteError> {
        let metadata = ObjectMeta {
            name: Some(node.to_owned()),
            owner_references: self.owner.clone().map(|owner| vec![owner]),
            ..Default::default()
        };
        self.writer.create(&self.api, &SriovNetworkNodeState { metadata, ..Default::default() }).await?;
        tracing::debug!(node, "node state created");
        Ok(())
    }

    async fn update(&self, node: &str, update: NodeStateUpdate) -> Result<(), WriteError> {
        let NodeStateUpdate { spec, set_owner, remove_keep_until, mut version, generation } = update;
        if set_owner || remove_keep_until {
            version = self.correct_metadata(node, version).await?;
        }
        if let Some(spec) = spec {
            self.write_spec(node, &spec, DecisionBase { version, generation }).await?;
            tracing::debug!(node, "node state written");
        }
        Ok(())
    }

    /// Sets the owner and removes the annotation. A merge patch, because server-side apply would keep values of other
    /// field managers.
    async fn correct_metadata(
        &self,
        node: &str,
        version: Option<String>,
    ) -> Result<Option<String>, WriteError> {
        let patch = json!({ "metadata": {
            "resourceVersion": version,
            "ownerReferences": self.owner.iter().collect::<Vec<_>>(),
            "annotations": { KEEP_STATE_UNTIL: null },
        } });
        let state = self.writer.patch(&self.api, node, &Patch::Merge(patch)).await?;
        Ok(state.resource_version())
    }

    async fn annotate(
        &self,
        node: &str,
        version: Option<String>,
        annotations: &serde_json::Value,
    ) -> Result<(), WriteError> {
        let patch = json!({ "metadata": { "resourceVersion": version, "annotations": annotations } });
        self.writer.patch(&self.api, node, &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Writes the spec if it has not changed since the decision: a replica that was suspended must not restore an old
    /// spec. After a conflict with a change of anything else (annotations, status) the write is repeated.
    async fn write_spec(
        &self,
        node: &str,
        spec: &SriovNetworkNodeStateSpec,
        mut base: DecisionBase,
    ) -> Result<(), WriteError> {
        for _ in 0..MAX_CONFLICTS {
            match self.apply_spec(node, spec, base.version.as_deref()).await {
                Err(error) if error.is_conflict() => match self.writer.read(&self.api, node).await? {
                    Some(current) if current.metadata.generation == base.generation => {
                        base.version = current.resource_version();
                    }
                    _ => return Err(error),
                },
                result => return result,
            }
        }
        self.apply_spec(node, spec, base.version.as_deref()).await
    }

    async fn apply_spec(
        &self,
        node: &str,
        spec: &SriovNetworkNodeStateSpec,
        version: Option<&str>,
    ) -> Result<(), WriteError> {
        let object = json!({
            "apiVersion": SriovNetworkNodeState::api_version(&()),
            "kind": SriovNetworkNodeState::kind(&()),
            "metadata": { "name": node, "resourceVersion": version },
            "spec": spec,
        });
        let state = self.writer.apply(&self.api, node, &object).await?;
        if remove_empty_sections(state.spec.clone()) == *spec {
            return Ok(());
        }
        // Some fields have another field manager, which server-side apply does not remove: replace the whole spec.
        let patch: json_patch::Patch = serde_json::from_value(json!([
            // Fails with a conflict if the object has changed.
            { "op": "replace", "path": "/metadata/resourceVersion", "value": state.resource_version() },
            { "op": "replace", "path": "/spec", "value": spec },
        ]))
        .map_err(kube::Error::SerdeError)?;
        self.writer.patch(&self.api, node, &Patch::Json::<()>(patch)).await?;
        Ok(())
    }
}
