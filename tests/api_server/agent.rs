//! The agent on a simulated machine that misbehaves, beside a real API server and the real operator.

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
use vfleet_tests::cluster::{Cluster, State, machine};
use vfleet_tests::plane::Plane;
use vfleet_tests::ports::own_ports;

const PF: &str = "enp1s0";
const OTHER_PF: &str = "enp2s0";
/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_mins(1);

fn address(card: usize) -> PciAddress {
    Machine::lab().pfs[card].address
}

/// Has the second card hang while VFs are made on it, until something is sent, or for longer than any test waits.
fn hang_second_card(host: &SimHost) -> mpsc::Sender<()> {
    let (let_go, hangs) = mpsc::channel::<()>();
    let hangs = Mutex::new(hangs);
    host.before_each_step(move |step| {
        if matches!(step, Step::SetNumVfs { pf, .. } if *pf == address(1)) {
            let _ = hangs.lock().unwrap().recv_timeout(4 * DEADLINE);
        }
    });
    let_go
}

/// The status and the message of a card's condition.
fn card_is(state: &State, card: &str) -> (String, String) {
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
async fn a_file_of_guids_that_is_corrected_or_changed_is_followed() {
    let cluster = Cluster::new("guids", Plane::Fleet).await;
    let _operator = cluster.operator();
    let host = Arc::new(SimHost::from_yaml(INFINIBAND, "guids").unwrap());
    let agent = Agent::start(&cluster, "guids-1", Arc::clone(&host), |_| {}).await;
    let policy =
        json!({ "numVfs": 2, "isRdma": true, "nicSelector": { "pfNames": ["ibs2"] }, "linkType": "IB" });
    cluster.apply_policy("p", policy).await;
    let fails = |state: &State| {
        state.sync_status() == "Failed" && card_is(state, "ibs2").1.contains("there are 1 GUIDs: add more")
    };
    cluster.wait("guids-1", "too few GUIDs", fails).await;
    for last in ["0a", "0b"] {
        let text =
            format!(r#"[{{"pfGuid": "02-00-00-00-00-bb-00-02", "GUIDs": ["0x7", "02000000000000{last}"]}}]"#);
        host.behind_its_back(|kernel| kernel.guid_file = Some(text));
        let guid = format!("02:00:00:00:00:00:00:{last}");
        let has_it = |state: &State| {
            let vfs = state.vfs("ibs2");
            state.is_synced() && vfs.len() == 2 && vfs[1].guid.as_deref() == Some(&guid)
        };
        cluster.wait("guids-1", &guid, has_it).await;
    }
    agent.end().await;
}

/// Nobody tells that the switch was moved.
#[tokio::test(flavor = "multi_thread")]
async fn what_people_repair_without_an_event_is_noticed() {
    let cluster = Cluster::new("repaired", Plane::Fleet).await;
    let _operator = cluster.operator();
    let host = lab();
    let admin = host.another();
    let pf = address(0);
    admin.execute(&Step::SetAutoprobe { pf, on: false }).unwrap();
    admin.execute(&Step::SetNumVfs { pf, count: 2 }).unwrap();
    let agent = Agent::start(&cluster, "repaired-1", host, |_| {}).await;
    let policy = json!({ "numVfs": 2, "externallyManaged": true, "nicSelector": { "pfNames": [PF] } });
    cluster.apply_policy("p", policy).await;
    let fails = |state: &State| {
        state.sync_status() == "Failed" && card_is(state, PF).1.contains("sriov_drivers_autoprobe")
    };
    cluster.wait("repaired-1", "the kernel binds no VFs", fails).await;
    admin.execute(&Step::SetAutoprobe { pf, on: true }).unwrap();
    cluster.wait("repaired-1", "the VFs are bound", State::is_synced).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_hangs_does_not_hide_that_the_other_is_done() {
    let cluster = Cluster::new("hanging", Plane::Fleet).await;
    let _operator = cluster.operator();
    let host = lab();
    let let_go = hang_second_card(&host);
    let agent = Agent::start(&cluster, "hanging-1", host, |_| {}).await;
    cluster.apply_policy("p", json!({ "numVfs": 2, "nicSelector": { "vendor": "8086" } })).await;
    let seen = |state: &State| {
        state.sync_status() == "InProgress"
            && card_is(state, PF).0 == "True"
            && card_is(state, OTHER_PF).1.contains(&format!("set {} numvfs 2", address(1)))
    };
    let state = cluster.wait("hanging-1", "one card done, the other hangs", seen).await;
    assert_eq!(card_is(&state, OTHER_PF).0, "False");
    assert_eq!(state.condition("Progressing"), ("True".to_owned(), "Executing".to_owned()));
    cluster.expect_event("hanging-1", "Normal", "Configuring").await;
    let_go.send(()).unwrap();
    let both = |state: &State| state.is_synced() && card_is(state, OTHER_PF).0 == "True";
    cluster.wait("hanging-1", "both cards done", both).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_hangs_does_not_keep_a_new_wish_for_the_other_waiting() {
    let cluster = Cluster::new("stuck", Plane::Fleet).await;
    let _operator = cluster.operator();
    let host = lab();
    let let_go = hang_second_card(&host);
    let agent = Agent::start(&cluster, "stuck-1", Arc::clone(&host), |_| {}).await;
    cluster.apply_policy("hangs", json!({ "numVfs": 2, "nicSelector": { "pfNames": [OTHER_PF] } })).await;
    let making = format!("set {} numvfs 2", address(1));
    let hangs =
        |state: &State| state.sync_status() == "InProgress" && card_is(state, OTHER_PF).1.contains(&making);
    cluster.wait("stuck-1", "a card that hangs", hangs).await;
    cluster.apply_policy("new", json!({ "numVfs": 3, "nicSelector": { "pfNames": [PF] } })).await;
    let seen = |state: &State| hangs(state) && state.vfs(PF).len() == 3 && card_is(state, PF).0 == "True";
    let state = cluster.wait("stuck-1", "VFs on the other card", seen).await;
    assert_eq!(card_is(&state, OTHER_PF).0, "False");
    // What happens to the other card is seen to as well.
    let lost = VfRef { pf: address(0), index: 1 };
    host.behind_its_back(|kernel| kernel.unbind(lost)).unwrap();
    let healed = async {
        while host.facts().unwrap().pf(address(0)).unwrap().vfs[1].driver.is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, healed).await.expect("its VF is healed");
    assert!(!host.executed().contains(&making), "it still hangs");

    let_go.send(()).unwrap();
    drop(let_go);
    let both = |state: &State| state.is_synced() && state.vfs(OTHER_PF).len() == 2;
    cluster.wait("stuck-1", "both cards done", both).await;
    assert_eq!(host.executed().iter().filter(|step| **step == making).count(), 1, "it was tried once");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vf_that_lost_its_driver_is_healed_and_one_that_was_just_given_back_is_left_alone() {
    let cluster = Cluster::new("drift", Plane::Fleet).await;
    let _operator = cluster.operator();
    let host = lab();
    let agent = Agent::start(&cluster, "drift-1", Arc::clone(&host), |_| {}).await;
    cluster.make_vfs("drift-1", PF, 3).await;
    let before = host.executed().len();

    let lost = VfRef { pf: address(0), index: 1 };
    let returned = VfRef { pf: address(0), index: 2 };
    // A pod gave this one back, and whoever took it puts its driver right again.
    host.behind_its_back(|kernel| kernel.unbind(returned)).unwrap();
    host.behind_its_back(|kernel| kernel.unbind(lost)).unwrap();
    let start = Instant::now();
    let facts = host.facts().unwrap();
    assert!(facts.pf(address(0)).unwrap().vfs[2].driver.is_none());
    host.behind_its_back(|kernel| kernel.probe(returned)).unwrap();

    cluster.expect_event("drift-1", "Normal", "Repaired").await;
    assert!(start.elapsed() > Duration::from_millis(1500), "it waited: {:?}", start.elapsed());
    let healed = host.executed().split_off(before);
    assert!(healed.iter().any(|step| step.starts_with(&format!("bind {lost}"))), "{healed:?}");
    assert!(!healed.iter().any(|step| step.contains(&returned.to_string())), "{healed:?}");
    assert!(!healed.iter().any(|step| step.contains("numvfs")), "{healed:?}");
    let bound = |state: &State| state.is_synced() && state.vfs(PF).iter().all(|vf| vf.driver.is_some());
    cluster.wait("drift-1", "all VFs bound", bound).await;
    agent.end().await;

    // A start with nothing to do changes nothing and says nothing.
    let version = |state: &State| state.version().to_owned();
    let known = version(&cluster.wait("drift-1", "as it was", bound).await);
    let idle = Arc::new(host.another());
    let mut metrics = None;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let agent = Agent::start(&cluster, "drift-1", Arc::clone(&idle), |config| {
        metrics = Some(Arc::clone(&config.metrics));
    })
    .await;
    tokio::spawn(vfleet_agent::serve(listener, metrics.unwrap(), agent.stop.clone()));
    let first_look = async { while !get(place, "/metrics").await.contains("vfleet_agent_ready 1") {} };
    tokio::time::timeout(DEADLINE, first_look).await.expect("a look at the machine");
    assert_eq!(idle.executed(), Vec::<String>::new());
    assert_eq!(version(&cluster.wait("drift-1", "as it was", bound).await), known);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_announced_and_ends_as_wanted() {
    let cluster = Cluster::new("reboot", Plane::Fleet).await;
    let _operator = cluster.operator();
    let mut machine = Machine::lab();
    machine.kernel.processor = Processor::Intel;
    machine.kernel.boot_loader = Some(BootLoader::Grubby);
    machine.kernel.iommu = false;
    let host = Arc::new(SimHost::new(&machine, "reboot").unwrap());
    let agent = Agent::start(&cluster, "reboot-1", Arc::clone(&host), |_| {}).await;
    let wish = json!({ "numVfs": 2, "deviceType": "vfio-pci", "nicSelector": { "pfNames": [PF] } });
    cluster.apply_policy("p", wish).await;
    cluster.expect_event("reboot-1", "Warning", "RebootNode").await;
    let rebooting = |state: &State| {
        state.sync_status() == "InProgress"
            && state.condition("Progressing") == ("True".to_owned(), "Rebooting".to_owned())
    };
    cluster.wait("reboot-1", "about to restart", rebooting).await;
    let gone = async {
        while host.facts().is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, gone).await.expect("the machine restarts");
    assert_eq!(host.executed().last().map(String::as_str), Some("reboot"));
    agent.end().await;

    let agent = Agent::start(&cluster, "reboot-1", Arc::new(host.another()), |_| {}).await;
    cluster.wait("reboot-1", "2 VFs", |state| state.is_synced() && state.vfs(PF).len() == 2).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_no_vf_needs_is_tried_once_and_done_without() {
    let cluster = Cluster::new("without", Plane::Fleet).await;
    let _operator = cluster.operator();
    let mut machine = Machine::lab();
    machine.kernel.modules = [("tun".to_owned(), ModuleState::Loadable)].into();
    let host = Arc::new(SimHost::new(&machine, "without").unwrap());
    // After a script for udev.
    host.fail_at(1);
    let agent = Agent::start(&cluster, "without-1", Arc::clone(&host), |_| {}).await;
    cluster.make_vfs("without-1", PF, 2).await;
    host.behind_its_back(|kernel| kernel.unbind(VfRef { pf: address(0), index: 1 })).unwrap();
    cluster.expect_event("without-1", "Normal", "Repaired").await;
    let executed = host.executed();
    assert!(!executed.iter().any(|step| step.contains("tun")), "not tried again: {executed:?}");
    agent.end().await;
}

#[tokio::test]
async fn a_config_map_narrows_what_is_reported() {
    let cluster = Cluster::new("narrow", Plane::Fleet).await;
    let nics = |value: &str| {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "supported-nic-ids" },
                          "data": { "card": value, "bad": "only two" } });
        cluster.kubectl(&["apply", "-f", &cluster.file("nics.json", &map.to_string())]);
    };
    nics("8086 1572 154c");
    let _operator = cluster.operator();
    let _agent = cluster.agent("narrow-1", &vfleet_tests::cluster::machine()).await;
    let none = |state: &State| state.is_synced() && state.cards().is_empty();
    cluster.wait("narrow-1", "no card of such a kind", none).await;
    nics("8086 10c9 10ca");
    let both = |state: &State| state.cards() == [PF, OTHER_PF];
    cluster.wait("narrow-1", "both cards", both).await;
    // What is ours stays in sight.
    cluster.make_vfs("narrow-1", PF, 2).await;
    nics("8086 1572 154c");
    cluster.wait("narrow-1", "the card with VFs", |state| state.cards() == [PF]).await;
    cluster.kubectl(&["delete", "configmap", "supported-nic-ids"]);
    cluster.wait("narrow-1", "both cards", both).await;
    assert!(cluster.log().contains("only two"), "the bad line is named");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_steps_vfs_and_attempts() {
    let cluster = Cluster::new("measured", Plane::Fleet).await;
    let _operator = cluster.operator();
    let mut metrics = None;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let agent = Agent::start(&cluster, "measured-1", lab(), |config| {
        metrics = Some(Arc::clone(&config.metrics));
    })
    .await;
    tokio::spawn(vfleet_agent::serve(listener, metrics.unwrap(), agent.stop.clone()));
    cluster.make_vfs("measured-1", PF, 3).await;
    let text = get(place, "/metrics").await;
    for line in [
        r#"vfleet_agent_steps_total{kind="SetNumVfs",result="success"} 1"#,
        r#"vfleet_agent_step_seconds_count{kind="SetNumVfs"} 1"#,
        r#"vfleet_agent_vfs{pf="enp1s0",state="bound"} 3"#,
        "vfleet_agent_ready 1",
        r#"vfleet_agent_attempts_total{result="success"}"#,
    ] {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
    assert!(get(place, "/healthz").await.ends_with("ok"));
    agent.end().await;
}

/// As on a node where the Go metrics exporter has the port, in an image without a CA bundle.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_metrics_port_is_taken_works_on_and_serves_when_the_port_is_free() {
    let cluster = Cluster::new("exporter", Plane::Fleet).await;
    let _operator = cluster.operator();
    let [port] = own_ports().unwrap();
    let place = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let exporter = tokio::net::TcpListener::bind(place).await.unwrap();
    let file = cluster.file("machine.yaml", &machine());
    let arguments = ["--sim", &file, "--metrics-bind-address", &place.to_string()];
    let no_bundle = [("SSL_CERT_FILE", "/none"), ("SSL_CERT_DIR", "/none")];
    let _agent = cluster.agent_with("exporter-1", &arguments, &no_bundle).await;
    cluster.make_vfs("exporter-1", PF, 2).await;
    let metrics = |state: &State| state.find_condition("Metrics");
    let taken = ("False".to_owned(), "AddressInUse".to_owned());
    let is_taken = |state: &State| metrics(state).as_ref() == Some(&taken);
    let state = cluster.wait("exporter-1", "a condition about its metrics", is_taken).await;
    assert!(state.is_synced(), "the cards are as wanted");
    assert!(cluster.log().contains("metrics are not served"), "it is logged");

    drop(exporter);
    cluster.wait("exporter-1", "metrics", |state| metrics(state).is_none()).await;
    assert!(get(place, "/metrics").await.contains("vfleet_agent_ready 1"));
}

async fn get(place: std::net::SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(place).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_go_daemon_said_about_rdma_goes_on_a_machine_without() {
    let cluster = Cluster::new("stale", Plane::Fleet).await;
    let _operator = cluster.operator();
    cluster.create_worker("stale-1").await;
    let exists = |_: &SriovNetworkNodeState| true;
    cluster.wait_for("stale-1", "a node state", exists).await;
    let said = json!({ "status": { "system": { "rdmaMode": "exclusive" }, "syncStatus": "Succeeded" } });
    cluster.kubectl(&[
        "patch",
        "sriovnetworknodestates",
        "stale-1",
        "--subresource=status",
        "--type=merge",
        "--field-manager=sriov-network-config-daemon",
        "-p",
        &said.to_string(),
    ]);
    let mode = |state: &SriovNetworkNodeState| state.status.as_ref()?.system.as_ref()?.rdma_mode;
    let is_said = |state: &SriovNetworkNodeState| mode(state) == Some(RdmaMode::Exclusive);
    cluster.wait_for("stale-1", "the Go daemon's word", is_said).await;
    let agent = Agent::start(&cluster, "stale-1", lab(), |_| {}).await;
    cluster.wait("stale-1", "synced", State::is_synced).await;
    cluster.wait_for("stale-1", "no RDMA", |state| mode(state).is_none()).await;
    agent.end().await;
}
