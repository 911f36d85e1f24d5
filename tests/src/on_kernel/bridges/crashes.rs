//! Crashes of the agent at every kind of step for bridges.

use serde_json::json;

use super::super::crashing_agent::{BRIDGE_STEPS, CrashingAgent};
use super::super::guest::{Guest, assert_unchanged};
use super::super::lab_cluster::{LabCluster, OTHER_PF, PF, kill};
use super::links::{read_links, read_ports};
use super::open_vswitch::{ports, snapshot_bridge};
use super::{
    LINUX_BRIDGE, OVS_BRIDGE, START_SWITCHES, apply_policies, apply_policies_without_bridges, open_gate,
    ready, start_agent, wait_until_ready,
};
use crate::cluster::NodeStateView;

/// Port that another program adds to the Open vSwitch bridge.
const LATE_PORT: &str = "late0";

/// An agent that is killed before and after each kind of step has the same result as an agent that is not killed. The
/// killed one also creates the VFs and sets the eswitch mode.
pub(in super::super) async fn at_every_kind_of_step(lab: &LabCluster<'_>) {
    let LabCluster { cluster, guest, .. } = lab;
    open_gate(lab).await;
    guest.run(START_SWITCHES);
    let crashing_agent = CrashingAgent::new(lab, &BRIDGE_STEPS);
    let agent = crashing_agent.start("--bridges");
    let disturbed = create_and_remove(lab).await;
    kill(agent);
    crashing_agent.assert_crashed_at_all();

    guest.run("ovs-vsctl remove Open_vSwitch . other_config hw-offload");
    let agent = start_agent(lab);
    let undisturbed = create_and_remove(lab).await;
    for (disturbed, undisturbed) in disturbed.iter().zip(&undisturbed) {
        assert_unchanged(undisturbed, disturbed, "the results differ");
    }
    for policy in ["ovs", "linux"] {
        cluster.delete_policy(policy).await;
    }
    for pf in [PF, OTHER_PF] {
        lab.wait_for_no_vfs(pf).await;
    }
    kill(agent);
    guest.clean();
}

/// Returns the state of the bridges, and what is left of them after they were taken out of the policies.
async fn create_and_remove(lab: &LabCluster<'_>) -> [String; 2] {
    let guest = &lab.guest;
    let ovs = json!({
        "bridge": { "externalIDs": { "team": "a" }, "otherConfig": { "mac-aging-time": "100" }, "failMode": "secure" },
        "uplink": { "interface": { "mtuRequest": 1400 } },
    });
    let linux = json!({ "bridge": { "vlanFiltering": true, "vlanProtocol": "802.1ad" }, "uplink": { "learning": "off" } });
    apply_policies(lab, &ovs, &linux).await;
    wait_until_ready(lab, "both bridges").await;
    let created = read_bridges(guest);

    guest.run(&format!(
        "ovs-vsctl add-port {OVS_BRIDGE} {LATE_PORT} -- set Interface {LATE_PORT} type=internal"
    ));
    apply_policies_without_bridges(lab).await;
    let is_kept = |state: &NodeStateView| ready(state, OVS_BRIDGE).2.contains(LATE_PORT);
    lab.wait("the bridge is kept for a port", is_kept).await;
    assert_eq!(ports(guest, OVS_BRIDGE), [LATE_PORT], "the uplink is removed");
    guest.run(&format!("ovs-vsctl del-port {LATE_PORT}"));
    let is_gone = |state: &NodeStateView| state.is_synced() && state.status().bridges.is_none();
    lab.wait("no bridges", is_gone).await;
    let left = guest.run(
        "ovs-vsctl show | grep -v -e '^[0-9a-f-]*$'
        ip -brief link | cut -d ' ' -f 1",
    );
    [created, format!("{left}\n{}", read_files(guest))]
}

/// Returns the state of both bridges as text, without what differs for every bridge.
fn read_bridges(guest: &Guest<'_>) -> String {
    const VARYING: [&str; 3] = ["_uuid", "ports", "interfaces"];
    let ovs = snapshot_bridge(guest, OVS_BRIDGE, &[PF]);
    let is_varying = |line: &&str| VARYING.iter().any(|column| line.starts_with(&format!("[\"{column}\"")));
    let ovs: Vec<_> = ovs.lines().filter(|line| !is_varying(line)).collect();
    let linux = [read_links(guest, &[LINUX_BRIDGE, OTHER_PF]), read_ports(guest, &[OTHER_PF])].join("\n");
    let linux: Vec<_> = linux.lines().filter(|line| !line.contains("\"ifindex\"")).collect();
    let settings = guest.run("ovs-vsctl get Open_vSwitch . other_config");
    [ovs.join("\n"), settings, linux.join("\n"), read_files(guest)].join("\n")
}

/// Returns rules of udev, and files about bridges.
fn read_files(guest: &Guest<'_>) -> String {
    guest.run(
        "tail -n +1 /etc/udev/rules.d/*.rules
        cd /etc/sriov-operator
        if [ -e managed-ovs-bridges.json ]; then jq . managed-ovs-bridges.json; fi
        jq .bridge vfleet/pci/*",
    )
}
