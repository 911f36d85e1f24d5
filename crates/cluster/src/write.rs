//! The writes of the operator: server-side apply under its own name, so that what others own stays theirs.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{Resource, Status};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use vfleet_api::keys::OPERATOR_FIELD_MANAGER;

use crate::leadership::Leadership;

/// An API server that does not answer must not hold up the objects that wait.
const DEADLINE: Duration = Duration::from_secs(30);

/// As many objects come in one answer.
const PAGE: u32 = 500;

/// Why something was not written.
#[derive(Debug, Error)]
pub enum WriteError {
    #[error("the API server refused it: {0}")]
    Api(#[from] kube::Error),
    #[error("the API server did not answer in time")]
    Deadline(#[from] tokio::time::error::Elapsed),
    #[error("the write ended in the middle: {0}")]
    Thread(tokio::task::JoinError),
    #[error("another replica of the operator leads now")]
    NotLeading,
}

impl WriteError {
    /// Why, in one word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Api(_) if self.is_conflict() => "Conflict",
            Self::Api(error) if code(error) == Some(429) => "TooManyRequests",
            Self::Api(error) if code(error) == Some(403) => "Forbidden",
            Self::Api(error) if code(error) == Some(404) => "NotFound",
            Self::Api(error) if code(error) == Some(422) => "Invalid",
            Self::Api(error) if code(error).is_some() => "Refused",
            Self::Api(_) => "Unreachable",
            Self::Deadline(_) => "Deadline",
            Self::Thread(_) => "Crashed",
            Self::NotLeading => "NotLeading",
        }
    }

    /// Somebody else was quicker: the object is not what it was when we decided. Its change comes by the watch.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(error) if code(error) == Some(409))
    }

    /// The object, or what it is in, is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Api(error) if code(error) == Some(404))
    }
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(answer_code(status)),
        _ => None,
    }
}

fn answer_code(status: &Status) -> u16 {
    status.code
}

/// Writes, as long as this process leads.
#[derive(Clone, Debug)]
pub struct Writer {
    leadership: Leadership,
}

impl Writer {
    pub fn new(leadership: Leadership) -> Self {
        Self { leadership }
    }

    /// Applies `object` (with apiVersion, kind and metadata.name) as ours, over others where they disagree. With a
    /// `metadata.resourceVersion` in it, only if nobody has changed the object since.
    pub async fn apply<K>(&self, api: &Api<K>, name: &str, object: &Value) -> Result<K, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        self.within_deadline(api.patch(name, &as_ours(), &Patch::Apply(object))).await
    }

    /// The same for its status.
    pub async fn apply_status<K>(&self, api: &Api<K>, name: &str, object: &Value) -> Result<K, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        self.within_deadline(api.patch_status(name, &as_ours(), &Patch::Apply(object))).await
    }

    /// Patches it in another way than by server-side apply.
    pub async fn patch<K, P>(&self, api: &Api<K>, name: &str, patch: &Patch<P>) -> Result<K, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
        P: Serialize + Debug,
    {
        let params =
            PatchParams { field_manager: Some(OPERATOR_FIELD_MANAGER.to_owned()), ..Default::default() };
        self.within_deadline(api.patch(name, &params, patch)).await
    }

    /// The same for its status.
    pub async fn patch_status<K, P>(
        &self,
        api: &Api<K>,
        name: &str,
        patch: &Patch<P>,
    ) -> Result<K, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
        P: Serialize + Debug,
    {
        let params =
            PatchParams { field_manager: Some(OPERATOR_FIELD_MANAGER.to_owned()), ..Default::default() };
        self.within_deadline(api.patch_status(name, &params, patch)).await
    }

    /// Reads it, if it is there: for the writes that depend on it.
    pub async fn read<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        self.within_deadline(api.get_opt(name)).await
    }

    /// Lists objects, page by page: for the writes that depend on them.
    pub async fn list<K>(&self, api: &Api<K>, params: &ListParams) -> Result<Vec<K>, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let mut params = params.clone().limit(PAGE);
        let mut items = Vec::new();
        loop {
            let page = self.within_deadline(api.list(&params)).await?;
            items.extend(page.items);
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(items);
            }
        }
    }

    /// Lists objects in one page. Of pods on one node there are not many, and only without pages does the API server
    /// answer from its index.
    pub async fn list_at_once<K>(&self, api: &Api<K>, params: &ListParams) -> Result<Vec<K>, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        Ok(self.within_deadline(api.list(params)).await?.items)
    }

    /// Creates `object`. That it exists already is a conflict.
    pub async fn create<K>(&self, api: &Api<K>, object: &K) -> Result<K, WriteError>
    where
        K: Clone + DeserializeOwned + Serialize + Debug,
    {
        let params =
            PostParams { field_manager: Some(OPERATOR_FIELD_MANAGER.to_owned()), ..Default::default() };
        self.within_deadline(api.create(&params, object)).await
    }

    /// Deletes this very `object`, as we last saw it: not one of the same name that came later, nor one that somebody
    /// changed. That it is gone already is fine.
    pub async fn delete<K>(&self, api: &Api<K>, object: &K) -> Result<(), WriteError>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let params = DeleteParams {
            preconditions: Some(kube::api::Preconditions {
                uid: object.uid(),
                resource_version: object.resource_version(),
            }),
            ..Default::default()
        };
        match self.within_deadline(api.delete(&object.name_any(), &params)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Evicts this very pod, not one of the same name that came later. Its own grace period counts.
    pub async fn evict(&self, api: &Api<Pod>, name: &str, uid: &str) -> Result<(), WriteError> {
        // Not by kube's own function, which misspells the options, so that the API server does not see them.
        let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Default::default() };
        let eviction = Eviction {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
            delete_options: Some(DeleteOptions { preconditions: Some(preconditions), ..Default::default() }),
        };
        let params = PostParams::default();
        let request = api.create_subresource("eviction", name, &params, &eviction);
        let answer: Status = self.within_deadline(request).await?;
        // More than one budget for the pod: the API server says so in an answer that looks like a success.
        if answer.is_failure() { Err(kube::Error::Api(answer.boxed()).into()) } else { Ok(()) }
    }

    async fn within_deadline<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, WriteError> {
        if !self.leadership.holds() {
            return Err(WriteError::NotLeading);
        }
        Ok(tokio::time::timeout(DEADLINE, request).await??)
    }
}

/// Forced: what another program (the Go operator) wrote is taken over.
fn as_ours() -> PatchParams {
    PatchParams::apply(OPERATOR_FIELD_MANAGER).force()
}
