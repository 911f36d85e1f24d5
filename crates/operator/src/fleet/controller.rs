//! Fleet controller: writes node states, and the status of policies and pools.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::runtime::watcher::{self, Event};
use tokio::sync::{mpsc, watch as channel};
use tokio_util::sync::CancellationToken;
use vfleet_api::node_state::DrainStatus;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeState, SriovNetworkPoolConfig};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::pace::{self, PacedQueue};
use vfleet_cluster::queue::WorkQueue;
use vfleet_cluster::wake::WakeQueue;
use vfleet_cluster::watch;
use vfleet_plan::{NicIds, NodeStateAction, PolicyEvaluation};

use crate::OperatorError;
use crate::components::config_watch::{OperatorConfigReceiver, OperatorConfigState};
use crate::components::go_device_plugin::{DesiredNodePlugin, PluginUpdate};
use crate::fleet::index::{AffectedObjects, FleetIndex, SyncStatus};
use crate::fleet::reports::{ReportTarget, StatusReporter};
use crate::fleet::shared_watches::SharedWatches;
use crate::fleet::state_writer::NodeStateWriter;
use crate::openshift::offload::OffloadStatus;
use crate::replica::context::Context;

/// Number of concurrent writes of node states: enough to use the API server well, and few enough to leave room for
/// other requests in its queue for one client.
const MAX_WRITES: usize = 32;
const MAX_REPORTS: usize = 4;

/// Input event of the controller.
enum FleetChange {
    Policy(Box<Event<Guarded<SriovNetworkNodePolicy>>>),
    Pool(Box<Event<Guarded<SriovNetworkPoolConfig>>>),
    Node(Box<Event<Guarded<Node>>>),
    State(Box<Event<Guarded<SriovNetworkNodeState>>>),
    Config(Box<OperatorConfigState>),
    NicIds(Option<NicIds>),
    Offload(OffloadStatus),
}

/// Inputs from other controllers.
pub(crate) struct FleetInputs {
    pub(crate) settings: OperatorConfigReceiver,
    /// Sender to the controller of the separate device plugin, if the plugin is deployed.
    pub(crate) plugin: Option<mpsc::UnboundedSender<PluginUpdate>>,
    /// Supported NIC IDs; `None` until the ConfigMap was looked up.
    pub(crate) nic_ids: channel::Receiver<Option<NicIds>>,
    pub(crate) offload: channel::Receiver<OffloadStatus>,
}

/// Runs the controller until `stop`.
pub(crate) async fn run(
    context: Context,
    watches: SharedWatches,
    inputs: FleetInputs,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let FleetInputs { settings, plugin, nic_ids, offload } = inputs;
    let mut changes = pin!(merge_changes(&context, watches, settings, nic_ids, offload));
    let mut controller = FleetController::new(&context, plugin);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => controller.apply(change.ok_or(OperatorError::WatchEnded)?),
            () = controller.states.wait_for_progress() => {}
            () = controller.reports.wait_for_progress() => {}
            target = controller.paced_reports.next() => controller.reports.add([target]),
            () = controller.paced_checks.next() => controller.check_policies(),
            node = controller.expiries.next() => { controller.changed.insert(node); }
        }
        controller.reconcile();
    }
    // Running writes are short: let them end.
    controller.states.finish().await;
    controller.reports.finish().await;
    controller.clear_counts();
    Ok(())
}

/// Runs a long computation. A multi-threaded runtime moves the other tasks of this thread to another one.
fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

fn merge_changes(
    context: &Context,
    watches: SharedWatches,
    settings: OperatorConfigReceiver,
    nic_ids: channel::Receiver<Option<NicIds>>,
    offload: channel::Receiver<OffloadStatus>,
) -> impl futures::Stream<Item = FleetChange> + use<> {
    let (client, namespace) = (&context.client, context.config.namespace.as_str());
    let policies =
        watch::watch_objects(Api::namespaced(client.clone(), namespace), watcher::Config::default());
    futures::stream::select_all([
        policies.map(|event| FleetChange::Policy(Box::new(event))).boxed(),
        watches.pools.map(|event| FleetChange::Pool(Box::new(event))).boxed(),
        watches.states.map(|event| FleetChange::State(Box::new(event))).boxed(),
        watches.nodes.map(|event| FleetChange::Node(Box::new(event))).boxed(),
        watch::stream_values(settings).map(|config| FleetChange::Config(Box::new(config))).boxed(),
        watch::stream_values(nic_ids).map(FleetChange::NicIds).chain(futures::stream::pending()).boxed(),
        watch::stream_values(offload).map(FleetChange::Offload).chain(futures::stream::pending()).boxed(),
    ])
}

/// Controller that writes node states and the status of policies and pools, with its queues.
struct FleetController {
    context: Context,
    writer: NodeStateWriter,
    fleet: FleetIndex,
    /// Nodes that changed since they were last planned.
    changed: BTreeSet<String>,
    /// Nodes whose node state has to be written.
    states: WorkQueue<String>,
    /// Policies and pools whose status may have changed.
    paced_reports: PacedQueue<ReportTarget>,
    /// Due time of the next check of all policies, which is expensive with thousands of nodes.
    paced_checks: PacedQueue<()>,
    last_check_duration: Duration,
    /// Policies and pools whose status is to be written now.
    reports: WorkQueue<ReportTarget>,
    reporter: StatusReporter,
    /// Nodes whose node state is kept although they are gone, by the end of that time.
    expiries: WakeQueue<String>,
    /// Statuses of nodes, as counted in metrics.
    counted: HashMap<String, (SyncStatus, Option<DrainStatus>)>,
    /// Sender to the controller of the separate device plugin, if the plugin is deployed.
    plugin: Option<mpsc::UnboundedSender<PluginUpdate>>,
    /// Last update that was sent to `plugin` for each node.
    sent_to_plugin: HashMap<String, DesiredNodePlugin>,
    sent_complete: bool,
}

impl FleetController {
    fn new(context: &Context, plugin: Option<mpsc::UnboundedSender<PluginUpdate>>) -> Self {
        let metrics = || Arc::clone(&context.metrics);
        Self {
            context: context.clone(),
            writer: NodeStateWriter::new(context),
            fleet: FleetIndex::default(),
            changed: BTreeSet::new(),
            states: WorkQueue::new("node-states", MAX_WRITES, metrics()),
            paced_reports: PacedQueue::default(),
            paced_checks: PacedQueue::default(),
            last_check_duration: Duration::ZERO,
            reports: WorkQueue::new("reports", MAX_REPORTS, metrics()),
            reporter: StatusReporter::new(context),
            expiries: WakeQueue::default(),
            counted: HashMap::new(),
            plugin,
            sent_to_plugin: HashMap::new(),
            sent_complete: false,
        }
    }

    fn apply(&mut self, change: FleetChange) {
        let affected = match change {
            FleetChange::Policy(event) => self.fleet.apply_policy(*event),
            FleetChange::Pool(event) => self.fleet.apply_pool(*event),
            FleetChange::Node(event) => self.fleet.apply_node(*event),
            FleetChange::State(event) => self.fleet.apply_state(*event),
            FleetChange::NicIds(nic_ids) => self.fleet.apply_nic_ids(nic_ids),
            FleetChange::Offload(offload) => {
                self.reporter.offload = offload;
                self.fleet.find_offload_pools()
            }
            FleetChange::Config(config) => {
                self.writer.set_owner(config.existing());
                self.fleet.apply_config(config.existing())
            }
        };
        let AffectedObjects { nodes, policies, pools } = affected;
        self.changed.extend(nodes);
        self.request_reports(policies, pools);
    }

    fn request_reports(&mut self, policies: BTreeSet<String>, pools: BTreeSet<String>) {
        for policy in policies {
            self.paced_reports.add(ReportTarget::Policy(policy), pace::READABLE_INTERVAL);
        }
        for pool in pools {
            let interval =
                pace::list_write_interval(self.fleet.count_slots(&pool)).max(pace::READABLE_INTERVAL);
            self.paced_reports.add(ReportTarget::Pool(pool), interval);
        }
    }

    /// Plans all changed nodes, then starts writes and reports. Planning takes microseconds and writing milliseconds:
    /// reports thus include nodes whose write still waits.
    fn reconcile(&mut self) {
        if !self.fleet.is_complete() {
            return;
        }
        while let Some(node) = self.changed.pop_first() {
            self.plan_node(node);
        }
        if let (Some(plugin), false) = (&self.plugin, std::mem::replace(&mut self.sent_complete, true)) {
            let _ = plugin.send(PluginUpdate::Complete);
        }
        while let Some(node) = self.states.take_next() {
            // Decide again, because the node may have changed while it waited.
            let (action, _) = self.decide(&node);
            self.start_write(node, action);
        }
        if self.reporter.needs_check(&self.fleet) {
            let interval = pace::interval_after_work(self.last_check_duration).max(pace::READABLE_INTERVAL);
            self.paced_checks.add((), interval);
        }
        while let Some(target) = self.reports.take_next() {
            if let Some(write) = self.reporter.prepare(&target, &self.fleet) {
                self.reports.start(target, write);
            } else {
                self.reports.mark_done(&target);
                self.paced_reports.forget(&target);
            }
        }
    }

    fn check_policies(&mut self) {
        if self.reporter.needs_check(&self.fleet) {
            let started = Instant::now();
            let policies = run_blocking(|| self.reporter.check_policies(&self.fleet));
            self.last_check_duration = started.elapsed();
            self.request_reports(policies, BTreeSet::new());
        }
    }

    fn decide(&self, node: &str) -> (NodeStateAction, Vec<PolicyEvaluation>) {
        let stale_after = self.context.config.stale_state_after.try_into().unwrap_or(SignedDuration::MAX);
        self.fleet.decide(node, stale_after, Timestamp::now())
    }

    /// Plans a node, updates all counts, and queues the node if its node state has to be written.
    fn plan_node(&mut self, node: String) {
        let started = Instant::now();
        let (action, evaluations) = self.decide(&node);
        let policies = self.fleet.policy_statuses(&node, &action, &evaluations);
        let policies = self.reporter.policy_tally.update(&node, policies);
        let pools = self.reporter.pool_tally.update(&node, self.fleet.pool_statuses(&node));
        self.context.metrics.observe_plan(started.elapsed());
        self.request_reports(policies, pools);
        self.count(&node);
        self.update_plugin(&node, &action);
        if action == NodeStateAction::None {
            self.states.mark_done(&node);
        } else {
            self.states.add([node]);
        }
    }

    /// Sends the desired state of the separate device plugin to its controller, if it changed. Sending fails only while
    /// both controllers stop.
    fn update_plugin(&mut self, node: &str, action: &NodeStateAction) {
        let Some(plugin) = &self.plugin else { return };
        let desired = self.fleet.desired_plugin(node, action);
        if self.sent_to_plugin.get(node) != desired.as_ref() {
            match desired.clone() {
                Some(desired) => self.sent_to_plugin.insert(node.to_owned(), desired),
                None => self.sent_to_plugin.remove(node),
            };
            let _ = plugin.send(PluginUpdate::Node(node.to_owned(), desired));
        }
    }

    fn start_write(&mut self, node: String, action: NodeStateAction) {
        match action {
            NodeStateAction::None => self.states.mark_done(&node),
            NodeStateAction::CheckAgainAt(time) => {
                self.states.mark_done(&node);
                self.expiries.set(&node, Some(time));
            }
            action => {
                let write = self.writer.execute(&node, action);
                self.states.start(node, write);
            }
        }
    }

    /// Updates the metrics about nodes.
    fn count(&mut self, node: &str) {
        let new = self.fleet.sync_and_drain_status(node);
        let old = match new {
            Some(statuses) => self.counted.insert(node.to_owned(), statuses),
            None => self.counted.remove(node),
        };
        if old != new {
            for (statuses, by) in [(old, -1), (new, 1)] {
                if let Some((sync, drain)) = statuses {
                    self.context.metrics.count_node(sync.as_str(), drain_label(drain), by);
                }
            }
        }
    }

    /// Removes all counts from the metrics, because only the leader counts.
    fn clear_counts(&mut self) {
        for (_, (sync, drain)) in self.counted.drain() {
            self.context.metrics.count_node(sync.as_str(), drain_label(drain), -1);
        }
        self.context.metrics.clear_pools();
    }
}

fn drain_label(drain: Option<DrainStatus>) -> &'static str {
    drain.unwrap_or(DrainStatus::Idle).as_str()
}
