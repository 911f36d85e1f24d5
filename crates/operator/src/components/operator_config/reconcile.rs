//! Reconciliation of the operator config: creates, corrects and deletes components, and writes the conditions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, Patch};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use vfleet_api::SriovOperatorConfig;
use vfleet_api::keys::{
    AGENT_DAEMON_SET, DEVICE_PLUGIN_DAEMON_SET, GO_OPERATOR_CONFIG_FINALIZER, MANAGED_BY_LABEL,
    OPERATOR_CONFIG,
};
use vfleet_api::operator_config::SriovOperatorConfigSpec;
use vfleet_cluster::status::StatusSubject;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::admission::Installation;
use vfleet_plan::operator_config::{OperatorConfigFacts, operator_config_conditions};

use super::deployed_objects::{ComponentId, ComponentKind, DeployedObjects};
use super::field_match::has_fields;
use super::go_webhooks::GoWebhooks;
use super::{go_webhooks, take_over};
use crate::admission::AdmissionStatus;
use crate::components::config_watch::OperatorConfigState;
use crate::components::go_device_plugin::ConfigMapProblem;
use crate::components::manifests::{DeploySettings, build_manifests};
use crate::components::permissions::Account;
use crate::replica::context::Context;

/// Results of earlier runs, kept to save requests. Losing it does no harm.
#[derive(Debug, Default)]
pub(super) struct ReconcileCache {
    /// Image of the operator's own pod, once it was looked up.
    own_image: OnceLock<Option<String>>,
    entries: Mutex<CacheEntries>,
}

/// Results of earlier passes that save requests.
#[derive(Debug, Default)]
struct CacheEntries {
    /// Objects as last applied.
    applied: BTreeMap<ComponentId, Value>,
    /// Webhook servers of the Go operator that stayed when its configurations were last checked.
    kept_webhook_servers: Option<Vec<&'static str>>,
}

impl ReconcileCache {
    fn lock(&self) -> MutexGuard<'_, CacheEntries> {
        // The content is valid even if a run panicked.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Observed state besides the operator config.
pub(super) struct ReconcileInputs {
    pub(super) deployed: DeployedObjects,
    /// Reason why the ConfigMap of the separate device plugin cannot be written.
    pub(super) plugin_problem: ConfigMapProblem,
    /// Status of the admission webhooks.
    pub(super) admission: AdmissionStatus,
}

/// Reconciles the operator config once.
pub(super) async fn reconcile(
    context: Context,
    config: OperatorConfigState,
    inputs: ReconcileInputs,
    cache: Arc<ReconcileCache>,
) -> Result<(), WriteError> {
    let reconciler = Reconciler {
        writer: Writer::new(context.leadership.clone()),
        configs: Api::namespaced(context.client.clone(), &context.config.namespace),
        context: &context,
        deployed: &inputs.deployed,
        inputs: &inputs,
        cache: &cache,
    };
    match &config {
        OperatorConfigState::Unknown => {}
        OperatorConfigState::Missing => reconciler.create_config().await?,
        OperatorConfigState::Config(config) if config.metadata.deletion_timestamp.is_some() => {
            reconciler.finalize(config).await?;
        }
        OperatorConfigState::Config(config) => reconciler.deploy(config).await?,
    }
    tracing::debug!("operator config reconciled");
    Ok(())
}

/// One run of the reconciliation.
struct Reconciler<'a> {
    context: &'a Context,
    writer: Writer,
    configs: Api<SriovOperatorConfig>,
    deployed: &'a DeployedObjects,
    inputs: &'a ReconcileInputs,
    cache: &'a ReconcileCache,
}

impl Reconciler<'_> {
    async fn create_config(&self) -> Result<(), WriteError> {
        let config = SriovOperatorConfig::new(OPERATOR_CONFIG, SriovOperatorConfigSpec::default());
        self.writer.create(&self.configs, &config).await?;
        tracing::info!(name = OPERATOR_CONFIG, "created the operator config");
        Ok(())
    }

    /// Finishes the deletion of the config. Its objects are garbage-collected. The webhook configurations of the Go
    /// operator have no owner and are deleted here, and then the finalizer of the Go operator is removed.
    async fn finalize(&self, config: &SriovOperatorConfig) -> Result<(), WriteError> {
        go_webhooks::delete_unserved_configurations(self.context, &self.writer, &[]).await?;
        self.cache.lock().kept_webhook_servers = None;
        let others: Vec<_> =
            config.finalizers().iter().filter(|name| *name != GO_OPERATOR_CONFIG_FINALIZER).collect();
        if others.len() == config.finalizers().len() {
            return Ok(());
        }
        let patch = json!({
            "metadata": { "finalizers": others, "resourceVersion": config.resource_version() },
        });
        match self.writer.patch(&self.configs, OPERATOR_CONFIG, &Patch::Merge(patch)).await {
            Err(error) if error.is_not_found() => Ok(()),
            result => result.map(drop),
        }
    }

    async fn deploy(&self, config: &SriovOperatorConfig) -> Result<(), WriteError> {
        let agent_image = self.find_agent_image().await?;
        let process = &self.context.config;
        let settings = DeploySettings {
            namespace: &process.namespace,
            resource_prefix: &process.resource_prefix,
            deploy: &process.deploy,
            agent_image: agent_image.as_deref(),
        };
        let result = self.deploy_components(config, &settings).await;
        if let Err(DeployFailure { error, .. }) = &result
            && (error.is_conflict() || matches!(error, WriteError::NotLeading))
        {
            // No failure to report: an object has changed meanwhile, or another replica leads.
            return result.map_err(|failure| failure.error);
        }
        let facts = OperatorConfigFacts {
            installation: Installation { namespace: settings.namespace, dev_mode: settings.deploy.dev_mode },
            deploys_agents: settings.agent_image.is_some(),
            deploys_device_plugin: settings.deploy.device_plugin_image.is_some(),
            failure: result.as_ref().err().map(ToString::to_string),
            plugin_problem: self.inputs.plugin_problem.clone(),
            foreign_device_plugin: self.has_foreign_device_plugin(&settings),
            admission: &self.inputs.admission,
            go_webhook_servers: self.go_webhooks(config).servers_to_keep(),
        };
        let status = config.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let subject = StatusSubject { api: &self.configs, object: config, conditions, rest_is_same: true };
        let reported =
            self.context.report(&subject, &operator_config_conditions(&config.spec, &facts), json!({})).await;
        result.map_err(|failure| failure.error).and(reported)
    }

    /// Applies and deletes all objects, also after a failure; returns the first failure.
    async fn deploy_components(
        &self,
        config: &SriovOperatorConfig,
        settings: &DeploySettings<'_>,
    ) -> Result<(), DeployFailure> {
        let manifests = build_manifests(config, settings);
        let mut desired_ids = Vec::new();
        let mut result = Ok(());
        for account in &manifests.service_accounts {
            desired_ids.push(object_id(ComponentKind::ServiceAccount, account));
            result = result.and(self.apply_object(ComponentKind::ServiceAccount, account).await);
        }
        for daemon_set in &manifests.daemon_sets {
            desired_ids.push(object_id(ComponentKind::DaemonSet, daemon_set));
            result = result.and(self.apply_object(ComponentKind::DaemonSet, daemon_set).await);
        }
        let owner = config.metadata.uid.as_deref().unwrap_or_default();
        let is_obsolete = |id: &ComponentId| !desired_ids.contains(id) && id.name != AGENT_DAEMON_SET;
        // Agents are never deleted: they are only not updated while their image is not known.
        for (id, object) in self.deployed.owned_by(owner).filter(|(id, _)| is_obsolete(id)) {
            result = result.and(self.delete(id, object).await);
        }
        result.and(self.remove_go_webhooks(config).await)
    }

    async fn apply_object<K: Resource + Serialize>(
        &self,
        kind: ComponentKind,
        object: &K,
    ) -> Result<(), DeployFailure> {
        let id = object_id(kind, object);
        let failed = |error| DeployFailure { action: "apply", id: id.clone(), error };
        let desired =
            serde_json::to_value(object).map_err(|error| failed(kube::Error::SerdeError(error).into()))?;
        let current = self.deployed.get(&id);
        let was_applied = self.cache.lock().applied.get(&id) == Some(&desired);
        if was_applied && current.is_some_and(|current| has_fields(&to_value(current, kind), &desired)) {
            return Ok(());
        }
        let api = kind.api(&self.context.client, &self.context.config.namespace);
        let mut object = desired.clone();
        if let Some(current) = current {
            let version = self.take_over(&api, current).await.map_err(failed)?;
            // A leader that was suspended must not revert changes of the next leader.
            object["metadata"]["resourceVersion"] = json!(version);
        }
        self.writer.apply(&api, &id.name, &object).await.map_err(failed)?;
        tracing::info!(kind = id.kind.name(), name = id.name, "applied");
        self.cache.lock().applied.insert(id, desired);
        Ok(())
    }

    /// Takes over the fields of the Go operator; returns the new resource version.
    async fn take_over(
        &self,
        api: &Api<DynamicObject>,
        current: &DynamicObject,
    ) -> Result<Option<String>, WriteError> {
        let Some(entries) = take_over::replace_go_manager(current.managed_fields()) else {
            return Ok(current.resource_version());
        };
        let name = current.name_any();
        let patch = json!({
            "metadata": { "managedFields": entries, "resourceVersion": current.resource_version() },
        });
        let taken = self.writer.patch(api, &name, &Patch::Merge(patch)).await?;
        tracing::info!(name, "took over from the Go operator");
        Ok(taken.resource_version())
    }

    async fn delete(&self, id: &ComponentId, object: &DynamicObject) -> Result<(), DeployFailure> {
        let api = id.kind.api(&self.context.client, &self.context.config.namespace);
        let failed = |error| DeployFailure { action: "delete", id: id.clone(), error };
        self.writer.delete(&api, object).await.map_err(failed)?;
        tracing::info!(kind = id.kind.name(), name = id.name, "deleted, because it is no longer needed");
        self.cache.lock().applied.remove(id);
        Ok(())
    }

    async fn remove_go_webhooks(&self, config: &SriovOperatorConfig) -> Result<(), DeployFailure> {
        let go_webhooks = self.go_webhooks(config);
        let kept = go_webhooks.servers_to_keep();
        if self.cache.lock().kept_webhook_servers.as_ref() != Some(&kept) {
            // Configurations first: without their server, the API server would reject writes.
            let failed = |error| DeployFailure {
                action: "delete the webhook configurations of",
                id: ComponentId { kind: ComponentKind::DaemonSet, name: "operator-webhook".to_owned() },
                error,
            };
            go_webhooks::delete_unserved_configurations(self.context, &self.writer, &kept)
                .await
                .map_err(failed)?;
            self.cache.lock().kept_webhook_servers = Some(kept);
        }
        for server in go_webhooks.servers_to_delete() {
            let id = ComponentId { kind: ComponentKind::DaemonSet, name: server.name_any() };
            self.delete(&id, server).await?;
        }
        Ok(())
    }

    fn go_webhooks<'b>(&'b self, config: &'b SriovOperatorConfig) -> GoWebhooks<'b> {
        let own_webhooks_served = matches!(self.inputs.admission, AdmissionStatus::Serving { .. });
        GoWebhooks { config, deployed: self.deployed, own_webhooks_served }
    }

    fn has_foreign_device_plugin(&self, settings: &DeploySettings<'_>) -> bool {
        let current = self.deployed.find_daemon_set(DEVICE_PLUGIN_DAEMON_SET);
        settings.deploy.device_plugin_image.is_none()
            && current.is_some_and(|current| !current.labels().contains_key(MANAGED_BY_LABEL))
    }

    /// Returns the configured image of the agent, or the image of the operator's own pod.
    async fn find_agent_image(&self) -> Result<Option<String>, WriteError> {
        let config = &self.context.config;
        if config.deploy.agent_image.is_some() {
            return Ok(config.deploy.agent_image.clone());
        }
        if let Some(image) = self.cache.own_image.get() {
            return Ok(image.clone());
        }
        let pods: Api<Pod> = Api::namespaced(self.context.client.clone(), &config.namespace);
        let image = match config.identity.as_str() {
            "" => None,
            pod => self.writer.read(&pods, pod).await?.as_ref().and_then(find_image),
        };
        Ok(self.cache.own_image.get_or_init(|| image).clone())
    }
}

/// Failed write of one object.
struct DeployFailure {
    action: &'static str,
    id: ComponentId,
    error: WriteError,
}

impl std::fmt::Display for DeployFailure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { action, id, error } = self;
        write!(out, "cannot {action} {} {}: {error}; retrying", id.kind.name(), id.name)
    }
}

fn object_id(kind: ComponentKind, object: &impl Resource) -> ComponentId {
    ComponentId { kind, name: object.name_any() }
}

fn find_image(pod: &Pod) -> Option<String> {
    let containers = &pod.spec.as_ref()?.containers;
    let operator = containers.iter().find(|container| container.name == Account::Operator.name());
    operator.or(containers.first())?.image.clone()
}

/// Returns the object with its type, which objects of a list do not have.
fn to_value(object: &DynamicObject, kind: ComponentKind) -> Value {
    let mut value = object.data.clone();
    value["metadata"] = json!(object.metadata);
    let resource = kind.resource();
    value["apiVersion"] = json!(resource.api_version);
    value["kind"] = json!(resource.kind);
    value
}
