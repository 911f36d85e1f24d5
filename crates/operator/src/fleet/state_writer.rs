//! How node states are written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ObjectMeta, Patch};
use kube::core::Resource;
use kube::{Api, ResourceExt};
use serde_json::json;
use vfleet_api::keys::KEEP_STATE_UNTIL;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec, SriovOperatorConfig};
use vfleet_cluster::write::{WriteError, Writer};

use crate::components::settings::owner_reference;
use crate::fleet::index::{Decision, Upkeep, without_empty_parts};
use crate::replica::context::Context;

/// Writers who come in between again and again do not hold us up for long.
const TRIES_ON_TOP: usize = 20;

/// The versions of a node state that something was decided on.
struct Decided {
    version: Option<String>,
    generation: Option<i64>,
}

/// Writes node states.
#[derive(Clone)]
pub(crate) struct StateWriter {
    api: Api<SriovNetworkNodeState>,
    writer: Writer,
    /// The operator config.
    owner: Option<OwnerReference>,
}

impl StateWriter {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            api: Api::namespaced(context.client.clone(), &context.config.namespace),
            writer: Writer::new(context.leadership.clone()),
            owner: None,
        }
    }

    /// The owner of all node states from now on.
    pub(crate) fn set_owner(&mut self, config: Option<&SriovOperatorConfig>) {
        self.owner = config.and_then(owner_reference);
    }

    /// Does what was decided for `node`.
    pub(crate) fn carry_out(
        &self,
        node: &str,
        decision: Decision,
    ) -> impl Future<Output = Result<(), WriteError>> + Send + use<> {
        let (writer, node) = (self.clone(), node.to_owned());
        async move {
            match decision {
                Decision::Nothing | Decision::LookAgainAt(_) => Ok(()),
                Decision::Create => writer.create(&node).await,
                Decision::Update(upkeep) => writer.update(&node, upkeep).await,
                Decision::KeepUntil { until, version } => {
                    tracing::info!(node, %until, "the node is away; its node state is kept until then");
                    let annotation = json!({ KEEP_STATE_UNTIL: until.to_string() });
                    writer.annotate(&node, version, &annotation).await
                }
                Decision::Delete { uid, version } => {
                    tracing::info!(node, "the node did not come back; its node state goes");
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

    async fn update(&self, node: &str, upkeep: Upkeep) -> Result<(), WriteError> {
        let Upkeep { spec, owner, keep_for_good, mut version, generation } = upkeep;
        if owner || keep_for_good {
            version = self.put_metadata_right(node, version).await?;
        }
        if let Some(spec) = spec {
            self.write_spec(node, &spec, Decided { version, generation }).await?;
            tracing::debug!(node, "node state written");
        }
        Ok(())
    }

    /// A merge patch: owners and the annotation may be somebody else's, and are not to be kept beside ours.
    async fn put_metadata_right(
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

    /// Only on top of the spec that it was decided on: a replica that slept must not bring back an old one. Where
    /// somebody changed something else meanwhile (an annotation, the agent its status), it is tried on top of that.
    async fn write_spec(
        &self,
        node: &str,
        spec: &SriovNetworkNodeStateSpec,
        mut decided: Decided,
    ) -> Result<(), WriteError> {
        for _ in 0..TRIES_ON_TOP {
            match self.apply_spec(node, spec, decided.version.as_deref()).await {
                Err(error) if error.is_conflict() => match self.writer.read(&self.api, node).await? {
                    Some(now) if now.metadata.generation == decided.generation => {
                        decided.version = now.resource_version();
                    }
                    _ => return Err(error),
                },
                result => return result,
            }
        }
        self.apply_spec(node, spec, decided.version.as_deref()).await
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
        if without_empty_parts(state.spec.clone()) == *spec {
            return Ok(());
        }
        // Something in it belongs to another program, and server-side apply leaves that alone. The spec is all ours.
        let whole: json_patch::Patch = serde_json::from_value(json!([
            // A version that the object no longer has is a conflict.
            { "op": "replace", "path": "/metadata/resourceVersion", "value": state.resource_version() },
            { "op": "replace", "path": "/spec", "value": spec },
        ]))
        .map_err(kube::Error::SerdeError)?;
        self.writer.patch(&self.api, node, &Patch::Json::<()>(whole)).await?;
        Ok(())
    }
}
