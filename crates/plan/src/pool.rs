//! Which pool a node belongs to.

mod requirement;

use alloc::collections::BTreeMap;

use thiserror::Error;
use vfleet_api::keys::DEFAULT_POOL;
use vfleet_api::meta::{LabelSelector, NodeSelectorTerm};
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;

use crate::offload::offload_wanted;
use crate::prelude::*;
use requirement::Requirement;

/// The priority of a pool that gives none.
const DEFAULT_PRIORITY: i64 = 99;

/// A pool, by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedPool<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its nodes, and how they are treated.
    pub spec: &'a SriovNetworkPoolConfigSpec,
}

/// What pools look at of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeIdentity<'a> {
    /// The node's name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// A selector that cannot be followed. It selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PoolFault {
    #[error("operator {operator:?} of {key} is not known here: use {known}")]
    UnknownOperator { key: String, operator: String, known: &'static str },
    #[error("operator {operator} of {key} needs values")]
    NoValues { key: String, operator: String },
    #[error("operator {operator} of {key} needs one whole number, not {values:?}")]
    NotANumber { key: String, operator: String, values: Vec<String> },
    #[error("matchFields knows the field metadata.name only, not {key}")]
    UnknownField { key: String },
}

impl PoolFault {
    /// In one word, for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        "InvalidSelector"
    }
}

/// Whether two pools come into each other's way on a node that both select: only their names decide then.
pub fn are_rivals(one: &NamedPool<'_>, other: &NamedPool<'_>) -> bool {
    one.name != other.name
        && ![one.name, other.name].contains(&DEFAULT_POOL)
        && priority(one.spec) == priority(other.spec)
}

/// The pool that the node belongs to: of those that select it, the one with the lowest priority number, and of equal
/// ones the first by name. The pool named `default` is for nodes that no other pool selects.
pub fn pool_of<'p, 'a>(pools: &'p [NamedPool<'a>], node: NodeIdentity<'_>) -> Option<&'p NamedPool<'a>> {
    let rank = |pool: &&NamedPool<'a>| (pool.name == DEFAULT_POOL, priority(pool.spec), pool.name);
    pools.iter().filter(|pool| selects(pool, node) == Ok(true)).min_by_key(rank)
}

/// Of several pools that select a node, the one with the lowest number has it.
fn priority(spec: &SriovNetworkPoolConfigSpec) -> i64 {
    spec.priority.unwrap_or(DEFAULT_PRIORITY)
}

/// Whether the pool selects the node. Of several terms one is enough, whatever is wrong with the others.
pub fn selects(pool: &NamedPool<'_>, node: NodeIdentity<'_>) -> Result<bool, PoolFault> {
    if is_for_offload_only(pool.spec) {
        return Ok(false);
    }
    Ok(by_labels(pool.spec, node)? && by_terms(pool.spec, node)?)
}

/// Whether the pool only says where Open vSwitch hardware offload is switched on (OpenShift). No node belongs to it.
pub fn is_for_offload_only(spec: &SriovNetworkPoolConfigSpec) -> bool {
    let limit = spec.drain_config.as_ref().and_then(|config| config.max_parallel_node_configuration);
    offload_wanted(spec).is_some()
        && spec.node_selector.is_none()
        && spec.node_selector_terms.as_ref().is_none_or(Vec::is_empty)
        && spec.max_unavailable.is_none()
        && limit.is_none()
}

fn by_labels(spec: &SriovNetworkPoolConfigSpec, node: NodeIdentity<'_>) -> Result<bool, PoolFault> {
    spec.node_selector.as_ref().map_or(Ok(true), |selector| holds_for(selector, node.labels))
}

/// Whether a selector holds for something with these labels. An empty one always does.
pub(crate) fn holds_for(
    selector: &LabelSelector,
    labels: &BTreeMap<String, String>,
) -> Result<bool, PoolFault> {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        Requirement::new(&expression.key, &expression.operator, expression.values.as_deref())
            .holds_in_selector(labels.get(&expression.key))
    });
    Ok(all(expressions)? && equal)
}

fn by_terms(spec: &SriovNetworkPoolConfigSpec, node: NodeIdentity<'_>) -> Result<bool, PoolFault> {
    let terms = spec.node_selector_terms.as_deref().unwrap_or_default();
    if terms.is_empty() {
        return Ok(true);
    }
    let mut fault = None;
    for term in terms {
        match by_term(term, node) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(found) => fault = fault.or(Some(found)),
        }
    }
    fault.map_or(Ok(false), Err)
}

fn by_term(term: &NodeSelectorTerm, node: NodeIdentity<'_>) -> Result<bool, PoolFault> {
    let expressions = term.match_expressions.iter().flatten().map(|expression| {
        Requirement::new(&expression.key, &expression.operator, expression.values.as_deref())
            .holds_in_term(node.labels.get(&expression.key))
    });
    let fields = term.match_fields.iter().flatten().map(|field| {
        Requirement::new(&field.key, &field.operator, field.values.as_deref()).holds_for_field(node.name)
    });
    Ok(all(expressions.chain(fields))? && !is_empty(term))
}

/// Whether a term says nothing. It selects no node.
pub(crate) fn is_empty(term: &NodeSelectorTerm) -> bool {
    term.match_expressions.iter().flatten().next().is_none()
        && term.match_fields.iter().flatten().next().is_none()
}

/// What is wrong with a pool's selectors, each with its field.
pub fn faults(spec: &SriovNetworkPoolConfigSpec) -> Vec<(String, PoolFault)> {
    // A fault shows whatever the node is like.
    let labels = BTreeMap::new();
    let node = NodeIdentity { name: "", labels: &labels };
    let by_labels = by_labels(spec, node).err().map(|fault| ("spec.nodeSelector".to_owned(), fault));
    let terms = spec.node_selector_terms.iter().flatten().enumerate();
    let by_terms = terms.filter_map(|(at, term)| {
        let fault = by_term(term, node).err()?;
        Some((format!("spec.nodeSelectorTerms[{at}]"), fault))
    });
    by_labels.into_iter().chain(by_terms).collect()
}

/// Whether all hold. One that does not hold is not the last that is looked at: a fault shows whatever the node is like.
fn all(mut requirements: impl Iterator<Item = Result<bool, PoolFault>>) -> Result<bool, PoolFault> {
    requirements.try_fold(true, |all, one| Ok(one? && all))
}
