//! Drain controller: watches pools, nodes and node states, decides with `vfleet_plan::drain` and executes the
//! decisions.
//!
//! - [`index`]: stored objects, and the nodes and pools that a change touches
//! - [`slot_queue`]: nodes of a pool that hold a slot or wait for one
//! - [`effects`]: execution of decisions
//! - [`writes`]: writes, each with the resource version of its decision
//! - [`evictions`]: eviction of pods
//! - [`mcp`]: machine config pools (OpenShift), paused while their nodes are drained
//! - [`migration`]: unfinished drains of the Go operator
//! - [`blocked`], [`reports`], [`events`]: condition `Blocked` and Events

mod blocked;
mod effects;
mod events;
mod evictions;
mod index;
mod mcp;
mod migration;
mod objects;
mod reports;
mod slot_queue;
mod writes;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use vfleet_api::keys::GO_DRAIN_LEASE;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkPoolConfig};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::pace::{self, PacedQueue};
use vfleet_cluster::queue::WorkQueue;
use vfleet_cluster::wake::WakeQueue;
use vfleet_cluster::watch;
use vfleet_plan::drain::{McpFacts, NodeAction, next_deadline};

use crate::OperatorError;
use crate::components::config_watch::{OperatorConfigReceiver, OperatorConfigState};
use crate::fleet::shared_watches::SharedWatches;
use crate::replica::context::Context;
use effects::DrainEffects;
use evictions::{EvictionProgress, Evictions};
use index::{DrainIndex, NextAction, Touched, now};
use mcp::MachineConfigPools;
use migration::remove_lease;
use writes::{FreshObject, as_event};

/// Nodes processed in parallel: enough to keep the API server busy.
const NODES_AT_ONCE: usize = 64;
/// Drains finished in parallel. Most of them wait for DaemonSet pods.
const FINISHES_AT_ONCE: usize = 512;
const POOLS_AT_ONCE: usize = 8;
const REPORTS_AT_ONCE: usize = 8;
/// Interval per waiting node between reports about the slots of a pool: at most ten reports per second on average.
const SLOT_REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Longest interval between these reports. Pools with many waiting nodes name no holders, so that reports rarely change.
const MAX_SLOT_REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Change of a watched object.
enum WatchedChange {
    Node(Box<Event<Guarded<Node>>>),
    State(Box<Event<Guarded<SriovNetworkNodeState>>>),
    Pool(Box<Event<Guarded<SriovNetworkPoolConfig>>>),
    Settings(Box<OperatorConfigState>),
}

/// Runs the drain controller until `stop` is cancelled.
pub(crate) async fn run(
    context: Context,
    watches: SharedWatches,
    settings: OperatorConfigReceiver,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let mut changes = pin!(stream_changes(watches, settings));
    let (fresh_sender, mut fresh) = mpsc::unbounded_channel();
    let (evictions, mut eviction_progress) = Evictions::new(&context);
    let mcps = MachineConfigPools::new(&context);
    let mut mcp_changes = pin!(mcps.stream_changes());
    let mut cleanup = WorkQueue::new("drain-chores", 1, Arc::clone(&context.metrics));
    cleanup.start(GO_DRAIN_LEASE, remove_lease(context.clone()));
    let mut controller =
        DrainController::new(&context, DrainEffects::new(&context, fresh_sender, mcps), evictions);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => controller.handle_change(change.ok_or(OperatorError::WatchEnded)?),
            nodes = mcp_changes.next() => controller.handle_mcp_change(nodes.ok_or(OperatorError::WatchEnded)?),
            Some(object) = fresh.recv() => controller.handle_fresh(object),
            Some(progress) = eviction_progress.recv() => controller.handle_progress(progress),
            () = controller.nodes.wait_for_progress() => {}
            () = controller.finishing.wait_for_progress() => {}
            () = controller.pools.wait_for_progress() => {}
            () = controller.reports.wait_for_progress() => {}
            () = cleanup.wait_for_progress() => {
                while let Some(lease) = cleanup.take_next() {
                    cleanup.start(lease, remove_lease(context.clone()));
                }
            }
            node = controller.pending_reports.next() => controller.reports.add([node]),
            pool = controller.grants.next() => controller.pools.add([pool]),
            pool = controller.releases.next() => controller.pools.add([pool]),
            pool = controller.slot_reports.next() => controller.report_waiting(&pool),
            node = controller.deadlines.next() => {
                let touched = controller.index.requeue(&node);
                controller.enqueue(touched);
            }
        }
        // Results of writes are stored before the next decision.
        while let Ok(object) = fresh.try_recv() {
            controller.handle_fresh(object);
        }
        controller.process_queues();
    }
    controller.nodes.finish().await;
    controller.finishing.finish().await;
    controller.pools.finish().await;
    controller.reports.finish().await;
    controller.blocked.clear();
    Ok(())
}

fn stream_changes(
    watches: SharedWatches,
    settings: OperatorConfigReceiver,
) -> impl futures::Stream<Item = WatchedChange> {
    futures::stream::select_all([
        watches.nodes.map(|event| WatchedChange::Node(Box::new(event))).boxed(),
        watches.states.map(|event| WatchedChange::State(Box::new(event))).boxed(),
        watches.pools.map(|event| WatchedChange::Pool(Box::new(event))).boxed(),
        watch::stream_values(settings).map(|config| WatchedChange::Settings(Box::new(config))).boxed(),
    ])
}

/// Controller that drains nodes, with its queues.
struct DrainController {
    context: Context,
    index: DrainIndex,
    effects: DrainEffects,
    /// All machine config pools are known.
    are_mcps_listed: bool,
    evictions: Evictions,
    /// Nodes whose pods are being evicted.
    evicting: HashSet<String>,
    /// Nodes to be processed.
    nodes: WorkQueue<String>,
    /// Nodes whose drain is to be finished.
    finishing: WorkQueue<String>,
    /// Pools whose slots are to be planned.
    pools: WorkQueue<String>,
    /// Pools to be added to `pools`, with nodes that wait for a slot.
    grants: PacedQueue<String>,
    /// Pools to be added to `pools`, without such nodes.
    releases: PacedQueue<String>,
    /// Pools whose waiting nodes are to be reported again because the slots changed.
    slot_reports: PacedQueue<String>,
    /// Nodes to be added to `reports`.
    pending_reports: PacedQueue<String>,
    /// Nodes whose condition `Blocked` is to be written.
    reports: WorkQueue<String>,
    /// Nodes to be processed at a certain time.
    deadlines: WakeQueue<String>,
    blocked: blocked::BlockedGauge,
    /// Pools whose slots cannot be written.
    failing_pools: BTreeSet<String>,
    /// Reported messages about unknown annotation values, by node.
    reported_annotations: HashMap<String, String>,
}

impl DrainController {
    fn new(context: &Context, effects: DrainEffects, evictions: Evictions) -> Self {
        let metrics = || Arc::clone(&context.metrics);
        Self {
            context: context.clone(),
            index: DrainIndex::new(&context.config.namespace),
            effects,
            are_mcps_listed: false,
            evictions,
            evicting: HashSet::new(),
            nodes: WorkQueue::new("drain", NODES_AT_ONCE, metrics()),
            finishing: WorkQueue::new("drain-ends", FINISHES_AT_ONCE, metrics()),
            pools: WorkQueue::new("drain-slots", POOLS_AT_ONCE, metrics()),
            grants: PacedQueue::default(),
            releases: PacedQueue::default(),
            slot_reports: PacedQueue::default(),
            pending_reports: PacedQueue::default(),
            reports: WorkQueue::new("drain-reports", REPORTS_AT_ONCE, metrics()),
            deadlines: WakeQueue::default(),
            blocked: blocked::BlockedGauge::new(metrics()),
            failing_pools: BTreeSet::new(),
            reported_annotations: HashMap::new(),
        }
    }

    fn handle_change(&mut self, change: WatchedChange) {
        let touched = match change {
            WatchedChange::Node(event) => self.index.update_node(*event),
            WatchedChange::State(event) => self.index.update_state(*event),
            WatchedChange::Pool(event) => self.index.update_pool(*event),
            WatchedChange::Settings(config) => self.index.update_settings(config.existing()),
        };
        self.enqueue(touched);
    }

    /// Stores an object that a write has returned, which is newer than the watched one.
    fn handle_fresh(&mut self, (name, fresh): (String, FreshObject)) {
        let mut touched = match fresh {
            FreshObject::Node(found) => self.index.update_node(as_event(&name, found)),
            FreshObject::State(found) => self.index.update_state(as_event(&name, found)),
            FreshObject::Pool(found) => {
                let mut touched = self.index.update_pool(as_event(&name, found));
                // After a conflict the slots are planned again even if nothing relevant changed.
                touched.pools.insert(name.clone());
                touched
            }
            FreshObject::Verified => self.index.mark_verified(&name),
        };
        if self.index.contains_node(&name) {
            touched.nodes.insert(name);
        }
        self.enqueue(touched);
    }

    /// Processes the nodes of changed machine config pools, and all draining nodes as soon as all pools are known.
    fn handle_mcp_change(&mut self, nodes: BTreeSet<String>) {
        self.nodes.add(nodes);
        if !self.are_mcps_listed && self.effects.mcps.is_complete() {
            self.are_mcps_listed = true;
            self.nodes.add(self.index.draining_nodes().map(str::to_owned));
        }
    }

    fn handle_progress(&mut self, progress: EvictionProgress) {
        if self.evicting.contains(&progress.node) {
            let touched = self.index.update_progress(progress);
            self.enqueue(touched);
        }
    }

    fn enqueue(&mut self, touched: Touched) {
        // Evictions stop at once if the request was withdrawn.
        for node in &touched.nodes {
            if self.evicting.contains(node) && !self.index.is_being_drained(node) {
                self.stop_evictions(node);
            }
        }
        self.nodes.add(touched.nodes);
        for pool in touched.pools {
            let interval = pace::list_write_interval(self.index.slot_count(&pool));
            let waiting = u32::try_from(self.index.waiting_count(&pool)).unwrap_or(u32::MAX);
            if waiting > 0 {
                let report_interval = SLOT_REPORT_INTERVAL.saturating_mul(waiting);
                let report_interval =
                    report_interval.clamp(pace::READABLE_INTERVAL, MAX_SLOT_REPORT_INTERVAL);
                self.slot_reports.add(pool.clone(), report_interval);
                self.grants.add(pool, interval);
            } else {
                self.releases.add(pool, interval.max(pace::READABLE_INTERVAL));
            }
        }
    }

    fn process_queues(&mut self) {
        if !self.index.is_complete() || !self.effects.mcps.is_settled() {
            return;
        }
        while let Some(pool) = self.pools.take_next() {
            self.write_slots(pool);
        }
        self.check_failing_pools();
        while let Some(node) = self.nodes.take_next() {
            self.process_node(node);
        }
        while let Some(node) = self.finishing.take_next() {
            self.finish_drain(node);
        }
        while let Some(node) = self.reports.take_next() {
            self.report(node);
        }
    }

    fn write_slots(&mut self, pool: String) {
        let Some((stored, slots, granted)) = self.index.plan_slots(&pool, now()) else {
            self.pools.mark_done(&pool);
            return;
        };
        tracing::debug!(pool, held = slots.len(), granted = granted.join(", "), "writing slots");
        let write = self.effects.write_slots(pool.clone(), stored.version.clone(), slots);
        self.pools.start(pool, write);
    }

    /// Returns the facts of the node's machine config pool (OpenShift).
    fn mcp(&self, node: &str) -> Option<McpFacts> {
        self.effects.mcps.facts(node, self.index.draining_nodes())
    }

    /// Starts the next action for the node.
    fn process_node(&mut self, node: String) {
        let now = now();
        self.report_unknown_annotation(&node);
        self.update_hold(&node, now);
        let decision = self.index.decide(&node, self.mcp(&node), now);
        let deadline = decision.state.and_then(|state| next_deadline(&state.facts, &decision.rules));
        let timer = deadline.filter(|deadline| *deadline > now);
        self.deadlines.set(&node, timer.map(|deadline| deadline.to_time().0));
        match (&decision.next, decision.state) {
            (NextAction::Act(NodeAction::Evict { .. }), Some(state)) => {
                let request = state.facts.request.unwrap_or_default();
                self.evictions.start(&node, request, state.facts.scope);
                self.evicting.insert(node.clone());
                self.nodes.mark_done(&node);
            }
            (NextAction::Act(NodeAction::Uncordon { .. }), _) => {
                self.nodes.mark_done(&node);
                self.finishing.add([node]);
            }
            (next, _) => {
                // Pods may have come until the cordon, so they must be listed again after it.
                let is_cordon = matches!(next, NextAction::Act(NodeAction::Cordon(_)));
                match self.effects.execute(&node, &decision, &self.evictions, now) {
                    Some(task) => self.nodes.start(node.clone(), task),
                    None => self.nodes.mark_done(&node),
                }
                if is_cordon {
                    self.stop_evictions(&node);
                }
                if deadline.is_some_and(|deadline| deadline <= now) {
                    // The node may wait for a slot again without any change of an object.
                    let Touched { pools, .. } = self.index.requeue(&node);
                    self.enqueue(Touched { pools, ..Default::default() });
                }
            }
        }
    }

    /// Finishes a drain. In its own queue, because restarting DaemonSet pods may take a while.
    fn finish_drain(&mut self, node: String) {
        let now = now();
        let decision = self.index.decide(&node, self.mcp(&node), now);
        let is_finish = matches!(decision.next, NextAction::Act(NodeAction::Uncordon { .. }));
        match self.effects.execute(&node, &decision, &self.evictions, now).filter(|_| is_finish) {
            Some(task) => self.finishing.start(node, task),
            None => self.finishing.mark_done(&node),
        }
    }

    fn stop_evictions(&mut self, node: &str) {
        if self.evicting.remove(node) {
            self.evictions.stop(node);
            self.index.forget_progress(node);
        }
    }
}
