//! The fleet, as the API server tells it.

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

use crate::drawing::{news, tables};
use crate::picture::{Picture, RESOURCE};
use crate::screen::Screen;

/// A roll-out takes seconds; a demo that stands still for so long is broken and must say so.
const DEADLINE: Duration = Duration::from_mins(1);

/// All that is shown of the cluster.
pub(crate) struct Fleet {
    client: Client,
    pub(crate) nodes: Store<Node>,
    pub(crate) states: Store<SriovNetworkNodeState>,
    pub(crate) pools: Store<SriovNetworkPoolConfig>,
    pub(crate) pods: Store<Pod>,
    changes: BoxStream<'static, ()>,
    shown: Picture,
    /// The most slots that each pool had given away at once.
    most: Vec<(String, usize)>,
}

impl Fleet {
    pub(crate) fn new(client: Client) -> Self {
        let (nodes, node_changes) = follow(Api::all(client.clone()));
        let (states, state_changes) = follow(Api::namespaced(client.clone(), DEFAULT_NAMESPACE));
        let (pools, pool_changes) = follow(Api::namespaced(client.clone(), DEFAULT_NAMESPACE));
        let (pods, pod_changes) = follow(Api::default_namespaced(client.clone()));
        Self {
            client,
            nodes,
            states,
            pools,
            pods,
            changes: select_all([node_changes, state_changes, pool_changes, pod_changes]).boxed(),
            shown: Picture::default(),
            most: Vec::new(),
        }
    }

    /// Follows the fleet on the screen until `done`.
    pub(crate) async fn show_until(
        &mut self,
        screen: &mut Screen,
        what: &str,
        done: impl Fn(&Picture) -> bool,
    ) -> anyhow::Result<()> {
        let follow = async {
            while !done(&self.shown) {
                if self.changes.next().await.is_none() {
                    bail!("the watch ended");
                }
                self.look(screen);
            }
            screen.finish_tables(&tables(&self.shown));
            Ok(())
        };
        tokio::time::timeout(DEADLINE, follow)
            .await
            .unwrap_or_else(|_| bail!("after {} s not yet: {what}", DEADLINE.as_secs()))
    }

    fn look(&mut self, screen: &mut Screen) {
        let now = Picture::of(self);
        if now == self.shown {
            return;
        }
        for pool in &now.pools {
            match self.most.iter_mut().find(|(name, _)| *name == pool.name) {
                Some((_, most)) => *most = pool.slots.len().max(*most),
                None => self.most.push((pool.name.clone(), pool.slots.len())),
            }
        }
        screen.update(&news(&self.shown, &now), &tables(&now));
        self.shown = now;
    }

    /// How many nodes of each pool had a slot at once, at most.
    pub(crate) fn most_at_once(&self) -> String {
        let most: Vec<_> = self.most.iter().map(|(pool, most)| format!("{pool} {most}")).collect();
        most.join(", ")
    }

    /// Every node offers so many VFs to pods. That is the device plugin's to say, but nobody plays it here.
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

/// Follows objects of a kind: as they are, and that something about them changed.
fn follow<K>(api: Api<K>) -> (Store<K>, BoxStream<'static, ()>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let (reader, writer) = store();
    // After an error it goes on by itself.
    let changes = reflector(writer, watcher(api, watcher::Config::default()).default_backoff());
    (reader, changes.map(drop).boxed())
}
