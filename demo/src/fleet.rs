//! Objects of the fleet, watched from the API server.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::bail;
use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::reflector::{Store, reflector, store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde_json::json;
use vfleet_api::keys::DEFAULT_NAMESPACE;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkPoolConfig};

use crate::fleet_view::{FleetView, RESOURCE};
use crate::screen::Screen;
use crate::tables::{format_changes, format_tables};

/// Longest time of one stage of the demo. A roll-out takes seconds.
const DEADLINE: Duration = Duration::from_mins(1);

/// Objects of the cluster, and the view that is shown of them.
pub(crate) struct Fleet {
    client: Client,
    pub(crate) nodes: Store<Node>,
    pub(crate) states: Store<SriovNetworkNodeState>,
    pub(crate) pools: Store<SriovNetworkPoolConfig>,
    pub(crate) pods: Store<Pod>,
    changes: BoxStream<'static, ()>,
    shown: FleetView,
    /// Largest number of slots of each pool that were held at the same time.
    max_slots: Vec<(String, usize)>,
}

impl Fleet {
    pub(crate) fn new(client: Client) -> Self {
        let (nodes, node_changes) = watch(Api::all(client.clone()));
        let (states, state_changes) = watch(Api::namespaced(client.clone(), DEFAULT_NAMESPACE));
        let (pools, pool_changes) = watch(Api::namespaced(client.clone(), DEFAULT_NAMESPACE));
        let (pods, pod_changes) = watch(Api::default_namespaced(client.clone()));
        Self {
            client,
            nodes,
            states,
            pools,
            pods,
            changes: select_all([node_changes, state_changes, pool_changes, pod_changes]).boxed(),
            shown: FleetView::default(),
            max_slots: Vec::new(),
        }
    }

    /// Shows the fleet on the screen until `done`.
    pub(crate) async fn show_until(
        &mut self,
        screen: &mut Screen,
        what: &str,
        done: impl Fn(&FleetView) -> bool,
    ) -> anyhow::Result<()> {
        let show = async {
            while !done(&self.shown) {
                if self.changes.next().await.is_none() {
                    bail!("a watch ended");
                }
                self.update(screen);
            }
            screen.finish_tables(&format_tables(&self.shown));
            Ok(())
        };
        tokio::time::timeout(DEADLINE, show)
            .await
            .unwrap_or_else(|_| bail!("timed out after {} s: {what}", DEADLINE.as_secs()))
    }

    fn update(&mut self, screen: &mut Screen) {
        let now = FleetView::of(self);
        if now == self.shown {
            return;
        }
        for pool in &now.pools {
            match self.max_slots.iter_mut().find(|(name, _)| *name == pool.name) {
                Some((_, most)) => *most = pool.slots.len().max(*most),
                None => self.max_slots.push((pool.name.clone(), pool.slots.len())),
            }
        }
        screen.update(&format_changes(&self.shown, &now), &format_tables(&now));
        self.shown = now;
    }

    /// Returns the largest number of nodes of each pool that held a slot at the same time.
    pub(crate) fn max_slots_text(&self) -> String {
        let most: Vec<_> = self.max_slots.iter().map(|(pool, most)| format!("{pool} {most}")).collect();
        most.join(", ")
    }

    /// Sets the number of VFs that every node offers to pods, in place of a device plugin.
    pub(crate) async fn offer(&self, vfs: usize) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let offered = json!({ RESOURCE: vfs.to_string() });
        let patch =
            kube::api::Patch::Merge(json!({ "status": { "capacity": offered, "allocatable": offered } }));
        for row in &self.shown.nodes {
            nodes.patch_status(&row.name, &kube::api::PatchParams::default(), &patch).await?;
        }
        Ok(())
    }
}

/// Watches objects of a kind. Returns their store, and a stream of changes.
fn watch<K>(api: Api<K>) -> (Store<K>, BoxStream<'static, ()>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let (reader, writer) = store();
    // The watcher recovers from errors.
    let changes = reflector(writer, watcher(api, watcher::Config::default()).default_backoff());
    (reader, changes.map(drop).boxed())
}
