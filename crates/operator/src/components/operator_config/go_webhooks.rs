//! Webhooks that the Go operator left behind.
//!
//! Their servers are DaemonSets of their own and go on without it. As long as a feature is on, its server is there, and
//! our own webhooks are not served yet, it stays. Then it goes: its configurations first. A configuration without a server is dangerous: the API server would refuse every write that it is about.
//! See `docs/decisions/0005-taking-over-from-the-go-operator.md`.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::{Api, DynamicObject};
use vfleet_api::SriovOperatorConfig;
use vfleet_api::operator_config::SriovOperatorConfigSpec;
use vfleet_cluster::write::{WriteError, Writer};

use crate::components::deployed::GO_WEBHOOK_CONFIGURATIONS;
use crate::components::operator_config::found::{Found, is_controlled_by};
use crate::replica::context::Context;

const WEBHOOK_SERVER: &str = "operator-webhook";
const INJECTOR_SERVER: &str = "network-resources-injector";

/// The DaemonSets that serve webhooks, and whether their feature is on.
fn servers(spec: &SriovOperatorConfigSpec) -> [(&'static str, bool); 2] {
    [
        (WEBHOOK_SERVER, spec.enable_operator_webhook == Some(true)),
        (INJECTOR_SERVER, spec.enable_injector == Some(true)),
    ]
}

/// The DaemonSet that serves the webhooks of a configuration.
fn server_of(configuration: &str) -> &'static str {
    if configuration.starts_with("network-resources-injector") { INJECTOR_SERVER } else { WEBHOOK_SERVER }
}

/// What is known of them.
pub(super) struct GoWebhooks<'a> {
    pub(super) config: &'a SriovOperatorConfig,
    pub(super) found: &'a Found,
    /// Whether all that the config wants is served by us.
    pub(super) ours_serve: bool,
}

impl<'a> GoWebhooks<'a> {
    /// The servers that stay.
    pub(super) fn staying(&self) -> Vec<&'static str> {
        let is_deleted = self.config.metadata.deletion_timestamp.is_some();
        servers(&self.config.spec)
            .into_iter()
            .filter(|(_, enabled)| *enabled && !is_deleted && !self.ours_serve)
            .filter(|(name, _)| self.found.daemon_set(name).is_some())
            .map(|(name, _)| name)
            .collect()
    }

    /// Servers that the config controls, and whose feature is off or served by us.
    pub(super) fn unwanted_servers(&self) -> Vec<&'a DynamicObject> {
        let owner = self.config.metadata.uid.as_deref().unwrap_or_default();
        servers(&self.config.spec)
            .into_iter()
            .filter(|(_, enabled)| !enabled || self.ours_serve)
            .filter_map(|(name, _)| self.found.daemon_set(name))
            .filter(|server| is_controlled_by(server, owner))
            .collect()
    }
}

/// Deletes the configurations whose server is not among those that stay.
pub(super) async fn delete_unserved(
    context: &Context,
    writer: &Writer,
    staying: &[&'static str],
) -> Result<(), WriteError> {
    for name in GO_WEBHOOK_CONFIGURATIONS {
        if staying.contains(&server_of(name)) {
            continue;
        }
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(context.client.clone());
        if let Some(found) = writer.read(&validating, name).await? {
            let clients = found.webhooks.iter().flatten().map(|webhook| &webhook.client_config);
            if call_us(clients, &context.config.namespace) {
                tracing::info!(name, "a validating webhook that nobody serves is deleted");
                writer.delete(&validating, &found).await?;
            }
        }
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(context.client.clone());
        if let Some(found) = writer.read(&mutating, name).await? {
            let clients = found.webhooks.iter().flatten().map(|webhook| &webhook.client_config);
            if call_us(clients, &context.config.namespace) {
                tracing::info!(name, "a mutating webhook that nobody serves is deleted");
                writer.delete(&mutating, &found).await?;
            }
        }
    }
    Ok(())
}

/// Whether all of them call services of this namespace. Another installation's are not ours to touch.
fn call_us<'a>(mut clients: impl Iterator<Item = &'a WebhookClientConfig>, namespace: &str) -> bool {
    clients.all(|client| client.service.as_ref().is_some_and(|service| service.namespace == namespace))
}
