//! Open vSwitch bridges as resources of the Node.

use super::super::lab_cluster::{LabCluster, NODE, kill};
use crate::cluster::NodeStateView;
use crate::objects::bridge_capacity;

/// Environment of an agent that reports bridges and does not manage any, as the operator sets it.
const REPORTS_BRIDGES: [(&str, &str); 2] =
    [("OVS_BRIDGE_RESOURCES", "true"), ("MANAGE_SOFTWARE_BRIDGES", "false")];

/// The resources follow the database of Open vSwitch, stay while its server is down, and nothing else of the machine is
/// changed.
pub(in super::super) async fn reports_resources(lab: &LabCluster<'_>) {
    let guest = &lab.guest;
    lab.cluster.allow_bridge_resources();
    guest.run("systemctl start openvswitch-switch; ovs-vsctl add-br br-first");
    let agent = lab.start_agent_with(&REPORTS_BRIDGES);
    expect_bridges(lab, &["br-first"]).await;
    guest.run("ovs-vsctl add-br br-second -- del-br br-first");
    expect_bridges(lab, &["br-second"]).await;

    guest.run("systemctl stop openvswitch-switch ovs-vswitchd ovsdb-server");
    let reason = |reason| {
        move |state: &NodeStateView| {
            state.find_condition("BridgeResources").map(|(_, found)| found).as_deref() == reason
        }
    };
    lab.wait("OvsNotRunning", reason(Some("OvsNotRunning"))).await;
    expect_bridges(lab, &["br-second"]).await;
    guest.run("systemctl start openvswitch-switch");
    lab.wait("that Open vSwitch is read", reason(None)).await;
    expect_bridges(lab, &["br-second"]).await;
    guest.run("ovs-vsctl del-br br-second");
    expect_bridges(lab, &[]).await;
    assert_eq!(guest.executed_steps(), [""; 0], "steps for bridges that are only reported");
    kill(agent);
    guest.clean();
}

/// Waits until the Node has resources for exactly these bridges.
async fn expect_bridges(lab: &LabCluster<'_>, bridges: &[&str]) {
    let expected: Vec<_> = bridges.iter().map(|name| ((*name).to_owned(), "1k".to_owned())).collect();
    let what = format!("bridges {bridges:?}");
    lab.cluster
        .wait_for_node(NODE, &what, |node| bridge_capacity(node).into_iter().eq(expected.clone()))
        .await;
}
