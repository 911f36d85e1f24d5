//! Removal of the webhooks of the Go operator.
//!
//! Their servers are DaemonSets that run without the Go operator. A server stays while its feature is enabled and the
//! webhooks of this operator are not served yet. Then its configurations are deleted, and after them the server: with a
//! configuration that has no server, the API server would reject all writes that the configuration matches.
//! See `docs/decisions/0005-taking-over-from-the-go-operator.md`.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::{Api, DynamicObject};
use vfleet_api::SriovOperatorConfig;
use vfleet_api::operator_config::SriovOperatorConfigSpec;
use vfleet_cluster::write::{WriteError, Writer};

use crate::components::manifests::GO_WEBHOOK_CONFIGURATIONS;
use crate::components::operator_config::deployed_objects::{DeployedObjects, is_controlled_by};
use crate::replica::context::Context;

const WEBHOOK_SERVER: &str = "operator-webhook";
const INJECTOR_SERVER: &str = "network-resources-injector";

/// Returns the DaemonSets that serve webhooks, and whether their feature is enabled.
fn servers(spec: &SriovOperatorConfigSpec) -> [(&'static str, bool); 2] {
    [
        (WEBHOOK_SERVER, spec.enable_operator_webhook == Some(true)),
        (INJECTOR_SERVER, spec.enable_injector == Some(true)),
    ]
}

/// Returns the DaemonSet that serves the webhooks of a configuration.
fn server_of(configuration: &str) -> &'static str {
    if configuration.starts_with("network-resources-injector") { INJECTOR_SERVER } else { WEBHOOK_SERVER }
}

/// State that the removal depends on.
pub(super) struct GoWebhooks<'a> {
    pub(super) config: &'a SriovOperatorConfig,
    pub(super) deployed: &'a DeployedObjects,
    /// True if this operator serves all enabled webhooks.
    pub(super) own_webhooks_served: bool,
}

impl<'a> GoWebhooks<'a> {
    /// Returns the servers that stay.
    pub(super) fn servers_to_keep(&self) -> Vec<&'static str> {
        let is_deleted = self.config.metadata.deletion_timestamp.is_some();
        servers(&self.config.spec)
            .into_iter()
            .filter(|(_, enabled)| *enabled && !is_deleted && !self.own_webhooks_served)
            .filter(|(name, _)| self.deployed.find_daemon_set(name).is_some())
            .map(|(name, _)| name)
            .collect()
    }

    /// Returns the servers to delete: owned by the config, with a feature that is off or served by this operator.
    pub(super) fn servers_to_delete(&self) -> Vec<&'a DynamicObject> {
        let owner = self.config.metadata.uid.as_deref().unwrap_or_default();
        servers(&self.config.spec)
            .into_iter()
            .filter(|(_, enabled)| !enabled || self.own_webhooks_served)
            .filter_map(|(name, _)| self.deployed.find_daemon_set(name))
            .filter(|server| is_controlled_by(server, owner))
            .collect()
    }
}

/// Deletes the configurations whose server is not in `kept_servers`.
pub(super) async fn delete_unserved_configurations(
    context: &Context,
    writer: &Writer,
    kept_servers: &[&'static str],
) -> Result<(), WriteError> {
    for name in GO_WEBHOOK_CONFIGURATIONS {
        if kept_servers.contains(&server_of(name)) {
            continue;
        }
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(context.client.clone());
        if let Some(configuration) = writer.read(&validating, name).await? {
            let clients = configuration.webhooks.iter().flatten().map(|webhook| &webhook.client_config);
            if call_own_namespace(clients, &context.config.namespace) {
                tracing::info!(
                    name,
                    "deleting a ValidatingWebhookConfiguration of the Go operator, because its server is gone or replaced"
                );
                writer.delete(&validating, &configuration).await?;
            }
        }
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(context.client.clone());
        if let Some(configuration) = writer.read(&mutating, name).await? {
            let clients = configuration.webhooks.iter().flatten().map(|webhook| &webhook.client_config);
            if call_own_namespace(clients, &context.config.namespace) {
                tracing::info!(
                    name,
                    "deleting a MutatingWebhookConfiguration of the Go operator, because its server is gone or replaced"
                );
                writer.delete(&mutating, &configuration).await?;
            }
        }
    }
    Ok(())
}

/// Returns whether all webhooks call services of this namespace. Those of another installation must not be deleted.
fn call_own_namespace<'a>(
    mut clients: impl Iterator<Item = &'a WebhookClientConfig>,
    namespace: &str,
) -> bool {
    clients.all(|client| client.service.as_ref().is_some_and(|service| service.namespace == namespace))
}
