//! OpenShift's machine config pools: paused while nodes of theirs are drained, as both would drain nodes otherwise.
//!
//! A pool is paused and marked in one write, on top of a version in which it is not at work: so it did not begin before
//! the pause. It is let go on and unmarked in one write, too.

mod seen;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::{BoxStream, FuturesUnordered};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, Patch};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use vfleet_api::keys::{NODE_DRAIN_STATE, mcp_state};
use vfleet_cluster::retry::Retries;
use vfleet_cluster::watch;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::drain::McpFacts;

use crate::openshift::{looks, machine_config_pools, machine_configs};
use crate::replica::context::Context;
pub(crate) use seen::AtWork;
use seen::{Seen, Write};

/// The machine config pools, as last seen. Where there are none, no node has one.
#[derive(Clone)]
pub(crate) struct MachineConfigPools {
    context: Context,
    seen: Arc<Mutex<Seen>>,
    /// One write at a time: a pause on top of an unpause that is still on its way would be lost.
    writes: Arc<tokio::sync::Mutex<()>>,
}

impl MachineConfigPools {
    pub(crate) fn new(context: &Context) -> Self {
        Self { context: context.clone(), seen: Arc::default(), writes: Arc::default() }
    }

    /// Whether all is known that there is to know: before that, a node may have a pool that was not seen yet.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().is_complete()
    }

    /// Whether there is nothing to wait for: all is known, or it cannot be seen now.
    pub(crate) fn is_settled(&self) -> bool {
        self.lock().is_settled()
    }

    /// Why the node's pool counts as at work.
    pub(crate) fn at_work(&self, node: &str) -> AtWork {
        self.lock().at_work(node)
    }

    /// What counts of the node's pool; `None` when it has none. `draining`: nodes that are in flight or have a slot.
    /// A pool that is not known yet counts as at work.
    pub(crate) fn facts<'a>(
        &self,
        node: &str,
        draining: impl IntoIterator<Item = &'a str>,
    ) -> Option<McpFacts> {
        self.lock().facts(node, draining)
    }

    /// The name of the node's pool.
    pub(crate) fn pool_of(&self, node: &str) -> Option<String> {
        self.lock().pool_of(node).map(str::to_owned)
    }

    /// Pauses the pool and marks it so, unless it is at work by now.
    pub(crate) async fn pause(&self, pool: &str) -> Result<(), WriteError> {
        self.write(pool, Write::Pause).await
    }

    /// Lets the pool go on and takes off the mark. From now on the pool does not count as paused.
    pub(crate) async fn unpause(&self, pool: &str) -> Result<(), WriteError> {
        self.lock().begin_unpause(pool);
        self.write(pool, Write::Unpause).await
    }

    async fn write(&self, pool: &str, write: Write) -> Result<(), WriteError> {
        let _one_at_a_time = self.writes.lock().await;
        let Some(version) = self.lock().version_to_write(pool, write) else { return Ok(()) };
        let (state, is_paused) = match write {
            Write::Pause => (mcp_state::PAUSED, true),
            Write::Unpause => (mcp_state::IDLE, false),
        };
        let patch = json!({
            "metadata": { "resourceVersion": version, "annotations": { NODE_DRAIN_STATE: state } },
            "spec": { "paused": is_paused },
        });
        let api: Api<DynamicObject> = Api::all_with(self.context.client.clone(), &machine_config_pools());
        let writer = Writer::new(self.context.leadership.clone());
        let result = writer.patch(&api, pool, &Patch::Merge(patch)).await;
        let mut seen = self.lock();
        match result {
            Ok(written) => {
                tracing::info!(pool, state, "machine config pool written");
                seen.written(&written);
                Ok(())
            }
            Err(error) => {
                // Without an answer nobody knows whether it was written: the next change tells.
                let is_refused =
                    matches!(error, WriteError::Api(kube::Error::Api(_)) | WriteError::NotLeading);
                if is_refused && write == Write::Unpause {
                    seen.end_unpause(pool);
                }
                Err(error)
            }
        }
    }

    /// Follows pools and nodes; gives the nodes for which something changed. To be polled for as long as the others are
    /// asked. Never ends, unless the watches do.
    pub(crate) fn changes(&self) -> impl Stream<Item = BTreeSet<String>> + Send + use<> {
        let pools = self.clone();
        looks(&self.context).flat_map(move |look| {
            // No node is touched by this, but where there are no pools all is known now.
            let told = futures::stream::iter([BTreeSet::new()]);
            match look {
                Ok(true) => {
                    pools.lock().begin(true);
                    told.chain(Follower::new(&pools).changes()).boxed()
                }
                Ok(false) => {
                    pools.lock().begin(false);
                    told.chain(futures::stream::pending()).boxed()
                }
                Err(error) => {
                    pools.lock().refused(error.to_string());
                    told.boxed()
                }
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        // Whatever was left there is what was seen.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something changed.
enum Change {
    Pool(Event<DynamicObject>),
    Refused(watcher::Error),
    Node(Event<PartialObjectMeta<Node>>),
}

/// What was asked of one machine config: its name, and whose it is.
type Answer = (String, Result<Option<String>, WriteError>);

/// Follows pools and nodes, and asks whose a machine config is that a node names. Machine configs are large: they are
/// asked for one by one, and only their metadata.
struct Follower {
    pools: MachineConfigPools,
    changes: BoxStream<'static, Change>,
    lookups: FuturesUnordered<futures::future::BoxFuture<'static, Answer>>,
    retries: Retries<String>,
}

impl Follower {
    fn new(pools: &MachineConfigPools) -> Self {
        let client = &pools.context.client;
        let resource = machine_config_pools();
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let objects = watcher(objects, watcher::Config::default()).default_backoff();
        let objects = objects.map(|change| change.map_or_else(Change::Refused, Change::Pool));
        let nodes = watch::metadata_changes::<Node>(Api::all(client.clone()));
        let changes = futures::stream::select(objects, nodes.map(Change::Node)).boxed();
        Self { pools: pools.clone(), changes, lookups: FuturesUnordered::new(), retries: Retries::default() }
    }

    fn changes(self) -> impl Stream<Item = BTreeSet<String>> + Send {
        futures::stream::unfold(self, async |mut follower| {
            let touched = follower.next().await?;
            Some((touched, follower))
        })
    }

    async fn next(&mut self) -> Option<BTreeSet<String>> {
        let touched = tokio::select! {
            change = self.changes.next() => match change? {
                Change::Pool(event) => self.pools.lock().pool(event),
                Change::Refused(error) => {
                    tracing::warn!(%error, "watching machine config pools is interrupted, will go on");
                    self.pools.lock().refused(error.to_string());
                    BTreeSet::new()
                }
                Change::Node(event) => self.pools.lock().node(event),
            },
            Some((config, answer)) = self.lookups.next() => self.answered(config, answer),
            config = self.retries.next() => {
                self.look_up(config);
                BTreeSet::new()
            }
        };
        let asked = self.pools.lock().take_questions();
        for config in asked {
            self.look_up(config);
        }
        Some(touched)
    }

    fn answered(&mut self, config: String, answer: Result<Option<String>, WriteError>) -> BTreeSet<String> {
        match answer {
            Ok(owner) => {
                self.retries.forget(&config);
                self.pools.lock().learn(config, owner)
            }
            Err(error) => {
                tracing::warn!(config, %error, "cannot see whose machine config this is, will ask again: nodes that have it are not drained until then");
                if self.pools.lock().is_named(&config) {
                    self.retries.later(config);
                }
                BTreeSet::new()
            }
        }
    }

    fn look_up(&self, config: String) {
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.pools.context.client.clone(), &machine_configs());
        let writer = Writer::new(self.pools.context.leadership.clone());
        self.lookups.push(Box::pin(async move {
            let answer = match writer.read(&api, &config).await {
                Ok(Some(found)) => Ok(seen::owner(found.owner_references())),
                Ok(None) => Err(not_there(&config)),
                Err(error) => Err(error),
            };
            (config, answer)
        }));
    }
}

/// A node names it, so that it should be there: it may come, or the node may get another.
fn not_there(config: &str) -> WriteError {
    let status = kube::core::Status::failure(&format!("machine config {config} is not there"), "NotFound");
    WriteError::Api(kube::Error::Api(Box::new(status.with_code(404))))
}
