//! The API server's objects, those who write them, and what each of them sees.

use stateright::{Model, Property, Representative};
use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_api::pool_config::OnTimeout;
use vfleet_plan::drain::{
    AgentMove, DrainFacts, Limit, Member, Moment, NodeAction, NodeFacts, PodsSeen, PoolDrain, Rules, Slot,
    SlotPlan, StateFacts, Writer, agent_move, is_in_flight, next, plan_drain,
};

const NOW: Moment = Moment(0);
const LIMIT: Limit = Limit::AtMost(1);

/// A defect that is put in, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    None,
    /// The pool's list is written whatever its version.
    UnguardedSlots,
    /// Slots are taken back although somebody may still be about to cordon the node.
    NoConclusion,
    /// `Draining_Complete` when pods are told to end.
    EndingIsGone,
    /// Nothing is uncordoned.
    NoUncordon,
    /// A node that asks again is not marked anew.
    OldMark,
    /// Nobody who waits is ever looked at.
    NoGrant,
}

/// What may go wrong, how often at most. Part of the state, so that every run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    pub replica_crashes: u8,
    pub agent_crashes: u8,
    pub withdrawals: u8,
    pub escalations: u8,
    pub pods: u8,
}

#[derive(Clone, Debug)]
pub struct Protocol {
    nodes: usize,
    replicas: usize,
    budget: Budget,
    bug: Bug,
    /// A replica sees all kinds of objects change at once.
    pub sees_whole: bool,
}

/// The objects, as the API server has them or a replica sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Objects {
    nodes: Vec<NodeFacts>,
    states: Vec<StateFacts>,
    pools: [Vec<Slot>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pod {
    None,
    Running,
    Ending,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Replica {
    sees: Objects,
    /// For each object, whether it is still as seen: only then a write on top of it succeeds.
    nodes_current: Vec<bool>,
    states_current: Vec<bool>,
    pools_current: [bool; 2],
    /// Read from the API server after the pool.
    verified: Vec<bool>,
    /// The request for which the pods were looked at, and what was seen.
    pods: Vec<Option<(Moment, bool)>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    api: Objects,
    pods: Vec<Pod>,
    needs: Vec<Option<DrainScope>>,
    replicas: Vec<Replica>,
    budget: Budget,
    /// An agent worked while a pod was there.
    disturbed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Agent(usize),
    /// It is killed in the middle of its work.
    AgentCrash(usize),
    Withdraw(usize),
    Escalate(usize),
    Schedule(usize),
    PodEnds(usize),
    SeeNodes(usize),
    SeeStates(usize),
    SeePools(usize),
    SeeAll(usize),
    Crash(usize),
    Slots(usize, usize),
    Verify(usize, usize),
    Conclude(usize, usize),
    Node(usize, usize),
    Look(usize, usize),
}

fn pool_of(node: usize) -> usize {
    usize::from(node >= 2)
}

fn name(node: usize) -> String {
    format!("n{node}")
}

fn member<'a>(name: &'a str, facts: &'a DrainFacts, pods: PodsSeen) -> Member<'a> {
    Member { name, facts, is_guest: false, slot_elsewhere: None, pods, mcp: None }
}

impl Protocol {
    pub fn new(nodes: usize, replicas: usize, budget: Budget, bug: Bug) -> Self {
        Self { nodes, replicas, budget, bug, sees_whole: false }
    }

    fn rules() -> Rules {
        Rules {
            is_disabled: false,
            is_single_node: false,
            timeout_seconds: None,
            on_timeout: OnTimeout::Wait,
        }
    }
}

impl Replica {
    fn new(api: &Objects) -> Self {
        let count = api.nodes.len();
        Self {
            sees: api.clone(),
            nodes_current: vec![true; count],
            states_current: vec![true; count],
            pools_current: [true; 2],
            verified: vec![false; count],
            pods: vec![None; count],
        }
    }

    fn facts(&self, node: usize) -> DrainFacts {
        DrainFacts {
            node: Some(self.sees.nodes[node]),
            state: Some(self.sees.states[node]),
            is_verified: self.verified[node],
        }
    }

    fn slot(&self, node: usize) -> Option<Moment> {
        let pool = &self.sees.pools[pool_of(node)];
        pool.iter().find(|slot| slot.node == name(node)).map(|slot| slot.request)
    }

    fn plan_slots(&self, pool: usize, bug: Bug) -> SlotPlan {
        let facts: Vec<_> = (0..self.sees.nodes.len())
            .filter(|node| pool_of(*node) == pool)
            .map(|node| {
                let mut facts = self.facts(node);
                if bug == Bug::NoConclusion
                    && let Some(node) = &mut facts.node
                {
                    node.last_request = Some(Moment(i64::MAX));
                }
                (name(node), facts)
            })
            .collect();
        let members: Vec<_> = facts.iter().map(|(name, facts)| member(name, facts, PodsSeen::No)).collect();
        plan_drain(&self.pool(pool), &members, NOW).slots
    }

    fn pool(&self, pool: usize) -> PoolDrain<'_> {
        PoolDrain { limit: LIMIT, slots: &self.sees.pools[pool], rules: Protocol::rules() }
    }

    fn next(&self, node: usize, bug: Bug) -> NodeAction {
        let facts = self.facts(node);
        let request = self.sees.states[node].request;
        let seen = match self.pods[node] {
            Some((looked_for, is_gone)) if Some(looked_for) == request => {
                if is_gone {
                    PodsSeen::Gone
                } else {
                    PodsSeen::Left
                }
            }
            _ => PodsSeen::No,
        };
        match next(&self.pool(pool_of(node)), &member(&name(node), &facts, seen), NOW) {
            NodeAction::Uncordon { .. } if bug == Bug::NoUncordon => NodeAction::Rest,
            NodeAction::Cordon(_)
                if bug == Bug::OldMark && facts.node.is_some_and(|node| node.mark.is_some()) =>
            {
                NodeAction::Evict { is_late: false }
            }
            action => action,
        }
    }
}

impl World {
    fn state_changed(&mut self, node: usize, state: StateFacts, by: Option<usize>) {
        self.api.states[node] = state;
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            replica.states_current[node] = Some(index) == by;
            if Some(index) == by {
                replica.sees.states[node] = state;
            }
        }
    }

    fn node_changed(&mut self, node: usize, facts: NodeFacts, by: usize) {
        self.api.nodes[node] = facts;
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            replica.nodes_current[node] = index == by;
            if index == by {
                replica.sees.nodes[node] = facts;
            }
        }
    }

    fn pool_changed(&mut self, pool: usize, slots: Vec<Slot>, by: usize) {
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            replica.pools_current[pool] = index == by;
            if index == by {
                replica.sees.pools[pool] = slots.clone();
            }
        }
        self.api.pools[pool] = slots;
    }

    fn agent_acts(&mut self, node: usize) {
        let state = self.api.states[node];
        let need = self.needs[node];
        match agent_move(&state, need, need.is_some(), NOW) {
            AgentMove::Wait => {}
            AgentMove::Proceed => {
                self.disturbed |= self.pods[node] != Pod::None;
                self.needs[node] = None;
            }
            AgentMove::Ask { scope, request } => {
                let state = StateFacts {
                    status: DrainStatus::DrainRequired,
                    writer: Writer::Agent,
                    scope,
                    request: Some(request),
                    retry: None,
                    ..state
                };
                self.state_changed(node, state, None);
            }
            AgentMove::BeIdle => {
                let state = StateFacts { status: DrainStatus::Idle, writer: Writer::Agent, ..state };
                self.state_changed(node, state, None);
            }
        }
    }

    fn agent_can_act(&self, node: usize) -> bool {
        let need = self.needs[node];
        match agent_move(&self.api.states[node], need, need.is_some(), NOW) {
            AgentMove::Wait => false,
            AgentMove::Proceed => need.is_some(),
            _ => true,
        }
    }

    fn node_acts(&mut self, by: usize, node: usize, bug: Bug) -> bool {
        let replica = &self.replicas[by];
        let action = replica.next(node, bug);
        match action {
            NodeAction::Set { status, retry, request, .. } => {
                if !replica.states_current[node] {
                    return false;
                }
                let state = StateFacts {
                    status,
                    retry,
                    request,
                    writer: Writer::Operator,
                    ..replica.sees.states[node]
                };
                self.state_changed(node, state, Some(by));
            }
            NodeAction::Cordon(mark) => {
                if !replica.nodes_current[node] {
                    return false;
                }
                let facts = NodeFacts { is_cordoned: true, mark: Some(mark), ..replica.sees.nodes[node] };
                self.node_changed(node, facts, by);
            }
            NodeAction::Uncordon { request, stays_cordoned } => {
                if !replica.nodes_current[node] {
                    return false;
                }
                let facts = NodeFacts {
                    is_cordoned: stays_cordoned,
                    mark: None,
                    last_request: Some(request),
                    ..replica.sees.nodes[node]
                };
                self.node_changed(node, facts, by);
            }
            NodeAction::Evict { .. } if replica.pods[node].is_some() && self.pods[node] == Pod::Running => {
                self.pods[node] = Pod::Ending;
            }
            _ => return false,
        }
        true
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let api = Objects {
            nodes: vec![NodeFacts { is_ready: true, ..NodeFacts::default() }; self.nodes],
            states: vec![StateFacts::default(); self.nodes],
            pools: [Vec::new(), Vec::new()],
        };
        vec![World {
            replicas: vec![Replica::new(&api); self.replicas],
            pods: vec![Pod::Running; self.nodes],
            needs: vec![Some(DrainScope::Partial); self.nodes],
            budget: self.budget,
            disturbed: false,
            api,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let budget = world.budget;
        for node in 0..self.nodes {
            if world.agent_can_act(node) {
                actions.push(Action::Agent(node));
            }
            if world.needs[node].is_some() {
                if budget.withdrawals > 0 {
                    actions.push(Action::Withdraw(node));
                }
                if budget.escalations > 0 && world.needs[node] == Some(DrainScope::Partial) {
                    actions.push(Action::Escalate(node));
                }
                if budget.agent_crashes > 0 && world.api.states[node].status == DrainStatus::DrainingComplete
                {
                    actions.push(Action::AgentCrash(node));
                }
            }
            if budget.pods > 0 && world.pods[node] == Pod::None && !world.api.nodes[node].is_cordoned {
                actions.push(Action::Schedule(node));
            }
            if world.pods[node] == Pod::Ending {
                actions.push(Action::PodEnds(node));
            }
        }
        for (index, replica) in world.replicas.iter().enumerate() {
            self.replica_actions(world, index, replica, actions);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Agent(node) => world.agent_acts(node),
            Action::AgentCrash(node) => {
                world.budget.agent_crashes -= 1;
                world.disturbed |= world.pods[node] != Pod::None;
            }
            Action::Withdraw(node) => {
                world.budget.withdrawals -= 1;
                world.needs[node] = None;
            }
            Action::Escalate(node) => {
                world.budget.escalations -= 1;
                world.needs[node] = Some(DrainScope::Full);
            }
            Action::Schedule(node) => {
                world.budget.pods -= 1;
                world.pods[node] = Pod::Running;
            }
            Action::PodEnds(node) => world.pods[node] = Pod::None,
            Action::SeeNodes(by) => {
                let api = world.api.nodes.clone();
                let replica = &mut world.replicas[by];
                replica.nodes_current.fill(true);
                replica.verified.fill(false);
                replica.sees.nodes = api;
            }
            Action::SeeStates(by) => {
                let api = world.api.states.clone();
                let replica = &mut world.replicas[by];
                replica.states_current.fill(true);
                replica.verified.fill(false);
                replica.sees.states = api;
            }
            Action::SeePools(by) => {
                let api = world.api.pools.clone();
                let replica = &mut world.replicas[by];
                replica.pools_current = [true; 2];
                replica.verified.fill(false);
                replica.sees.pools = api;
            }
            Action::SeeAll(by) => {
                let pods = world.replicas[by].pods.clone();
                world.replicas[by] = Replica { pods, ..Replica::new(&world.api) };
            }
            Action::Crash(by) => {
                world.budget.replica_crashes -= 1;
                world.replicas[by] = Replica::new(&world.api);
            }
            Action::Slots(by, pool) => {
                let replica = &world.replicas[by];
                if !replica.pools_current[pool] && self.bug != Bug::UnguardedSlots {
                    return None;
                }
                let slots = replica.plan_slots(pool, self.bug).slots;
                world.pool_changed(pool, slots, by);
                for node in 0..self.nodes {
                    if pool_of(node) == pool {
                        world.replicas[by].verified[node] = false;
                    }
                }
            }
            Action::Verify(by, node) => {
                let (facts, state) = (world.api.nodes[node], world.api.states[node]);
                let replica = &mut world.replicas[by];
                (replica.sees.nodes[node], replica.sees.states[node]) = (facts, state);
                (replica.nodes_current[node], replica.states_current[node]) = (true, true);
                replica.verified[node] = true;
            }
            Action::Conclude(by, node) => {
                let replica = &world.replicas[by];
                let facts = NodeFacts { last_request: replica.slot(node), ..replica.sees.nodes[node] };
                world.node_changed(node, facts, by);
            }
            Action::Node(by, node) => {
                if !world.node_acts(by, node, self.bug) {
                    return None;
                }
            }
            Action::Look(by, node) => {
                let is_gone = match self.bug {
                    Bug::EndingIsGone => world.pods[node] != Pod::Running,
                    _ => world.pods[node] == Pod::None,
                };
                let request = world.replicas[by].sees.states[node].request.unwrap_or_default();
                world.replicas[by].pods[node] = Some((request, is_gone));
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no pool is above its limit", |_, world: &World| {
                (0..2).all(|pool| {
                    let holds = |node: &usize| {
                        pool_of(*node) == pool
                            && (is_in_flight(world.api.states[*node].status)
                                || world.api.nodes[*node].mark.is_some())
                    };
                    (0..world.api.nodes.len()).filter(holds).count() <= 1
                })
            }),
            Property::always("a drained node has no pods", |_, world: &World| {
                let is_drained = |state: &StateFacts| state.status == DrainStatus::DrainingComplete;
                !world.disturbed
                    && world
                        .api
                        .states
                        .iter()
                        .zip(&world.pods)
                        .all(|(state, pod)| !is_drained(state) || *pod == Pod::None)
            }),
            Property::eventually("everybody who asked is served, and left as found", |_, world: &World| {
                world.needs.iter().all(Option::is_none)
                    && world.api.states.iter().all(|state| state.status == DrainStatus::Idle)
                    && world.api.nodes.iter().all(|node| node.mark.is_none() && !node.is_cordoned)
            }),
            Property::sometimes("slots are used", |_, world: &World| {
                world.api.states.iter().any(|state| state.status == DrainStatus::DrainingComplete)
            }),
        ]
    }
}

impl Protocol {
    fn replica_actions(&self, world: &World, by: usize, replica: &Replica, actions: &mut Vec<Action>) {
        if world.budget.replica_crashes > 0 {
            actions.push(Action::Crash(by));
        }
        let (nodes, states, pools) = (
            replica.nodes_current.contains(&false),
            replica.states_current.contains(&false),
            replica.pools_current.contains(&false),
        );
        if self.sees_whole && (nodes || states || pools) {
            actions.push(Action::SeeAll(by));
        } else if !self.sees_whole {
            actions.extend(nodes.then_some(Action::SeeNodes(by)));
            actions.extend(states.then_some(Action::SeeStates(by)));
            actions.extend(pools.then_some(Action::SeePools(by)));
        }
        for pool in 0..2 {
            let plan = replica.plan_slots(pool, self.bug);
            let is_new = plan.slots != replica.sees.pools[pool]
                && (self.bug != Bug::NoGrant || plan.granted.is_empty());
            if is_new && (replica.pools_current[pool] || self.bug == Bug::UnguardedSlots) {
                actions.push(Action::Slots(by, pool));
            }
            for node in 0..self.nodes {
                if plan.verify.contains(&name(node)) {
                    actions.push(Action::Verify(by, node));
                }
                if replica.nodes_current[node] && plan.conclude.iter().any(|slot| slot.node == name(node)) {
                    actions.push(Action::Conclude(by, node));
                }
            }
        }
        for node in 0..self.nodes {
            match replica.next(node, self.bug) {
                NodeAction::Set { .. } if replica.states_current[node] => {
                    actions.push(Action::Node(by, node))
                }
                NodeAction::Cordon(_) | NodeAction::Uncordon { .. } if replica.nodes_current[node] => {
                    actions.push(Action::Node(by, node));
                }
                NodeAction::Verify => actions.push(Action::Verify(by, node)),
                NodeAction::Evict { .. } => {
                    if replica.pods[node].is_some_and(|(_, is_gone)| !is_gone)
                        && world.pods[node] == Pod::Running
                    {
                        actions.push(Action::Node(by, node));
                    }
                    let request = replica.sees.states[node].request.unwrap_or_default();
                    let is_news = match replica.pods[node] {
                        Some((looked_for, is_gone)) => {
                            looked_for != request || is_gone != (world.pods[node] == Pod::None)
                        }
                        None => true,
                    };
                    if is_news {
                        actions.push(Action::Look(by, node));
                    }
                }
                _ => {}
            }
        }
    }
}

impl Representative for World {
    /// It does not matter which replica is which.
    fn representative(&self) -> Self {
        let mut world = self.clone();
        world.replicas.sort();
        world
    }
}
