//! The agent's side.

use vfleet_api::node_state::DrainScope::{self, Full, Partial};
use vfleet_api::node_state::DrainStatus::{
    self, DrainDisabled, DrainRequired, Draining, DrainingComplete, DrainingMcpPausing, Idle,
};
use vfleet_plan::drain::{AgentMove, Moment, StateFacts, agent_move};

fn moves(status: DrainStatus, scope: DrainScope, need: Option<DrainScope>, has_work: bool) -> AgentMove {
    let state = StateFacts { status, scope, request: Some(Moment(5)), ..StateFacts::default() };
    agent_move(&state, need, has_work, Moment(9))
}

#[test]
fn an_agent_asks_waits_works_and_is_done() {
    let ask = |scope| AgentMove::Ask { scope, request: Moment(9) };
    assert_eq!(moves(Idle, Full, Some(Partial), true), ask(Partial));
    assert_eq!(moves(Idle, Partial, Some(Full), true), ask(Full));
    for status in [DrainRequired, DrainingMcpPausing, Draining] {
        assert_eq!(moves(status, Partial, Some(Partial), true), AgentMove::Wait, "{status:?}");
        assert_eq!(moves(status, Full, Some(Partial), true), AgentMove::Wait, "{status:?}");
        assert_eq!(moves(status, Partial, Some(Full), true), AgentMove::BeIdle, "{status:?}");
        assert_eq!(moves(status, Partial, None, true), AgentMove::BeIdle, "{status:?}");
    }
    assert_eq!(moves(DrainingComplete, Partial, Some(Partial), true), AgentMove::Proceed);
    assert_eq!(moves(DrainingComplete, Partial, None, true), AgentMove::Proceed);
    assert_eq!(moves(DrainingComplete, Partial, None, false), AgentMove::BeIdle);
    assert_eq!(moves(DrainingComplete, Partial, Some(Full), true), AgentMove::BeIdle, "that is not enough");
    assert_eq!(moves(Idle, Partial, None, true), AgentMove::Proceed);
    assert_eq!(moves(Idle, Partial, None, false), AgentMove::Proceed);
}

#[test]
fn without_draining_it_goes_on_with_everything() {
    assert_eq!(moves(DrainDisabled, Partial, Some(Full), true), AgentMove::Proceed);
    assert_eq!(moves(DrainDisabled, Partial, None, false), AgentMove::BeIdle);
}

#[test]
fn a_later_request_has_a_later_name_also_when_the_clock_was_set_back() {
    let state = StateFacts { request: Some(Moment(5)), ..StateFacts::default() };
    let asks = |now| agent_move(&state, Some(Partial), true, Moment(now));
    assert_eq!(asks(4), AgentMove::Ask { scope: Partial, request: Moment(6) });
    assert_eq!(asks(5), AgentMove::Ask { scope: Partial, request: Moment(6) });
    assert_eq!(asks(8), AgentMove::Ask { scope: Partial, request: Moment(8) });
}
