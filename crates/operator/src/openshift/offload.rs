//! Open vSwitch hardware offload (OpenShift): writes machine configs for the pools that request it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use kube::api::{DynamicObject, ObjectMeta};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::watch as channel;
use tokio_util::sync::CancellationToken;
use vfleet_api::SriovNetworkPoolConfig;
use vfleet_api::keys::{INSTALLATION_LABEL, MANAGED_BY_LABEL, OPERATOR_FIELD_MANAGER};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::queue::WorkQueue;
use vfleet_cluster::watch::{self, publish_if_changed};
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::offload::{
    OffloadAction, OffloadState, build_machine_config, decide_offload, machine_config_name,
    machine_config_pool_of, offload_state, requested_offload_pool,
};

use crate::OperatorError;
use crate::openshift::{has_machine_config_pools, machine_config_pools, machine_configs};
use crate::replica::context::Context;

/// State of offload for each machine config pool that a pool requests it for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum OffloadStatus {
    /// Not read yet.
    #[default]
    Unknown,
    NotOpenShift,
    ByPool(BTreeMap<String, OffloadState>),
}

impl OffloadStatus {
    /// Returns the state for a machine config pool; `None` if it is not known yet.
    pub(crate) fn state_of(&self, mcp: &str) -> Option<OffloadState> {
        match self {
            Self::Unknown => None,
            Self::NotOpenShift => Some(OffloadState::NotOpenShift),
            Self::ByPool(states) => states.get(mcp).copied(),
        }
    }
}

type ObjectMetadata = PartialObjectMeta<DynamicObject>;

/// Change of a pool, machine config pool or machine config.
enum OffloadChange {
    Pool(Box<Event<Guarded<SriovNetworkPoolConfig>>>),
    MachineConfigPool(Event<ObjectMetadata>),
    MachineConfig(Event<ObjectMetadata>),
}

/// Runs the controller until `stop`, and publishes its state to `status`.
pub(crate) async fn run(
    context: Context,
    status: channel::Sender<OffloadStatus>,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    match stop.run_until_cancelled(has_machine_config_pools(&context)).await {
        None => return Ok(()),
        Some(false) => {
            publish_if_changed(&status, OffloadStatus::NotOpenShift);
            stop.cancelled().await;
            return Ok(());
        }
        Some(true) => {}
    }
    let mut changes = pin!(merge_changes(&context));
    let mut index = OffloadIndex::default();
    let mut work = WorkQueue::new("offload", 1, Arc::clone(&context.metrics));
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => work.add(index.apply(change.ok_or(OperatorError::WatchEnded)?)),
            () = work.wait_for_progress() => {}
        }
        if !index.is_complete() {
            continue;
        }
        publish_if_changed(&status, OffloadStatus::ByPool(index.states()));
        while let Some(mcp) = work.take_next() {
            match index.plan(&mcp) {
                Some(write) => work.start(mcp, execute(context.clone(), write)),
                None => work.mark_done(&mcp),
            }
        }
    }
    work.finish().await;
    Ok(())
}

fn merge_changes(context: &Context) -> impl Stream<Item = OffloadChange> + use<> {
    let client = &context.client;
    let pools = Api::namespaced(client.clone(), &context.config.namespace);
    let pools = watch::watch_objects(pools, watcher::Config::default());
    let watch_kind = |resource: kube::api::ApiResource, config| {
        let api: Api<ObjectMetadata> = Api::all_with(client.clone(), &resource);
        watch::resume_after_errors(resource.kind.into(), watcher(api, config))
    };
    let labels =
        [(MANAGED_BY_LABEL, OPERATOR_FIELD_MANAGER), (INSTALLATION_LABEL, &context.config.namespace)];
    let own =
        watcher::Config::default().labels(&labels.map(|(key, value)| format!("{key}={value}")).join(","));
    futures::stream::select_all([
        pools.map(|event| OffloadChange::Pool(Box::new(event))).boxed(),
        watch_kind(machine_config_pools(), watcher::Config::default())
            .map(OffloadChange::MachineConfigPool)
            .boxed(),
        watch_kind(machine_configs(), own).map(OffloadChange::MachineConfig).boxed(),
    ])
}

/// Write of a machine config.
#[derive(Debug)]
enum OffloadWrite {
    Apply { mcp: String },
    Delete(Box<ObjectMeta>),
}

async fn execute(context: Context, write: OffloadWrite) -> Result<(), WriteError> {
    let writer = Writer::new(context.leadership.clone());
    match write {
        OffloadWrite::Apply { mcp } => {
            let api: Api<DynamicObject> = Api::all_with(context.client.clone(), &machine_configs());
            let config = build_machine_config(&mcp, &context.config.namespace);
            writer.apply(&api, &machine_config_name(&mcp), &config).await.map(drop)
        }
        OffloadWrite::Delete(metadata) => {
            tracing::info!(
                name = metadata.name,
                "deleting a machine config, because no pool requests offload for its machine config pool any more"
            );
            let api: Api<ObjectMetadata> = Api::all_with(context.client.clone(), &machine_configs());
            let object = kube::core::PartialObjectMetaExt::into_response_partial(*metadata);
            writer.delete(&api, &object).await
        }
    }
}

/// Stored pools, machine config pools and machine configs.
#[derive(Debug, Default)]
struct OffloadIndex {
    /// Machine config pool that each pool requests offload for.
    requested: NamedObjects<String>,
    machine_config_pools: NamedObjects<()>,
    /// Machine configs of this installation.
    machine_configs: NamedObjects<ObjectMeta>,
}

impl OffloadIndex {
    /// Applies a change; returns the affected machine config pools.
    fn apply(&mut self, change: OffloadChange) -> Vec<String> {
        match change {
            OffloadChange::Pool(event) => {
                let changed = self.requested.update(*event, |guarded| {
                    let Ok(pool) = guarded.0 else { return ReadObject::Unreadable };
                    let is_deleted = pool.metadata.deletion_timestamp.is_some();
                    let requested = requested_offload_pool(&pool.spec).filter(|_| !is_deleted);
                    requested.map_or(ReadObject::Absent, |mcp| ReadObject::Present(mcp.to_owned()))
                });
                changed.into_iter().flat_map(|(_, versions)| versions).collect()
            }
            OffloadChange::MachineConfigPool(event) => {
                let changed = self.machine_config_pools.update(event, |_| ReadObject::Present(()));
                changed.into_iter().map(|(name, _)| name).collect()
            }
            OffloadChange::MachineConfig(event) => {
                let changed =
                    self.machine_configs.update(event, |object| ReadObject::Present(object.metadata));
                changed
                    .iter()
                    .filter_map(|(name, _)| machine_config_pool_of(name))
                    .map(str::to_owned)
                    .collect()
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.requested.is_listed && self.machine_config_pools.is_listed && self.machine_configs.is_listed
    }

    fn states(&self) -> BTreeMap<String, OffloadState> {
        let requested = self.requested.items.values();
        requested
            .map(|mcp| (mcp.clone(), offload_state(mcp, self.has_pool(mcp), self.has_config(mcp))))
            .collect()
    }

    /// Returns the write for a machine config pool, if its machine config is not up to date.
    fn plan(&self, mcp: &str) -> Option<OffloadWrite> {
        let is_requested = self.requested.items.values().any(|requested| requested == mcp);
        match decide_offload(mcp, is_requested, self.has_pool(mcp), self.has_config(mcp)) {
            OffloadAction::Nothing => None,
            OffloadAction::Apply => Some(OffloadWrite::Apply { mcp: mcp.to_owned() }),
            OffloadAction::Delete => {
                let metadata = self.machine_configs.items.get(&machine_config_name(mcp))?;
                Some(OffloadWrite::Delete(Box::new(metadata.clone())))
            }
        }
    }

    fn has_pool(&self, mcp: &str) -> bool {
        self.machine_config_pools.items.contains_key(mcp)
    }

    fn has_config(&self, mcp: &str) -> bool {
        self.machine_configs.items.contains_key(&machine_config_name(mcp))
    }
}

/// Value that is stored of an object.
enum ReadObject<T> {
    Present(T),
    Absent,
    /// The object cannot be parsed; the stored value stays.
    Unreadable,
}

/// Objects of one kind, by name.
#[derive(Debug)]
struct NamedObjects<T> {
    items: HashMap<String, T>,
    /// Names of the objects in the list that is being received. All other objects are removed when it is complete.
    listing: BTreeSet<String>,
    is_listed: bool,
}

impl<T> Default for NamedObjects<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), listing: BTreeSet::new(), is_listed: false }
    }
}

impl<T: Clone + PartialEq> NamedObjects<T> {
    /// Applies a watch event; returns the changed objects with their old and new values.
    fn update<O: ResourceExt>(
        &mut self,
        event: Event<O>,
        read: impl FnOnce(O) -> ReadObject<T>,
    ) -> Vec<(String, Vec<T>)> {
        match event {
            Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listing.insert(object.name_any());
                self.set(object.name_any(), read(object)).into_iter().collect()
            }
            Event::InitDone => {
                self.is_listed = true;
                let listed = std::mem::take(&mut self.listing);
                let deleted = self.items.extract_if(|name, _| !listed.contains(name));
                deleted.map(|(name, old)| (name, vec![old])).collect()
            }
            Event::Apply(object) => self.set(object.name_any(), read(object)).into_iter().collect(),
            Event::Delete(object) => self.set(object.name_any(), ReadObject::Absent).into_iter().collect(),
        }
    }

    fn set(&mut self, name: String, read: ReadObject<T>) -> Option<(String, Vec<T>)> {
        let (old, new) = match read {
            ReadObject::Unreadable => return None,
            ReadObject::Absent => (self.items.remove(&name), None),
            ReadObject::Present(new) => (self.items.insert(name.clone(), new.clone()), Some(new)),
        };
        (old != new).then(|| (name, old.into_iter().chain(new).collect()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(name: &str, mcp: &str) -> OffloadChange {
        let pool = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkPoolConfig",
            "metadata": { "name": name }, "spec": { "ovsHardwareOffloadConfig": { "name": mcp } },
        });
        OffloadChange::Pool(Box::new(Event::Apply(serde_json::from_value(pool).unwrap())))
    }

    fn metadata(name: &str) -> ObjectMetadata {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
        kube::core::PartialObjectMetaExt::into_response_partial(metadata)
    }

    #[test]
    fn a_machine_config_is_written_on_request_and_deleted_with_the_last_request() {
        let mut index = OffloadIndex::default();
        assert_eq!(
            index.apply(OffloadChange::MachineConfigPool(Event::Apply(metadata("worker")))),
            ["worker"]
        );
        assert_eq!(index.apply(pool("a", "worker")), ["worker"]);
        assert_eq!(index.apply(pool("b", "worker")), ["worker"]);
        assert!(matches!(index.plan("worker"), Some(OffloadWrite::Apply { .. })));
        assert_eq!(index.states()["worker"], OffloadState::Pending);
        let config = metadata("00-worker-ovs-hw-offload");
        assert_eq!(index.apply(OffloadChange::MachineConfig(Event::Apply(config))), ["worker"]);
        assert_eq!(index.states()["worker"], OffloadState::Written);
        assert_eq!(index.apply(pool("a", "other")), ["worker", "other"]);
        assert!(matches!(index.plan("worker"), Some(OffloadWrite::Apply { .. })));
        assert!(index.plan("other").is_none());
        assert_eq!(index.states()["other"], OffloadState::NoMachineConfigPool);
        assert_eq!(index.apply(pool("b", "")), ["worker"]);
        assert!(matches!(index.plan("worker"), Some(OffloadWrite::Delete(_))));
    }
}
