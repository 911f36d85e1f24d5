//! The controller of the fleet: what each node shall be like, and how far policies and pools are.

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
use vfleet_cluster::pace::{self, Paced};
use vfleet_cluster::queue::Work;
use vfleet_cluster::wakes::Wakes;
use vfleet_cluster::watch;
use vfleet_plan::{NicIds, PolicyAnswer};

use crate::OperatorError;
use crate::components::go_device_plugin::{News, NodeWish};
use crate::components::settings::{Seen, Settings};
use crate::fleet::index::{Decision, Fleet, SyncStatus, Touched};
use crate::fleet::reports::{About, Reports};
use crate::fleet::shared::Shared;
use crate::fleet::state_writer::StateWriter;
use crate::openshift::offload::Offload;
use crate::replica::context::Context;

/// How many node states are written at once: enough to keep the API server busy, few enough to leave room for
/// others in its default queue for one client.
const WRITES_AT_ONCE: usize = 32;
const REPORTS_AT_ONCE: usize = 4;

/// Something changed.
enum Change {
    Policy(Box<Event<Guarded<SriovNetworkNodePolicy>>>),
    Pool(Box<Event<Guarded<SriovNetworkPoolConfig>>>),
    Node(Box<Event<Guarded<Node>>>),
    State(Box<Event<Guarded<SriovNetworkNodeState>>>),
    Settings(Box<Seen>),
    NicIds(Option<NicIds>),
    Offload(Offload),
}

/// What others tell this controller.
pub(crate) struct Inputs {
    pub(crate) settings: Settings,
    /// Who looks after the separate device plugin, where there is one.
    pub(crate) plugin: Option<mpsc::UnboundedSender<News>>,
    /// Which kinds of cards there are, and of which kind their VFs; `None` until that was looked for.
    pub(crate) nic_ids: channel::Receiver<Option<NicIds>>,
    pub(crate) offload: channel::Receiver<Offload>,
}

/// Runs the controller until `stop`.
pub(crate) async fn run(
    context: Context,
    seen: Shared,
    inputs: Inputs,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let Inputs { settings, plugin, nic_ids, offload } = inputs;
    let mut changes = pin!(changes(&context, seen, settings, nic_ids, offload));
    let mut controller = Controller::new(&context, plugin);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => controller.take(change.ok_or(OperatorError::WatchEnded)?),
            () = controller.states.progress() => {}
            () = controller.reports.progress() => {}
            about = controller.news.next() => controller.reports.touch([about]),
            () = controller.judgements.next() => controller.judge(),
            node = controller.away.next() => { controller.changed.insert(node); }
        }
        controller.go_on();
    }
    // Writes under way are short; letting them end leaves no half of a thought behind.
    controller.states.finish().await;
    controller.reports.finish().await;
    controller.forget_counts();
    Ok(())
}

/// Does what takes a while. Other tasks of the same thread are looked after by another one, where there are several.
fn without_holding_up_others<T>(work: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

fn changes(
    context: &Context,
    seen: Shared,
    settings: Settings,
    nic_ids: channel::Receiver<Option<NicIds>>,
    offload: channel::Receiver<Offload>,
) -> impl futures::Stream<Item = Change> + use<> {
    let (client, namespace) = (&context.client, context.config.namespace.as_str());
    let policies = watch::changes(Api::namespaced(client.clone(), namespace), watcher::Config::default());
    futures::stream::select_all([
        policies.map(|event| Change::Policy(Box::new(event))).boxed(),
        seen.pools.map(|event| Change::Pool(Box::new(event))).boxed(),
        seen.states.map(|event| Change::State(Box::new(event))).boxed(),
        seen.nodes.map(|event| Change::Node(Box::new(event))).boxed(),
        watch::values(settings).map(|seen| Change::Settings(Box::new(seen))).boxed(),
        watch::values(nic_ids).map(Change::NicIds).chain(futures::stream::pending()).boxed(),
        watch::values(offload).map(Change::Offload).chain(futures::stream::pending()).boxed(),
    ])
}

struct Controller {
    context: Context,
    writer: StateWriter,
    fleet: Fleet,
    /// Nodes that are not what they were when last planned.
    changed: BTreeSet<String>,
    /// Nodes that something is to be written for.
    states: Work<String>,
    /// Policies and pools that there may be something new to say about.
    news: Paced<About>,
    /// When rules are asked about all policies: to look at thousands of nodes takes its time.
    judgements: Paced<()>,
    judging_took: Duration,
    /// Of those that there may be something new to say about, the ones whose turn it is.
    reports: Work<About>,
    reporter: Reports,
    /// Nodes that are away: each comes when its time is over.
    away: Wakes<String>,
    counted: HashMap<String, (SyncStatus, Option<DrainStatus>)>,
    /// Who looks after the separate device plugin, where there is one.
    plugin: Option<mpsc::UnboundedSender<News>>,
    told: HashMap<String, NodeWish>,
    told_all: bool,
}

impl Controller {
    fn new(context: &Context, plugin: Option<mpsc::UnboundedSender<News>>) -> Self {
        let metrics = || Arc::clone(&context.metrics);
        Self {
            context: context.clone(),
            writer: StateWriter::new(context),
            fleet: Fleet::default(),
            changed: BTreeSet::new(),
            states: Work::new("node-states", WRITES_AT_ONCE, metrics()),
            news: Paced::default(),
            judgements: Paced::default(),
            judging_took: Duration::ZERO,
            reports: Work::new("reports", REPORTS_AT_ONCE, metrics()),
            reporter: Reports::new(context),
            away: Wakes::default(),
            counted: HashMap::new(),
            plugin,
            told: HashMap::new(),
            told_all: false,
        }
    }

    fn take(&mut self, change: Change) {
        let touched = match change {
            Change::Policy(event) => self.fleet.policy(*event),
            Change::Pool(event) => self.fleet.pool(*event),
            Change::Node(event) => self.fleet.node(*event),
            Change::State(event) => self.fleet.state(*event),
            Change::NicIds(nic_ids) => self.fleet.nic_ids(nic_ids),
            Change::Offload(offload) => {
                self.reporter.offload = offload;
                self.fleet.offload_pools()
            }
            Change::Settings(seen) => {
                self.writer.set_owner(seen.config());
                self.fleet.settings(seen.config())
            }
        };
        let Touched { nodes, policies, pools } = touched;
        self.changed.extend(nodes);
        self.tell(policies, pools);
    }

    fn tell(&mut self, policies: BTreeSet<String>, pools: BTreeSet<String>) {
        for policy in policies {
            self.news.touch(About::Policy(policy), pace::READABLE);
        }
        for pool in pools {
            let pace = pace::of_list(self.fleet.slots_of(&pool)).max(pace::READABLE);
            self.news.touch(About::Pool(pool), pace);
        }
    }

    /// Plans every node that changed, then starts the writes and reports that can be started. Planning takes
    /// microseconds and writing milliseconds: so reports count all nodes, also those whose write has to wait.
    fn go_on(&mut self) {
        if !self.fleet.is_complete() {
            return;
        }
        while let Some(node) = self.changed.pop_first() {
            self.assess(node);
        }
        if let (Some(plugin), false) = (&self.plugin, std::mem::replace(&mut self.told_all, true)) {
            let _ = plugin.send(News::Complete);
        }
        while let Some(node) = self.states.next_touched() {
            // Planned again: something may have changed while it waited.
            let (decision, _) = self.decide(&node);
            self.write(node, decision);
        }
        if self.reporter.is_to_judge(&self.fleet) {
            self.judgements.touch((), pace::of_work(self.judging_took).max(pace::READABLE));
        }
        while let Some(about) = self.reports.next_touched() {
            if let Some(writing) = self.reporter.about(&about, &self.fleet) {
                self.reports.start(about, writing);
            } else {
                self.reports.nothing_to_do(&about);
                self.news.forget(&about);
            }
        }
    }

    fn judge(&mut self) {
        if self.reporter.is_to_judge(&self.fleet) {
            let started = Instant::now();
            let policies = without_holding_up_others(|| self.reporter.judge(&self.fleet));
            self.judging_took = started.elapsed();
            self.tell(policies, BTreeSet::new());
        }
    }

    fn decide(&self, node: &str) -> (Decision, Vec<PolicyAnswer>) {
        let stale_after = self.context.config.stale_state_after.try_into().unwrap_or(SignedDuration::MAX);
        self.fleet.decide(node, stale_after, Timestamp::now())
    }

    /// Where the node stands now, and whether something is to be written for it.
    fn assess(&mut self, node: String) {
        let started = Instant::now();
        let (decision, answers) = self.decide(&node);
        let policies = self.fleet.policy_standings(&node, &decision, &answers);
        let policies = self.reporter.policy_tally.update(&node, policies);
        let pools = self.reporter.pool_tally.update(&node, self.fleet.pool_standings(&node));
        self.context.metrics.planned(started.elapsed());
        self.tell(policies, pools);
        self.count(&node);
        self.tell_plugin(&node, &decision);
        if decision == Decision::Nothing {
            self.states.nothing_to_do(&node);
        } else {
            self.states.touch([node]);
        }
    }

    /// Its controller ends only together with this one, so that nobody misses what cannot be sent.
    fn tell_plugin(&mut self, node: &str, decision: &Decision) {
        let Some(plugin) = &self.plugin else { return };
        let wish = self.fleet.plugin_wish(node, decision);
        if self.told.get(node) != wish.as_ref() {
            match wish.clone() {
                Some(wish) => self.told.insert(node.to_owned(), wish),
                None => self.told.remove(node),
            };
            let _ = plugin.send(News::Node(node.to_owned(), wish));
        }
    }

    fn write(&mut self, node: String, decision: Decision) {
        match decision {
            Decision::Nothing => self.states.nothing_to_do(&node),
            Decision::LookAgainAt(time) => {
                self.states.nothing_to_do(&node);
                self.away.set(&node, Some(time));
            }
            decision => {
                let writing = self.writer.carry_out(&node, decision);
                self.states.start(node, writing);
            }
        }
    }

    /// Keeps the metrics about nodes.
    fn count(&mut self, node: &str) {
        let new = self.fleet.progress_of(node);
        let old = match new {
            Some(progress) => self.counted.insert(node.to_owned(), progress),
            None => self.counted.remove(node),
        };
        if old != new {
            for (progress, by) in [(old, -1), (new, 1)] {
                if let Some((sync, drain)) = progress {
                    self.context.metrics.count_node(sync.as_str(), drain_label(drain), by);
                }
            }
        }
    }

    /// A replica that does not lead counts nothing.
    fn forget_counts(&mut self) {
        for (_, (sync, drain)) in self.counted.drain() {
            self.context.metrics.count_node(sync.as_str(), drain_label(drain), -1);
        }
        self.context.metrics.forget_pools();
    }
}

fn drain_label(drain: Option<DrainStatus>) -> &'static str {
    drain.unwrap_or(DrainStatus::Idle).as_str()
}
