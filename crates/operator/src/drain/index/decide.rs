//! Decisions of `vfleet_plan::drain` on the stored objects.

use std::collections::{BTreeMap, BTreeSet};

use vfleet_plan::NamedPool;
use vfleet_plan::drain::{
    DrainFacts, DrainLimit, DrainPlan, DrainRules, GoDrainState, McpFacts, MigrationStep, Moment, NodeAction,
    PoolDrain, PoolMember, Slot, drain_limit, plan_drain, plan_migration,
};

use super::DrainIndex;
use crate::drain::evictions::EvictionProgress;
use crate::drain::objects::{StoredNode, StoredNodeState, StoredPool};
use crate::drain::slot_queue::SlotQueue;

/// Timeout of a drain in seconds if the pool sets none.
const DEFAULT_TIMEOUT_SECONDS: i64 = 900;

/// Next action for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::drain) enum NextAction {
    Act(NodeAction),
    /// Migrate an unfinished drain of the Go operator.
    Migrate(MigrationStep),
    /// Record on the Node that the request of its slot is finished, so that the slot can be freed.
    RecordFinish(Moment),
}

/// Largest number of waiting nodes whose conditions name the nodes that hold the slots. With more of them, each slot
/// that is released would cause thousands of writes.
const MAX_WAITING_FOR_NAMES: usize = 100;

/// Pool whose slots are all granted.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::drain) struct FullPool<'a> {
    pub(in crate::drain) name: &'a str,
    pub(in crate::drain) limit: usize,
    /// Nodes that hold the slots; empty if more than [`MAX_WAITING_FOR_NAMES`] nodes wait.
    pub(in crate::drain) holders: Vec<&'a str>,
}

/// Next action for a node with the objects that the decision is based on.
#[derive(Debug)]
pub(in crate::drain) struct NodeDecision<'a> {
    pub(in crate::drain) next: NextAction,
    pub(in crate::drain) node: Option<&'a StoredNode>,
    pub(in crate::drain) state: Option<&'a StoredNodeState>,
    pub(in crate::drain) progress: Option<&'a EvictionProgress>,
    /// Pool of the node.
    pub(in crate::drain) pool: Option<&'a str>,
    pub(in crate::drain) rules: DrainRules,
}

impl DrainIndex {
    /// Decides the next action for the node. `mcp`: its machine config pool (OpenShift).
    pub(in crate::drain) fn decide(
        &self,
        node: &str,
        mcp: Option<McpFacts>,
        now: Moment,
    ) -> NodeDecision<'_> {
        let pool = self.member_of.get(node).map(String::as_str);
        let rules = self.rules(pool);
        let facts = self.facts(node);
        let plan = |pool: Option<&str>| {
            plan_drain(&self.pool_drain(pool), &[PoolMember { mcp, ..self.member(node, &facts, pool) }], now)
        };
        let listing =
            self.listed_in.get(node).into_iter().flat_map(BTreeMap::keys).map(|name| Some(name.as_str()));
        // A former pool of the node may still list it.
        let others = listing.filter(|name| *name != pool);
        let migration = self.migration(node, mcp.is_some(), now);
        let mut next = migration.map_or_else(|| next_of_plan(plan(pool)), NextAction::Migrate);
        for other in others {
            if matches!(next, NextAction::Act(NodeAction::None | NodeAction::Hold(_))) {
                next = match next_of_plan(plan(other)) {
                    found @ (NextAction::RecordFinish(_) | NextAction::Act(NodeAction::Verify)) => found,
                    NextAction::Act(_) | NextAction::Migrate(_) => next,
                };
            }
        }
        // The drain continues when the node state exists.
        if next == NextAction::Act(NodeAction::UnpauseMcp) && self.unfinished_go_drains.contains(node) {
            next = NextAction::Act(NodeAction::None);
        }
        NodeDecision {
            next,
            node: self.nodes.get(node),
            state: self.states.get(node),
            progress: self.eviction_progress.get(node),
            pool,
            rules,
        }
    }

    /// Plans the slots of a pool: returns the stored pool, its desired slots and the nodes that get one; `None` if
    /// nothing changes.
    pub(in crate::drain) fn plan_slots(
        &self,
        name: &str,
        now: Moment,
    ) -> Option<(&StoredPool, Vec<Slot>, Vec<String>)> {
        let pool = self.pools.get(name)?;
        let drain = self.pool_drain(Some(name));
        let listed = pool.slots.iter().map(|slot| slot.node.as_str());
        let queue = self.queues.get(name);
        let candidates: BTreeSet<&str> =
            queue.into_iter().flat_map(|queue| queue.candidates(drain.limit)).chain(listed).collect();
        let facts: Vec<(&str, DrainFacts)> =
            candidates.into_iter().map(|node| (node, self.facts(node))).collect();
        let members: Vec<_> =
            facts.iter().map(|(node, facts)| self.member(node, facts, Some(name))).collect();
        let plan = plan_drain(&drain, &members, now).slots;
        (plan.slots != pool.slots).then_some((pool, plan.slots, plan.granted))
    }

    /// Returns the next migration step. Unknown annotation values do not stop a drain.
    fn migration(&self, node: &str, has_mcp: bool, now: Moment) -> Option<MigrationStep> {
        self.plan_migration(node, has_mcp, now)
            .filter(|found| !matches!(found, MigrationStep::UnknownValue { .. }))
    }

    /// Plans the migration of a drain of the Go operator.
    pub(in crate::drain) fn plan_migration(
        &self,
        node: &str,
        has_mcp: bool,
        now: Moment,
    ) -> Option<MigrationStep> {
        let (node, state) = (self.nodes.get(node)?, self.states.get(node)?);
        let found = GoDrainState {
            node_annotations: &node.go_annotations,
            node: node.facts,
            state_annotations: &state.go_annotations,
            state: state.facts,
            has_mcp,
        };
        plan_migration(&found, now)
    }

    /// Returns the pool of a node that waits for a slot because all slots are granted.
    pub(in crate::drain) fn full_pool_of(&self, node: &str) -> Option<FullPool<'_>> {
        let name = self.member_of.get(node)?;
        let DrainLimit::AtMost(limit) = self.pool_drain(Some(name)).limit else { return None };
        self.queues.get(name).filter(|queue| queue.is_waiting(node))?;
        let slots = &self.pools.get(name)?.slots;
        if limit == 0 || slots.len() < limit || slots.iter().any(|slot| slot.node == node) {
            return None;
        }
        let has_names = self.waiting_count(name) <= MAX_WAITING_FOR_NAMES;
        let holders = slots.iter().filter(|_| has_names).map(|slot| slot.node.as_str()).collect();
        Some(FullPool { name, limit, holders })
    }

    fn pool_drain(&self, name: Option<&str>) -> PoolDrain<'_> {
        let pool = name.and_then(|name| Some((name, self.pools.get(name)?)));
        let total = name.and_then(|name| self.queues.get(name)).map_or(0, SlotQueue::total);
        PoolDrain {
            limit: pool.map_or(DrainLimit::NoPool, |(name, pool)| {
                drain_limit(&NamedPool { name, spec: &pool.spec }, total).0
            }),
            slots: pool.map_or(&[], |(_, pool)| &pool.slots),
            rules: self.rules(name),
        }
    }

    pub(super) fn rules(&self, pool: Option<&str>) -> DrainRules {
        let pool = pool.and_then(|name| self.pools.get(name));
        let config = pool.and_then(|pool| pool.spec.drain_config.as_ref());
        let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        DrainRules {
            is_disabled: self.is_disabled == Some(true),
            is_single_node: self.nodes.len() == 1,
            timeout_seconds: (seconds > 0).then_some(seconds),
            on_timeout: config.and_then(|config| config.on_timeout).unwrap_or_default(),
        }
    }
}

/// Returns the next action from a plan for one node.
fn next_of_plan(plan: DrainPlan) -> NextAction {
    let action = plan.actions.into_iter().next().unwrap_or(NodeAction::None);
    let is_free = matches!(action, NodeAction::None | NodeAction::Hold(_) | NodeAction::Evict { .. });
    match plan.slots.conclude.first() {
        Some(slot) if is_free => NextAction::RecordFinish(slot.request),
        None if is_free && !plan.slots.verify.is_empty() => NextAction::Act(NodeAction::Verify),
        _ => NextAction::Act(action),
    }
}
