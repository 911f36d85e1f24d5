//! `AdmissionReview`: requests of the API server and their responses.

use std::borrow::Cow;

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;
use vfleet_plan::admission::{Findings, Operation, PatchOperation};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// Admission request. Objects are still unparsed JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReviewRequest<'a> {
    /// ID of the request, which the response repeats.
    pub(crate) uid: &'a str,
    /// Kind of the object.
    pub(crate) kind: &'a str,
    /// Operation that is requested.
    pub(crate) operation: Operation,
    /// Namespace of the object.
    pub(crate) namespace: &'a str,
    /// Name of the object; empty if the API server generates it later.
    pub(crate) name: &'a str,
    /// New object.
    pub(crate) object: Option<&'a RawValue>,
    /// Stored object.
    pub(crate) old: Option<&'a RawValue>,
}

/// Response to an admission request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AdmissionResponse {
    /// The object is admitted.
    Allow {
        /// Warnings for the user.
        warnings: Vec<String>,
        /// Changes of the object.
        patch: Vec<PatchOperation>,
    },
    /// The object is refused.
    Deny {
        /// HTTP status code.
        code: u16,
        /// Reason of the API, such as `Invalid` or `NotFound`.
        reason: &'static str,
        /// Errors and warnings.
        findings: Findings,
    },
}

impl AdmissionResponse {
    /// Returns the result for metrics.
    pub(crate) fn result(&self) -> &'static str {
        match self {
            Self::Allow { warnings, .. } if warnings.is_empty() => "admitted",
            Self::Allow { .. } => "warned",
            Self::Deny { .. } => "denied",
        }
    }
}

/// Error of a request body.
#[derive(Debug, Error)]
pub(crate) enum ReviewError {
    #[error("not an AdmissionReview: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("expected {KIND} of {API_VERSION}, got {kind:?} of {api_version:?}")]
    OtherKind { api_version: String, kind: String },
    #[error("the AdmissionReview has no request with a uid")]
    NoRequest,
}

/// Parsed request. Other fields are ignored.
#[derive(Debug)]
pub(crate) struct Review<'a>(RequestText<'a>);

/// `AdmissionReview` of a request, with unparsed parts.
#[derive(Debug, Deserialize)]
struct ReviewText<'a> {
    #[serde(rename = "apiVersion", borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
}

/// Request of an `AdmissionReview`, with unparsed objects.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestText<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    kind: KindText<'a>,
    operation: Operation,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
}

/// Group, version and kind of the object of a request.
#[derive(Debug, Deserialize)]
struct KindText<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

impl<'a> Review<'a> {
    /// Parses a request body.
    pub(crate) fn read(text: &'a [u8]) -> Result<Self, ReviewError> {
        let review: ReviewText<'a> = serde_json::from_slice(text)?;
        if review.api_version != API_VERSION || review.kind != KIND {
            let (api_version, kind) = (shorten(&review.api_version), shorten(&review.kind));
            return Err(ReviewError::OtherKind { api_version, kind });
        }
        // Parsed only now, because other versions may have different fields.
        let mut request: RequestText<'a> =
            serde_json::from_str(review.request.ok_or(ReviewError::NoRequest)?.get())?;
        // For a deletion of a collection the API server sends one request for each object, without its name.
        if request.operation == Operation::Delete && request.name.is_empty() {
            request.name = request.old_object.and_then(name_of).unwrap_or_default();
        }
        if request.uid.is_empty() { Err(ReviewError::NoRequest) } else { Ok(Self(request)) }
    }

    /// Returns the request.
    pub(crate) fn request(&self) -> ReviewRequest<'_> {
        let RequestText { uid, kind, operation, namespace, name, object, old_object } = &self.0;
        ReviewRequest {
            uid,
            kind: &kind.kind,
            operation: *operation,
            namespace,
            name,
            object: *object,
            old: *old_object,
        }
    }
}

/// Object with only its name.
#[derive(Deserialize)]
struct NamedText<'a> {
    #[serde(borrow)]
    metadata: MetadataText<'a>,
}

/// Metadata of the object of a request.
#[derive(Deserialize)]
struct MetadataText<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

fn name_of(object: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<NamedText<'_>>(object.get()).ok().map(|object| object.metadata.name)
}

/// Cuts a text for an error message.
fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

/// `AdmissionReview` that is sent to the API server.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reply<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

/// Response to the request of an `AdmissionReview`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// JSON patch in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<RefusalStatus<'a>>,
}

/// Reason of a refusal, in the form of a Kubernetes `Status`.
#[derive(Serialize)]
struct RefusalStatus<'a> {
    code: u16,
    reason: &'static str,
    message: String,
    details: Details<'a>,
}

/// Causes of a refusal.
#[derive(Serialize)]
struct Details<'a> {
    causes: Vec<Cause<'a>>,
}

/// Problem with one field.
#[derive(Serialize)]
struct Cause<'a> {
    reason: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'a str,
}

/// Serializes the response to the request `uid`.
pub(crate) fn reply(uid: &str, response: &AdmissionResponse) -> Result<Vec<u8>, serde_json::Error> {
    let response = match response {
        AdmissionResponse::Allow { warnings, patch } => {
            let is_changed = !patch.is_empty();
            let patch = is_changed.then(|| serde_json::to_vec(patch)).transpose()?.map(ByteString);
            let patch_type = is_changed.then_some("JSONPatch");
            Response { uid, allowed: true, warnings: warnings.clone(), patch_type, patch, status: None }
        }
        AdmissionResponse::Deny { code, reason, findings } => {
            let status = RefusalStatus {
                code: *code,
                reason,
                message: findings.error_message().unwrap_or_else(|| "the object is refused".to_owned()),
                details: Details { causes: findings.errors().map(cause).collect() },
            };
            let warnings = findings.warnings();
            Response { uid, allowed: false, warnings, patch_type: None, patch: None, status: Some(status) }
        }
    };
    serde_json::to_vec(&Reply { api_version: API_VERSION, kind: KIND, response })
}

fn cause(finding: &vfleet_plan::admission::Finding) -> Cause<'_> {
    Cause { reason: "FieldValueInvalid", message: &finding.message, field: &finding.field }
}

#[cfg(test)]
mod tests;
