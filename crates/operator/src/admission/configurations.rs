//! Webhook configurations of this installation. The manifests create them empty, so that the operator needs no right to
//! create or delete any, and that they are deleted with the installation.
//!
//! The operator owns the whole list of webhooks and writes it as one: server-side apply would not remove foreign
//! entries. The list survives a new application of the manifests, which do not have it. `caBundle` may be set by
//! cert-manager and is kept then.

mod compare;
mod webhooks;

use std::sync::Arc;

use futures::{Stream, StreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{ApiResource, DynamicObject, Patch};
use kube::runtime::watcher::{Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use vfleet_api::keys::{ADMISSION_CONFIGURATION, INJECTOR_CONFIGURATION, OPERATOR_FIELD_MANAGER};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::watch::{
    SingleObject, SingleObjectState, into_readable, resume_after_errors, select_name,
};
use vfleet_cluster::write::{WriteError, Writer};

use crate::replica::context::Context;

pub(super) use webhooks::WebhookSettings;

/// Annotation by which cert-manager finds the Certificate for `caBundle`.
const INJECT_FROM: &str = "cert-manager.io/inject-ca-from";

/// One of the webhook configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigurationKind {
    /// Checks objects of this operator.
    Validating,
    /// Adds defaults to policies.
    Defaults,
    /// Adds resources to pods.
    Injector,
}

impl ConfigurationKind {
    pub(super) const ALL: [Self; 3] = [Self::Validating, Self::Defaults, Self::Injector];

    fn resource(self) -> ApiResource {
        match self {
            Self::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            Self::Defaults | Self::Injector => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        }
    }

    fn name(self, namespace: &str) -> String {
        let name = match self {
            Self::Validating | Self::Defaults => ADMISSION_CONFIGURATION,
            Self::Injector => INJECTOR_CONFIGURATION,
        };
        format!("{name}.{namespace}")
    }
}

/// Watch event of a webhook configuration.
pub(super) struct ConfigurationEvent(ConfigurationKind, Event<Guarded<DynamicObject>>);

/// Watches the webhook configurations of this installation.
pub(super) fn watch_configurations(context: &Context) -> impl Stream<Item = ConfigurationEvent> + use<> {
    let follow = |kind: ConfigurationKind| {
        let resource = kind.resource();
        let api: Api<Guarded<DynamicObject>> = Api::all_with(context.client.clone(), &resource);
        let config = select_name(&kind.name(&context.config.namespace));
        resume_after_errors(resource.kind.into(), watcher(api, config))
            .map(move |event| ConfigurationEvent(kind, event))
            .boxed()
    };
    futures::stream::select_all(ConfigurationKind::ALL.map(follow))
}

/// State of the watches.
#[derive(Default)]
pub(super) struct ConfigurationWatch {
    objects: [SingleObject<DynamicObject>; 3],
    observed: ObservedConfigurations,
}

impl ConfigurationWatch {
    /// Applies an event. Returns whether the observed state may have changed.
    pub(super) fn update(&mut self, ConfigurationEvent(kind, event): ConfigurationEvent) -> bool {
        let index = kind as usize;
        let found = match self.objects[index].update(event) {
            SingleObjectState::Listing => return false,
            SingleObjectState::Absent => None,
            SingleObjectState::Present(found) => into_readable(*found),
        };
        self.observed.0[index] =
            found.map_or(ConfigurationState::Missing, |found| ConfigurationState::Present(Arc::new(found)));
        true
    }

    /// Returns the observed state.
    pub(super) fn observed(&self) -> ObservedConfigurations {
        self.observed.clone()
    }
}

/// State of one webhook configuration.
#[derive(Clone, Default)]
enum ConfigurationState {
    #[default]
    Unread,
    Missing,
    Present(Arc<DynamicObject>),
}

/// Webhook configurations in the cluster.
#[derive(Clone, Default)]
pub(super) struct ObservedConfigurations([ConfigurationState; 3]);

impl ObservedConfigurations {
    fn get(&self, kind: ConfigurationKind) -> Option<&DynamicObject> {
        match &self.0[kind as usize] {
            ConfigurationState::Present(found) => Some(found),
            ConfigurationState::Unread | ConfigurationState::Missing => None,
        }
    }

    /// Returns the first of these configurations that has not been read yet.
    pub(super) fn unread(&self, kinds: &[ConfigurationKind], namespace: &str) -> Option<String> {
        self.find(kinds, namespace, |state| matches!(state, ConfigurationState::Unread))
    }

    /// Returns the first of these configurations that does not exist.
    pub(super) fn missing(&self, kinds: &[ConfigurationKind], namespace: &str) -> Option<String> {
        self.find(kinds, namespace, |state| matches!(state, ConfigurationState::Missing))
    }

    fn find(
        &self,
        kinds: &[ConfigurationKind],
        namespace: &str,
        matches: impl Fn(&ConfigurationState) -> bool,
    ) -> Option<String> {
        let kind = kinds.iter().find(|kind| matches(&self.0[**kind as usize]))?;
        Some(format!("{} {}", kind.resource().kind, kind.name(namespace)))
    }

    /// Returns whether a configuration has webhooks.
    pub(super) fn is_filled(&self, kind: ConfigurationKind) -> bool {
        self.webhooks(&[kind]).next().is_some()
    }

    /// Returns `caBundle` of each webhook; empty if it is not set.
    pub(super) fn bundles(&self, kinds: &[ConfigurationKind]) -> impl Iterator<Item = String> {
        self.webhooks(kinds).map(|webhook| {
            let bytes = serde_json::from_value::<ByteString>(webhook["clientConfig"]["caBundle"].clone());
            bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
        })
    }

    /// Returns whether a webhook refuses requests if it cannot be reached.
    pub(super) fn can_refuse(&self, kinds: &[ConfigurationKind]) -> bool {
        self.webhooks(kinds).any(|webhook| webhook["failurePolicy"] == "Fail")
    }

    /// Returns patches that remove the webhooks of all other configurations.
    pub(super) fn removals(&self, desired: &[ConfigurationKind]) -> Vec<ConfigurationPatch> {
        let removal = |kind: ConfigurationKind| {
            let found = self.get(kind).filter(|_| self.is_filled(kind))?;
            let metadata = json!({ "resourceVersion": found.resource_version() });
            let patch = json!({ "metadata": metadata, "webhooks": null });
            Some(ConfigurationPatch { kind, name: found.name_any(), patch })
        };
        let others = ConfigurationKind::ALL.into_iter().filter(|kind| !desired.contains(kind));
        others.filter_map(removal).collect()
    }

    fn webhooks(&self, kinds: &[ConfigurationKind]) -> impl Iterator<Item = &Value> {
        kinds.iter().filter_map(|kind| self.get(*kind)?.data["webhooks"].as_array()).flatten()
    }
}

/// Desired webhook configurations.
pub(super) struct DesiredConfigurations<'a> {
    /// Configurations with webhooks. Others are left alone.
    pub(super) filled: &'a [ConfigurationKind],
    pub(super) settings: WebhookSettings<'a>,
    /// Certificate, with its namespace, from which cert-manager takes `caBundle`.
    pub(super) inject_from: Option<String>,
}

/// Patch of one webhook configuration.
pub(super) struct ConfigurationPatch {
    kind: ConfigurationKind,
    name: String,
    patch: Value,
}

impl DesiredConfigurations<'_> {
    /// Returns the patches of the configurations that differ.
    pub(super) fn patches(&self, observed: &ObservedConfigurations) -> Vec<ConfigurationPatch> {
        let patch = |kind: &ConfigurationKind| {
            let found = observed.get(*kind)?;
            Some(ConfigurationPatch { kind: *kind, name: found.name_any(), patch: self.patch(*kind, found)? })
        };
        self.filled.iter().filter_map(patch).collect()
    }

    fn patch(&self, kind: ConfigurationKind, found: &DynamicObject) -> Option<Value> {
        let annotation = found.annotations().get(INJECT_FROM);
        let is_annotated = annotation == self.inject_from.as_ref()
            // A foreign annotation is kept.
            || (self.inject_from.is_none() && !owns_annotation(found));
        let desired = self.settings.webhooks(kind);
        let observed = found.data["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
        if is_annotated && compare::are_equal(observed, &desired) {
            return None;
        }
        // The version protects changes of a later leader.
        let mut metadata = json!({ "resourceVersion": found.resource_version() });
        if !is_annotated {
            metadata["annotations"] = json!({ INJECT_FROM: self.inject_from });
        }
        Some(json!({ "metadata": metadata, "webhooks": compare::keep_bundles(observed, desired) }))
    }
}

/// Returns whether the operator wrote the annotation for cert-manager.
fn owns_annotation(found: &DynamicObject) -> bool {
    let key = format!("f:{INJECT_FROM}");
    let own = |manager: Option<&str>| manager == Some(OPERATOR_FIELD_MANAGER);
    let entries = found.managed_fields().iter().filter(|entry| own(entry.manager.as_deref()));
    entries
        .filter_map(|entry| entry.fields_v1.as_ref())
        .any(|fields| fields.0["f:metadata"]["f:annotations"].get(&key).is_some())
}

/// Writes the patches.
pub(super) async fn write(
    client: &Client,
    writer: &Writer,
    patches: &[ConfigurationPatch],
) -> Result<(), WriteError> {
    for ConfigurationPatch { kind, name, patch } in patches {
        let resource = kind.resource();
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        writer.patch(&api, name, &Patch::Merge(patch)).await?;
        let action = if patch["webhooks"].is_null() { "removed" } else { "configured" };
        tracing::info!(kind = resource.kind, name, "webhooks {action}");
    }
    Ok(())
}
