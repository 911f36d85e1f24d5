//! Software bridges, with the kernel's bridge and a real Open vSwitch.

pub(super) mod boot;
mod by_hand;
mod crashes;
mod links;
mod open_vswitch;
mod others;
mod pods;
mod policies;
mod recoveries;
mod resources;

use fixture_lab::RunningJob;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use vfleet_api::SriovOperatorConfig;

pub(super) use self::crashes::at_every_kind_of_step;
pub(super) use self::policies::configures_bridges;
pub(super) use self::resources::reports_resources;
use super::lab_cluster::{LabCluster, OTHER_PF, PF};
use crate::cluster::NodeStateView;
use crate::objects::condition;

/// Open vSwitch bridge of the first card.
const OVS_BRIDGE: &str = "br-0000_01_00.0";
/// Linux bridge of the second card.
const LINUX_BRIDGE: &str = "br-0000_02_00.0";

/// Environment of an agent that manages bridges, as the operator sets it.
pub(super) const MANAGES_BRIDGES: [(&str, &str); 1] = [("MANAGE_SOFTWARE_BRIDGES", "true")];

/// Adds an embedded switch to both cards and starts Open vSwitch.
const START_SWITCHES: &str = "modprobe labswitch datapath=Y
    udevadm settle
    systemctl start openvswitch-switch";

/// Enables bridges in the operator config.
async fn open_gate(lab: &LabCluster<'_>) {
    let config = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovOperatorConfig",
        "metadata": { "name": "default" },
        "spec": { "featureGates": { "manageSoftwareBridges": true }, "logLevel": 1 },
    });
    let configs: Api<SriovOperatorConfig> = lab.cluster.api();
    configs.patch("default", &PatchParams::apply("test").force(), &Patch::Apply(config)).await.unwrap();
}

fn start_agent(lab: &LabCluster<'_>) -> RunningJob {
    lab.start_agent_with(&MANAGES_BRIDGES)
}

/// Returns a policy for one VF of a card in switchdev mode, without a bridge.
fn policy(pf: &str) -> Value {
    json!({ "numVfs": 1, "eSwitchMode": "switchdev", "nicSelector": { "pfNames": [pf] } })
}

/// Applies policies for both cards with these bridges.
async fn apply_policies(lab: &LabCluster<'_>, ovs: &Value, linux: &Value) {
    let bridges = [("ovs", PF, json!({ "ovs": ovs })), ("linux", OTHER_PF, json!({ "linux": linux }))];
    for (name, pf, bridge) in bridges {
        let mut policy = policy(pf);
        policy["bridge"] = bridge;
        lab.cluster.apply_policy(name, policy).await;
    }
}

/// Applies the same policies without bridges.
async fn apply_policies_without_bridges(lab: &LabCluster<'_>) {
    for (name, pf) in [("ovs", PF), ("linux", OTHER_PF)] {
        lab.cluster.apply_policy(name, policy(pf)).await;
    }
}

/// Returns status, reason and message of the condition `Ready` of a bridge; empty texts if it is not reported.
fn ready(state: &NodeStateView, bridge: &str) -> (String, String, String) {
    let bridges = state.status().bridges.unwrap_or_default();
    let ovs = bridges.ovs.into_iter().flatten().map(|bridge| (bridge.name, bridge.conditions));
    let linux = bridges.linux.into_iter().flatten().map(|bridge| (bridge.name, bridge.conditions));
    let found = ovs.chain(linux).find(|(name, _)| name == bridge);
    condition(found.and_then(|(_, conditions)| conditions).as_ref(), "Ready")
}

fn is_ready(state: &NodeStateView, bridge: &str) -> bool {
    ready(state, bridge).0 == "True"
}

/// Waits until the spec is applied and both bridges are ready.
async fn wait_until_ready(lab: &LabCluster<'_>, what: &str) -> NodeStateView {
    let is_ready = |state: &NodeStateView| {
        state.is_synced() && [OVS_BRIDGE, LINUX_BRIDGE].iter().all(|name| is_ready(state, name))
    };
    lab.wait(what, is_ready).await
}
