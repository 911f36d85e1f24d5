//! Schemas of the plain types, and conversions from the types of `k8s-openapi`.

use std::borrow::Cow;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::apimachinery::pkg::util::intstr;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{Condition, IntOrString, LabelSelector, MicroTime, NodeSelectorTerm, SelectorRequirement};

/// Implements `JsonSchema` for a plain type with the schema of its counterpart.
macro_rules! impl_schema {
    ($($plain:ty => $counterpart:ty;)*) => {$(
        impl JsonSchema for $plain {
            fn schema_name() -> Cow<'static, str> {
                <$counterpart>::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$counterpart>::json_schema(generator)
            }
        }
    )*};
}

impl_schema! {
    Condition => meta::Condition;
    MicroTime => meta::MicroTime;
    LabelSelector => meta::LabelSelector;
    NodeSelectorTerm => core::NodeSelectorTerm;
    IntOrString => intstr::IntOrString;
}

impl From<meta::LabelSelector> for LabelSelector {
    fn from(selector: meta::LabelSelector) -> Self {
        let expressions = selector.match_expressions;
        Self {
            match_expressions: expressions
                .map(|all| all.into_iter().map(SelectorRequirement::from).collect()),
            match_labels: selector.match_labels,
        }
    }
}

impl From<meta::LabelSelectorRequirement> for SelectorRequirement {
    fn from(requirement: meta::LabelSelectorRequirement) -> Self {
        let meta::LabelSelectorRequirement { key, operator, values } = requirement;
        Self { key, operator, values }
    }
}
