//! Open vSwitch hardware offload (OpenShift): pools that ask for it => machine configs.

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
use vfleet_cluster::queue::Work;
use vfleet_cluster::watch::{self, publish};
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::offload::{
    OffloadAction, OffloadStanding, machine_config, machine_config_name, machine_config_pool_of,
    offload_action, offload_standing, offload_wanted,
};

use crate::OperatorError;
use crate::openshift::{has_machine_config_pools, machine_config_pools, machine_configs};
use crate::replica::context::Context;

/// Where the offload for each machine config pool stands that some pool asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Offload {
    /// Not looked at yet.
    #[default]
    Unknown,
    NotOpenShift,
    Seen(BTreeMap<String, OffloadStanding>),
}

impl Offload {
    /// Where it stands for a machine config pool; `None` when that is not known yet.
    pub(crate) fn standing(&self, mcp: &str) -> Option<OffloadStanding> {
        match self {
            Self::Unknown => None,
            Self::NotOpenShift => Some(OffloadStanding::NotOpenShift),
            Self::Seen(standings) => standings.get(mcp).copied(),
        }
    }
}

type Names = PartialObjectMeta<DynamicObject>;

/// Something changed.
enum Change {
    Pool(Box<Event<Guarded<SriovNetworkPoolConfig>>>),
    MachineConfigPool(Event<Names>),
    MachineConfig(Event<Names>),
}

/// Runs the controller until `stop`; tells in `told` how far it is.
pub(crate) async fn run(
    context: Context,
    told: channel::Sender<Offload>,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    match stop.run_until_cancelled(has_machine_config_pools(&context)).await {
        None => return Ok(()),
        Some(false) => {
            publish(&told, Offload::NotOpenShift);
            stop.cancelled().await;
            return Ok(());
        }
        Some(true) => {}
    }
    let mut changes = pin!(changes(&context));
    let mut seen = Seen::default();
    let mut work = Work::new("offload", 1, Arc::clone(&context.metrics));
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => work.touch(seen.take(change.ok_or(OperatorError::WatchEnded)?)),
            () = work.progress() => {}
        }
        if !seen.is_complete() {
            continue;
        }
        publish(&told, Offload::Seen(seen.standings()));
        while let Some(mcp) = work.next_touched() {
            match seen.write(&mcp) {
                Some(write) => work.start(mcp, carry_out(context.clone(), write)),
                None => work.nothing_to_do(&mcp),
            }
        }
    }
    work.finish().await;
    Ok(())
}

fn changes(context: &Context) -> impl Stream<Item = Change> + use<> {
    let client = &context.client;
    let pools = Api::namespaced(client.clone(), &context.config.namespace);
    let pools = watch::changes(pools, watcher::Config::default());
    let follow = |resource: kube::api::ApiResource, config| {
        let api: Api<Names> = Api::all_with(client.clone(), &resource);
        watch::uninterrupted(resource.kind.into(), watcher(api, config))
    };
    let labels =
        [(MANAGED_BY_LABEL, OPERATOR_FIELD_MANAGER), (INSTALLATION_LABEL, &context.config.namespace)];
    let ours =
        watcher::Config::default().labels(&labels.map(|(key, value)| format!("{key}={value}")).join(","));
    futures::stream::select_all([
        pools.map(|event| Change::Pool(Box::new(event))).boxed(),
        follow(machine_config_pools(), watcher::Config::default()).map(Change::MachineConfigPool).boxed(),
        follow(machine_configs(), ours).map(Change::MachineConfig).boxed(),
    ])
}

/// What is to be written.
#[derive(Debug)]
enum Write {
    Apply { mcp: String },
    Delete(Box<ObjectMeta>),
}

async fn carry_out(context: Context, write: Write) -> Result<(), WriteError> {
    let writer = Writer::new(context.leadership.clone());
    match write {
        Write::Apply { mcp } => {
            let api: Api<DynamicObject> = Api::all_with(context.client.clone(), &machine_configs());
            let config = machine_config(&mcp, &context.config.namespace);
            writer.apply(&api, &machine_config_name(&mcp), &config).await.map(drop)
        }
        Write::Delete(metadata) => {
            tracing::info!(name = metadata.name, "no pool wants this machine config any more");
            let api: Api<Names> = Api::all_with(context.client.clone(), &machine_configs());
            let object = kube::core::PartialObjectMetaExt::into_response_partial(*metadata);
            writer.delete(&api, &object).await
        }
    }
}

/// The objects as last seen.
#[derive(Debug, Default)]
struct Seen {
    /// The machine config pool that each pool asks offload for.
    wanted: Objects<String>,
    machine_config_pools: Objects<()>,
    /// Ours, by name.
    machine_configs: Objects<ObjectMeta>,
}

impl Seen {
    /// Takes in a change; gives the machine config pools that it is about.
    fn take(&mut self, change: Change) -> Vec<String> {
        match change {
            Change::Pool(event) => {
                let touched = self.wanted.take(*event, |guarded| {
                    let Ok(pool) = guarded.0 else { return Read::AsItWas };
                    let is_going = pool.metadata.deletion_timestamp.is_some();
                    let wanted = offload_wanted(&pool.spec).filter(|_| !is_going);
                    wanted.map_or(Read::Absent, |mcp| Read::There(mcp.to_owned()))
                });
                touched.into_iter().flat_map(|(_, versions)| versions).collect()
            }
            Change::MachineConfigPool(event) => {
                let touched = self.machine_config_pools.take(event, |_| Read::There(()));
                touched.into_iter().map(|(name, _)| name).collect()
            }
            Change::MachineConfig(event) => {
                let touched = self.machine_configs.take(event, |object| Read::There(object.metadata));
                touched
                    .iter()
                    .filter_map(|(name, _)| machine_config_pool_of(name))
                    .map(str::to_owned)
                    .collect()
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.wanted.is_listed && self.machine_config_pools.is_listed && self.machine_configs.is_listed
    }

    fn standings(&self) -> BTreeMap<String, OffloadStanding> {
        let wanted = self.wanted.items.values();
        wanted
            .map(|mcp| (mcp.clone(), offload_standing(mcp, self.has_pool(mcp), self.has_config(mcp))))
            .collect()
    }

    /// What is to be written for a machine config pool.
    fn write(&self, mcp: &str) -> Option<Write> {
        let is_wanted = self.wanted.items.values().any(|wanted| wanted == mcp);
        match offload_action(mcp, is_wanted, self.has_pool(mcp), self.has_config(mcp)) {
            OffloadAction::Nothing => None,
            OffloadAction::Apply => Some(Write::Apply { mcp: mcp.to_owned() }),
            OffloadAction::Delete => {
                let metadata = self.machine_configs.items.get(&machine_config_name(mcp))?;
                Some(Write::Delete(Box::new(metadata.clone())))
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

/// What is kept of an object.
enum Read<T> {
    There(T),
    Absent,
    /// It cannot be read.
    AsItWas,
}

/// The objects of one kind, by name.
#[derive(Debug)]
struct Objects<T> {
    items: HashMap<String, T>,
    /// Seen in the list that is under way; the others are gone when it ends.
    so_far: BTreeSet<String>,
    is_listed: bool,
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), so_far: BTreeSet::new(), is_listed: false }
    }
}

impl<T: Clone + PartialEq> Objects<T> {
    /// Takes in an event; gives the names of what changed, each with what was kept of it before and after.
    fn take<O: ResourceExt>(
        &mut self,
        event: Event<O>,
        read: impl FnOnce(O) -> Read<T>,
    ) -> Vec<(String, Vec<T>)> {
        match event {
            Event::Init => {
                self.so_far.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.so_far.insert(object.name_any());
                self.put(object.name_any(), read(object)).into_iter().collect()
            }
            Event::InitDone => {
                self.is_listed = true;
                let seen = std::mem::take(&mut self.so_far);
                let gone = self.items.extract_if(|name, _| !seen.contains(name));
                gone.map(|(name, old)| (name, vec![old])).collect()
            }
            Event::Apply(object) => self.put(object.name_any(), read(object)).into_iter().collect(),
            Event::Delete(object) => self.put(object.name_any(), Read::Absent).into_iter().collect(),
        }
    }

    fn put(&mut self, name: String, read: Read<T>) -> Option<(String, Vec<T>)> {
        let (old, new) = match read {
            Read::AsItWas => return None,
            Read::Absent => (self.items.remove(&name), None),
            Read::There(new) => (self.items.insert(name.clone(), new.clone()), Some(new)),
        };
        (old != new).then(|| (name, old.into_iter().chain(new).collect()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(name: &str, mcp: &str) -> Change {
        let pool = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkPoolConfig",
            "metadata": { "name": name }, "spec": { "ovsHardwareOffloadConfig": { "name": mcp } },
        });
        Change::Pool(Box::new(Event::Apply(serde_json::from_value(pool).unwrap())))
    }

    fn named(name: &str) -> Names {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
        kube::core::PartialObjectMetaExt::into_response_partial(metadata)
    }

    #[test]
    fn what_is_wanted_is_made_and_goes_with_the_last_pool_that_wants_it() {
        let mut seen = Seen::default();
        assert_eq!(seen.take(Change::MachineConfigPool(Event::Apply(named("worker")))), ["worker"]);
        assert_eq!(seen.take(pool("a", "worker")), ["worker"]);
        assert_eq!(seen.take(pool("b", "worker")), ["worker"]);
        assert!(matches!(seen.write("worker"), Some(Write::Apply { .. })));
        assert_eq!(seen.standings()["worker"], OffloadStanding::Pending);
        let config = named("00-worker-ovs-hw-offload");
        assert_eq!(seen.take(Change::MachineConfig(Event::Apply(config))), ["worker"]);
        assert_eq!(seen.standings()["worker"], OffloadStanding::Written);
        assert_eq!(seen.take(pool("a", "other")), ["worker", "other"]);
        assert!(matches!(seen.write("worker"), Some(Write::Apply { .. })));
        assert!(seen.write("other").is_none());
        assert_eq!(seen.standings()["other"], OffloadStanding::NoMachineConfigPool);
        assert_eq!(seen.take(pool("b", "")), ["worker"]);
        assert!(matches!(seen.write("worker"), Some(Write::Delete(_))));
    }
}
