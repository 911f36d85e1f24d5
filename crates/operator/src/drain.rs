//! Draining: it follows pools, nodes and node states, asks `vfleet_plan::drain`, and writes what it says.
//!
//! - [`index`]: what the API server tells, and which nodes and pools a change touches
//! - [`line`]: who holds a slot of a pool, and who stands in line for one
//! - [`writes`]: every write, on top of the version that it was decided on
//! - [`evictions`]: the pods of nodes that are being drained
//! - [`mcp`]: OpenShift's machine config pools, paused while nodes are drained
//! - [`migration`]: drains of the Go operator that are under way
//! - [`reports`], [`telling`]: conditions and Events

mod carry_out;
mod evictions;
mod index;
mod line;
mod mcp;
mod migration;
mod objects;
mod reports;
mod telling;
mod writes;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use vfleet_api::keys::GO_DRAIN_LEASE;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkPoolConfig};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::pace::{self, Paced};
use vfleet_cluster::queue::Work;
use vfleet_cluster::wakes::Wakes;
use vfleet_cluster::watch;
use vfleet_plan::drain::{McpFacts, NodeAction, wakes_at};

use crate::OperatorError;
use crate::components::settings::{Seen, Settings};
use crate::fleet::shared::Shared;
use crate::replica::context::Context;
use carry_out::Hands;
use evictions::{Evictions, Sighting};
use index::{Index, Todo, Touched, now};
use mcp::MachineConfigPools;
use migration::remove_lease;
use writes::{Fresh, as_event};

/// Enough to keep the API server busy.
const NODES_AT_ONCE: usize = 64;
/// Most of them wait for pods.
const ENDS_AT_ONCE: usize = 512;
const POOLS_AT_ONCE: usize = 8;
const REPORTS_AT_ONCE: usize = 8;

/// Something changed.
enum Change {
    Node(Box<Event<Guarded<Node>>>),
    State(Box<Event<Guarded<SriovNetworkNodeState>>>),
    Pool(Box<Event<Guarded<SriovNetworkPoolConfig>>>),
    Settings(Box<Seen>),
}

/// Runs the controller until `stop`.
pub(crate) async fn run(
    context: Context,
    seen: Shared,
    settings: Settings,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let mut changes = pin!(changes(seen, settings));
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
            nodes = mcp_changes.next() => controller.saw_mcps(nodes.ok_or(OperatorError::WatchEnded)?),
            Some(seen) = fresh.recv() => controller.look(seen),
            Some(sighting) = sightings.recv() => controller.saw_pods(sighting),
            () = controller.nodes.progress() => {}
            () = controller.ends.progress() => {}
            () = controller.pools.progress() => {}
            () = controller.reports.progress() => {}
            () = chores.progress() => {
                while let Some(lease) = chores.next_touched() {
                    chores.start(lease, remove_lease(context.clone()));
                }
            }
            node = controller.news.next() => controller.reports.touch([node]),
            pool = controller.grants.next() => controller.pools.touch([pool]),
            pool = controller.returns.next() => controller.pools.touch([pool]),
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
    controller.ends.finish().await;
    controller.pools.finish().await;
    controller.reports.finish().await;
    controller.blocked.forget_all();
    Ok(())
}

fn changes(seen: Shared, settings: Settings) -> impl futures::Stream<Item = Change> {
    futures::stream::select_all([
        seen.nodes.map(|event| Change::Node(Box::new(event))).boxed(),
        seen.states.map(|event| Change::State(Box::new(event))).boxed(),
        seen.pools.map(|event| Change::Pool(Box::new(event))).boxed(),
        watch::values(settings).map(|seen| Change::Settings(Box::new(seen))).boxed(),
    ])
}

struct Controller {
    context: Context,
    index: Index,
    hands: Hands,
    /// Whether all is known about OpenShift's machine config pools.
    knows_mcps: bool,
    evictions: Evictions,
    /// Nodes whose pods are being evicted.
    evicting: HashSet<String>,
    /// Nodes for which something may be to be done.
    nodes: Work<String>,
    /// Nodes whose drain is over.
    ends: Work<String>,
    /// Pools whose slots may change hands.
    pools: Work<String>,
    /// The same: pools in which somebody waits for a slot, and those in which nobody does.
    grants: Paced<String>,
    returns: Paced<String>,
    /// Nodes about which there may be something new to say.
    news: Paced<String>,
    /// Of those, the ones whose turn it is.
    reports: Work<String>,
    /// Nodes for which something is due at a time.
    wakes: Wakes<String>,
    blocked: telling::BlockedCount,
    /// Pools whose slots cannot be written, of which those who wait were told.
    refused_pools: BTreeSet<String>,
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
            knows_mcps: false,
            evictions,
            evicting: HashSet::new(),
            nodes: Work::new("drain", NODES_AT_ONCE, metrics()),
            ends: Work::new("drain-ends", ENDS_AT_ONCE, metrics()),
            pools: Work::new("drain-slots", POOLS_AT_ONCE, metrics()),
            grants: Paced::default(),
            returns: Paced::default(),
            news: Paced::default(),
            reports: Work::new("drain-reports", REPORTS_AT_ONCE, metrics()),
            wakes: Wakes::default(),
            blocked: telling::BlockedCount::new(metrics()),
            refused_pools: BTreeSet::new(),
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
        let mut touched = match fresh {
            Fresh::Node(found) => self.index.node(as_event(&name, found)),
            Fresh::State(found) => self.index.state(as_event(&name, found)),
            Fresh::Pool(found) => {
                let mut touched = self.index.pool(as_event(&name, found));
                // Whoever was too late decides again, also when nothing changed that counts.
                touched.pools.insert(name.clone());
                touched
            }
            Fresh::Verified => self.index.verified(&name),
        };
        if self.index.knows_node(&name) {
            touched.nodes.insert(name);
        }
        self.touch(touched);
    }

    /// Those for which something changed; once all is known, also those that waited for that.
    fn saw_mcps(&mut self, nodes: BTreeSet<String>) {
        self.nodes.touch(nodes);
        if !self.knows_mcps && self.hands.mcps.is_complete() {
            self.knows_mcps = true;
            self.nodes.touch(self.index.draining().map(str::to_owned));
        }
    }

    fn saw_pods(&mut self, sighting: Sighting) {
        if self.evicting.contains(&sighting.node) {
            let touched = self.index.sighting(sighting);
            self.touch(touched);
        }
    }

    fn touch(&mut self, touched: Touched) {
        // A withdrawal does not wait for its turn.
        for node in &touched.nodes {
            if self.evicting.contains(node) && !self.index.is_being_drained(node) {
                self.stop_evictions(node);
            }
        }
        self.nodes.touch(touched.nodes);
        for pool in touched.pools {
            let pace = pace::of_list(self.index.slots_of(&pool));
            if self.index.has_waiting(&pool) {
                self.grants.touch(pool, pace);
            } else {
                self.returns.touch(pool, pace.max(pace::READABLE));
            }
        }
    }

    fn go_on(&mut self) {
        if !self.index.is_complete() || !self.hands.mcps.is_settled() {
            return;
        }
        while let Some(pool) = self.pools.next_touched() {
            self.give_slots(pool);
        }
        self.look_at_refused_pools();
        while let Some(node) = self.nodes.next_touched() {
            self.go_on_with(node);
        }
        while let Some(node) = self.ends.next_touched() {
            self.end(node);
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
        self.hands.mcps.facts(node, self.index.draining())
    }

    fn go_on_with(&mut self, node: String) {
        let now = now();
        self.tell_unknown(&node);
        self.tell_obstacle(&node, now);
        let decided = self.index.decide(&node, self.mcp(&node), now);
        let due = decided.state.and_then(|state| wakes_at(&state.facts, &decided.rules));
        self.wakes.set(&node, due.filter(|due| *due > now).map(|due| due.to_time().0));
        match (&decided.todo, decided.state) {
            (Todo::Act(NodeAction::Evict { .. }), Some(state)) => {
                let request = state.facts.request.unwrap_or_default();
                self.evictions.drain(&node, request, state.facts.scope);
                self.evicting.insert(node.clone());
                self.nodes.nothing_to_do(&node);
            }
            (Todo::Act(NodeAction::Uncordon { .. }), _) => {
                self.nodes.nothing_to_do(&node);
                self.ends.touch([node]);
            }
            (todo, _) => {
                // What was seen of the pods before a cordon says nothing about those that came since.
                let is_cordon = matches!(todo, Todo::Act(NodeAction::Cordon(_)));
                match self.hands.carry_out(&node, &decided, &self.evictions, now) {
                    Some(work) => self.nodes.start(node.clone(), work),
                    None => self.nodes.nothing_to_do(&node),
                }
                if is_cordon {
                    self.stop_evictions(&node);
                }
                if due.is_some_and(|due| due <= now) {
                    // It may be in line again, which nothing else has told.
                    let Touched { pools, .. } = self.index.is_due(&node);
                    self.touch(Touched { pools, ..Default::default() });
                }
            }
        }
    }

    /// The drain is over. This may take a while, for pods of DaemonSets: nobody waits for it.
    fn end(&mut self, node: String) {
        let now = now();
        let decided = self.index.decide(&node, self.mcp(&node), now);
        let is_end = matches!(decided.todo, Todo::Act(NodeAction::Uncordon { .. }));
        match self.hands.carry_out(&node, &decided, &self.evictions, now).filter(|_| is_end) {
            Some(work) => self.ends.start(node, work),
            None => self.ends.nothing_to_do(&node),
        }
    }

    fn stop_evictions(&mut self, node: &str) {
        if self.evicting.remove(node) {
            self.evictions.stop(node);
            self.index.forget_pods(node);
        }
    }
}
