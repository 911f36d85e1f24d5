//! Who may drain now, and what comes next for each node: pools, node states, nodes and pods => actions.
//!
//! The protocol, of which this is the whole decision:
//!
//! 1. The agent asks: `Drain_Required`, with how much is to be drained and when it asked ([`agent_move`]). The time is
//!    also the request's name: a later request has a later one.
//! 2. The operator gives it one of its pool's slots ([`plan_slots`]): it writes the pool's list of slots, on top of the
//!    version that it has seen, so that of two replicas only one can. A slot is for one request.
//! 3. The operator goes on with that node ([`next`]): it pauses the machine config pool (OpenShift), cordons the node,
//!    evicts its pods and writes `Draining_Complete`. Each write is on top of the version that it was decided on.
//! 4. The agent does its work and writes `Idle`.
//! 5. The operator uncordons the node, notes there that the request is over, and takes the slot back.
//!
//! No two objects are seen at the same time, so that one may be newer than the other. Requests tell which: nothing is
//! done to a node for a request that is over there, nor undone for one that is later than the one in the node state.
//!
//! The agent may write `Idle` at any time: it needs no drain any more.

mod agent;
mod budgets;
mod external;
mod kept;
mod limit;
mod migration;
mod moment;
mod next;
mod pods;
mod seen;
mod slots;

use vfleet_api::node_state::{DrainScope, DrainStatus};

use crate::prelude::*;

pub use agent::{AgentMove, agent_move, need};
pub use budgets::{Budget, budgets_of, is_let_go};
pub use external::{AgentAct, Answer, ExternalFacts, agent_act};
pub use kept::{kept_at_asking, kept_resources};
pub use limit::{Limit, LimitNote, limit, lowered_below};
pub use migration::{Leftover, Migration, MovedStatus, is_left_in_the_middle, plan_migration};
pub use moment::Moment;
pub use next::{Blocked, McpFacts, NodeAction, PodsSeen, Rules, wakes_at};
pub use pods::{PodFacts, Treatment, restarts_with, treatment};
pub use slots::{Slot, SlotPlan, Turn, holds_slot, turn};

/// A pool, as far as draining goes.
#[derive(Clone, Copy, Debug)]
pub struct PoolDrain<'a> {
    /// How many of its nodes may be drained at once.
    pub limit: Limit,
    /// The slots that it has given away, as its status lists them, by node.
    pub slots: &'a [Slot],
    /// What holds for its nodes.
    pub rules: Rules,
}

/// A node that belongs to the pool, or that the pool lists.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its objects.
    pub facts: &'a DrainFacts,
    /// It belongs to another pool now, but this one still lists it.
    pub is_guest: bool,
    /// The request that another pool lists it for; for a guest, its own pool.
    pub slot_elsewhere: Option<Moment>,
    /// Its pods.
    pub pods: PodsSeen,
    /// OpenShift: its machine config pool.
    pub mcp: Option<McpFacts>,
}

/// What to do for a pool and its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainPlan {
    /// For the pool's list of slots.
    pub slots: SlotPlan,
    /// For each of the nodes, in the order in which they were given.
    pub actions: Vec<NodeAction>,
}

/// What to do for a pool and its nodes now. `members` are all who hold a slot or wait for one; others may be left out,
/// as they change nothing for anybody else.
pub fn plan_drain(pool: &PoolDrain<'_>, members: &[Member<'_>], now: Moment) -> DrainPlan {
    DrainPlan {
        slots: slots::plan_slots(pool, members, now),
        actions: members.iter().map(|member| next(pool, member, now)).collect(),
    }
}

/// What to do for one node now: what [`plan_drain`] says for it, whatever the others are like.
pub fn next(pool: &PoolDrain<'_>, member: &Member<'_>, now: Moment) -> NodeAction {
    let request = member.facts.state.and_then(|state| state.request);
    let place = pool.slots.binary_search_by(|slot| slot.node.as_str().cmp(member.name));
    let listed = place.ok().and_then(|place| pool.slots.get(place)).map(|slot| slot.request);
    let slot = next::SlotSeen {
        // Where too many have one, nobody begins before that is put right.
        is_usable: request.is_some() && listed == request && pool.limit.allows(pool.slots.len()),
        request: listed.max(member.slot_elsewhere),
    };
    let action = next::next(member, slot, &pool.rules, now);
    let waits = || action == NodeAction::Rest && slots::waits(member.facts, &pool.rules, now);
    match pool.limit {
        Limit::AtMost(0) if waits() => NodeAction::Wait(Blocked::NeverDrained),
        Limit::NoPool if waits() => NodeAction::Wait(Blocked::NoPool),
        _ => action,
    }
}

/// What counts of a Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeFacts {
    /// Whether no new pods come to it.
    pub is_cordoned: bool,
    /// Our mark on it.
    pub mark: Option<Mark>,
    /// The last request that is over for this node: no cordon for it, or for an earlier one, is right any more. Written
    /// with the uncordon; without a cordon by itself, before the slot is taken back.
    pub last_request: Option<Moment>,
    /// Whether its kubelet says that it is ready.
    pub is_ready: bool,
    /// Another installation's operator drains it.
    pub is_anothers: bool,
}

/// Our mark on a cordoned node. Written with the cordon, and taken off with it, each in one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// Who cordoned the node.
    pub cordon: Cordon,
    /// The request that it is drained for.
    pub request: Moment,
}

/// Who cordoned a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cordon {
    /// We did.
    Ours,
    /// Somebody had before us: it stays.
    Found,
}

/// What counts of a node state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateFacts {
    /// How far the drain is.
    pub status: DrainStatus,
    /// Who wrote that.
    pub writer: Writer,
    /// How much is to be drained.
    pub scope: DrainScope,
    /// The name of the agent's last request: when it asked, by its own clock.
    pub request: Option<Moment>,
    /// When that was written, by the API server's clock.
    pub asked_at: Option<Moment>,
    /// Since when its pods are being evicted.
    pub draining_since: Option<Moment>,
    /// Since when they are gone.
    pub completed_at: Option<Moment>,
    /// After a drain that took too long.
    pub retry: Option<Retry>,
    /// Somebody else drains this node.
    pub is_external: bool,
}

impl Default for StateFacts {
    fn default() -> Self {
        Self {
            status: DrainStatus::Idle,
            writer: Writer::Agent,
            scope: DrainScope::Partial,
            request: None,
            asked_at: None,
            draining_since: None,
            completed_at: None,
            retry: None,
            is_external: false,
        }
    }
}

/// Who wrote a drain status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Writer {
    Agent,
    Operator,
    /// Somebody else, for example a person.
    Other,
}

/// A drain took too long and was given up for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Retry {
    /// How often that was so, for one request.
    pub times: u32,
    /// It is not tried again before this.
    pub not_before: Moment,
}

/// One node: both of its objects, as last seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DrainFacts {
    /// `None`: there is no such Node.
    pub node: Option<NodeFacts>,
    /// `None`: there is no node state.
    pub state: Option<StateFacts>,
    /// Whether both were read from the API server itself, first the Node and then the node state, after all else that is
    /// decided on: what we see of an object may be older than what we see of another.
    pub is_verified: bool,
}

/// Whether `had` is enough where `needed` is needed.
pub fn covers(had: DrainScope, needed: DrainScope) -> bool {
    had == DrainScope::Full || needed == DrainScope::Partial
}

/// Whether a drain is on its way or done: the node is not as it usually is.
pub const fn is_in_flight(status: DrainStatus) -> bool {
    matches!(
        status,
        DrainStatus::DrainingMcpPausing
            | DrainStatus::DrainingMcpPaused
            | DrainStatus::Draining
            | DrainStatus::DrainingComplete
    )
}
