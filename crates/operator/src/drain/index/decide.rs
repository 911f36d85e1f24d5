//! What is decided on what the index knows: it asks `vfleet_plan::drain`.

use std::collections::{BTreeMap, BTreeSet};

use vfleet_plan::NamedPool;
use vfleet_plan::drain::{
    DrainFacts, DrainPlan, Leftover, Limit, McpFacts, Member, Migration, Moment, NodeAction, PoolDrain,
    Rules, Slot, limit, plan_drain, plan_migration,
};

use super::Index;
use crate::drain::evictions::Sighting;
use crate::drain::line::Line;
use crate::drain::objects::{SeenNode, SeenPool, SeenState};

/// Seconds that a drain may take where a pool does not say it.
const DEFAULT_TIMEOUT: i64 = 900;

/// What to do for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::drain) enum Todo {
    Act(NodeAction),
    /// Move what the Go operator left.
    Migrate(Migration),
    /// Note on the Node that the request of this slot is over, so that it can be taken back.
    Conclude(Moment),
}

/// What to do for a node, and what that was decided on.
#[derive(Debug)]
pub(in crate::drain) struct Decided<'a> {
    pub(in crate::drain) todo: Todo,
    pub(in crate::drain) node: Option<&'a SeenNode>,
    pub(in crate::drain) state: Option<&'a SeenState>,
    pub(in crate::drain) sighting: Option<&'a Sighting>,
    /// The pool whose rules hold.
    pub(in crate::drain) pool: Option<&'a str>,
    pub(in crate::drain) rules: Rules,
}

impl Index {
    /// What to do for the node now. `mcp`: OpenShift's machine config pool of the node.
    pub(in crate::drain) fn decide(&self, node: &str, mcp: Option<McpFacts>, now: Moment) -> Decided<'_> {
        let pool = self.member_of.get(node).map(String::as_str);
        let rules = self.rules(pool);
        let facts = self.facts(node);
        let plan = |pool: Option<&str>| {
            plan_drain(&self.pool_drain(pool), &[Member { mcp, ..self.member(node, &facts, pool) }], now)
        };
        let listing =
            self.listed_in.get(node).into_iter().flat_map(BTreeMap::keys).map(|name| Some(name.as_str()));
        // A pool that it belonged to may still list it.
        let others = listing.filter(|name| *name != pool);
        let migration = self.migration(node, mcp.is_some(), now);
        let mut todo = migration.map_or_else(|| todo_of(plan(pool)), Todo::Migrate);
        for other in others {
            if matches!(todo, Todo::Act(NodeAction::Rest | NodeAction::Wait(_))) {
                todo = match todo_of(plan(other)) {
                    found @ (Todo::Conclude(_) | Todo::Act(NodeAction::Verify)) => found,
                    Todo::Act(_) | Todo::Migrate(_) => todo,
                };
            }
        }
        // Its node state is still to be made, and with that it goes on.
        if todo == Todo::Act(NodeAction::UnpauseMcp) && self.left_in_the_middle.contains(node) {
            todo = Todo::Act(NodeAction::Rest);
        }
        Decided {
            todo,
            node: self.nodes.get(node),
            state: self.states.get(node),
            sighting: self.sightings.get(node),
            pool,
            rules,
        }
    }

    /// The pool, and its slots as they shall be; `None` when they are so already.
    pub(in crate::drain) fn plan_slots(
        &self,
        name: &str,
        now: Moment,
    ) -> Option<(&SeenPool, Vec<Slot>, Vec<String>)> {
        let pool = self.pools.get(name)?;
        let drain = self.pool_drain(Some(name));
        let listed = pool.slots.iter().map(|slot| slot.node.as_str());
        let line = self.lines.get(name);
        let candidates: BTreeSet<&str> =
            line.into_iter().flat_map(|line| line.candidates(drain.limit)).chain(listed).collect();
        let facts: Vec<(&str, DrainFacts)> =
            candidates.into_iter().map(|node| (node, self.facts(node))).collect();
        let members: Vec<_> =
            facts.iter().map(|(node, facts)| self.member(node, facts, Some(name))).collect();
        let plan = plan_drain(&drain, &members, now).slots;
        (plan.slots != pool.slots).then_some((pool, plan.slots, plan.granted))
    }

    /// What comes next of what the Go operator left. What means nothing to us is not in the way.
    fn migration(&self, node: &str, has_mcp: bool, now: Moment) -> Option<Migration> {
        self.leftover(node, has_mcp, now).filter(|found| !matches!(found, Migration::Unknown { .. }))
    }

    /// What the Go operator left, and what is to be done about it.
    pub(in crate::drain) fn leftover(&self, node: &str, has_mcp: bool, now: Moment) -> Option<Migration> {
        let (node, state) = (self.nodes.get(node)?, self.states.get(node)?);
        let leftover = Leftover {
            node_annotations: &node.leftovers,
            node: node.facts,
            state_annotations: &state.leftovers,
            state: state.facts,
            has_mcp,
        };
        plan_migration(&leftover, now)
    }

    fn pool_drain(&self, name: Option<&str>) -> PoolDrain<'_> {
        let pool = name.and_then(|name| Some((name, self.pools.get(name)?)));
        let total = name.and_then(|name| self.lines.get(name)).map_or(0, Line::total);
        PoolDrain {
            limit: pool
                .map_or(Limit::NoPool, |(name, pool)| limit(&NamedPool { name, spec: &pool.spec }, total).0),
            slots: pool.map_or(&[], |(_, pool)| &pool.slots),
            rules: self.rules(name),
        }
    }

    pub(super) fn rules(&self, pool: Option<&str>) -> Rules {
        let pool = pool.and_then(|name| self.pools.get(name));
        let config = pool.and_then(|pool| pool.spec.drain_config.as_ref());
        let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(DEFAULT_TIMEOUT);
        Rules {
            is_disabled: self.is_disabled == Some(true),
            is_single_node: self.nodes.len() == 1,
            timeout_seconds: (seconds > 0).then_some(seconds),
            on_timeout: config.and_then(|config| config.on_timeout).unwrap_or_default(),
        }
    }
}

/// Of a plan for one node.
fn todo_of(plan: DrainPlan) -> Todo {
    let action = plan.actions.into_iter().next().unwrap_or(NodeAction::Rest);
    let is_free = matches!(action, NodeAction::Rest | NodeAction::Wait(_) | NodeAction::Evict { .. });
    match plan.slots.conclude.first() {
        Some(slot) if is_free => Todo::Conclude(slot.request),
        None if is_free && !plan.slots.verify.is_empty() => Todo::Act(NodeAction::Verify),
        _ => Todo::Act(action),
    }
}
