//! Policies that create VFs: the real operator and agents run as programs with their own rights on a real API server;
//! the machines are simulated.

use serde_json::json;
use vfleet_tests::cluster::{Cluster, NodeStateView, machine};
use vfleet_tests::plane::Plane;

/// PF with 7 VFs.
const PF: &str = "enp1s0";

#[tokio::test]
async fn a_policy_creates_changes_and_removes_vfs() {
    let cluster = Cluster::new("rollout", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("rollout-1", &machine()).await;

    cluster
        .wait("rollout-1", "cards reported, no VFs", |state| state.is_synced() && state.vfs(PF).is_empty())
        .await;

    cluster.apply_policy("p", json!({ "numVfs": 4, "mtu": 2000, "nicSelector": { "pfNames": [PF] } })).await;
    let state =
        cluster.wait("rollout-1", "4 VFs", |state| state.is_synced() && state.vfs(PF).len() == 4).await;
    assert!(state.vfs(PF).iter().all(|vf| vf.driver.as_deref() == Some("igbvf") && vf.mtu == Some(2000)));
    assert_eq!(state.card(PF).mtu, Some(2000));
    let addresses: Vec<_> = state.vfs(PF).into_iter().map(|vf| vf.mac.unwrap()).collect();

    let change =
        json!({ "numVfs": 6, "deviceType": "vfio-pci", "nicSelector": { "pfNames": [format!("{PF}#1-5")] } });
    cluster.apply_policy("p", change).await;
    let state =
        cluster.wait("rollout-1", "6 VFs", |state| state.is_synced() && state.vfs(PF).len() == 6).await;
    let drivers: Vec<_> = state.vfs(PF).into_iter().map(|vf| vf.driver.unwrap()).collect();
    assert_eq!(drivers, ["igbvf", "vfio-pci", "vfio-pci", "vfio-pci", "vfio-pci", "vfio-pci"]);
    assert_eq!(
        state.vfs(PF)[1].mac.as_ref(),
        Some(&addresses[1]),
        "a VF keeps its MAC when it is created again"
    );

    cluster.delete_policy("p").await;
    let is_reset = |state: &NodeStateView| {
        state.is_synced() && state.vfs(PF).is_empty() && state.card(PF).mtu == Some(1500)
    };
    cluster.wait("rollout-1", "no VFs, and the original MTU", is_reset).await;
    cluster.expect_event("rollout-1", "Normal", "Succeeded").await;
}

#[tokio::test]
async fn an_impossible_policy_is_reported_in_status_conditions_and_events() {
    let cluster = Cluster::new("impossible", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("impossible-1", &machine()).await;

    cluster.apply_policy("too-many", json!({ "numVfs": 8, "nicSelector": { "pfNames": [PF] } })).await;
    let state = cluster.wait("impossible-1", "Failed", |state| state.sync_status() == "Failed").await;
    let error = state.error();
    for part in [PF, "8 VFs", "at most 7", "numVfs", "policy too-many"] {
        assert!(error.contains(part), "{part:?} is missing in {error:?}");
    }
    assert_eq!(state.condition("Ready"), ("False".to_owned(), "TooManyVfs".to_owned()));
    assert_eq!(state.condition("Degraded"), ("True".to_owned(), "TooManyVfs".to_owned()));
    cluster.expect_event("impossible-1", "Warning", "TooManyVfs").await;

    cluster.apply_policy("too-many", json!({ "numVfs": 7, "nicSelector": { "pfNames": [PF] } })).await;
    let state =
        cluster.wait("impossible-1", "7 VFs", |state| state.is_synced() && state.vfs(PF).len() == 7).await;
    assert_eq!(state.error(), "");
    assert_eq!(state.condition("Degraded").0, "False");
}

#[tokio::test]
async fn a_card_that_cannot_be_configured_does_not_delay_the_other_card() {
    let cluster = Cluster::new("partly", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("partly-1", &machine()).await;
    cluster.apply_policy("bad", json!({ "numVfs": 8, "nicSelector": { "pfNames": [PF] } })).await;
    cluster.apply_policy("good", json!({ "numVfs": 3, "nicSelector": { "pfNames": ["enp2s0"] } })).await;
    let is_partly_done =
        |state: &NodeStateView| state.sync_status() == "Failed" && state.vfs("enp2s0").len() == 3;
    let state = cluster.wait("partly-1", "3 VFs on the good card, and Failed", is_partly_done).await;
    assert!(state.vfs(PF).is_empty());
}

#[tokio::test]
async fn killed_programs_continue_after_a_restart() {
    let cluster = Cluster::new("killed", Plane::Fleet).await;
    let operator = cluster.start_operator();
    let agent = cluster.start_agent("killed-1", &machine()).await;
    cluster.apply_policy("p", json!({ "numVfs": 2, "nicSelector": { "pfNames": [PF] } })).await;
    cluster.wait("killed-1", "2 VFs", |state| state.is_synced() && state.vfs(PF).len() == 2).await;

    operator.kill();
    agent.kill();
    cluster.apply_policy("p", json!({ "numVfs": 5, "nicSelector": { "pfNames": [PF] } })).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("killed-1", &machine()).await;
    cluster.wait("killed-1", "5 VFs", |state| state.is_synced() && state.vfs(PF).len() == 5).await;
}

#[tokio::test]
async fn many_simulated_nodes_run_in_one_process() {
    let cluster = Cluster::new("many", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let names: Vec<_> = (1..=10).map(|number| format!("many-{number}")).collect();
    let _sim = cluster.start_sim(&names, &machine());
    cluster.apply_policy("p", json!({ "numVfs": 7, "nicSelector": { "vendor": "8086" } })).await;
    let mut macs = std::collections::BTreeSet::new();
    for name in &names {
        let has_vfs = |state: &NodeStateView| {
            state.is_synced() && state.vfs(PF).len() == 7 && state.vfs("enp2s0").len() == 7
        };
        let state = cluster.wait(name, "7 VFs on both cards", has_vfs).await;
        macs.extend(state.vfs(PF).into_iter().chain(state.vfs("enp2s0")).filter_map(|vf| vf.mac));
    }
    assert_eq!(macs.len(), 10 * 14, "MACs of the fleet are not unique");
}
