//! Pools.

use vfleet_api::PoolConfigView;
use vfleet_api::keys::DEFAULT_POOL;
use vfleet_api::pool_config::{DrainSlot, SriovNetworkPoolConfigSpec};

use super::texts::{NOT_CHECKED, some_of};
use super::{Findings, Installation, Operation, Request, judge};
use crate::drain::{self, LimitNote};
use crate::offload::{OffloadStanding, offload_standing, offload_verdict, offload_wanted};
use crate::pool::{self, NamedPool};
use crate::prelude::*;

const LIMIT: &str = "spec.maxUnavailable";
const PARALLEL: &str = "spec.drainConfig.maxParallelNodeConfiguration";

/// Another pool of equal priority that has a node in common with the one that is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRival<'a> {
    /// Its name.
    pub name: &'a str,
    /// The first node that both select.
    pub node: &'a str,
}

/// What is known of the cluster when a pool is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFacts<'a> {
    /// How many nodes it selects.
    pub selected: usize,
    /// The first rival by name.
    pub rival: Option<PoolRival<'a>>,
}

/// What is wrong with a pool, or with deleting it. The old object's `status` says which nodes are being drained.
/// `facts` is `None` while the cluster is not completely known.
pub fn check_pool(
    request: &Request<'_, PoolConfigView<'_>>,
    home: &Installation<'_>,
    facts: Option<&PoolFacts<'_>>,
) -> Findings {
    judge(
        request,
        |new, old| new.spec == old.spec,
        |request| match (request.operation, request.new) {
            (Operation::Delete, _) | (_, None) => deletion(request, home),
            (Operation::Create | Operation::Update, Some(new)) => written(request, new, home, facts),
        },
    )
}

fn deletion(request: &Request<'_, PoolConfigView<'_>>, home: &Installation<'_>) -> Findings {
    let mut findings = Findings::default();
    let slots = request.old.map(slots).unwrap_or_default();
    if request.name == DEFAULT_POOL && request.namespace == home.namespace {
        let text =
            "the pool default is for all nodes that no other pool selects: change it instead of deleting it";
        findings.error("S13", "DefaultPool", "metadata.name", text);
    } else if !slots.is_empty() {
        let count = slots.len();
        let text =
            format!("{count} of its nodes are being drained: they go on, in whatever pool they are then");
        findings.warning("S14", "Draining", "", text);
    }
    findings
}

fn written(
    request: &Request<'_, PoolConfigView<'_>>,
    new: &PoolConfigView<'_>,
    home: &Installation<'_>,
    facts: Option<&PoolFacts<'_>>,
) -> Findings {
    let mut findings = Findings::default();
    let named = NamedPool { name: request.name, spec: new.spec };
    limits(&named, &mut findings);
    lowered(request, &named, &mut findings);
    selectors(new.spec, &mut findings);
    offload(new.spec, &mut findings);
    if request.namespace != home.namespace {
        let text = format!("pools count in namespace {} only: this one is not used", home.namespace);
        findings.warning("S01", "NotUsed", "metadata.namespace", text);
        return findings;
    }
    if request.name == DEFAULT_POOL {
        default_pool(new.spec, &mut findings);
    }
    match facts {
        Some(facts) => in_the_cluster(new.spec, facts, &mut findings),
        None => findings.warning("G02", "NotChecked", "", NOT_CHECKED),
    }
    findings
}

/// S02, S06 to S08.
fn limits(pool: &NamedPool<'_>, findings: &mut Findings) {
    let spec = pool.spec;
    let parallel = spec.drain_config.as_ref().and_then(|config| config.max_parallel_node_configuration);
    if spec.max_unavailable.is_some() && parallel.is_some() {
        let text = "maxUnavailable and drainConfig.maxParallelNodeConfiguration both limit the same thing: set one of them";
        findings.error("S02", "TwoLimits", LIMIT, text);
    }
    if pool::is_for_offload_only(spec) {
        return;
    }
    // How many nodes it has changes the number, and not what is to be said about it.
    let (_, note) = drain::limit(pool, 0);
    match note {
        None => {}
        Some(LimitNote::Unreadable(_)) => {
            let text = "maxUnavailable is a number from 0 or a percentage from 1% to 100%";
            findings.error("S06", "InvalidLimit", LIMIT, text);
        }
        Some(note @ LimitNote::Never) => findings.warning("S07", note.reason(), LIMIT, note.text()),
        Some(note @ LimitNote::NoneGiven) => {
            findings.warning("S08", note.reason(), "spec.drainConfig", note.text());
        }
    }
}

/// S10: all that it needs is in the old object, whose status is the freshest there is.
fn lowered(request: &Request<'_, PoolConfigView<'_>>, new: &NamedPool<'_>, findings: &mut Findings) {
    let Some(old) = request.old else { return };
    let slots = slots(old);
    let nodes = old.status.and_then(|status| status.nodes.as_ref());
    let total = nodes.and_then(|nodes| usize::try_from(nodes.total?).ok()).unwrap_or(0);
    let before = NamedPool { name: request.name, spec: old.spec };
    if !drain::lowered_below(&before, new, total, slots.len()) {
        return;
    }
    let names: Vec<_> = slots.iter().map(|slot| slot.node.as_str()).collect();
    let held = slots.len();
    let text = format!(
        "{held} nodes of the pool are being drained now ({}): lower the limit to {held} for now, and further when they are done",
        some_of(&names)
    );
    let field = if new.spec.max_unavailable.is_some() { LIMIT } else { PARALLEL };
    findings.error("S10", "BelowDraining", field, text);
}

/// S03, S09, S17.
fn selectors(spec: &SriovNetworkPoolConfigSpec, findings: &mut Findings) {
    if spec.node_selector.is_some() && has_terms(spec) {
        let text = "nodeSelector and nodeSelectorTerms both select the nodes: set one of them";
        findings.error("S03", "TwoSelectors", "spec.nodeSelectorTerms", text);
    }
    for (field, fault) in pool::faults(spec) {
        findings.error("S09", fault.reason(), field, fault.to_string());
    }
    for (at, _) in
        spec.node_selector_terms.iter().flatten().enumerate().filter(|(_, term)| pool::is_empty(term))
    {
        let text = "an empty term selects no node: remove it, or say which nodes";
        findings.warning("S17", "EmptyTerm", format!("spec.nodeSelectorTerms[{at}]"), text);
    }
}

/// S04, S05, S18.
fn offload(spec: &SriovNetworkPoolConfigSpec, findings: &mut Findings) {
    let Some(machine_config_pool) = offload_wanted(spec) else { return };
    if spec.max_unavailable.is_some() {
        let text = "a pool for Open vSwitch hardware offload has no maxUnavailable: make another pool for it";
        findings.error("S04", "OffloadWithLimit", LIMIT, text);
    }
    if spec.node_selector.is_some() {
        let text = "a pool for Open vSwitch hardware offload takes its nodes from the machine config pool: remove nodeSelector, or make another pool";
        findings.error("S05", "OffloadWithSelector", "spec.nodeSelector", text);
    }
    // Whether the cluster has such a machine config pool is the business of condition HardwareOffload.
    if offload_standing(machine_config_pool, true, true) == OffloadStanding::Master {
        let verdict = offload_verdict(machine_config_pool, OffloadStanding::Master);
        findings.warning("S18", verdict.reason, "spec.ovsHardwareOffloadConfig.name", verdict.message);
    }
}

/// S11, S12. The operator itself makes it with priority 0, as the Go operator does.
fn default_pool(spec: &SriovNetworkPoolConfigSpec, findings: &mut Findings) {
    if let Some(field) = selector_field(spec) {
        let text = "the pool default is for nodes that no other pool selects; with a selector the rest belongs to no pool and is never drained: remove it";
        findings.warning("S11", "DefaultWithSelector", field, text);
    }
    if spec.priority.is_some_and(|priority| priority != 0) {
        let text = "the pool default comes last whatever its priority: remove priority";
        findings.warning("S12", "DefaultWithPriority", "spec.priority", text);
    }
}

/// S15, S16.
fn in_the_cluster(spec: &SriovNetworkPoolConfigSpec, facts: &PoolFacts<'_>, findings: &mut Findings) {
    if let Some(PoolRival { name, node }) = facts.rival {
        let text = format!(
            "pool {name} of the same priority selects {node}, too: the first by name has it; give them different priorities"
        );
        findings.warning("S15", "SamePriority", "spec.priority", text);
    }
    let is_explained = findings.iter().any(|finding| ["S09", "S17"].contains(&finding.rule));
    if let Some(field) = selector_field(spec).filter(|_| facts.selected == 0 && !is_explained) {
        findings.warning("S16", "NoNodeYet", field, "it selects no node yet");
    }
}

/// The selector that is given.
fn selector_field(spec: &SriovNetworkPoolConfigSpec) -> Option<&'static str> {
    if spec.node_selector.is_some() {
        return Some("spec.nodeSelector");
    }
    has_terms(spec).then_some("spec.nodeSelectorTerms")
}

/// An empty list is as good as none.
fn has_terms(spec: &SriovNetworkPoolConfigSpec) -> bool {
    spec.node_selector_terms.as_ref().is_some_and(|terms| !terms.is_empty())
}

fn slots<'a>(pool: &PoolConfigView<'a>) -> &'a [DrainSlot] {
    pool.status.and_then(|status| status.slots.as_deref()).unwrap_or_default()
}
