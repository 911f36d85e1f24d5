//! Admission rules of pools.

use vfleet_api::PoolConfigView;
use vfleet_api::keys::DEFAULT_POOL;
use vfleet_api::pool_config::{DrainSlot, SriovNetworkPoolConfigSpec};

use super::messages::{NOT_CHECKED, join_names};
use super::{Findings, Installation, Operation, Request, evaluate};
use crate::drain::{self, LimitNote};
use crate::offload::{OffloadState, offload_condition, offload_state, requested_offload_pool};
use crate::pool::{self, NamedPool};
use crate::prelude::*;

const LIMIT: &str = "spec.maxUnavailable";
const PARALLEL: &str = "spec.drainConfig.maxParallelNodeConfiguration";

/// Another pool of the same priority that selects a common node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRival<'a> {
    /// Name of the other pool.
    pub name: &'a str,
    /// First node by name that both select.
    pub node: &'a str,
}

/// Cluster facts that pool rules use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFacts<'a> {
    /// Number of nodes that the pool selects.
    pub selected: usize,
    /// First rival by name.
    pub rival: Option<PoolRival<'a>>,
}

/// Returns the findings about a pool or its deletion. The stored object's `status` says which nodes are being drained.
/// `facts` is `None` until the cluster has been read.
pub fn check_pool(
    request: &Request<'_, PoolConfigView<'_>>,
    home: &Installation<'_>,
    facts: Option<&PoolFacts<'_>>,
) -> Findings {
    evaluate(
        request,
        |new, old| new.spec == old.spec,
        |request| match (request.operation, request.new) {
            (Operation::Delete, _) | (_, None) => check_deletion(request, home),
            (Operation::Create | Operation::Update, Some(new)) => check_spec(request, new, home, facts),
        },
    )
}

fn check_deletion(request: &Request<'_, PoolConfigView<'_>>, home: &Installation<'_>) -> Findings {
    let mut findings = Findings::default();
    let slots = request.old.map(drain_slots).unwrap_or_default();
    if request.name == DEFAULT_POOL && request.namespace == home.namespace {
        let text =
            "pool default holds all nodes that no other pool selects: change it instead of deleting it";
        findings.error("S13", "DefaultPool", "metadata.name", text);
    } else if !slots.is_empty() {
        let count = slots.len();
        let text = format!(
            "{count} nodes of the pool are being drained: their drains continue in the pool that selects them next"
        );
        findings.warning("S14", "Draining", "", text);
    }
    findings
}

fn check_spec(
    request: &Request<'_, PoolConfigView<'_>>,
    new: &PoolConfigView<'_>,
    home: &Installation<'_>,
    facts: Option<&PoolFacts<'_>>,
) -> Findings {
    let mut findings = Findings::default();
    let named = NamedPool { name: request.name, spec: new.spec };
    check_limits(&named, &mut findings);
    check_lowered_limit(request, &named, &mut findings);
    check_selectors(new.spec, &mut findings);
    check_offload(new.spec, &mut findings);
    if request.namespace != home.namespace {
        let text = format!("pools are used only in namespace {}: create the pool there", home.namespace);
        findings.warning("S01", "NotUsed", "metadata.namespace", text);
        return findings;
    }
    if request.name == DEFAULT_POOL {
        check_default_pool(new.spec, &mut findings);
    }
    match facts {
        Some(facts) => check_cluster(new.spec, facts, &mut findings),
        None => findings.warning("G02", "NotChecked", "", NOT_CHECKED),
    }
    findings
}

/// Checks S02 and S06 to S08.
fn check_limits(pool: &NamedPool<'_>, findings: &mut Findings) {
    let spec = pool.spec;
    let parallel = spec.drain_config.as_ref().and_then(|config| config.max_parallel_node_configuration);
    if spec.max_unavailable.is_some() && parallel.is_some() {
        let text = "maxUnavailable and drainConfig.maxParallelNodeConfiguration are both set, but are the same limit: remove one of them";
        findings.error("S02", "TwoLimits", LIMIT, text);
    }
    if pool::is_for_offload_only(spec) {
        return;
    }
    // The number of nodes changes the limit, but not the note.
    let (_, note) = drain::drain_limit(pool, 0);
    match note {
        None => {}
        Some(LimitNote::Invalid(_)) => {
            let text = "maxUnavailable is invalid: use a number from 0, or a percentage from 1% to 100%";
            findings.error("S06", "InvalidLimit", LIMIT, text);
        }
        Some(note @ LimitNote::Zero) => findings.warning("S07", note.reason(), LIMIT, note.text()),
        Some(note @ LimitNote::Missing) => {
            findings.warning("S08", note.reason(), "spec.drainConfig", note.text());
        }
    }
}

/// Checks S10 with the status of the stored object, which is the latest one.
fn check_lowered_limit(
    request: &Request<'_, PoolConfigView<'_>>,
    new: &NamedPool<'_>,
    findings: &mut Findings,
) {
    let Some(old) = request.old else { return };
    let slots = drain_slots(old);
    let nodes = old.status.and_then(|status| status.nodes.as_ref());
    let total = nodes.and_then(|nodes| usize::try_from(nodes.total?).ok()).unwrap_or(0);
    let before = NamedPool { name: request.name, spec: old.spec };
    if !drain::lowers_limit_below(&before, new, total, slots.len()) {
        return;
    }
    let names: Vec<_> = slots.iter().map(|slot| slot.node.as_str()).collect();
    let held = slots.len();
    let text = format!(
        "{held} nodes of the pool are being drained ({}): lower the limit to {held} now, and further after the drains",
        join_names(&names)
    );
    let field = if new.spec.max_unavailable.is_some() { LIMIT } else { PARALLEL };
    findings.error("S10", "BelowDraining", field, text);
}

/// Checks S03, S09 and S17.
fn check_selectors(spec: &SriovNetworkPoolConfigSpec, findings: &mut Findings) {
    if spec.node_selector.is_some() && has_terms(spec) {
        let text = "nodeSelector and nodeSelectorTerms are both set: remove one of them";
        findings.error("S03", "TwoSelectors", "spec.nodeSelectorTerms", text);
    }
    for (field, fault) in pool::find_faults(spec) {
        findings.error("S09", fault.reason(), field, fault.to_string());
    }
    for (index, _) in
        spec.node_selector_terms.iter().flatten().enumerate().filter(|(_, term)| pool::is_empty(term))
    {
        let text = "the term is empty and selects no node: remove it, or add matchExpressions";
        findings.warning("S17", "EmptyTerm", format!("spec.nodeSelectorTerms[{index}]"), text);
    }
}

/// Checks S04, S05 and S18.
fn check_offload(spec: &SriovNetworkPoolConfigSpec, findings: &mut Findings) {
    let Some(machine_config_pool) = requested_offload_pool(spec) else { return };
    if spec.max_unavailable.is_some() {
        let text = "maxUnavailable has no effect in a pool with ovsHardwareOffloadConfig: create another pool for it";
        findings.error("S04", "OffloadWithLimit", LIMIT, text);
    }
    if spec.node_selector.is_some() {
        let text = "a pool with ovsHardwareOffloadConfig takes its nodes from the machine config pool: remove nodeSelector, or create another pool";
        findings.error("S05", "OffloadWithSelector", "spec.nodeSelector", text);
    }
    // Condition HardwareOffload reports a machine config pool that does not exist.
    if offload_state(machine_config_pool, true, true) == OffloadState::Master {
        let condition = offload_condition(machine_config_pool, OffloadState::Master);
        findings.warning("S18", condition.reason, "spec.ovsHardwareOffloadConfig.name", condition.message);
    }
}

/// Checks S11 and S12. The operator creates pool `default` with priority 0, like the Go operator.
fn check_default_pool(spec: &SriovNetworkPoolConfigSpec, findings: &mut Findings) {
    if let Some(field) = selector_field(spec) {
        let text = "pool default holds all nodes that no other pool selects; with a selector the remaining nodes are in no pool and are never drained: remove the selector";
        findings.warning("S11", "DefaultWithSelector", field, text);
    }
    if spec.priority.is_some_and(|priority| priority != 0) {
        let text = "priority has no effect in pool default, which is always last: remove priority";
        findings.warning("S12", "DefaultWithPriority", "spec.priority", text);
    }
}

/// Checks S15 and S16.
fn check_cluster(spec: &SriovNetworkPoolConfigSpec, facts: &PoolFacts<'_>, findings: &mut Findings) {
    if let Some(PoolRival { name, node }) = facts.rival {
        let text = format!(
            "pool {name} of the same priority also selects node {node}, which goes to the first pool by name: set different priorities"
        );
        findings.warning("S15", "SamePriority", "spec.priority", text);
    }
    let is_explained = findings.iter().any(|finding| ["S09", "S17"].contains(&finding.rule));
    if let Some(field) = selector_field(spec).filter(|_| facts.selected == 0 && !is_explained) {
        findings.warning("S16", "NoNodeYet", field, "the pool selects no node yet");
    }
}

/// Returns the field of the selector that is set.
fn selector_field(spec: &SriovNetworkPoolConfigSpec) -> Option<&'static str> {
    if spec.node_selector.is_some() {
        return Some("spec.nodeSelector");
    }
    has_terms(spec).then_some("spec.nodeSelectorTerms")
}

/// Returns whether `nodeSelectorTerms` is set. An empty list counts as not set.
fn has_terms(spec: &SriovNetworkPoolConfigSpec) -> bool {
    spec.node_selector_terms.as_ref().is_some_and(|terms| !terms.is_empty())
}

fn drain_slots<'a>(pool: &PoolConfigView<'a>) -> &'a [DrainSlot] {
    pool.status.and_then(|status| status.slots.as_deref()).unwrap_or_default()
}
