//! Actions of the model and their effects.

use stateright::{Model, Property};
use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_plan::drain::StateFacts;

use crate::bugs::Bug;
use crate::decisions::ReplicaAction;
use crate::model::{Agent, Budget, ModelState, Node, Pod, Replica, Write};
use crate::observation::{Observed, WatchGranularity};
use crate::properties;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) nodes: usize,
    pub(crate) replicas: usize,
    pub(crate) replica_crashes: u8,
    pub(crate) granularity: WatchGranularity,
    /// Node 0 is cordoned from the beginning.
    pub(crate) has_preexisting_cordon: bool,
    /// A deletion of a node state sets the agents' clocks back instead of forward.
    pub(crate) sets_clocks_back: bool,
    pub(crate) budget: Budget,
    pub(crate) bug: Bug,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Agent(usize),
    AgentCrash(usize),
    Withdraw(usize),
    Escalate(usize),
    Request(usize),
    Schedule(usize),
    PodTerminates(usize),
    DeleteState(usize),
    CreateState(usize),
    Move(usize),
    Hour {
        by_budget: bool,
    },
    Observe(usize, Observed),
    Crash(usize),
    Write(usize, Write),
    /// The write is sent, and reaches the API server with [`Self::Land`].
    Send(Write),
    Land,
    Verify(usize, usize),
    ListPods(usize, usize),
    Evict(usize),
    /// No action is left.
    Stop,
}

impl Model for Protocol {
    type State = ModelState;
    type Action = Action;

    fn init_states(&self) -> Vec<ModelState> {
        vec![ModelState::new(self.nodes, self.has_preexisting_cordon, self.replica_crashes, self.budget)]
    }

    fn actions(&self, model: &ModelState, actions: &mut Vec<Action>) {
        if model.is_final {
            return;
        }
        self.usual_actions(model, actions);
        let outside = actions.len();
        let mut has_idle_replica = false;
        for by in 0..self.replicas {
            let before = actions.len();
            self.replica_actions(model, by, actions);
            has_idle_replica |= actions.len() == before;
        }
        // Each replica must be able to finish alone, because the other one may have stopped.
        if outside == 0 && has_idle_replica {
            let waits_for_time = |state: &StateFacts| {
                let retry = state.retry.filter(|_| state.status == DrainStatus::DrainRequired);
                retry.is_some_and(|retry| retry.not_before > model.now())
            };
            let waits_for_time = model.api.states.iter().flatten().any(waits_for_time);
            actions.push(if waits_for_time { Action::Hour { by_budget: false } } else { Action::Stop });
        }
        self.disturbances(model, actions);
    }

    fn next_state(&self, last: &ModelState, action: Action) -> Option<ModelState> {
        let mut model = *last;
        let budget = &mut model.budget;
        match action {
            Action::Agent(node) => model.run_agent(node),
            Action::AgentCrash(node) => {
                budget.agent_crashes -= 1;
                model.agents[node].is_busy = false;
            }
            Action::Withdraw(node) => {
                budget.withdrawals -= 1;
                model.agents[node].needed = None;
            }
            Action::Escalate(node) => {
                budget.escalations -= 1;
                model.agents[node].needed = Some(DrainScope::Full);
            }
            Action::Request(node) => {
                budget.new_requests -= 1;
                model.agents[node].needed = Some(DrainScope::Partial);
            }
            Action::Schedule(node) => {
                budget.pods -= 1;
                model.pods[node] = Pod::Running;
            }
            Action::PodTerminates(node) => model.pods[node] = Pod::None,
            Action::DeleteState(node) => {
                budget.deletions -= 1;
                model.clocks_ahead += if self.sets_clocks_back { -1000 } else { 1000 };
                model.set_state(node, None, None);
            }
            Action::CreateState(node) => model.set_state(node, Some(StateFacts::default()), None),
            Action::Move(node) => {
                budget.moves -= 1;
                model.moved[node] = true;
                model.set_node(node, Node { pool: 1, ..model.api.nodes[node] }, None);
            }
            Action::Hour { by_budget } => {
                budget.hours -= u8::from(by_budget);
                model.hours += 1;
            }
            Action::Observe(by, observed) => model.replicas[by].observe(&last.api, observed),
            Action::Crash(by) => {
                model.replicas[by] = Replica::new(&last.api, last.replicas[by].crashes_left - 1);
            }
            Action::Write(by, write) => model.write(write, Some(by)),
            Action::Send(write) => {
                budget.late_writes -= 1;
                model.late = Some(write);
            }
            Action::Land => {
                if let Some(write) = model.late.take() {
                    model.write(write, None);
                }
            }
            Action::Verify(by, node) => model.replicas[by].verify(&last.api, node, self.granularity),
            Action::ListPods(by, node) => {
                let is_gone = self.bug.is_gone(model.pods[node]);
                let request = model.replicas[by].request(node);
                model.replicas[by].pods[node] = Some((request, is_gone));
            }
            Action::Evict(node) => model.pods[node] = Pod::Terminating,
            Action::Stop => model.is_final = true,
        }
        Some(model)
    }

    /// Limits the number of requests, because with a bug a node may have to repeat them for ever.
    fn within_boundary(&self, model: &ModelState) -> bool {
        let is_early = |state: &StateFacts| state.request.is_none_or(|request| request.0 % 1000 < 4);
        self.bug == Bug::None || model.api.states.iter().flatten().all(is_early)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Protocol {
    /// Adds actions of agents and nodes.
    fn usual_actions(&self, model: &ModelState, actions: &mut Vec<Action>) {
        for node in 0..self.nodes {
            if model.agent_can_act(node) {
                actions.push(Action::Agent(node));
            }
            if model.pods[node] == Pod::Terminating {
                actions.push(Action::PodTerminates(node));
            }
            if model.api.states[node].is_none() {
                actions.push(Action::CreateState(node));
            }
        }
        actions.extend(model.late.map(|_| Action::Land));
    }

    /// Adds disturbances within the budget.
    fn disturbances(&self, model: &ModelState, actions: &mut Vec<Action>) {
        let budget = model.budget;
        let mut may =
            |left: u8, can: bool, action: Action| actions.extend((left > 0 && can).then_some(action));
        for node in 0..self.nodes {
            let Agent { needed, is_busy } = model.agents[node];
            let is_cordoned = model.api.nodes[node].facts.is_cordoned;
            let state = model.api.states[node];
            may(budget.agent_crashes, is_busy, Action::AgentCrash(node));
            may(budget.withdrawals, needed.is_some() && !is_busy, Action::Withdraw(node));
            may(budget.escalations, needed == Some(DrainScope::Partial) && !is_busy, Action::Escalate(node));
            may(budget.new_requests, needed.is_none(), Action::Request(node));
            may(budget.pods, model.pods[node] == Pod::None && !is_cordoned, Action::Schedule(node));
            // An agent stops when its node state is deleted.
            may(budget.deletions, state.is_some() && !is_busy, Action::DeleteState(node));
            may(budget.moves, node == 1, Action::Move(node));
        }
        may(budget.hours, true, Action::Hour { by_budget: true });
        for by in 0..self.replicas {
            let replica = &model.replicas[by];
            // Otherwise the restarted replica would be the same.
            let loses_state = *replica != Replica::new(&model.api, replica.crashes_left);
            may(replica.crashes_left, loses_state, Action::Crash(by));
        }
    }

    fn replica_actions(&self, model: &ModelState, by: usize, actions: &mut Vec<Action>) {
        let replica = &model.replicas[by];
        replica.pending_observations(self.granularity, self.nodes, |observed| {
            actions.push(Action::Observe(by, observed));
        });
        replica.planned_actions(self.nodes, self.bug, model.now(), |action| match action {
            ReplicaAction::Write(write) if replica.is_current(&write) => {
                actions.push(Action::Write(by, write));
                if model.budget.late_writes > 0 && model.late.is_none() {
                    actions.push(Action::Send(write));
                }
            }
            ReplicaAction::Write(write) if self.bug.is_unguarded(&write) => {
                actions.push(Action::Write(by, write));
            }
            ReplicaAction::Write(_) => {}
            ReplicaAction::Verify(node) => actions.push(Action::Verify(by, node)),
            ReplicaAction::Evict(node) => {
                let pod = model.pods[node];
                let listed = Some((replica.request(node), self.bug.is_gone(pod)));
                if replica.pods[node] != listed {
                    actions.push(Action::ListPods(by, node));
                } else if pod == Pod::Running {
                    actions.push(Action::Evict(node));
                }
            }
        });
    }
}
