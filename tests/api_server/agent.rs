//! Agent on a simulated machine that misbehaves, with a real API server and the real operator.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{PciAddress, SriovNetworkNodeState, VfRef};
use vfleet_host::sim::Machine;
use vfleet_host::{Host, SimHost};
use vfleet_plan::{BootLoader, ModuleState, Processor, Step};
use vfleet_tests::agent::{Agent, lab};
use vfleet_tests::cluster::{Cluster, NodeStateView, machine};
use vfleet_tests::plane::Plane;
use vfleet_tests::ports::reserve_ports;

const PF: &str = "enp1s0";
const OTHER_PF: &str = "enp2s0";
/// Deadline of waits; generous, because the machine may be busy.
const DEADLINE: Duration = Duration::from_mins(1);

fn address(card: usize) -> PciAddress {
    Machine::lab().pfs[card].address
}

/// Makes the second card hang while VFs are created on it, until a message is sent, or for longer than any test waits.
fn hang_second_card(host: &SimHost) -> mpsc::Sender<()> {
    let (release, hang) = mpsc::channel::<()>();
    let hang = Mutex::new(hang);
    host.set_step_hook(move |step| {
        if matches!(step, Step::SetNumVfs { pf, .. } if *pf == address(1)) {
            let _ = hang.lock().unwrap().recv_timeout(4 * DEADLINE);
        }
    });
    release
}

/// Returns status and message of the condition of a card.
fn card_condition(state: &NodeStateView, card: &str) -> (String, String) {
    let ready = state.card(card).conditions.unwrap_or_default().into_iter().next();
    ready.map_or_else(Default::default, |ready| (ready.status, ready.message))
}

const INFINIBAND: &str = r#"
pfs:
  - { address: "0000:5e:00.0", name: ibs2, mac: "3c:fd:fe:00:00:02", vendor: "15b3", device: "101d", vfDevice: "101e",
      driver: mlx5_core, vfDriver: mlx5_core, totalVfs: 8, linkKind: IB, nodeGuid: "02:00:00:00:00:bb:00:02" }
guidFile: '[{"pciAddress": "0000:5e:00.0", "guids": ["02:00:00:00:00:aa:00:01"]}]'
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_corrected_or_changed_guid_file_is_applied() {
    let cluster = Cluster::new("guids", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let host = Arc::new(SimHost::from_yaml(INFINIBAND, "guids").unwrap());
    let agent = Agent::start(&cluster, "guids-1", Arc::clone(&host), |_| {}).await;
    let policy =
        json!({ "numVfs": 2, "isRdma": true, "nicSelector": { "pfNames": ["ibs2"] }, "linkType": "IB" });
    cluster.apply_policy("p", policy).await;
    let fails = |state: &NodeStateView| {
        state.sync_status() == "Failed"
            && card_condition(state, "ibs2").1.contains("there are 1 GUIDs: add more")
    };
    cluster.wait("guids-1", "too few GUIDs", fails).await;
    for last in ["0a", "0b"] {
        let text =
            format!(r#"[{{"pfGuid": "02-00-00-00-00-bb-00-02", "GUIDs": ["0x7", "02000000000000{last}"]}}]"#);
        host.modify_kernel(|kernel| kernel.guid_file = Some(text));
        let guid = format!("02:00:00:00:00:00:00:{last}");
        let has_guid = |state: &NodeStateView| {
            let vfs = state.vfs("ibs2");
            state.is_synced() && vfs.len() == 2 && vfs[1].guid.as_deref() == Some(&guid)
        };
        cluster.wait("guids-1", &guid, has_guid).await;
    }
    agent.end().await;
}

/// The kernel sends no event when autoprobe changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_without_an_event_is_noticed() {
    let cluster = Cluster::new("repaired", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let host = lab();
    let admin = host.new_process();
    let pf = address(0);
    admin.execute(&Step::SetAutoprobe { pf, on: false }).unwrap();
    admin.execute(&Step::SetNumVfs { pf, count: 2 }).unwrap();
    let agent = Agent::start(&cluster, "repaired-1", host, |_| {}).await;
    let policy = json!({ "numVfs": 2, "externallyManaged": true, "nicSelector": { "pfNames": [PF] } });
    cluster.apply_policy("p", policy).await;
    let fails = |state: &NodeStateView| {
        state.sync_status() == "Failed" && card_condition(state, PF).1.contains("sriov_drivers_autoprobe")
    };
    cluster.wait("repaired-1", "the kernel binds no VFs", fails).await;
    admin.execute(&Step::SetAutoprobe { pf, on: true }).unwrap();
    cluster.wait("repaired-1", "the VFs are bound", NodeStateView::is_synced).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_hangs_does_not_hide_that_the_other_card_is_configured() {
    let cluster = Cluster::new("hanging", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let host = lab();
    let release = hang_second_card(&host);
    let agent = Agent::start(&cluster, "hanging-1", host, |_| {}).await;
    cluster.apply_policy("p", json!({ "numVfs": 2, "nicSelector": { "vendor": "8086" } })).await;
    let is_partly_done = |state: &NodeStateView| {
        state.sync_status() == "InProgress"
            && card_condition(state, PF).0 == "True"
            && card_condition(state, OTHER_PF).1.contains(&format!("set {} numvfs 2", address(1)))
    };
    let state = cluster.wait("hanging-1", "one card is configured, the other hangs", is_partly_done).await;
    assert_eq!(card_condition(&state, OTHER_PF).0, "False");
    assert_eq!(state.condition("Progressing"), ("True".to_owned(), "Executing".to_owned()));
    cluster.expect_event("hanging-1", "Normal", "Configuring").await;
    release.send(()).unwrap();
    let are_both_done =
        |state: &NodeStateView| state.is_synced() && card_condition(state, OTHER_PF).0 == "True";
    cluster.wait("hanging-1", "both cards are configured", are_both_done).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_hangs_does_not_delay_a_new_policy_for_the_other_card() {
    let cluster = Cluster::new("stuck", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let host = lab();
    let release = hang_second_card(&host);
    let agent = Agent::start(&cluster, "stuck-1", Arc::clone(&host), |_| {}).await;
    cluster.apply_policy("hangs", json!({ "numVfs": 2, "nicSelector": { "pfNames": [OTHER_PF] } })).await;
    let step = format!("set {} numvfs 2", address(1));
    let hangs = |state: &NodeStateView| {
        state.sync_status() == "InProgress" && card_condition(state, OTHER_PF).1.contains(&step)
    };
    cluster.wait("stuck-1", "a card that hangs", hangs).await;
    cluster.apply_policy("new", json!({ "numVfs": 3, "nicSelector": { "pfNames": [PF] } })).await;
    let is_configured = |state: &NodeStateView| {
        hangs(state) && state.vfs(PF).len() == 3 && card_condition(state, PF).0 == "True"
    };
    let state = cluster.wait("stuck-1", "VFs on the other card", is_configured).await;
    assert_eq!(card_condition(&state, OTHER_PF).0, "False");
    // Changes of the other card are repaired as well.
    let lost = VfRef { pf: address(0), index: 1 };
    host.modify_kernel(|kernel| kernel.unbind(lost)).unwrap();
    let repaired = async {
        while host.facts().unwrap().pf(address(0)).unwrap().vfs[1].driver.is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, repaired).await.expect("the VF is repaired");
    assert!(!host.executed_steps().contains(&step), "the card still hangs");

    release.send(()).unwrap();
    drop(release);
    let are_both_done = |state: &NodeStateView| state.is_synced() && state.vfs(OTHER_PF).len() == 2;
    cluster.wait("stuck-1", "both cards are configured", are_both_done).await;
    assert_eq!(
        host.executed_steps().iter().filter(|executed| **executed == step).count(),
        1,
        "the step was executed once"
    );
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unbound_vf_is_repaired_and_one_that_a_pod_just_returned_is_left_alone() {
    let cluster = Cluster::new("drift", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let host = lab();
    let agent = Agent::start(&cluster, "drift-1", Arc::clone(&host), |_| {}).await;
    cluster.create_vfs("drift-1", PF, 3).await;
    let before = host.executed_steps().len();

    let lost = VfRef { pf: address(0), index: 1 };
    let returned = VfRef { pf: address(0), index: 2 };
    // A pod returned this VF, and the CNI plugin binds it again.
    host.modify_kernel(|kernel| kernel.unbind(returned)).unwrap();
    host.modify_kernel(|kernel| kernel.unbind(lost)).unwrap();
    let start = Instant::now();
    let facts = host.facts().unwrap();
    assert!(facts.pf(address(0)).unwrap().vfs[2].driver.is_none());
    host.modify_kernel(|kernel| kernel.probe(returned)).unwrap();

    cluster.expect_event("drift-1", "Normal", "Repaired").await;
    assert!(start.elapsed() > Duration::from_millis(1500), "the agent did not wait: {:?}", start.elapsed());
    let repairs = host.executed_steps().split_off(before);
    assert!(repairs.iter().any(|step| step.starts_with(&format!("bind {lost}"))), "{repairs:?}");
    assert!(!repairs.iter().any(|step| step.contains(&returned.to_string())), "{repairs:?}");
    assert!(!repairs.iter().any(|step| step.contains("numvfs")), "{repairs:?}");
    let are_bound =
        |state: &NodeStateView| state.is_synced() && state.vfs(PF).iter().all(|vf| vf.driver.is_some());
    cluster.wait("drift-1", "all VFs bound", are_bound).await;
    agent.end().await;

    // A start with nothing to do writes nothing.
    let version = |state: &NodeStateView| state.version().to_owned();
    let previous = version(&cluster.wait("drift-1", "unchanged", are_bound).await);
    let idle = Arc::new(host.new_process());
    let mut metrics = None;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let agent = Agent::start(&cluster, "drift-1", Arc::clone(&idle), |config| {
        metrics = Some(Arc::clone(&config.metrics));
    })
    .await;
    tokio::spawn(vfleet_agent::serve(listener, metrics.unwrap(), agent.stop.clone()));
    let first_survey = async { while !get(address, "/metrics").await.contains("vfleet_agent_ready 1") {} };
    tokio::time::timeout(DEADLINE, first_survey).await.expect("the first survey");
    assert_eq!(idle.executed_steps(), Vec::<String>::new());
    assert_eq!(version(&cluster.wait("drift-1", "unchanged", are_bound).await), previous);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reboot_is_announced_and_completes_the_configuration() {
    let cluster = Cluster::new("reboot", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let mut machine = Machine::lab();
    machine.kernel.processor = Processor::Intel;
    machine.kernel.boot_loader = Some(BootLoader::Grubby);
    machine.kernel.iommu = false;
    let host = Arc::new(SimHost::new(&machine, "reboot").unwrap());
    let agent = Agent::start(&cluster, "reboot-1", Arc::clone(&host), |_| {}).await;
    let policy = json!({ "numVfs": 2, "deviceType": "vfio-pci", "nicSelector": { "pfNames": [PF] } });
    cluster.apply_policy("p", policy).await;
    cluster.expect_event("reboot-1", "Warning", "RebootNode").await;
    let is_rebooting = |state: &NodeStateView| {
        state.sync_status() == "InProgress"
            && state.condition("Progressing") == ("True".to_owned(), "Rebooting".to_owned())
    };
    cluster.wait("reboot-1", "about to reboot", is_rebooting).await;
    let rebooted = async {
        while host.facts().is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, rebooted).await.expect("the machine reboots");
    assert_eq!(host.executed_steps().last().map(String::as_str), Some("reboot"));
    agent.end().await;

    let agent = Agent::start(&cluster, "reboot-1", Arc::new(host.new_process()), |_| {}).await;
    cluster.wait("reboot-1", "2 VFs", |state| state.is_synced() && state.vfs(PF).len() == 2).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_optional_module_that_cannot_be_loaded_is_tried_only_once() {
    let cluster = Cluster::new("without", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let mut machine = Machine::lab();
    machine.kernel.modules = [("tun".to_owned(), ModuleState::Loadable)].into();
    let host = Arc::new(SimHost::new(&machine, "without").unwrap());
    // The first step writes a script for udev.
    host.fail_at(1);
    let agent = Agent::start(&cluster, "without-1", Arc::clone(&host), |_| {}).await;
    cluster.create_vfs("without-1", PF, 2).await;
    host.modify_kernel(|kernel| kernel.unbind(VfRef { pf: address(0), index: 1 })).unwrap();
    cluster.expect_event("without-1", "Normal", "Repaired").await;
    let executed = host.executed_steps();
    assert!(!executed.iter().any(|step| step.contains("tun")), "tried again: {executed:?}");
    agent.end().await;
}

#[tokio::test]
async fn a_config_map_restricts_the_reported_cards() {
    let cluster = Cluster::new("narrow", Plane::Fleet).await;
    let nics = |value: &str| {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "supported-nic-ids" },
                          "data": { "card": value, "bad": "only two" } });
        cluster.kubectl(&["apply", "-f", &cluster.write_file("nics.json", &map.to_string())]);
    };
    nics("8086 1572 154c");
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("narrow-1", &vfleet_tests::cluster::machine()).await;
    let has_no_card = |state: &NodeStateView| state.is_synced() && state.cards().is_empty();
    cluster.wait("narrow-1", "no supported card", has_no_card).await;
    nics("8086 10c9 10ca");
    let has_both = |state: &NodeStateView| state.cards() == [PF, OTHER_PF];
    cluster.wait("narrow-1", "both cards", has_both).await;
    // A configured card is still reported.
    cluster.create_vfs("narrow-1", PF, 2).await;
    nics("8086 1572 154c");
    cluster.wait("narrow-1", "the card with VFs", |state| state.cards() == [PF]).await;
    cluster.kubectl(&["delete", "configmap", "supported-nic-ids"]);
    cluster.wait("narrow-1", "both cards", has_both).await;
    assert!(cluster.log().contains("only two"), "the invalid line is not logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_steps_vfs_and_attempts() {
    let cluster = Cluster::new("measured", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let mut metrics = None;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let agent = Agent::start(&cluster, "measured-1", lab(), |config| {
        metrics = Some(Arc::clone(&config.metrics));
    })
    .await;
    tokio::spawn(vfleet_agent::serve(listener, metrics.unwrap(), agent.stop.clone()));
    cluster.create_vfs("measured-1", PF, 3).await;
    let text = get(address, "/metrics").await;
    for line in [
        r#"vfleet_agent_steps_total{kind="SetNumVfs",result="success"} 1"#,
        r#"vfleet_agent_step_seconds_count{kind="SetNumVfs"} 1"#,
        r#"vfleet_agent_vfs{pf="enp1s0",state="bound"} 3"#,
        "vfleet_agent_ready 1",
        r#"vfleet_agent_attempts_total{result="success"}"#,
    ] {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
    assert!(get(address, "/healthz").await.ends_with("ok"));
    agent.end().await;
}

/// On a node where the Go metrics exporter uses the port, and in an image without a CA bundle.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_metrics_port_is_in_use_works_and_serves_when_the_port_is_free() {
    let cluster = Cluster::new("exporter", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let [port] = reserve_ports().unwrap();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let exporter = tokio::net::TcpListener::bind(address).await.unwrap();
    let file = cluster.write_file("machine.yaml", &machine());
    let arguments = ["--sim", &file, "--metrics-bind-address", &address.to_string()];
    let no_bundle = [("SSL_CERT_FILE", "/none"), ("SSL_CERT_DIR", "/none")];
    let _agent = cluster.start_agent_with("exporter-1", &arguments, &no_bundle).await;
    cluster.create_vfs("exporter-1", PF, 2).await;
    let metrics = |state: &NodeStateView| state.find_condition("Metrics");
    let taken = ("False".to_owned(), "AddressInUse".to_owned());
    let is_taken = |state: &NodeStateView| metrics(state).as_ref() == Some(&taken);
    let state = cluster.wait("exporter-1", "a condition about its metrics", is_taken).await;
    assert!(state.is_synced(), "the node is not synced");
    assert!(cluster.log().contains("metrics are not served"), "the problem is not logged");

    drop(exporter);
    cluster.wait("exporter-1", "metrics", |state| metrics(state).is_none()).await;
    assert!(get(address, "/metrics").await.contains("vfleet_agent_ready 1"));
}

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rdma_mode_of_the_go_daemon_is_removed_on_a_machine_without_rdma() {
    let cluster = Cluster::new("stale", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    cluster.create_worker("stale-1").await;
    let exists = |_: &SriovNetworkNodeState| true;
    cluster.wait_for("stale-1", "a node state", exists).await;
    let status = json!({ "status": { "system": { "rdmaMode": "exclusive" }, "syncStatus": "Succeeded" } });
    cluster.kubectl(&[
        "patch",
        "sriovnetworknodestates",
        "stale-1",
        "--subresource=status",
        "--type=merge",
        "--field-manager=sriov-network-config-daemon",
        "-p",
        &status.to_string(),
    ]);
    let mode = |state: &SriovNetworkNodeState| state.status.as_ref()?.system.as_ref()?.rdma_mode;
    let is_exclusive = |state: &SriovNetworkNodeState| mode(state) == Some(RdmaMode::Exclusive);
    cluster.wait_for("stale-1", "the RDMA mode of the Go daemon", is_exclusive).await;
    let agent = Agent::start(&cluster, "stale-1", lab(), |_| {}).await;
    cluster.wait("stale-1", "synced", NodeStateView::is_synced).await;
    cluster.wait_for("stale-1", "no RDMA", |state| mode(state).is_none()).await;
    agent.end().await;
}
