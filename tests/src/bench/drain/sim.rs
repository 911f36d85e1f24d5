//! Simulated nodes with agents and pods with VFs.

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
use super::{DrainSetup, NAMESPACE};
use crate::cluster::machine;

const ACCOUNT: &str = "vfleet-sim";
const PF: &str = "enp1s0";
const POLICY: &str = "drain";

/// Simulated nodes, with the process of their agents.
pub(super) struct SimFleet {
    client: Client,
    nodes: usize,
    child: Child,
    /// Nodes without cordon mark, with their last drain.
    unmarked: mpsc::UnboundedReceiver<(String, Option<String>)>,
    _watch: AbortOnDropHandle<()>,
    last_drains: HashMap<String, Option<String>>,
}

impl SimFleet {
    /// Starts the agents. The operator must run already, because its roles are needed.
    pub(super) async fn start(setup: &DrainSetup<'_>) -> Result<Self> {
        let roles = setup.plane.directory().join(format!("deploy-{NAMESPACE}/sim-rbac.yaml"));
        let roles = roles.display().to_string();
        setup.plane.kubectl(&["apply", "--server-side", "-f", &roles])?.into_stdout()?;
        let file = setup.plane.directory().join("machine.yaml");
        std::fs::write(&file, machine())?;
        let output = File::create(setup.plane.directory().join("logs/vfleet-sim.log"))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(setup.vfleet);
        command.args(["sim", "--nodes", &setup.nodes.to_string(), "--machine"]).arg(file);
        command.env("KUBECONFIG", setup.plane.kubeconfig_for_service_account(NAMESPACE, ACCOUNT, None)?);
        command.env("NAMESPACE", NAMESPACE);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().context("could not start vfleet sim")?;
        create_pool(setup.client).await?;
        let (unmarked, watch) = watch_nodes(setup.client.clone());
        let (client, nodes) = (setup.client.clone(), setup.nodes);
        Ok(Self { client, nodes, child, unmarked, _watch: watch, last_drains: HashMap::new() })
    }

    pub(super) fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.child.id())
    }

    /// Applies a policy with `vfs` VFs on every node.
    pub(super) async fn apply_policy(&self, vfs: usize) -> Result<()> {
        let mut policy = fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodePolicy", POLICY);
        policy["spec"] = json!({
            "resourceName": "nics", "nodeSelector": {}, "nicSelector": { "pfNames": [PF] }, "numVfs": vfs,
        });
        let api: Api<SriovNetworkNodePolicy> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.patch(POLICY, &PatchParams::apply("bench").force(), &Patch::Apply(&policy)).await?;
        Ok(())
    }

    /// Waits until every node has `vfs` VFs and reports it.
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

    /// Creates a pod with a VF on every node. It has no grace period, so that no kubelet is needed.
    pub(super) async fn create_pods(&mut self) -> Result<()> {
        while let Ok((node, last)) = self.unmarked.try_recv() {
            self.last_drains.insert(node, last);
        }
        let names = (1..=self.nodes).map(|number| format!("sim-{number}"));
        create_pods(&self.client, NAMESPACE, names).await
    }

    /// Waits until every node was drained once more and has no cordon mark any more.
    pub(super) async fn expect_drained(&mut self, limit: Duration) -> Result<()> {
        let mut missing = self.nodes;
        let deadline = tokio::time::Instant::now() + limit;
        while missing > 0 {
            let Ok(received) = tokio::time::timeout_at(deadline, self.unmarked.recv()).await else {
                bail!("{missing} of {} nodes are not drained", self.nodes);
            };
            let (node, last) = received.context("the watch of nodes ended")?;
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

    /// Reads a node state as an example.
    pub(super) async fn example(&self) -> Result<SriovNetworkNodeState> {
        Ok(states(&self.client, NAMESPACE).get("sim-1").await?)
    }
}

impl Drop for SimFleet {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn create_pool(client: &Client) -> Result<()> {
    let mut pool = fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkPoolConfig", "all");
    pool["spec"] = json!({
        "nodeSelector": { "matchLabels": { "vfleet.io/simulated": "true" } },
        "drainConfig": { "maxParallelNodeConfiguration": 0 },
    });
    let api: Api<SriovNetworkPoolConfig> = Api::namespaced(client.clone(), NAMESPACE);
    api.patch("all", &PatchParams::apply("bench").force(), &Patch::Apply(&pool)).await?;
    Ok(())
}

/// Creates a pod with VFs on each node, with the name of the node.
pub(super) async fn create_pods(
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
    let has_vfs = cards.any(|card| card.vfs.as_ref().is_some_and(|found| found.len() == vfs));
    let is_idle = crate::drain::status_of(state) == vfleet_api::node_state::DrainStatus::Idle;
    is_current && has_vfs && is_idle && status.sync_status.as_deref() == Some("Succeeded")
}

/// Nodes without cordon mark, with their last drain.
type UnmarkedNodes = mpsc::UnboundedReceiver<(String, Option<String>)>;

/// Watches metadata of nodes only, to keep the cost of the watch low.
fn watch_nodes(client: Client) -> (UnmarkedNodes, AbortOnDropHandle<()>) {
    let (sender, unmarked) = mpsc::unbounded_channel();
    let api: Api<PartialObjectMeta<Node>> = Api::all(client);
    let watch = tokio::spawn(async move {
        let config = watcher::Config::default().labels("vfleet.io/simulated");
        let nodes = watcher(api, config).default_backoff().applied_objects();
        let sent = nodes.try_for_each(async |node| {
            if !node.annotations().contains_key(CORDON) {
                // Fails only if the receiver was dropped.
                let _ = sender.send((node.name_any(), node.annotations().get(LAST_DRAIN).cloned()));
            }
            Ok(())
        });
        let _ = sent.await;
    });
    (unmarked, AbortOnDropHandle::new(watch))
}
