//! Machine config pools (OpenShift), paused while their nodes are drained so that they do not drain nodes too.
//!
//! A pool is paused and marked in one write with a resource version in which it was not updating, so no update started
//! before the pause. Pause and mark are removed in one write too.

mod store;

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
use vfleet_cluster::retry::RetryQueue;
use vfleet_cluster::watch;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::drain::McpFacts;

use crate::openshift::{detect_machine_config_pools, machine_config_pools, machine_configs};
use crate::replica::context::Context;
pub(crate) use store::McpHold;
use store::{McpStore, PauseWrite};

/// Watched machine config pools. Empty on clusters other than OpenShift.
#[derive(Clone)]
pub(crate) struct MachineConfigPools {
    context: Context,
    store: Arc<Mutex<McpStore>>,
    /// Serializes writes: a pause during an unfinished unpause would be lost.
    write_lock: Arc<tokio::sync::Mutex<()>>,
}

impl MachineConfigPools {
    pub(crate) fn new(context: &Context) -> Self {
        Self { context: context.clone(), store: Arc::default(), write_lock: Arc::default() }
    }

    /// Returns whether all pools and nodes are listed.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().is_complete()
    }

    /// Returns whether all pools and nodes are listed, or cannot be listed at the moment.
    pub(crate) fn is_settled(&self) -> bool {
        self.lock().is_settled()
    }

    /// Returns why a drain of the node has to wait for its pool.
    pub(crate) fn find_hold(&self, node: &str) -> McpHold {
        self.lock().find_hold(node)
    }

    /// Returns the facts of the node's pool; `None` if it has none. `draining`: nodes that are drained or hold a slot.
    /// An unknown pool counts as updating.
    pub(crate) fn facts<'a>(
        &self,
        node: &str,
        draining: impl IntoIterator<Item = &'a str>,
    ) -> Option<McpFacts> {
        self.lock().facts(node, draining)
    }

    /// Returns the name of the node's pool.
    pub(crate) fn pool_of(&self, node: &str) -> Option<String> {
        self.lock().pool_of(node).map(str::to_owned)
    }

    /// Pauses and marks the pool, unless it is updating by now.
    pub(crate) async fn pause(&self, pool: &str) -> Result<(), WriteError> {
        self.write(pool, PauseWrite::Pause).await
    }

    /// Removes pause and mark of the pool. From now on it does not count as paused.
    pub(crate) async fn unpause(&self, pool: &str) -> Result<(), WriteError> {
        self.lock().begin_unpause(pool);
        self.write(pool, PauseWrite::Unpause).await
    }

    async fn write(&self, pool: &str, write: PauseWrite) -> Result<(), WriteError> {
        let _guard = self.write_lock.lock().await;
        let Some(version) = self.lock().version_to_write(pool, write) else { return Ok(()) };
        let (state, is_paused) = match write {
            PauseWrite::Pause => (mcp_state::PAUSED, true),
            PauseWrite::Unpause => (mcp_state::IDLE, false),
        };
        let patch = json!({
            "metadata": { "resourceVersion": version, "annotations": { NODE_DRAIN_STATE: state } },
            "spec": { "paused": is_paused },
        });
        let api: Api<DynamicObject> = Api::all_with(self.context.client.clone(), &machine_config_pools());
        let writer = Writer::new(self.context.leadership.clone());
        let result = writer.patch(&api, pool, &Patch::Merge(patch)).await;
        let mut store = self.lock();
        match result {
            Ok(written) => {
                let action = if is_paused { "paused" } else { "unpaused" };
                tracing::info!("MachineConfigPool {pool}: {action}");
                store.handle_written(&written);
                Ok(())
            }
            Err(error) => {
                // Without an answer the result of the write is unknown until the next change of the pool.
                let is_rejected =
                    matches!(error, WriteError::Api(kube::Error::Api(_)) | WriteError::NotLeading);
                if is_rejected && write == PauseWrite::Unpause {
                    store.cancel_unpause(pool);
                }
                Err(error)
            }
        }
    }

    /// Watches pools and nodes and returns the nodes that a change touches. Must be polled to keep the store current.
    pub(crate) fn stream_changes(&self) -> impl Stream<Item = BTreeSet<String>> + Send + use<> {
        let pools = self.clone();
        detect_machine_config_pools(&self.context).flat_map(move |look| {
            // An empty change, because without pools everything is known now.
            let first = futures::stream::iter([BTreeSet::new()]);
            match look {
                Ok(true) => {
                    pools.lock().set_available(true);
                    first.chain(McpWatch::new(&pools).stream_changes()).boxed()
                }
                Ok(false) => {
                    pools.lock().set_available(false);
                    first.chain(futures::stream::pending()).boxed()
                }
                Err(error) => {
                    pools.lock().set_error(error.to_string());
                    first.boxed()
                }
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, McpStore> {
        // A panic under the lock leaves the store consistent.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Change of a watched object.
enum McpChange {
    Pool(Event<DynamicObject>),
    WatchFailed(watcher::Error),
    Node(Event<PartialObjectMeta<Node>>),
}

/// Name of a machine config, and the pool that owns it.
type OwnerLookup = (String, Result<Option<String>, WriteError>);

/// Watch of pools and nodes. Reads the owners of the machine configs that nodes name; only their metadata and one by
/// one, because machine configs are large.
struct McpWatch {
    pools: MachineConfigPools,
    changes: BoxStream<'static, McpChange>,
    lookups: FuturesUnordered<futures::future::BoxFuture<'static, OwnerLookup>>,
    retries: RetryQueue<String>,
}

impl McpWatch {
    fn new(pools: &MachineConfigPools) -> Self {
        let client = &pools.context.client;
        let resource = machine_config_pools();
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let objects = watcher(objects, watcher::Config::default()).default_backoff();
        let objects = objects.map(|change| change.map_or_else(McpChange::WatchFailed, McpChange::Pool));
        let nodes = watch::watch_metadata::<Node>(Api::all(client.clone()));
        let changes = futures::stream::select(objects, nodes.map(McpChange::Node)).boxed();
        Self {
            pools: pools.clone(),
            changes,
            lookups: FuturesUnordered::new(),
            retries: RetryQueue::default(),
        }
    }

    fn stream_changes(self) -> impl Stream<Item = BTreeSet<String>> + Send {
        futures::stream::unfold(self, async |mut watch| {
            let touched = watch.next().await?;
            Some((touched, watch))
        })
    }

    async fn next(&mut self) -> Option<BTreeSet<String>> {
        let touched = tokio::select! {
            change = self.changes.next() => match change? {
                McpChange::Pool(event) => self.pools.lock().update_pool(event),
                McpChange::WatchFailed(error) => {
                    tracing::warn!(%error, "watch of MachineConfigPools interrupted, retrying");
                    self.pools.lock().set_error(error.to_string());
                    BTreeSet::new()
                }
                McpChange::Node(event) => self.pools.lock().update_node(event),
            },
            Some((config, answer)) = self.lookups.next() => self.handle_lookup(config, answer),
            config = self.retries.next() => {
                self.look_up(config);
                BTreeSet::new()
            }
        };
        let configs = self.pools.lock().take_lookups();
        for config in configs {
            self.look_up(config);
        }
        Some(touched)
    }

    fn handle_lookup(
        &mut self,
        config: String,
        answer: Result<Option<String>, WriteError>,
    ) -> BTreeSet<String> {
        match answer {
            Ok(owner) => {
                self.retries.forget(&config);
                self.pools.lock().set_owner(config, owner)
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    "machine config {config}: cannot find its MachineConfigPool, retrying; its nodes are not drained until then"
                );
                if self.pools.lock().is_used(&config) {
                    self.retries.schedule(config);
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
                Ok(Some(found)) => Ok(store::find_owner(found.owner_references())),
                Ok(None) => Err(not_found(&config)),
                Err(error) => Err(error),
            };
            (config, answer)
        }));
    }
}

/// Returns the error for a machine config that a node names but that does not exist. Worth a retry: it may be created,
/// or the node may get another.
fn not_found(config: &str) -> WriteError {
    let status = kube::core::Status::failure(&format!("machine config {config} does not exist"), "NotFound");
    WriteError::Api(kube::Error::Api(Box::new(status.with_code(404))))
}
