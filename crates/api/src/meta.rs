//! Types of the Kubernetes API that vfleet's kinds use, as plain data. They are serialized exactly as in `k8s-openapi`,
//! which is too large for small programs to link.
//!
//! With the feature `crds`, they have the schemas of Kubernetes.

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

/// Condition of an object: one aspect of its state.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Time of the last change of `status`.
    pub last_transition_time: Time,
    /// Message for people.
    #[serde(default, deserialize_with = "null_as_default")]
    pub message: String,
    /// Generation of the object for which the condition was set.
    pub observed_generation: Option<i64>,
    /// Reason of the last transition in `CamelCase`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub reason: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: String,
    /// Type of the condition in `CamelCase`.
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    pub type_: String,
}

/// Selector of objects by labels. All requirements must match; an empty selector selects every object.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Requirements for labels.
    pub match_expressions: Option<Vec<SelectorRequirement>>,
    /// Required labels with their values.
    pub match_labels: Option<BTreeMap<String, String>>,
}

/// Selector of nodes, as in node affinity. All requirements must match; an empty term selects no node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    /// Requirements for labels.
    pub match_expressions: Option<Vec<SelectorRequirement>>,
    /// Requirements for fields: only `metadata.name`.
    pub match_fields: Option<Vec<SelectorRequirement>>,
}

/// Requirement for one label or field, of a label selector or of a node selector term.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectorRequirement {
    /// Name of the label or field.
    #[serde(default, deserialize_with = "null_as_default")]
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`; in a term also `Gt` and `Lt`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub operator: String,
    /// Values for the operator.
    pub values: Option<Vec<String>>,
}

/// Number or string, such as a percentage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a 32-bit integer or a string")]
pub enum IntOrString {
    Int(i32),
    String(String),
}

/// Deserializes `null` like an absent field.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
