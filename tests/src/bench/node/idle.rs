//! Idle agent, compared with a minimal client that watches the same object.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use fixture_kube::ControlPlane;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;
use vfleet_api::SriovNetworkNodeState;

use super::lab::Machine;
use crate::bench::fleet;
use crate::bench::report::{Figure, Limit, Row, Unit};

const NAMESPACE: &str = "idle";
const NODE: &str = "lab";
const DEADLINE: Duration = Duration::from_mins(3);
/// Time for which the idle programs are observed.
const TIME: Duration = Duration::from_secs(20);

pub(super) async fn rows(plane: &ControlPlane, machine: &Machine) -> Result<Vec<Row>> {
    let client = plane.client().await?;
    fleet::create_namespace(&client, NAMESPACE).await?;
    create_node(&client).await?;
    create_state(&client).await?;
    let _agent = machine.start_agent(NAMESPACE, NODE)?;
    wait_for_vfs(&client).await.with_context(|| machine.log("agent"))?;
    let _watch = machine.start_watch(NAMESPACE, NODE)?;
    let (agent, watch) = tokio::task::block_in_place(|| {
        anyhow::Ok((machine.observe("agent", TIME)?, machine.observe("watch", TIME)?))
    })?;
    let row = |what, unit, bare, vfleet, limit| Row {
        what,
        nodes: 1,
        unit,
        bare: Some(bare),
        vfleet: Some(Figure::Is(vfleet)),
        go: None,
        limit: Some(limit),
    };
    let memory = Limit { text: "8 MB".to_owned(), maximum: 8e6 };
    let wake_ups = Limit { text: "0".to_owned(), maximum: 0.0 };
    Ok(vec![
        row("idle agent, 14 VFs: private memory", Unit::Bytes, watch.memory, agent.memory, memory),
        row("  wake-ups in 20 s", Unit::Count, watch.wake_ups, agent.wake_ups, wake_ups),
    ])
}

/// Creates the Node object, from which the agent reads the platform and the addresses.
async fn create_node(client: &Client) -> Result<()> {
    let node = serde_json::from_value(fleet::object("v1", "Node", NODE))?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    Ok(())
}

/// Creates the node state, as the operator does.
async fn create_state(client: &Client) -> Result<()> {
    let interface = |pf: u8| {
        json!({
            "pciAddress": format!("0000:{pf:02x}:00.0"), "name": format!("enp{pf}s0"), "numVfs": 7,
            "vfGroups": [{
                "resourceName": "all", "deviceType": "netdevice", "vfRange": "0-6", "policyName": "all",
            }],
        })
    };
    let mut state = fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodeState", NODE);
    state["spec"] = json!({ "interfaces": [interface(1), interface(2)] });
    let states = fleet::states(client, NAMESPACE);
    states.create(&PostParams::default(), &serde_json::from_value(state)?).await?;
    Ok(())
}

async fn wait_for_vfs(client: &Client) -> Result<()> {
    let states: Api<SriovNetworkNodeState> = fleet::states(client, NAMESPACE);
    let mut states = pin!(watcher(states, watcher::Config::default()).default_backoff().applied_objects());
    let is_done = |state: &SriovNetworkNodeState| {
        state.status.as_ref().is_some_and(|status| status.sync_status.as_deref() == Some("Succeeded"))
    };
    let done = async {
        while let Some(state) = states.try_next().await? {
            if is_done(&state) {
                return Ok(());
            }
        }
        anyhow::bail!("the watch of node states ended")
    };
    tokio::time::timeout(DEADLINE, done).await.context("timed out waiting for the VFs")?
}
