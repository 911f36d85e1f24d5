//! Simulated nodes with agents, and pods with VFs on them.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::HashMap;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::keys::{CORDON, LAST_DRAIN};
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkPoolConfig};

use super::super::fleet::{self, for_each, states};
use super::super::process;
use super::{NAMESPACE, Scene};
use crate::cluster::machine;

const ACCOUNT: &str = "vfleet-sim";
const PF: &str = "enp1s0";
const POLICY: &str = "drain";

/// The nodes, and the process with their agents.
pub(super) struct SimFleet {
    client: Client,
    nodes: usize,
    child: Child,
    /// Nodes that are not marked, with the last drain that is over.
    free: mpsc::UnboundedReceiver<(String, Option<String>)>,
    _watch: AbortOnDropHandle<()>,
    last_drains: HashMap<String, Option<String>>,
}

impl SimFleet {
    /// The operator runs already: its roles are there.
    pub(super) async fn start(scene: &Scene<'_>) -> Result<Self> {
        let roles = scene.plane.directory().join(format!("deploy-{NAMESPACE}/sim-rbac.yaml"));
        let roles = roles.display().to_string();
        scene.plane.kubectl(&["apply", "--server-side", "-f", &roles])?.into_stdout()?;
        let file = scene.plane.directory().join("machine.yaml");
        std::fs::write(&file, machine())?;
        let output = File::create(scene.plane.directory().join("logs/vfleet-sim.log"))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(scene.vfleet);
        command.args(["sim", "--nodes", &scene.nodes.to_string(), "--machine"]).arg(file);
        command.env("KUBECONFIG", scene.plane.kubeconfig_for_service_account(NAMESPACE, ACCOUNT, None)?);
        command.env("NAMESPACE", NAMESPACE);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().context("vfleet sim does not start")?;
        pool(scene.client).await?;
        let (free, watch) = watch_nodes(scene.client.clone());
        let (client, nodes) = (scene.client.clone(), scene.nodes);
        Ok(Self { client, nodes, child, free, _watch: watch, last_drains: HashMap::new() })
    }

    pub(super) fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.child.id())
    }

    /// Wants so many VFs on every node.
    pub(super) async fn change(&self, vfs: usize) -> Result<()> {
        let mut policy = fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodePolicy", POLICY);
        policy["spec"] = json!({
            "resourceName": "nics", "nodeSelector": {}, "nicSelector": { "pfNames": [PF] }, "numVfs": vfs,
        });
        let api: Api<SriovNetworkNodePolicy> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.patch(POLICY, &PatchParams::apply("bench").force(), &Patch::Apply(&policy)).await?;
        Ok(())
    }

    /// Waits until every node has them and says so.
    pub(super) async fn expect_synced(&self, vfs: usize, limit: Duration) -> Result<()> {
        let mut events = std::pin::pin!(
            watcher(states(&self.client, NAMESPACE), watcher::Config::default())
                .default_backoff()
                .applied_objects()
        );
        let mut synced = std::collections::HashSet::new();
        let all = async {
            while synced.len() < self.nodes {
                let state = events.try_next().await?.context("the watch of node states ended")?;
                if is_synced(&state, vfs) {
                    synced.insert(state.name_any());
                }
            }
            anyhow::Ok(())
        };
        match tokio::time::timeout(limit, all).await {
            Ok(result) => result,
            Err(_) => bail!("only {} of {} nodes have {vfs} VFs", synced.len(), self.nodes),
        }
    }

    /// A pod with a VF on every node. It ends at once when it is told to: no kubelet has to play along.
    pub(super) async fn make_pods(&mut self) -> Result<()> {
        while let Ok((node, last)) = self.free.try_recv() {
            self.last_drains.insert(node, last);
        }
        let names = (1..=self.nodes).map(|number| format!("sim-{number}"));
        make_pods(&self.client, NAMESPACE, names).await
    }

    /// Waits until every node was drained once more, and is not marked any more.
    pub(super) async fn expect_drained(&mut self, limit: Duration) -> Result<()> {
        let mut missing = self.nodes;
        let deadline = tokio::time::Instant::now() + limit;
        while missing > 0 {
            let Ok(free) = tokio::time::timeout_at(deadline, self.free.recv()).await else {
                bail!("{missing} of {} nodes are not drained", self.nodes);
            };
            let (node, last) = free.context("the watch of nodes ended")?;
            if self.last_drains.insert(node, last.clone()).flatten() != last {
                missing -= 1;
            }
        }
        Ok(())
    }

    pub(super) async fn pods_left(&self) -> Result<usize> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        Ok(api.list_metadata(&ListParams::default()).await?.items.len())
    }

    /// A node state as agent and operator leave it.
    pub(super) async fn example(&self) -> Result<SriovNetworkNodeState> {
        Ok(states(&self.client, NAMESPACE).get("sim-1").await?)
    }
}

impl Drop for SimFleet {
    fn drop(&mut self) {
        // Both fail only when it has already ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn pool(client: &Client) -> Result<()> {
    let mut pool = fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkPoolConfig", "all");
    pool["spec"] = json!({
        "nodeSelector": { "matchLabels": { "vfleet.io/simulated": "true" } },
        "drainConfig": { "maxParallelNodeConfiguration": 0 },
    });
    let api: Api<SriovNetworkPoolConfig> = Api::namespaced(client.clone(), NAMESPACE);
    api.patch("all", &PatchParams::apply("bench").force(), &Patch::Apply(&pool)).await?;
    Ok(())
}

/// Pods with VFs, one on each of the nodes, with its name.
pub(super) async fn make_pods(
    client: &Client,
    namespace: &str,
    nodes: impl IntoIterator<Item = String>,
) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    for_each(nodes, async |node| {
        let mut pod = fleet::object("v1", "Pod", &node);
        pod["spec"] = json!({
            "nodeName": node, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "containers": [{ "name": "c", "image": "none", "resources": { "limits": { "openshift.io/nics": "1" } } }],
        });
        api.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    })
    .await
}

fn is_synced(state: &SriovNetworkNodeState, vfs: usize) -> bool {
    let Some(status) = &state.status else { return false };
    let is_current = status.conditions.iter().flatten().any(|condition| {
        condition.type_ == "Ready" && condition.observed_generation == state.metadata.generation
    });
    let mut cards = status.interfaces.iter().flatten();
    let has_them = cards.any(|card| card.vfs.as_ref().is_some_and(|found| found.len() == vfs));
    let is_idle = crate::drain::status_of(state) == vfleet_api::node_state::DrainStatus::Idle;
    is_current && has_them && is_idle && status.sync_status.as_deref() == Some("Succeeded")
}

type Free = mpsc::UnboundedReceiver<(String, Option<String>)>;

/// Only metadata: the watching must not cost what is to be measured.
fn watch_nodes(client: Client) -> (Free, AbortOnDropHandle<()>) {
    let (sender, free) = mpsc::unbounded_channel();
    let api: Api<PartialObjectMeta<Node>> = Api::all(client);
    let watch = tokio::spawn(async move {
        let config = watcher::Config::default().labels("vfleet.io/simulated");
        let nodes = watcher(api, config).default_backoff().applied_objects();
        let sent = nodes.try_for_each(async |node| {
            if !node.annotations().contains_key(CORDON) {
                // Fails only when nobody looks any more.
                let _ = sender.send((node.name_any(), node.annotations().get(LAST_DRAIN).cloned()));
            }
            Ok(())
        });
        let _ = sent.await;
    });
    (free, AbortOnDropHandle::new(watch))
}
