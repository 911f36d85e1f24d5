//! One pass over the operator config: what is missing is made, what differs is put right, what is not wanted goes, and
//! what came of it is said.

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
use vfleet_cluster::status::Subject;
use vfleet_cluster::write::{WriteError, Writer};

use super::covers::covers;
use super::found::{Found, Id, Kind};
use super::go_webhooks::GoWebhooks;
use super::verdict::{Outcome, verdicts};
use super::{go_webhooks, take_over};
use crate::admission::Standing;
use crate::components::deployed::{self, Site};
use crate::components::go_device_plugin::Problem;
use crate::components::rights::Account;
use crate::components::settings::Seen;
use crate::replica::context::Context;

/// What is remembered from pass to pass, to save requests. Forgetting it costs a few of them and does no harm.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The image of the operator's own pod, once it was looked for.
    own_image: OnceLock<Option<String>>,
    remembered: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    /// What was last applied.
    applied: BTreeMap<Id, Value>,
    /// The Go operator's webhook servers that stayed when its configurations were last looked at.
    webhooks_checked_with: Option<Vec<&'static str>>,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Remembered> {
        // Whatever a pass that panicked has left there is still true.
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known besides the config.
pub(super) struct Known {
    pub(super) found: Found,
    /// What keeps the separate device plugin from being told what it should know.
    pub(super) plugin_problem: Problem,
    /// How admission stands.
    pub(super) admission: Standing,
}

/// Does what is to be done.
pub(super) async fn settle(
    context: Context,
    seen: Seen,
    known: Known,
    memory: Arc<Memory>,
) -> Result<(), WriteError> {
    let pass = Pass {
        writer: Writer::new(context.leadership.clone()),
        configs: Api::namespaced(context.client.clone(), &context.config.namespace),
        context: &context,
        found: &known.found,
        known: &known,
        memory: &memory,
    };
    match &seen {
        Seen::Unknown => {}
        Seen::Missing => pass.create_config().await?,
        Seen::Config(config) if config.metadata.deletion_timestamp.is_some() => pass.let_go(config).await?,
        Seen::Config(config) => pass.deploy(config).await?,
    }
    tracing::debug!("the operator config is settled");
    Ok(())
}

struct Pass<'a> {
    context: &'a Context,
    writer: Writer,
    configs: Api<SriovOperatorConfig>,
    found: &'a Found,
    known: &'a Known,
    memory: &'a Memory,
}

impl Pass<'_> {
    async fn create_config(&self) -> Result<(), WriteError> {
        let config = SriovOperatorConfig::new(OPERATOR_CONFIG, SriovOperatorConfigSpec::default());
        self.writer.create(&self.configs, &config).await?;
        tracing::info!("the operator config was missing and is made");
        Ok(())
    }

    /// A config that goes takes with it what it owns. The webhook configurations of the Go operator are owned by nobody,
    /// so they go first, and then its finalizer, which nobody else would take off.
    async fn let_go(&self, config: &SriovOperatorConfig) -> Result<(), WriteError> {
        go_webhooks::delete_unserved(self.context, &self.writer, &[]).await?;
        self.memory.lock().webhooks_checked_with = None;
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
        let agent_image = self.agent_image().await?;
        let settings = &self.context.config;
        let site = Site {
            namespace: &settings.namespace,
            resource_prefix: &settings.resource_prefix,
            deploy: &settings.deploy,
            agent_image: agent_image.as_deref(),
        };
        let result = self.make_it_so(config, &site).await;
        if let Err(Failure { error, .. }) = &result
            && (error.is_conflict() || matches!(error, WriteError::NotLeading))
        {
            // Nothing is wrong: what we decided on has changed meanwhile, or another replica decides.
            return result.map_err(|failure| failure.error);
        }
        let outcome = Outcome {
            site: &site,
            failure: result.as_ref().err().map(ToString::to_string),
            plugin_problem: self.known.plugin_problem.clone(),
            foreign_device_plugin: self.has_foreign_device_plugin(&site),
            admission: &self.known.admission,
            go_webhook_servers: self.go_webhooks(config).staying(),
        };
        let status = config.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let subject = Subject { api: &self.configs, object: config, conditions, rest_is_same: true };
        let reported = self.context.report(&subject, &verdicts(config, &outcome), json!({})).await;
        result.map_err(|failure| failure.error).and(reported)
    }

    /// All of it, also when one part fails; gives the first failure.
    async fn make_it_so(&self, config: &SriovOperatorConfig, site: &Site<'_>) -> Result<(), Failure> {
        let wanted = deployed::wanted(config, site);
        let mut wanted_ids = Vec::new();
        let mut result = Ok(());
        for account in &wanted.service_accounts {
            wanted_ids.push(id(Kind::ServiceAccount, account));
            result = result.and(self.ensure(Kind::ServiceAccount, account).await);
        }
        for daemon_set in &wanted.daemon_sets {
            wanted_ids.push(id(Kind::DaemonSet, daemon_set));
            result = result.and(self.ensure(Kind::DaemonSet, daemon_set).await);
        }
        let owner = config.metadata.uid.as_deref().unwrap_or_default();
        let may_go = |id: &Id| !wanted_ids.contains(id) && id.name != AGENT_DAEMON_SET;
        // Agents are always wanted. That their image is not known is no reason to take them away.
        for (id, object) in self.found.ours(owner).filter(|(id, _)| may_go(id)) {
            result = result.and(self.delete(id, object).await);
        }
        result.and(self.look_after_go_webhooks(config).await)
    }

    async fn ensure<K: Resource + Serialize>(&self, kind: Kind, object: &K) -> Result<(), Failure> {
        let id = id(kind, object);
        let failed = |error| Failure { attempted: "apply", id: id.clone(), error };
        let wanted =
            serde_json::to_value(object).map_err(|error| failed(kube::Error::SerdeError(error).into()))?;
        let found = self.found.get(&id);
        let was_applied = self.memory.lock().applied.get(&id) == Some(&wanted);
        if was_applied && found.is_some_and(|found| covers(&as_value(found, kind), &wanted)) {
            return Ok(());
        }
        let api = kind.api(&self.context.client, &self.context.config.namespace);
        let mut object = wanted.clone();
        if let Some(found) = found {
            let version = self.take_over(&api, found).await.map_err(failed)?;
            // A leader that slept must not put back what the next one has changed since.
            object["metadata"]["resourceVersion"] = json!(version);
        }
        self.writer.apply(&api, &id.name, &object).await.map_err(failed)?;
        tracing::info!(kind = ?id.kind, name = id.name, "deployed");
        self.memory.lock().applied.insert(id, wanted);
        Ok(())
    }

    /// Gives the resource version that `found` has after it.
    async fn take_over(
        &self,
        api: &Api<DynamicObject>,
        found: &DynamicObject,
    ) -> Result<Option<String>, WriteError> {
        let Some(entries) = take_over::with_us_as_owner(found.managed_fields()) else {
            return Ok(found.resource_version());
        };
        let name = found.name_any();
        let patch = json!({
            "metadata": { "managedFields": entries, "resourceVersion": found.resource_version() },
        });
        let taken = self.writer.patch(api, &name, &Patch::Merge(patch)).await?;
        tracing::info!(name, "taken over from the Go operator");
        Ok(taken.resource_version())
    }

    async fn delete(&self, id: &Id, object: &DynamicObject) -> Result<(), Failure> {
        let api = id.kind.api(&self.context.client, &self.context.config.namespace);
        let failed = |error| Failure { attempted: "delete", id: id.clone(), error };
        self.writer.delete(&api, object).await.map_err(failed)?;
        tracing::info!(kind = ?id.kind, name = id.name, "no longer wanted, deleted");
        self.memory.lock().applied.remove(id);
        Ok(())
    }

    async fn look_after_go_webhooks(&self, config: &SriovOperatorConfig) -> Result<(), Failure> {
        let go_webhooks = self.go_webhooks(config);
        let staying = go_webhooks.staying();
        if self.memory.lock().webhooks_checked_with.as_ref() != Some(&staying) {
            // Configurations first: without their server they would refuse what they are about.
            let failed = |error| Failure {
                attempted: "delete webhooks of the Go operator that call",
                id: Id { kind: Kind::DaemonSet, name: "operator-webhook".to_owned() },
                error,
            };
            go_webhooks::delete_unserved(self.context, &self.writer, &staying).await.map_err(failed)?;
            self.memory.lock().webhooks_checked_with = Some(staying);
        }
        for server in go_webhooks.unwanted_servers() {
            let id = Id { kind: Kind::DaemonSet, name: server.name_any() };
            self.delete(&id, server).await?;
        }
        Ok(())
    }

    fn go_webhooks<'b>(&'b self, config: &'b SriovOperatorConfig) -> GoWebhooks<'b> {
        let ours_serve = matches!(self.known.admission, Standing::Serving { .. });
        GoWebhooks { config, found: self.found, ours_serve }
    }

    fn has_foreign_device_plugin(&self, site: &Site<'_>) -> bool {
        let found = self.found.daemon_set(DEVICE_PLUGIN_DAEMON_SET);
        site.deploy.device_plugin_image.is_none()
            && found.is_some_and(|found| !found.labels().contains_key(MANAGED_BY_LABEL))
    }

    /// The image that is given, or that of the pod that this operator runs in.
    async fn agent_image(&self) -> Result<Option<String>, WriteError> {
        let config = &self.context.config;
        if config.deploy.agent_image.is_some() {
            return Ok(config.deploy.agent_image.clone());
        }
        if let Some(known) = self.memory.own_image.get() {
            return Ok(known.clone());
        }
        let pods: Api<Pod> = Api::namespaced(self.context.client.clone(), &config.namespace);
        let image = match config.identity.as_str() {
            "" => None,
            pod => self.writer.read(&pods, pod).await?.as_ref().and_then(image_of),
        };
        Ok(self.memory.own_image.get_or_init(|| image).clone())
    }
}

/// What could not be done.
struct Failure {
    attempted: &'static str,
    id: Id,
    error: WriteError,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { attempted, id, error } = self;
        write!(out, "cannot {attempted} {:?} {} ({error}); it is tried again", id.kind, id.name)
    }
}

fn id(kind: Kind, object: &impl Resource) -> Id {
    Id { kind, name: object.name_any() }
}

fn image_of(pod: &Pod) -> Option<String> {
    let containers = &pod.spec.as_ref()?.containers;
    let operator = containers.iter().find(|container| container.name == Account::Operator.name());
    operator.or(containers.first())?.image.clone()
}

/// An object that came in a list does not say its type itself.
fn as_value(object: &DynamicObject, kind: Kind) -> Value {
    let mut value = object.data.clone();
    value["metadata"] = json!(object.metadata);
    let resource = kind.resource();
    value["apiVersion"] = json!(resource.api_version);
    value["kind"] = json!(resource.kind);
    value
}
