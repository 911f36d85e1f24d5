//! The agent's side: when it asks, waits, goes on and is done.

use vfleet_api::node_state::{DrainScope, DrainStatus};

use super::{Moment, StateFacts, covers};

/// What the agent does about its drain status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentMove {
    /// Go on with the work, if there is any.
    Proceed,
    /// Ask for a drain: `Drain_Required`, with this scope and time.
    Ask {
        /// How much is to be drained.
        scope: DrainScope,
        /// The name of the request.
        request: Moment,
    },
    /// Write `Idle`: the work is done, or nothing is needed any more, or something else is.
    BeIdle,
    /// Wait for the operator.
    Wait,
}

/// What the agent does next. `need` is what its work needs, `has_work` whether there is any at all.
pub fn agent_move(state: &StateFacts, need: Option<DrainScope>, has_work: bool, now: Moment) -> AgentMove {
    use DrainStatus::{DrainDisabled, DrainingComplete, Idle};
    match (need, state.status) {
        (None, Idle) | (Some(_), DrainDisabled) => AgentMove::Proceed,
        // Still drained: the rest of the work belongs to it.
        (None, DrainingComplete | DrainDisabled) if has_work => AgentMove::Proceed,
        (None, _) => AgentMove::BeIdle,
        (Some(scope), Idle) => AgentMove::Ask { scope, request: Moment::later_than(state.request, now) },
        (Some(scope), _) if !covers(state.scope, scope) => AgentMove::BeIdle,
        (Some(_), DrainingComplete) => AgentMove::Proceed,
        (Some(_), _) => AgentMove::Wait,
    }
}
