//! Drain actions of the agent.

use vfleet_api::node_state::DrainScope::{self, Full, Partial};
use vfleet_api::node_state::DrainStatus::{
    self, DrainDisabled, DrainRequired, Draining, DrainingComplete, DrainingMcpPausing, Idle,
};
use vfleet_plan::drain::{AgentAction, Moment, StateFacts, plan_agent_action};

fn next_agent_action(
    status: DrainStatus,
    scope: DrainScope,
    needed: Option<DrainScope>,
    has_steps: bool,
) -> AgentAction {
    let state = StateFacts { status, scope, request: Some(Moment(5)), ..StateFacts::default() };
    plan_agent_action(&state, needed, has_steps, Moment(9))
}

#[test]
fn an_agent_requests_waits_proceeds_and_finishes() {
    let request = |scope| AgentAction::Request { scope, request: Moment(9) };
    assert_eq!(next_agent_action(Idle, Full, Some(Partial), true), request(Partial));
    assert_eq!(next_agent_action(Idle, Partial, Some(Full), true), request(Full));
    for status in [DrainRequired, DrainingMcpPausing, Draining] {
        assert_eq!(next_agent_action(status, Partial, Some(Partial), true), AgentAction::Wait, "{status:?}");
        assert_eq!(next_agent_action(status, Full, Some(Partial), true), AgentAction::Wait, "{status:?}");
        assert_eq!(next_agent_action(status, Partial, Some(Full), true), AgentAction::SetIdle, "{status:?}");
        assert_eq!(next_agent_action(status, Partial, None, true), AgentAction::SetIdle, "{status:?}");
    }
    assert_eq!(next_agent_action(DrainingComplete, Partial, Some(Partial), true), AgentAction::Proceed);
    assert_eq!(next_agent_action(DrainingComplete, Partial, None, true), AgentAction::Proceed);
    assert_eq!(next_agent_action(DrainingComplete, Partial, None, false), AgentAction::SetIdle);
    assert_eq!(
        next_agent_action(DrainingComplete, Partial, Some(Full), true),
        AgentAction::SetIdle,
        "the scope is not sufficient"
    );
    assert_eq!(next_agent_action(Idle, Partial, None, true), AgentAction::Proceed);
    assert_eq!(next_agent_action(Idle, Partial, None, false), AgentAction::Proceed);
}

#[test]
fn an_agent_proceeds_if_draining_is_disabled() {
    assert_eq!(next_agent_action(DrainDisabled, Partial, Some(Full), true), AgentAction::Proceed);
    assert_eq!(next_agent_action(DrainDisabled, Partial, None, false), AgentAction::SetIdle);
}

#[test]
fn a_later_request_has_a_later_time_even_if_the_clock_was_set_back() {
    let state = StateFacts { request: Some(Moment(5)), ..StateFacts::default() };
    let action = |now| plan_agent_action(&state, Some(Partial), true, Moment(now));
    assert_eq!(action(4), AgentAction::Request { scope: Partial, request: Moment(6) });
    assert_eq!(action(5), AgentAction::Request { scope: Partial, request: Moment(6) });
    assert_eq!(action(8), AgentAction::Request { scope: Partial, request: Moment(8) });
}
