//! The agent's side: when it asks, waits, goes on and is done.

use vfleet_api::node_state::{DrainScope, DrainStatus};

use super::{Moment, StateFacts, covers};
use crate::step::{Disruption, Plan};

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

/// How much must be drained before `plan` is carried out; `None` when no pod notices it.
pub fn need(plan: &Plan) -> Option<DrainScope> {
    match plan.disruption() {
        Disruption::None | Disruption::Vf | Disruption::Pf => None,
        Disruption::Drain => Some(DrainScope::Partial),
        Disruption::Reboot => Some(DrainScope::Full),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use crate::step::{PlannedStep, Step};

    const NOW: Moment = Moment(100);

    const STATUSES: [DrainStatus; 7] = [
        DrainStatus::Idle,
        DrainStatus::DrainDisabled,
        DrainStatus::DrainRequired,
        DrainStatus::DrainingMcpPausing,
        DrainStatus::DrainingMcpPaused,
        DrainStatus::Draining,
        DrainStatus::DrainingComplete,
    ];

    fn state(status: DrainStatus, scope: DrainScope) -> StateFacts {
        StateFacts { status, scope, request: Some(Moment(7)), ..StateFacts::default() }
    }

    fn moves(scope: DrainScope, need: Option<DrainScope>, has_work: bool) -> [AgentMove; 7] {
        STATUSES.map(|status| agent_move(&state(status, scope), need, has_work, NOW))
    }

    #[test]
    fn every_status_has_its_move() {
        use AgentMove::{BeIdle, Proceed, Wait};
        use DrainScope::{Full, Partial};
        let ask = |scope| AgentMove::Ask { scope, request: NOW };
        for scope in [Partial, Full] {
            let without_need = [Proceed, Proceed, BeIdle, BeIdle, BeIdle, BeIdle, Proceed];
            assert_eq!(moves(scope, None, true), without_need, "{scope:?}: work that needs no drain");
            let done = [Proceed, BeIdle, BeIdle, BeIdle, BeIdle, BeIdle, BeIdle];
            assert_eq!(moves(scope, None, false), done, "{scope:?}: nothing to do");
            let partial = [ask(Partial), Proceed, Wait, Wait, Wait, Wait, Proceed];
            assert_eq!(moves(scope, Some(Partial), true), partial, "{scope:?} is enough");
        }
        let full = [ask(Full), Proceed, Wait, Wait, Wait, Wait, Proceed];
        assert_eq!(moves(Full, Some(Full), true), full);
        let escalation = [ask(Full), Proceed, BeIdle, BeIdle, BeIdle, BeIdle, BeIdle];
        assert_eq!(moves(Partial, Some(Full), true), escalation, "it asks again when it is Idle");
    }

    #[test]
    fn a_later_request_has_a_later_time_whatever_the_clock_says() {
        let mut state = state(DrainStatus::Idle, DrainScope::Partial);
        state.request = Some(Moment(500));
        let AgentMove::Ask { request, .. } = agent_move(&state, Some(DrainScope::Full), true, NOW) else {
            panic!("it asks");
        };
        assert_eq!(request, Moment(501));
    }

    #[test]
    fn a_plan_needs_as_much_as_its_most_disturbing_step() {
        let plan = |disruptions: &[Disruption]| {
            let planned = |disruption: &Disruption| PlannedStep {
                step: Step::ForgetReboots,
                disruption: *disruption,
                why: String::new(),
            };
            Plan { steps: disruptions.iter().map(planned).collect(), problems: Vec::new() }
        };
        assert_eq!(need(&plan(&[])), None);
        assert_eq!(need(&plan(&[Disruption::None, Disruption::Vf, Disruption::Pf])), None);
        assert_eq!(need(&plan(&[Disruption::Drain, Disruption::Pf])), Some(DrainScope::Partial));
        assert_eq!(need(&plan(&[Disruption::Drain, Disruption::Reboot])), Some(DrainScope::Full));
    }
}
