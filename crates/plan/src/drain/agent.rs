//! Drain decisions of the agent: request, wait, proceed, finish.

use vfleet_api::node_state::{DrainScope, DrainStatus};

use super::{Moment, StateFacts, covers};
use crate::step::{Disruption, Plan};

/// Next action of the agent on its drain status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentAction {
    /// Execute the plan, if it has steps.
    Proceed,
    /// Request a drain: write `Drain_Required` with this scope and time.
    Request {
        /// Pods to be evicted.
        scope: DrainScope,
        /// Time that identifies the request.
        request: Moment,
    },
    /// Write `Idle`: the plan is executed, no drain is needed any more, or a wider scope is needed.
    SetIdle,
    /// Wait for the operator.
    Wait,
}

/// Returns the drain scope that `plan` requires; `None` if it affects no pod.
pub fn required_scope(plan: &Plan) -> Option<DrainScope> {
    match plan.disruption() {
        Disruption::None | Disruption::Vf | Disruption::Pf => None,
        Disruption::Drain => Some(DrainScope::Partial),
        Disruption::Reboot => Some(DrainScope::Full),
    }
}

/// Returns the next action of the agent. `needed` is the scope that its plan requires; `has_steps` tells whether the
/// plan has any steps.
pub fn plan_agent_action(
    state: &StateFacts,
    needed: Option<DrainScope>,
    has_steps: bool,
    now: Moment,
) -> AgentAction {
    use DrainStatus::{DrainDisabled, DrainingComplete, Idle};
    match (needed, state.status) {
        (None, Idle) | (Some(_), DrainDisabled) => AgentAction::Proceed,
        // The node is still drained: the remaining steps belong to the same drain.
        (None, DrainingComplete | DrainDisabled) if has_steps => AgentAction::Proceed,
        (None, _) => AgentAction::SetIdle,
        (Some(scope), Idle) => {
            AgentAction::Request { scope, request: Moment::later_than(state.request, now) }
        }
        (Some(scope), _) if !covers(state.scope, scope) => AgentAction::SetIdle,
        (Some(_), DrainingComplete) => AgentAction::Proceed,
        (Some(_), _) => AgentAction::Wait,
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

    fn actions(scope: DrainScope, needed: Option<DrainScope>, has_steps: bool) -> [AgentAction; 7] {
        STATUSES.map(|status| plan_agent_action(&state(status, scope), needed, has_steps, NOW))
    }

    #[test]
    fn every_status_has_its_action() {
        use AgentAction::{Proceed, SetIdle, Wait};
        use DrainScope::{Full, Partial};
        let request = |scope| AgentAction::Request { scope, request: NOW };
        for scope in [Partial, Full] {
            let without_need = [Proceed, Proceed, SetIdle, SetIdle, SetIdle, SetIdle, Proceed];
            assert_eq!(actions(scope, None, true), without_need, "{scope:?}: steps that need no drain");
            let done = [Proceed, SetIdle, SetIdle, SetIdle, SetIdle, SetIdle, SetIdle];
            assert_eq!(actions(scope, None, false), done, "{scope:?}: no steps");
            let partial = [request(Partial), Proceed, Wait, Wait, Wait, Wait, Proceed];
            assert_eq!(actions(scope, Some(Partial), true), partial, "{scope:?} is enough");
        }
        let full = [request(Full), Proceed, Wait, Wait, Wait, Wait, Proceed];
        assert_eq!(actions(Full, Some(Full), true), full);
        let escalation = [request(Full), Proceed, SetIdle, SetIdle, SetIdle, SetIdle, SetIdle];
        assert_eq!(actions(Partial, Some(Full), true), escalation, "a new request follows from Idle");
    }

    #[test]
    fn a_later_request_has_a_later_time_even_if_the_clock_was_set_back() {
        let mut state = state(DrainStatus::Idle, DrainScope::Partial);
        state.request = Some(Moment(500));
        let AgentAction::Request { request, .. } =
            plan_agent_action(&state, Some(DrainScope::Full), true, NOW)
        else {
            panic!("no request");
        };
        assert_eq!(request, Moment(501));
    }

    #[test]
    fn the_most_disruptive_step_decides_the_scope() {
        let plan = |disruptions: &[Disruption]| {
            let planned = |disruption: &Disruption| PlannedStep {
                step: Step::ForgetReboots,
                disruption: *disruption,
                why: String::new(),
            };
            Plan { steps: disruptions.iter().map(planned).collect(), problems: Vec::new() }
        };
        assert_eq!(required_scope(&plan(&[])), None);
        assert_eq!(required_scope(&plan(&[Disruption::None, Disruption::Vf, Disruption::Pf])), None);
        assert_eq!(required_scope(&plan(&[Disruption::Drain, Disruption::Pf])), Some(DrainScope::Partial));
        assert_eq!(required_scope(&plan(&[Disruption::Drain, Disruption::Reboot])), Some(DrainScope::Full));
    }
}
