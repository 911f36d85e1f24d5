//! Selection of nodes by pools.

mod requirement;

use alloc::collections::BTreeMap;

use thiserror::Error;
use vfleet_api::keys::DEFAULT_POOL;
use vfleet_api::meta::{LabelSelector, NodeSelectorTerm};
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;

use crate::offload::requested_offload_pool;
use crate::prelude::*;
use requirement::Requirement;

/// Priority of a pool without one.
const DEFAULT_PRIORITY: i64 = 99;

/// Pool with its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedPool<'a> {
    /// Name of the pool.
    pub name: &'a str,
    /// Spec of the pool.
    pub spec: &'a SriovNetworkPoolConfigSpec,
}

/// Name and labels of a node, by which pools select it.
#[derive(Clone, Copy, Debug)]
pub struct NodeIdentity<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Labels of the node.
    pub labels: &'a BTreeMap<String, String>,
}

/// Fault of a selector. A pool with a fault selects no node.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PoolFault {
    #[error("operator {operator:?} of {key} is not supported: use {supported}")]
    UnknownOperator { key: String, operator: String, supported: &'static str },
    #[error("operator {operator} of {key} needs values: add at least one")]
    NoValues { key: String, operator: String },
    #[error("operator {operator} of {key} needs exactly one integer, but values is {values:?}")]
    NotANumber { key: String, operator: String, values: Vec<String> },
    #[error("matchFields does not support {key}: use metadata.name")]
    UnknownField { key: String },
}

impl PoolFault {
    /// Returns the reason for conditions, Events and metrics.
    pub const fn reason(&self) -> &'static str {
        "InvalidSelector"
    }
}

/// Returns whether two pools have the same priority, so that only their names decide which one gets a node.
pub fn have_equal_rank(one: &NamedPool<'_>, other: &NamedPool<'_>) -> bool {
    one.name != other.name
        && ![one.name, other.name].contains(&DEFAULT_POOL)
        && priority(one.spec) == priority(other.spec)
}

/// Returns the pool that the node belongs to: the pool with the lowest priority number that selects the node, or the
/// first one by name if several have that number. The pool named `default` is for nodes that no other pool selects.
pub fn find_pool_of_node<'p, 'a>(
    pools: &'p [NamedPool<'a>],
    node: NodeIdentity<'_>,
) -> Option<&'p NamedPool<'a>> {
    let rank = |pool: &&NamedPool<'a>| (pool.name == DEFAULT_POOL, priority(pool.spec), pool.name);
    pools.iter().filter(|pool| selects(pool, node) == Ok(true)).min_by_key(rank)
}

fn priority(spec: &SriovNetworkPoolConfigSpec) -> i64 {
    spec.priority.unwrap_or(DEFAULT_PRIORITY)
}

/// Returns whether the pool selects the node. One matching term is enough, even if other terms have faults.
pub fn selects(pool: &NamedPool<'_>, node: NodeIdentity<'_>) -> Result<bool, PoolFault> {
    if is_for_offload_only(pool.spec) {
        return Ok(false);
    }
    Ok(matches_selector(pool.spec, node)? && matches_terms(pool.spec, node)?)
}

/// Returns whether the pool only requests Open vSwitch hardware offload (OpenShift). No node belongs to such a pool.
pub fn is_for_offload_only(spec: &SriovNetworkPoolConfigSpec) -> bool {
    let limit = spec.drain_config.as_ref().and_then(|config| config.max_parallel_node_configuration);
    requested_offload_pool(spec).is_some()
        && spec.node_selector.is_none()
        && spec.node_selector_terms.as_ref().is_none_or(Vec::is_empty)
        && spec.max_unavailable.is_none()
        && limit.is_none()
}

fn matches_selector(spec: &SriovNetworkPoolConfigSpec, node: NodeIdentity<'_>) -> Result<bool, PoolFault> {
    spec.node_selector.as_ref().map_or(Ok(true), |selector| matches_labels(selector, node.labels))
}

/// Returns whether `selector` matches `labels`. An empty selector always matches.
pub(crate) fn matches_labels(
    selector: &LabelSelector,
    labels: &BTreeMap<String, String>,
) -> Result<bool, PoolFault> {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        Requirement::new(&expression.key, &expression.operator, expression.values.as_deref())
            .matches_label(labels.get(&expression.key))
    });
    Ok(all_match(expressions)? && equal)
}

fn matches_terms(spec: &SriovNetworkPoolConfigSpec, node: NodeIdentity<'_>) -> Result<bool, PoolFault> {
    let terms = spec.node_selector_terms.as_deref().unwrap_or_default();
    if terms.is_empty() {
        return Ok(true);
    }
    let mut fault = None;
    for term in terms {
        match matches_term(term, node) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(found) => fault = fault.or(Some(found)),
        }
    }
    fault.map_or(Ok(false), Err)
}

fn matches_term(term: &NodeSelectorTerm, node: NodeIdentity<'_>) -> Result<bool, PoolFault> {
    let expressions = term.match_expressions.iter().flatten().map(|expression| {
        Requirement::new(&expression.key, &expression.operator, expression.values.as_deref())
            .matches_label_in_term(node.labels.get(&expression.key))
    });
    let fields = term.match_fields.iter().flatten().map(|field| {
        Requirement::new(&field.key, &field.operator, field.values.as_deref()).matches_field(node.name)
    });
    Ok(all_match(expressions.chain(fields))? && !is_empty(term))
}

/// Returns whether a term has no requirement. Such a term selects no node.
pub(crate) fn is_empty(term: &NodeSelectorTerm) -> bool {
    term.match_expressions.iter().flatten().next().is_none()
        && term.match_fields.iter().flatten().next().is_none()
}

/// Returns the faults of the selectors of a pool, each with its field.
pub fn find_faults(spec: &SriovNetworkPoolConfigSpec) -> Vec<(String, PoolFault)> {
    // Faults do not depend on the node.
    let labels = BTreeMap::new();
    let node = NodeIdentity { name: "", labels: &labels };
    let selector = matches_selector(spec, node).err().map(|fault| ("spec.nodeSelector".to_owned(), fault));
    let terms = spec.node_selector_terms.iter().flatten().enumerate();
    let terms = terms.filter_map(|(at, term)| {
        let fault = matches_term(term, node).err()?;
        Some((format!("spec.nodeSelectorTerms[{at}]"), fault))
    });
    selector.into_iter().chain(terms).collect()
}

/// Returns whether all requirements match. All of them are evaluated, so that a fault is reported for every node.
fn all_match(mut requirements: impl Iterator<Item = Result<bool, PoolFault>>) -> Result<bool, PoolFault> {
    requirements.try_fold(true, |all, one| Ok(one? && all))
}
