//! Types of the Kubernetes API that fields of ours have, as plain data: written and read exactly as `k8s-openapi` does,
//! which is too much for a small program to link.
//!
//! With the feature `crds`, their schemas are those of Kubernetes.

#[cfg(feature = "crds")]
mod kubernetes;

use std::collections::BTreeMap;

use jiff::fmt::strtime;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with::skip_serializing_none;

pub use jiff::Timestamp;

/// Time to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Time(pub Timestamp);

/// Time to the microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct MicroTime(pub Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_time("%Y-%m-%dT%H:%M:%SZ", self.0, serializer)
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_time("%Y-%m-%dT%H:%M:%S%.6fZ", self.0, serializer)
    }
}

fn serialize_time<S: Serializer>(format: &str, time: Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    let text = strtime::format(format, time).map_err(S::Error::custom)?;
    serializer.serialize_str(&text)
}

/// One aspect of the state of an object.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Last time that `status` changed.
    pub last_transition_time: Time,
    /// Details of the reason, for people.
    #[serde(default, deserialize_with = "null_as_default")]
    pub message: String,
    /// Generation of the object that the condition is about.
    pub observed_generation: Option<i64>,
    /// Reason of the last transition, in one `PascalCase` word.
    #[serde(default, deserialize_with = "null_as_default")]
    pub reason: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: String,
    /// Name of the aspect, in one `PascalCase` word.
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    pub type_: String,
}

/// Query for objects by their labels. All parts must hold; an empty one selects every object.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Requirements for labels.
    pub match_expressions: Option<Vec<SelectorRequirement>>,
    /// Labels with exactly these values.
    pub match_labels: Option<BTreeMap<String, String>>,
}

/// Query for nodes, as in node affinity. All parts must hold; an empty one selects no node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    /// Requirements for labels.
    pub match_expressions: Option<Vec<SelectorRequirement>>,
    /// Requirements for fields: only `metadata.name`.
    pub match_fields: Option<Vec<SelectorRequirement>>,
}

/// Requirement for one label or field: of a label selector, or of a term with its further operators.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectorRequirement {
    /// Name of the label or field.
    #[serde(default, deserialize_with = "null_as_default")]
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`; in a term `Gt` and `Lt`, too.
    #[serde(default, deserialize_with = "null_as_default")]
    pub operator: String,
    /// Values that the operator compares with.
    pub values: Option<Vec<String>>,
}

/// Number, or text such as a percentage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a 32-bit integer or a string")]
pub enum IntOrString {
    Int(i32),
    String(String),
}

/// Reads `null` like an absent field.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
