//! The webhook configurations: what makes the API server ask. They are shipped empty, one set for each installation, so
//! that no right to create or delete any is needed, and that they go with the rest of the installation.
//!
//! The list of webhooks is ours as a whole: what somebody adds to it, or to the conditions of one, would not go by
//! server-side apply, so the list is written as one. It stays when the shipped manifest is applied again, which has none.
//! Whom to trust (`caBundle`) may be cert-manager's: then what is found there is written again.

mod exact;
mod text;

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
use vfleet_cluster::watch::{Sight, Single, only, readable, uninterrupted};
use vfleet_cluster::write::{WriteError, Writer};

use crate::replica::context::Context;

pub(super) use text::Frame;

/// By this annotation cert-manager knows what to put into `caBundle`.
const INJECT_FROM: &str = "cert-manager.io/inject-ca-from";

/// One of the configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Judges our objects.
    Validating,
    /// Adds defaults to them.
    Defaults,
    /// Adds resources to pods.
    Injector,
}

impl Which {
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

    fn webhooks(self, frame: &Frame<'_>) -> Vec<Value> {
        match self {
            Self::Validating => frame.validating().iter().map(|webhook| json!(webhook)).collect(),
            Self::Defaults => frame.defaults().iter().map(|webhook| json!(webhook)).collect(),
            Self::Injector => frame.injector().iter().map(|webhook| json!(webhook)).collect(),
        }
    }
}

/// Something changed.
pub(super) struct Change(Which, Event<Guarded<DynamicObject>>);

/// All changes of the configurations of this installation.
pub(super) fn changes(context: &Context) -> impl Stream<Item = Change> + use<> {
    let follow = |which: Which| {
        let resource = which.resource();
        let api: Api<Guarded<DynamicObject>> = Api::all_with(context.client.clone(), &resource);
        let config = only(&which.name(&context.config.namespace));
        uninterrupted(resource.kind.into(), watcher(api, config))
            .map(move |event| Change(which, event))
            .boxed()
    };
    futures::stream::select_all(Which::ALL.map(follow))
}

/// The configurations as last seen.
#[derive(Default)]
pub(super) struct Followed {
    singles: [Single<DynamicObject>; 3],
    found: Found,
}

impl Followed {
    /// Takes in a change; says whether it is news.
    pub(super) fn take(&mut self, Change(which, event): Change) -> bool {
        let at = which as usize;
        self.found.0[at] = match self.singles[at].take(event) {
            Sight::Nothing => return false,
            Sight::Gone => Sought::Missing,
            Sight::There(found) => {
                readable(*found).map_or(Sought::Missing, |found| Sought::There(Arc::new(found)))
            }
        };
        true
    }

    /// What was found so far.
    pub(super) fn found(&self) -> Found {
        self.found.clone()
    }
}

/// What is known of one configuration.
#[derive(Clone, Default)]
enum Sought {
    /// It was not looked for yet.
    #[default]
    Unread,
    Missing,
    There(Arc<DynamicObject>),
}

/// The configurations that there are.
#[derive(Clone, Default)]
pub(super) struct Found([Sought; 3]);

impl Found {
    fn get(&self, which: Which) -> Option<&DynamicObject> {
        match &self.0[which as usize] {
            Sought::There(found) => Some(found),
            Sought::Unread | Sought::Missing => None,
        }
    }

    /// The first of these that was not looked for yet.
    pub(super) fn unread(&self, wanted: &[Which], namespace: &str) -> Option<String> {
        self.first(wanted, namespace, |sought| matches!(sought, Sought::Unread))
    }

    /// The first of these that is not there.
    pub(super) fn missing(&self, wanted: &[Which], namespace: &str) -> Option<String> {
        self.first(wanted, namespace, |sought| matches!(sought, Sought::Missing))
    }

    fn first(&self, wanted: &[Which], namespace: &str, is: impl Fn(&Sought) -> bool) -> Option<String> {
        let which = wanted.iter().find(|which| is(&self.0[**which as usize]))?;
        Some(format!("{} {}", which.resource().kind, which.name(namespace)))
    }

    /// Whether some webhook is in it.
    pub(super) fn is_filled(&self, which: Which) -> bool {
        self.webhooks(which).next().is_some()
    }

    /// All that these tell the API server to trust, one for each webhook; empty for one that says nothing.
    pub(super) fn bundles<'a>(&'a self, these: &'a [Which]) -> impl Iterator<Item = String> + 'a {
        let webhooks = these.iter().flat_map(|which| self.webhooks(*which));
        webhooks.map(|webhook| {
            let bytes = serde_json::from_value::<ByteString>(webhook["clientConfig"]["caBundle"].clone());
            bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
        })
    }

    /// Whether one of these refuses writes that nobody answers about.
    pub(super) fn refuse_without_an_answer(&self, these: &[Which]) -> bool {
        let mut webhooks = these.iter().flat_map(|which| self.webhooks(*which));
        webhooks.any(|webhook| webhook["failurePolicy"] == "Fail")
    }

    fn webhooks(&self, which: Which) -> impl Iterator<Item = &Value> {
        self.get(which).and_then(|found| found.data["webhooks"].as_array()).into_iter().flatten()
    }
}

/// What they shall be like.
pub(super) struct Wish<'a> {
    /// Those that are filled. Of the others nothing is said.
    pub(super) filled: &'a [Which],
    pub(super) frame: Frame<'a>,
    /// What cert-manager takes `caBundle` from: a Certificate, with its namespace.
    pub(super) inject_from: Option<String>,
}

/// A configuration that is not as it shall be.
pub(super) struct Difference {
    which: Which,
    name: String,
    /// What makes it so.
    patch: Value,
}

impl Wish<'_> {
    /// Those that are not so.
    pub(super) fn differences(&self, found: &Found) -> Vec<Difference> {
        let different = |which: &Which| {
            let found = found.get(*which)?;
            let patch = self.patch(*which, found)?;
            Some(Difference { which: *which, name: found.name_any(), patch })
        };
        self.filled.iter().filter_map(different).collect()
    }

    /// What makes it as it shall be; `None` when it is so.
    fn patch(&self, which: Which, found: &DynamicObject) -> Option<Value> {
        let annotation = found.annotations().get(INJECT_FROM);
        let is_annotated = annotation == self.inject_from.as_ref()
            // Somebody else's is not ours to take away.
            || (self.inject_from.is_none() && !owns_annotation(found));
        let wanted = which.webhooks(&self.frame);
        let there = found.data["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
        if is_annotated && exact::is(there, &wanted) {
            return None;
        }
        // A leader that slept must not put back what the next one has changed since.
        let mut metadata = json!({ "resourceVersion": found.resource_version() });
        if !is_annotated {
            metadata["annotations"] = json!({ INJECT_FROM: self.inject_from });
        }
        Some(json!({ "metadata": metadata, "webhooks": exact::with_bundles_of(there, wanted) }))
    }
}

/// Whether the annotation for cert-manager was written by us.
fn owns_annotation(found: &DynamicObject) -> bool {
    let ours = found
        .managed_fields()
        .iter()
        .filter(|entry| entry.manager.as_deref() == Some(OPERATOR_FIELD_MANAGER));
    let key = format!("f:{INJECT_FROM}");
    ours.filter_map(|entry| entry.fields_v1.as_ref())
        .any(|fields| fields.0["f:metadata"]["f:annotations"].get(&key).is_some())
}

/// Makes them as they shall be.
pub(super) async fn settle(
    client: &Client,
    writer: &Writer,
    differences: &[Difference],
) -> Result<(), WriteError> {
    for Difference { which, name, patch } in differences {
        writer.patch(&api(client, *which), name, &Patch::Merge(patch)).await?;
        tracing::info!(kind = which.resource().kind, name, "the API server is told to ask");
    }
    Ok(())
}

/// Empties those that are to be empty.
pub(super) async fn empty(
    client: &Client,
    writer: &Writer,
    found: &Found,
    is_empty: impl Fn(Which) -> bool,
) -> Result<(), WriteError> {
    for which in Which::ALL.into_iter().filter(|which| is_empty(*which)) {
        let Some(object) = found.get(which).filter(|_| found.is_filled(which)) else { continue };
        let patch = json!({ "metadata": { "resourceVersion": object.resource_version() }, "webhooks": null });
        writer.patch(&api(client, which), &object.name_any(), &Patch::Merge(patch)).await?;
        tracing::info!(kind = which.resource().kind, name = object.name_any(), "the API server asks no more");
    }
    Ok(())
}

fn api(client: &Client, which: Which) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &which.resource())
}
