//! Agents, with the decisions of `vfleet_plan::drain`.

use vfleet_api::node_state::DrainStatus;
use vfleet_plan::drain::{AgentAction, StateFacts, StatusWriter, plan_agent_action};

use crate::model::{Agent, ModelState};

impl ModelState {
    /// Executes the next step of the agent.
    pub(crate) fn run_agent(&mut self, node: usize) {
        let agent = &mut self.agents[node];
        if agent.is_busy {
            *agent = Agent { needed: None, is_busy: false };
            return;
        }
        let Some(state) = self.api.states[node] else { return };
        let written = StateFacts { writer: StatusWriter::Agent, ..state };
        match plan_agent_action(&state, agent.needed, agent.needed.is_some(), self.agents_now()) {
            AgentAction::Wait => {}
            AgentAction::Proceed => self.agents[node].is_busy = true,
            AgentAction::Request { scope, request } => {
                let status = DrainStatus::DrainRequired;
                let asked = StateFacts { status, scope, request: Some(request), retry: None, ..written };
                self.set_state(node, Some(asked), None);
            }
            AgentAction::SetIdle => {
                self.set_state(node, Some(StateFacts { status: DrainStatus::Idle, ..written }), None);
            }
        }
    }

    /// Returns whether the agent has a next step.
    pub(crate) fn agent_can_act(&self, node: usize) -> bool {
        let Agent { needed, is_busy } = self.agents[node];
        let Some(state) = self.api.states[node] else { return is_busy };
        is_busy
            || match plan_agent_action(&state, needed, needed.is_some(), self.agents_now()) {
                AgentAction::Wait => false,
                AgentAction::Proceed => needed.is_some(),
                AgentAction::Request { .. } | AgentAction::SetIdle => true,
            }
    }
}
