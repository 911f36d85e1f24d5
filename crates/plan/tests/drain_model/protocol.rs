//! What can happen, and what comes of it.

use stateright::{Model, Property};
use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_plan::drain::StateFacts;

use crate::bugs::Bug;
use crate::decisions::Deed;
use crate::properties;
use crate::sight::{Seen, Sight};
use crate::world::{Agent, Budget, Node, Pod, Replica, World, Write};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) nodes: usize,
    pub(crate) replicas: usize,
    pub(crate) replica_crashes: u8,
    pub(crate) sight: Sight,
    /// Node 0 was cordoned by somebody before.
    pub(crate) finds_cordon: bool,
    /// When a node state is deleted, the agents' clocks are set back, and not forth.
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
    Wish(usize),
    Schedule(usize),
    PodEnds(usize),
    DeleteState(usize),
    CreateState(usize),
    Move(usize),
    Hour {
        by_budget: bool,
    },
    See(usize, Seen),
    Crash(usize),
    Write(usize, Write),
    /// It is sent, and comes to the API server when it [lands](Self::Land).
    Send(Write),
    Land,
    Verify(usize, usize),
    Look(usize, usize),
    Evict(usize),
    /// Nobody has anything to do.
    Rest,
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.nodes, self.finds_cordon, self.replica_crashes, self.budget)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.at_rest {
            return;
        }
        self.usual_actions(world, actions);
        let outside = actions.len();
        let mut has_idle_replica = false;
        for by in 0..self.replicas {
            let before = actions.len();
            self.replica_actions(world, by, actions);
            has_idle_replica |= actions.len() == before;
        }
        // Whichever replica leads, it must be able to do it all alone: the other may have been stopped long ago.
        if outside == 0 && has_idle_replica {
            let waits_for_time = |state: &StateFacts| {
                let retry = state.retry.filter(|_| state.status == DrainStatus::DrainRequired);
                retry.is_some_and(|retry| retry.not_before > world.now())
            };
            let waits_for_time = world.api.states.iter().flatten().any(waits_for_time);
            actions.push(if waits_for_time { Action::Hour { by_budget: false } } else { Action::Rest });
        }
        self.troubles(world, actions);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = *last;
        let budget = &mut world.budget;
        match action {
            Action::Agent(node) => world.agent_acts(node),
            Action::AgentCrash(node) => {
                budget.agent_crashes -= 1;
                world.agents[node].works = false;
            }
            Action::Withdraw(node) => {
                budget.withdrawals -= 1;
                world.agents[node].need = None;
            }
            Action::Escalate(node) => {
                budget.escalations -= 1;
                world.agents[node].need = Some(DrainScope::Full);
            }
            Action::Wish(node) => {
                budget.wishes -= 1;
                world.agents[node].need = Some(DrainScope::Partial);
            }
            Action::Schedule(node) => {
                budget.pods -= 1;
                world.pods[node] = Pod::Running;
            }
            Action::PodEnds(node) => world.pods[node] = Pod::None,
            Action::DeleteState(node) => {
                budget.deletions -= 1;
                world.clocks_ahead += if self.sets_clocks_back { -1000 } else { 1000 };
                world.set_state(node, None, None);
            }
            Action::CreateState(node) => world.set_state(node, Some(StateFacts::default()), None),
            Action::Move(node) => {
                budget.moves -= 1;
                world.moved[node] = true;
                world.set_node(node, Node { pool: 1, ..world.api.nodes[node] }, None);
            }
            Action::Hour { by_budget } => {
                budget.hours -= u8::from(by_budget);
                world.hours += 1;
            }
            Action::See(by, seen) => world.replicas[by].see(&last.api, seen),
            Action::Crash(by) => {
                world.replicas[by] = Replica::new(&last.api, last.replicas[by].crashes_left - 1);
            }
            Action::Write(by, write) => world.write(write, Some(by)),
            Action::Send(write) => {
                budget.late_writes -= 1;
                world.late = Some(write);
            }
            Action::Land => {
                if let Some(write) = world.late.take() {
                    world.write(write, None);
                }
            }
            Action::Verify(by, node) => world.replicas[by].verify(&last.api, node, self.sight),
            Action::Look(by, node) => {
                let is_gone = self.bug.is_gone(world.pods[node]);
                let request = world.replicas[by].request(node);
                world.replicas[by].pods[node] = Some((request, is_gone));
            }
            Action::Evict(node) => world.pods[node] = Pod::Ending,
            Action::Rest => world.at_rest = true,
        }
        Some(world)
    }

    /// With a defect, a node may have to ask again and again.
    fn within_boundary(&self, world: &World) -> bool {
        let is_early = |state: &StateFacts| state.request.is_none_or(|request| request.0 % 1000 < 4);
        self.bug == Bug::None || world.api.states.iter().flatten().all(is_early)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Protocol {
    /// What agents and nodes do of their own accord.
    fn usual_actions(&self, world: &World, actions: &mut Vec<Action>) {
        for node in 0..self.nodes {
            if world.agent_can_act(node) {
                actions.push(Action::Agent(node));
            }
            if world.pods[node] == Pod::Ending {
                actions.push(Action::PodEnds(node));
            }
            if world.api.states[node].is_none() {
                actions.push(Action::CreateState(node));
            }
        }
        actions.extend(world.late.map(|_| Action::Land));
    }

    /// What goes wrong, or comes from outside, while the budget lasts.
    fn troubles(&self, world: &World, actions: &mut Vec<Action>) {
        let budget = world.budget;
        let mut may =
            |left: u8, can: bool, action: Action| actions.extend((left > 0 && can).then_some(action));
        for node in 0..self.nodes {
            let Agent { need, works } = world.agents[node];
            let is_cordoned = world.api.nodes[node].facts.is_cordoned;
            let state = world.api.states[node];
            may(budget.agent_crashes, works, Action::AgentCrash(node));
            may(budget.withdrawals, need.is_some() && !works, Action::Withdraw(node));
            may(budget.escalations, need == Some(DrainScope::Partial) && !works, Action::Escalate(node));
            may(budget.wishes, need.is_none(), Action::Wish(node));
            may(budget.pods, world.pods[node] == Pod::None && !is_cordoned, Action::Schedule(node));
            // An agent stops its work when its node state is not there any more.
            may(budget.deletions, state.is_some() && !works, Action::DeleteState(node));
            may(budget.moves, node == 1, Action::Move(node));
        }
        may(budget.hours, true, Action::Hour { by_budget: true });
        for by in 0..self.replicas {
            let replica = &world.replicas[by];
            // Otherwise it knows all that it would know after it.
            let loses_something = *replica != Replica::new(&world.api, replica.crashes_left);
            may(replica.crashes_left, loses_something, Action::Crash(by));
        }
    }

    fn replica_actions(&self, world: &World, by: usize, actions: &mut Vec<Action>) {
        let replica = &world.replicas[by];
        replica.sights(self.sight, self.nodes, |seen| actions.push(Action::See(by, seen)));
        replica.deeds(self.nodes, self.bug, world.now(), |deed| match deed {
            Deed::Write(write) if replica.is_current(&write) => {
                actions.push(Action::Write(by, write));
                if world.budget.late_writes > 0 && world.late.is_none() {
                    actions.push(Action::Send(write));
                }
            }
            Deed::Write(write) if self.bug.is_unguarded(&write) => actions.push(Action::Write(by, write)),
            Deed::Write(_) => {}
            Deed::Verify(node) => actions.push(Action::Verify(by, node)),
            Deed::Evict(node) => {
                let pod = world.pods[node];
                let looked = Some((replica.request(node), self.bug.is_gone(pod)));
                if replica.pods[node] != looked {
                    actions.push(Action::Look(by, node));
                } else if pod == Pod::Running {
                    actions.push(Action::Evict(node));
                }
            }
        });
    }
}
