//! What the API server asks, and what it is answered: the envelope `AdmissionReview`.

use std::borrow::Cow;

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;
use vfleet_plan::admission::{Findings, Operation, PatchOperation};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// What somebody is about to do. Objects are as they were sent: each is read once, as what it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReviewRequest<'a> {
    /// The name of this question, which the answer repeats.
    pub(crate) uid: &'a str,
    /// The object's kind.
    pub(crate) kind: &'a str,
    /// To create, change or delete it.
    pub(crate) operation: Operation,
    /// The object's namespace.
    pub(crate) namespace: &'a str,
    /// The object's name; empty when the API server is still to make one up.
    pub(crate) name: &'a str,
    /// As it shall be.
    pub(crate) object: Option<&'a RawValue>,
    /// As it is.
    pub(crate) old: Option<&'a RawValue>,
}

/// What the API server is answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// It may be written.
    Admit {
        /// What its user should know.
        warnings: Vec<String>,
        /// What is added to it.
        patch: Vec<PatchOperation>,
    },
    /// It may not.
    Refuse {
        /// As in HTTP.
        code: u16,
        /// The API's word for it: `Invalid`, `NotFound`...
        reason: &'static str,
        /// Why not, and what its user should know besides.
        findings: Findings,
    },
}

impl Answer {
    /// What came of the question, in one word, for metrics.
    pub(crate) fn verdict(&self) -> &'static str {
        match self {
            Self::Admit { warnings, .. } if warnings.is_empty() => "admitted",
            Self::Admit { .. } => "warned",
            Self::Refuse { .. } => "denied",
        }
    }
}

/// What was sent is no question.
#[derive(Debug, Error)]
pub(crate) enum NoReview {
    #[error("this is no AdmissionReview: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("an {KIND} of {API_VERSION} is expected here, and not {kind:?} of {api_version:?}")]
    OtherKind { api_version: String, kind: String },
    #[error("the AdmissionReview has no request with a uid")]
    NoRequest,
}

/// A question as it came. What else the API server says in it is not looked at.
#[derive(Debug)]
pub(crate) struct Review<'a>(RequestText<'a>);

#[derive(Debug, Deserialize)]
struct ReviewText<'a> {
    #[serde(rename = "apiVersion", borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
}

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

#[derive(Debug, Deserialize)]
struct KindText<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

impl<'a> Review<'a> {
    /// Reads a question.
    pub(crate) fn read(text: &'a [u8]) -> Result<Self, NoReview> {
        let review: ReviewText<'a> = serde_json::from_slice(text)?;
        if review.api_version != API_VERSION || review.kind != KIND {
            let (api_version, kind) = (shown(&review.api_version), shown(&review.kind));
            return Err(NoReview::OtherKind { api_version, kind });
        }
        // Only now: what another version asks may look different.
        let mut request: RequestText<'a> =
            serde_json::from_str(review.request.ok_or(NoReview::NoRequest)?.get())?;
        // Of objects that are deleted together the API server asks one by one, but says the name of none.
        if request.operation == Operation::Delete && request.name.is_empty() {
            request.name = request.old_object.and_then(name_of).unwrap_or_default();
        }
        if request.uid.is_empty() { Err(NoReview::NoRequest) } else { Ok(Self(request)) }
    }

    /// What is asked.
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

/// An object, as far as its name.
#[derive(Deserialize)]
struct NamedText<'a> {
    #[serde(borrow)]
    metadata: MetadataText<'a>,
}

#[derive(Deserialize)]
struct MetadataText<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

fn name_of(object: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<NamedText<'_>>(object.get()).ok().map(|object| object.metadata.name)
}

/// Not more of it than a person reads.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reply<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// Base64 of a JSON patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
}

#[derive(Serialize)]
struct Status<'a> {
    code: u16,
    reason: &'static str,
    message: String,
    details: Details<'a>,
}

#[derive(Serialize)]
struct Details<'a> {
    causes: Vec<Cause<'a>>,
}

#[derive(Serialize)]
struct Cause<'a> {
    reason: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'a str,
}

/// The answer to the question `uid`, as it is sent.
pub(crate) fn reply(uid: &str, answer: &Answer) -> Result<Vec<u8>, serde_json::Error> {
    let response = match answer {
        Answer::Admit { warnings, patch } => {
            let is_changed = !patch.is_empty();
            let patch = is_changed.then(|| serde_json::to_vec(patch)).transpose()?.map(ByteString);
            let patch_type = is_changed.then_some("JSONPatch");
            Response { uid, allowed: true, warnings: warnings.clone(), patch_type, patch, status: None }
        }
        Answer::Refuse { code, reason, findings } => {
            let status = Status {
                code: *code,
                reason,
                message: findings.refusal().unwrap_or_else(|| "it is refused".to_owned()),
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
