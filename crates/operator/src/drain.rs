//! Draining: it follows pools, nodes and node states, asks `vfleet_plan::drain`, and writes what it says.
//!
//! - [`index`]: what the API server tells, and which nodes and pools a change touches
//! - [`line`]: who holds a slot of a pool, and who stands in line for one
//! - [`writes`]: every write, on top of the version that it was decided on
//! - [`evictions`]: the pods of nodes that are being drained
//! - [`mcp`]: OpenShift's machine config pools, paused while nodes are drained
//! - [`migration`]: drains of the Go operator that are under way
//! - [`telling`]: conditions and Events

mod carry_out;
mod evictions;
mod index;
mod line;
mod mcp;
mod migration;
mod objects;
mod telling;
mod writes;

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::events::EventType;
use kube::runtime::watcher::{self, Event};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use vfleet_api::keys::GO_DRAIN_LEASE;
use vfleet_api::node_state::DrainStatus;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkPoolConfig};
use vfleet_plan::drain::{McpFacts, Migration, NodeAction, wakes_at};

use crate::context::Context;
use crate::pace::Paced;
use crate::settings::{Seen, Settings};
use crate::wakes::Wakes;
use crate::work::Work;
use crate::{OperatorError, watch};
use carry_out::Hands;
use evictions::{Evictions, Sighting};
use index::{Index, Todo, Touched, now};
use mcp::MachineConfigPools;
use migration::{remove_lease, unknown_text};
use writes::{Fresh, as_event};

/// Enough to keep the API server busy.
const NODES_AT_ONCE: usize = 64;
const POOLS_AT_ONCE: usize = 8;
const REPORTS_AT_ONCE: usize = 8;

/// Something changed.
enum Change {
    Node(Box<Event<DeserializeGuard<Node>>>),
    State(Box<Event<DeserializeGuard<SriovNetworkNodeState>>>),
    Pool(Box<Event<DeserializeGuard<SriovNetworkPoolConfig>>>),
    Settings(Box<Seen>),
}

/// Runs the controller until `stop`.
pub(crate) async fn run(
    context: Context,
    settings: Settings,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let mut changes = pin!(changes(&context, settings));
    let (tell, mut fresh) = mpsc::unbounded_channel();
    let (evictions, mut sightings) = Evictions::new(&context);
    let mcps = MachineConfigPools::new(&context);
    let mut mcp_changes = pin!(mcps.changes());
    let mut chores = Work::new("drain-chores", 1, Arc::clone(&context.metrics));
    chores.start(GO_DRAIN_LEASE, remove_lease(context.clone()));
    let mut controller = Controller::new(&context, Hands::new(&context, tell, mcps), evictions);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => controller.take(change.ok_or(OperatorError::WatchEnded)?),
            nodes = mcp_changes.next() => controller.nodes.touch(nodes.ok_or(OperatorError::WatchEnded)?),
            Some(seen) = fresh.recv() => controller.look(seen),
            Some(sighting) = sightings.recv() => controller.saw_pods(sighting),
            () = controller.nodes.progress() => {}
            () = controller.pools.progress() => {}
            () = controller.reports.progress() => {}
            () = chores.progress() => {
                while let Some(lease) = chores.next_touched() {
                    chores.start(lease, remove_lease(context.clone()));
                }
            }
            pool = controller.paced.next() => controller.pools.touch([pool]),
            node = controller.wakes.next() => {
                let touched = controller.index.is_due(&node);
                controller.touch(touched);
            }
        }
        // What a write that just ended has seen comes before anything is decided on top of it.
        while let Ok(seen) = fresh.try_recv() {
            controller.look(seen);
        }
        controller.go_on();
    }
    controller.nodes.finish().await;
    controller.pools.finish().await;
    controller.reports.finish().await;
    controller.blocked.forget_all();
    Ok(())
}

fn changes(context: &Context, settings: Settings) -> impl futures::Stream<Item = Change> + use<> {
    let (client, namespace) = (&context.client, context.config.namespace.as_str());
    let all = watcher::Config::default;
    let nodes = watch::changes::<Node>(Api::all(client.clone()), all());
    let states = watch::changes(Api::namespaced(client.clone(), namespace), all());
    let pools = watch::changes(Api::namespaced(client.clone(), namespace), all());
    futures::stream::select_all([
        nodes.map(|event| Change::Node(Box::new(event))).boxed(),
        states.map(|event| Change::State(Box::new(event))).boxed(),
        pools.map(|event| Change::Pool(Box::new(event))).boxed(),
        watch::values(settings).map(|seen| Change::Settings(Box::new(seen))).boxed(),
    ])
}

struct Controller {
    context: Context,
    index: Index,
    hands: Hands,
    evictions: Evictions,
    /// Nodes whose pods are being evicted.
    evicting: HashSet<String>,
    /// Nodes for which something may be to be done.
    nodes: Work<String>,
    /// Pools whose slots may change hands.
    pools: Work<String>,
    /// The same, where nobody waits for it.
    paced: Paced<String>,
    /// Nodes about which there may be something new to say.
    reports: Work<String>,
    /// Nodes for which something is due at a time.
    wakes: Wakes<String>,
    blocked: telling::BlockedCount,
    /// What was said about annotations that mean nothing to us.
    said_unknown: HashMap<String, String>,
}

impl Controller {
    fn new(context: &Context, hands: Hands, evictions: Evictions) -> Self {
        let metrics = || Arc::clone(&context.metrics);
        Self {
            context: context.clone(),
            index: Index::new(&context.config.namespace),
            hands,
            evictions,
            evicting: HashSet::new(),
            nodes: Work::new("drain", NODES_AT_ONCE, metrics()),
            pools: Work::new("drain-slots", POOLS_AT_ONCE, metrics()),
            paced: Paced::default(),
            reports: Work::new("drain-reports", REPORTS_AT_ONCE, metrics()),
            wakes: Wakes::default(),
            blocked: telling::BlockedCount::new(metrics()),
            said_unknown: HashMap::new(),
        }
    }

    fn take(&mut self, change: Change) {
        let touched = match change {
            Change::Node(event) => self.index.node(*event),
            Change::State(event) => self.index.state(*event),
            Change::Pool(event) => self.index.pool(*event),
            Change::Settings(seen) => self.index.settings(seen.config()),
        };
        self.touch(touched);
    }

    /// What a write has seen counts as a change: it is newer than what the watches have told.
    fn look(&mut self, (name, fresh): (String, Fresh)) {
        let touched = match fresh {
            Fresh::Node(found) => self.index.node(as_event(&name, found)),
            Fresh::State(found) => self.index.state(as_event(&name, found)),
            Fresh::Pool(found) => self.index.pool(as_event(&name, found)),
            Fresh::Verified => self.index.verified(&name),
        };
        self.touch(touched);
    }

    fn saw_pods(&mut self, sighting: Sighting) {
        if self.evicting.contains(&sighting.node) {
            let touched = self.index.sighting(sighting);
            self.touch(touched);
        }
    }

    fn touch(&mut self, touched: Touched) {
        self.nodes.touch(touched.nodes);
        for pool in touched.pools {
            if self.index.has_waiting(&pool) {
                self.pools.touch([pool]);
            } else {
                self.paced.touch(pool);
            }
        }
    }

    fn go_on(&mut self) {
        if !self.index.is_complete() || !self.hands.mcps.is_complete() {
            return;
        }
        while let Some(pool) = self.pools.next_touched() {
            self.give_slots(pool);
        }
        while let Some(node) = self.nodes.next_touched() {
            self.go_on_with(node);
        }
        while let Some(node) = self.reports.next_touched() {
            self.report(node);
        }
    }

    fn give_slots(&mut self, pool: String) {
        let Some((seen, slots, granted)) = self.index.plan_slots(&pool, now()) else {
            self.pools.nothing_to_do(&pool);
            return;
        };
        tracing::debug!(pool, held = slots.len(), ?granted, "slots change hands");
        let writing = self.hands.give_slots(pool.clone(), seen.version.clone(), slots);
        self.pools.start(pool, writing);
    }

    /// OpenShift's machine config pool of the node, if it has one.
    fn mcp(&self, node: &str) -> Option<McpFacts> {
        self.hands.mcps.facts(node, |node| self.index.is_draining(node))
    }

    fn go_on_with(&mut self, node: String) {
        let now = now();
        self.tell_unknown(&node);
        let decided = self.index.decide(&node, self.mcp(&node), now);
        let due = decided.state.and_then(|state| wakes_at(&state.facts, &decided.rules));
        self.wakes.set(&node, due.filter(|due| *due > now).map(|due| due.to_time().0));
        let is_draining = decided.node.is_some()
            && decided.state.is_some_and(|state| state.facts.status == DrainStatus::Draining);
        if let Ok(obstacle) = telling::obstacle(&decided) {
            self.blocked.count(&node, obstacle.as_ref());
            let said = decided.state.map(|state| state.blocked.as_ref());
            if said.is_some_and(|said| telling::is_news(said, obstacle.as_ref())) {
                self.reports.touch([node.clone()]);
            }
        }
        if !is_draining && self.evicting.remove(&node) {
            self.evictions.stop(&node);
            self.index.forget_pods(&node);
            return self.go_on_with(node);
        }
        if let (Todo::Act(NodeAction::Evict { .. }), Some(state)) = (&decided.todo, decided.state) {
            let request = state.facts.request.unwrap_or_default();
            self.evictions.drain(&node, request, state.facts.scope);
            self.evicting.insert(node.clone());
            self.nodes.nothing_to_do(&node);
            return;
        }
        match self.hands.carry_out(&node, &decided, &self.evictions, now) {
            Some(work) => self.nodes.start(node, work),
            None => self.nodes.nothing_to_do(&node),
        }
    }

    /// Says once what cannot be moved of what the Go operator left.
    fn tell_unknown(&mut self, node: &str) {
        let leftover = self.index.leftover(node, self.mcp(node).is_some(), now());
        let (Some(Migration::Unknown { key, value }), Some(uid)) = (leftover, self.index.state_uid(node))
        else {
            self.said_unknown.remove(node);
            return;
        };
        let text = unknown_text(key, &value);
        if self.said_unknown.insert(node.to_owned(), text.clone()).as_ref() != Some(&text) {
            self.hands.tell(node, uid, EventType::Warning, "UnknownDrainState", text);
        }
    }

    fn report(&mut self, node: String) {
        let decided = self.index.decide(&node, self.mcp(&node), now());
        let (Ok(obstacle), Some(state)) = (telling::obstacle(&decided), decided.state) else {
            self.reports.nothing_to_do(&node);
            return;
        };
        if !telling::is_news(state.blocked.as_ref(), obstacle.as_ref()) {
            self.reports.nothing_to_do(&node);
            return;
        }
        let said = state.blocked.as_ref().filter(|said| said.status == "True");
        // Words that change while it is blocked, such as numbers of pods, are not worth another Event.
        if let Some(obstacle) =
            obstacle.as_ref().filter(|new| said.is_none_or(|said| said.reason != new.reason))
        {
            let note = obstacle.message.clone();
            self.hands.tell(&node, &state.uid, EventType::Warning, obstacle.reason, note);
        }
        let said = state.blocked.clone();
        let writing = telling::write_condition(self.context.clone(), node.clone(), said, obstacle);
        self.reports.start(node, writing);
    }
}
