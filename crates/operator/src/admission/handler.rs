//! Handler of admission requests: reads the object, runs the rules with the index, and builds the response.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use vfleet_plan::admission::{Findings, Installation, PatchOperation, patch_policy_defaults};

use super::catch_up::IndexCatchUp;
use super::index::AdmissionIndex;
use super::object::{ReviewedObject, UnreadableRequest};
use super::pods::PodInjector;
use super::review::{AdmissionResponse, ReviewRequest};
use super::server::WebhookHandler;
use crate::components::config_watch::OperatorConfigReceiver;
use crate::replica::context::Context;

/// Handler that uses the index of the cluster.
pub(super) struct AdmissionHandler {
    context: Context,
    index: Arc<AdmissionIndex>,
    pods: PodInjector,
    catch_up: IndexCatchUp,
}

/// Part of an object that shows whether it is being deleted.
#[derive(Deserialize)]
struct ObjectDeletion {
    metadata: Option<Deletion>,
}

/// Metadata that shows whether an object is being deleted.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Deletion {
    deletion_timestamp: Option<IgnoredAny>,
}

impl WebhookHandler for AdmissionHandler {
    async fn validate(&self, request: &ReviewRequest<'_>) -> AdmissionResponse {
        // Finalizers of an object that is being deleted must be removable.
        if request.object.is_some_and(is_being_deleted) {
            return allow(Vec::new(), Vec::new());
        }
        match ReviewedObject::parse(request) {
            Ok(object) => self.check(&object, request).await,
            Err(UnreadableRequest(findings)) => {
                AdmissionResponse::Deny { code: 400, reason: "BadRequest", findings }
            }
        }
    }

    fn mutate(&self, request: &ReviewRequest<'_>) -> AdmissionResponse {
        add_defaults(request)
    }

    async fn pod(&self, request: ReviewRequest<'_>) -> AdmissionResponse {
        self.pods.handle(request).await
    }
}

impl AdmissionHandler {
    pub(super) fn new(
        context: Context,
        index: Arc<AdmissionIndex>,
        settings: OperatorConfigReceiver,
    ) -> Self {
        let pods = PodInjector::new(context.client.clone(), Arc::clone(&index), settings);
        let catch_up = IndexCatchUp::new(context.clone(), Arc::clone(&index));
        Self { context, index, pods, catch_up }
    }

    fn installation(&self) -> Installation<'_> {
        let config = &self.context.config;
        Installation { namespace: &config.namespace, dev_mode: config.deploy.dev_mode }
    }

    /// Checks an object. If only cluster facts refuse it, the check is repeated after the index has caught up with all
    /// earlier writes: the user may just have fixed the problem.
    async fn check(&self, object: &ReviewedObject, request: &ReviewRequest<'_>) -> AdmissionResponse {
        let findings = self.check_now(object, request);
        if findings.error_message().is_none()
            || object.check(request, &self.installation(), None).error_message().is_some()
        {
            return respond(findings);
        }
        let is_certain = self.catch_up.wait_until_current().await;
        let findings = self.check_now(object, request);
        respond(if is_certain { findings } else { findings.downgraded() })
    }

    fn check_now(&self, object: &ReviewedObject, request: &ReviewRequest<'_>) -> Findings {
        self.index.read(|cluster| object.check(request, &self.installation(), cluster))
    }
}

/// Returns the response that adds the defaults of a policy.
pub(super) fn add_defaults(request: &ReviewRequest<'_>) -> AdmissionResponse {
    // Unreadable objects are refused by the schema.
    let object = request.object.and_then(|object| serde_json::from_str::<Value>(object.get()).ok());
    let policy = object.filter(|_| request.kind == "SriovNetworkNodePolicy");
    allow(Vec::new(), policy.as_ref().map(patch_policy_defaults).unwrap_or_default())
}

/// Returns the response for these findings.
pub(super) fn respond(findings: Findings) -> AdmissionResponse {
    match findings.error_message() {
        None => allow(findings.warnings(), Vec::new()),
        Some(_) => AdmissionResponse::Deny { code: 422, reason: "Invalid", findings },
    }
}

pub(super) fn allow(warnings: Vec<String>, patch: Vec<PatchOperation>) -> AdmissionResponse {
    AdmissionResponse::Allow { warnings, patch }
}

pub(super) fn is_being_deleted(object: &RawValue) -> bool {
    let read = serde_json::from_str::<ObjectDeletion>(object.get()).ok();
    read.and_then(|object| object.metadata?.deletion_timestamp).is_some()
}
