//! Drain decisions: from pools, node states, nodes and pods to slots and actions.
//!
//! The drain protocol, whose decisions are all made here:
//!
//! 1. The agent requests a drain: `Drain_Required` with a scope and the time of the request ([`plan_agent_action`]).
//!    The time also identifies the request: a later request has a later time.
//! 2. The operator grants a slot of the node's pool ([`slots::plan_slots`]). It writes the slots to the pool's status
//!    with the resource version that it has read, so that only one of two replicas succeeds. A slot is for one request.
//! 3. The operator drains the node ([`next_action`]): it pauses the machine config pool (OpenShift), cordons the node,
//!    evicts its pods and writes `Draining_Complete`. Each write carries the resource version of the decision.
//! 4. The agent configures the machine and writes `Idle`.
//! 5. The operator uncordons the node, records on the Node that the request is finished, and frees the slot.
//!
//! Objects are read at different times, so one may be newer than another. Request times tell which: nothing is done to
//! a node for a request that the Node records as finished, and nothing is undone for a request later than that of the
//! node state.
//!
//! The agent may write `Idle` at any time to withdraw its request.

mod agent;
mod budgets;
mod external;
mod facts;
mod kept_resources;
mod limit;
mod migration;
mod moment;
mod node_action;
mod pods;
mod slots;

use vfleet_api::node_state::{DrainScope, DrainStatus};

use crate::prelude::*;

pub use agent::{AgentAction, plan_agent_action, required_scope};
pub use budgets::{DisruptionBudget, is_eviction_granted, matching_budgets};
pub use external::{AgentDrainStep, ExternalFacts, ExternalProgress, plan_agent_step};
pub use kept_resources::{kept_before_request, kept_resources};
pub use limit::{DrainLimit, LimitNote, drain_limit, lowers_limit_below};
pub use migration::{GoDrainState, MigratedStatus, MigrationStep, has_unfinished_go_drain, plan_migration};
pub use moment::Moment;
pub use node_action::{DrainRules, HoldReason, McpFacts, NodeAction, PodsState, next_deadline};
pub use pods::{PodFacts, PodTreatment, needs_restart, treat_pod};
pub use slots::{Slot, SlotPlan, SlotPriority, holds_slot, slot_priority};

/// Limit, slots and rules of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolDrain<'a> {
    /// Number of its nodes that may be drained at the same time.
    pub limit: DrainLimit,
    /// Granted slots from the pool's status, sorted by node.
    pub slots: &'a [Slot],
    /// Drain rules of its nodes.
    pub rules: DrainRules,
}

/// Node that belongs to a pool or still holds one of its slots.
#[derive(Clone, Copy, Debug)]
pub struct PoolMember<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Facts from its Node and node state.
    pub facts: &'a DrainFacts,
    /// The node belongs to another pool now, but still holds a slot of this one.
    pub is_former_member: bool,
    /// Request for which another pool lists the node; for a former member, request for which its own pool lists it.
    pub slot_in_other_pool: Option<Moment>,
    /// State of its pods.
    pub pods: PodsState,
    /// Its machine config pool (OpenShift).
    pub mcp: Option<McpFacts>,
}

/// Slots of a pool and actions for its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainPlan {
    /// Changes of the pool's slots.
    pub slots: SlotPlan,
    /// Action for each member, in the order of the input.
    pub actions: Vec<NodeAction>,
}

/// Plans the slots of a pool and the next action for each of its nodes. `members` must contain all nodes that hold a
/// slot or wait for one; other nodes may be left out because they do not affect the result.
pub fn plan_drain(pool: &PoolDrain<'_>, members: &[PoolMember<'_>], now: Moment) -> DrainPlan {
    DrainPlan {
        slots: slots::plan_slots(pool, members, now),
        actions: members.iter().map(|member| next_action(pool, member, now)).collect(),
    }
}

/// Returns the next action for one node: the same as [`plan_drain`] returns for it, independent of other nodes.
pub fn next_action(pool: &PoolDrain<'_>, member: &PoolMember<'_>, now: Moment) -> NodeAction {
    let request = member.facts.state.and_then(|state| state.request);
    let position = pool.slots.binary_search_by(|slot| slot.node.as_str().cmp(member.name));
    let listed = position.ok().and_then(|position| pool.slots.get(position)).map(|slot| slot.request);
    let slot = node_action::SlotFacts {
        // While more slots are granted than the limit allows, no drain starts.
        is_usable: request.is_some() && listed == request && pool.limit.allows(pool.slots.len()),
        request: listed.max(member.slot_in_other_pool),
    };
    let action = node_action::next_action(member, slot, &pool.rules, now);
    let is_waiting = || action == NodeAction::None && slots::is_waiting(member.facts, &pool.rules, now);
    match pool.limit {
        DrainLimit::AtMost(0) if is_waiting() => NodeAction::Hold(HoldReason::LimitZero),
        DrainLimit::NoPool if is_waiting() => NodeAction::Hold(HoldReason::NoPool),
        _ => action,
    }
}

/// Facts about a Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeFacts {
    /// `spec.unschedulable` is set.
    pub is_cordoned: bool,
    /// Cordon mark of this installation.
    pub mark: Option<CordonMark>,
    /// Last finished request: the node must not be cordoned for this request or an earlier one any more. Written
    /// together with the uncordon; if the node was never cordoned, written before the slot is freed.
    pub last_request: Option<Moment>,
    /// Condition `Ready` is true.
    pub is_ready: bool,
    /// The operator of another installation drains the node.
    pub is_marked_by_other_installation: bool,
}

/// Mark of the operator on a node that it drains. Written in one request with the cordon, removed in one with the
/// uncordon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CordonMark {
    /// Origin of the cordon.
    pub cordon: CordonOrigin,
    /// Request for which the node is drained.
    pub request: Moment,
}

/// Origin of a cordon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CordonOrigin {
    /// The operator cordoned the node.
    Ours,
    /// The node was cordoned before the drain and stays cordoned.
    Preexisting,
}

/// Facts about the drain in a node state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateFacts {
    /// Drain status.
    pub status: DrainStatus,
    /// Writer of the drain status.
    pub writer: StatusWriter,
    /// Pods to be evicted.
    pub scope: DrainScope,
    /// Identity of the agent's last request: its time by the node's clock.
    pub request: Option<Moment>,
    /// Time of the request by the API server's clock.
    pub requested_at: Option<Moment>,
    /// Start of the eviction.
    pub draining_since: Option<Moment>,
    /// Time at which the last pod was gone.
    pub completed_at: Option<Moment>,
    /// Set after a drain that timed out.
    pub retry: Option<RetryState>,
    /// An external drainer drains this node.
    pub is_external: bool,
}

impl Default for StateFacts {
    fn default() -> Self {
        Self {
            status: DrainStatus::Idle,
            writer: StatusWriter::Agent,
            scope: DrainScope::Partial,
            request: None,
            requested_at: None,
            draining_since: None,
            completed_at: None,
            retry: None,
            is_external: false,
        }
    }
}

/// Writer of a drain status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusWriter {
    Agent,
    Operator,
    /// Another client, for example an administrator with kubectl.
    Other,
}

/// Retry of a drain that timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryState {
    /// Number of timeouts for one request.
    pub times: u32,
    /// Earliest time of the next try.
    pub not_before: Moment,
}

/// Facts about one node from its Node and its node state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DrainFacts {
    /// `None`: the Node does not exist.
    pub node: Option<NodeFacts>,
    /// `None`: the node state does not exist.
    pub state: Option<StateFacts>,
    /// Both objects were read from the API server after everything else the decision depends on, first the Node and
    /// then the node state. Otherwise they come from watches, and one may be older than the other.
    pub is_verified: bool,
}

/// Returns whether a drain with scope `drained` is sufficient for `needed`.
pub fn covers(drained: DrainScope, needed: DrainScope) -> bool {
    drained == DrainScope::Full || needed == DrainScope::Partial
}

/// Returns whether a drain has started or is complete: the node does not serve pods as usual.
pub const fn is_in_flight(status: DrainStatus) -> bool {
    matches!(
        status,
        DrainStatus::DrainingMcpPausing
            | DrainStatus::DrainingMcpPaused
            | DrainStatus::Draining
            | DrainStatus::DrainingComplete
    )
}
