//! Writes of the operator: server-side apply with its own field manager, so that fields of other managers stay theirs.

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

/// Limit for one request, so that an API server that does not answer does not block the queue.
const DEADLINE: Duration = Duration::from_secs(30);

/// Number of objects per page of a list.
const PAGE_SIZE: u32 = 500;

/// Error of a request to the API server.
#[derive(Debug, Error)]
pub enum WriteError {
    #[error("request to the API server failed: {0}")]
    Api(#[from] kube::Error),
    #[error("the API server did not answer in time")]
    Deadline(#[from] tokio::time::error::Elapsed),
    #[error("the task of the write ended early: {0}")]
    Task(tokio::task::JoinError),
    #[error("this replica of the operator does not hold the lease")]
    NotLeading,
}

impl WriteError {
    /// Returns a CamelCase reason for metrics and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Api(_) if self.is_conflict() => "Conflict",
            Self::Api(error) if status_code(error) == Some(429) => "TooManyRequests",
            Self::Api(error) if status_code(error) == Some(403) => "Forbidden",
            Self::Api(error) if status_code(error) == Some(404) => "NotFound",
            Self::Api(error) if status_code(error) == Some(422) => "Invalid",
            Self::Api(error) if status_code(error).is_some() => "Refused",
            Self::Api(_) => "Unreachable",
            Self::Deadline(_) => "Deadline",
            Self::Task(_) => "Crashed",
            Self::NotLeading => "NotLeading",
        }
    }

    /// Returns whether another writer changed the object first. The watch delivers that change.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(error) if status_code(error) == Some(409))
    }

    /// Returns whether the object, or its namespace, does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Api(error) if status_code(error) == Some(404))
    }
}

fn status_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Client that sends requests only while this process leads.
#[derive(Clone, Debug)]
pub struct Writer {
    leadership: Leadership,
}

impl Writer {
    pub fn new(leadership: Leadership) -> Self {
        Self { leadership }
    }

    /// Applies `object` (with apiVersion, kind and metadata.name) by server-side apply, and takes over fields of other
    /// managers. With a `metadata.resourceVersion`, the write fails if the object has changed since.
    pub async fn apply<K>(&self, api: &Api<K>, name: &str, object: &Value) -> Result<K, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        self.within_deadline(api.patch(name, &apply_params(), &Patch::Apply(object))).await
    }

    /// Applies the status of an object; see [`Self::apply`].
    pub async fn apply_status<K>(&self, api: &Api<K>, name: &str, object: &Value) -> Result<K, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        self.within_deadline(api.patch_status(name, &apply_params(), &Patch::Apply(object))).await
    }

    /// Patches an object by a JSON patch or a merge patch.
    pub async fn patch<K, P>(&self, api: &Api<K>, name: &str, patch: &Patch<P>) -> Result<K, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
        P: Serialize + Debug,
    {
        let params =
            PatchParams { field_manager: Some(OPERATOR_FIELD_MANAGER.to_owned()), ..Default::default() };
        self.within_deadline(api.patch(name, &params, patch)).await
    }

    /// Patches the status of an object; see [`Self::patch`].
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

    /// Reads an object for a write that depends on it; `None` if it does not exist.
    pub async fn read<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        self.within_deadline(api.get_opt(name)).await
    }

    /// Lists objects, page by page, for a write that depends on them.
    pub async fn list<K>(&self, api: &Api<K>, params: &ListParams) -> Result<Vec<K>, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let mut params = params.clone().limit(PAGE_SIZE);
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

    /// Lists objects in one page. For the pods of one node this is cheaper, because the API server answers from its
    /// index only if the list is not paged.
    pub async fn list_at_once<K>(&self, api: &Api<K>, params: &ListParams) -> Result<Vec<K>, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        Ok(self.within_deadline(api.list(params)).await?.items)
    }

    /// Creates `object`. Fails with a conflict if it exists.
    pub async fn create<K>(&self, api: &Api<K>, object: &K) -> Result<K, WriteError>
    where
        K: Clone + DeserializeOwned + Serialize + Debug,
    {
        let params =
            PostParams { field_manager: Some(OPERATOR_FIELD_MANAGER.to_owned()), ..Default::default() };
        self.within_deadline(api.create(&params, object)).await
    }

    /// Deletes exactly the given version of `object`: not a newer version, nor a new object of the same name. Succeeds
    /// if the object does not exist.
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

    /// Evicts the pod with this UID, not a new pod of the same name. The grace period of the pod applies.
    pub async fn evict(&self, api: &Api<Pod>, name: &str, uid: &str) -> Result<(), WriteError> {
        // `Api::evict` of kube misspells the field of the delete options, so that the API server ignores them.
        let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Default::default() };
        let eviction = Eviction {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
            delete_options: Some(DeleteOptions { preconditions: Some(preconditions), ..Default::default() }),
        };
        let params = PostParams::default();
        let request = api.create_subresource("eviction", name, &params, &eviction);
        let answer: Status = self.within_deadline(request).await?;
        // A pod with more than one disruption budget: the API server answers 200 with a Status that is a failure.
        if answer.is_failure() { Err(kube::Error::Api(answer.boxed()).into()) } else { Ok(()) }
    }

    async fn within_deadline<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, WriteError> {
        if !self.leadership.is_held() {
            return Err(WriteError::NotLeading);
        }
        Ok(tokio::time::timeout(DEADLINE, request).await??)
    }
}

/// Returns the parameters of server-side apply. Forced, so that fields of the Go operator are taken over.
fn apply_params() -> PatchParams {
    PatchParams::apply(OPERATOR_FIELD_MANAGER).force()
}
