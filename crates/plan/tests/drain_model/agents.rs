//! What an agent does: the product's decision on its node state.

use vfleet_api::node_state::DrainStatus;
use vfleet_plan::drain::{AgentMove, StateFacts, Writer, agent_move};

use crate::world::{Agent, World};

impl World {
    /// The agent's next step.
    pub(crate) fn agent_acts(&mut self, node: usize) {
        let agent = &mut self.agents[node];
        if agent.works {
            *agent = Agent { need: None, works: false };
            return;
        }
        let Some(state) = self.api.states[node] else { return };
        let written = StateFacts { writer: Writer::Agent, ..state };
        match agent_move(&state, agent.need, agent.need.is_some(), self.agents_now()) {
            AgentMove::Wait => {}
            AgentMove::Proceed => self.agents[node].works = true,
            AgentMove::Ask { scope, request } => {
                let status = DrainStatus::DrainRequired;
                let asked = StateFacts { status, scope, request: Some(request), retry: None, ..written };
                self.set_state(node, Some(asked), None);
            }
            AgentMove::BeIdle => {
                self.set_state(node, Some(StateFacts { status: DrainStatus::Idle, ..written }), None);
            }
        }
    }

    /// Whether there is one.
    pub(crate) fn agent_can_act(&self, node: usize) -> bool {
        let Agent { need, works } = self.agents[node];
        let Some(state) = self.api.states[node] else { return works };
        works
            || match agent_move(&state, need, need.is_some(), self.agents_now()) {
                AgentMove::Wait => false,
                AgentMove::Proceed => need.is_some(),
                AgentMove::Ask { .. } | AgentMove::BeIdle => true,
            }
    }
}
