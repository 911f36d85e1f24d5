use serde_json::json;
use vfleet_api::PciAddress;
use vfleet_cni::call::PluginCall;
use vfleet_host::attachment::LockSubject;
use vfleet_host::sim::Machine;
use vfleet_host::{Host, SimHost};
use vfleet_plan::cni::journal::{AttachmentKey, Plugin};
use vfleet_plan::{Fact, NodeSnapshot, VfAttachment};

use super::*;

const POD: &str = "/run/netns/pod";

/// Returns a machine with three VFs.
fn machine() -> Arc<SimHost> {
    let mut machine = Machine::lab();
    (machine.pfs[0].num_vfs, machine.pfs[0].up) = (3, true);
    Arc::new(SimHost::new(&machine, "attachments").unwrap())
}

fn sweeper(host: &Arc<SimHost>) -> AttachmentSweeper {
    let snapshots = tokio::sync::watch::Sender::<Arc<NodeSnapshot>>::default();
    let metrics = Arc::new(Metrics::new(snapshots.subscribe()));
    AttachmentSweeper::new(Arc::clone(host) as _, metrics, Arc::default())
}

fn device(host: &SimHost) -> PciAddress {
    host.kernel().pfs[0].vfs[1].address
}

/// Attaches VF 1 to a pod.
fn attach(host: &SimHost) -> AttachmentKey {
    host.modify_kernel(|kernel| kernel.create_namespace(POD));
    let variables = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", POD),
        ("CNI_IFNAME", "net1"),
        ("CNI_PATH", "/opt/cni/bin"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let config =
        json!({ "cniVersion": "1.0.0", "name": "n", "type": "sriov", "deviceID": device(host), "vlan": 5 });
    let call = PluginCall::parse(Plugin::Sriov, &variables, config.to_string().as_bytes()).unwrap();
    engine::execute(host, &call).unwrap();
    call.key(Some(device(host)))
}

fn damage(host: &SimHost, key: &AttachmentKey) -> String {
    host.modify_kernel(|kernel| kernel.cni.journals.insert(key.clone(), "{".to_owned())).unwrap()
}

fn reasons(notices: &[Notice]) -> Vec<&'static str> {
    notices.iter().map(|notice| notice.reason).collect()
}

fn metric(sweeper: &AttachmentSweeper, name: &str) -> u64 {
    let text = sweeper.reporter.metrics.encode().unwrap();
    let start = format!("vfleet_agent_{name} ");
    text.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse().unwrap()
}

fn attachment(host: &SimHost) -> Fact<VfAttachment> {
    host.facts().unwrap().pfs[0].vfs[1].attachment
}

#[tokio::test]
async fn an_attachment_is_released_when_its_namespace_is_gone_and_not_before() {
    let host = machine();
    let key = attach(&host);
    let mut sweeper = sweeper(&host);
    assert!(sweeper.sweep().await.is_empty());
    assert_eq!(attachment(&host), Fact::Value(VfAttachment::Journal));

    host.modify_kernel(|kernel| kernel.delete_namespace(POD));
    let notices = sweeper.sweep().await;
    assert_eq!(reasons(&notices), ["AttachmentReleased"]);
    assert!(notices[0].note.contains(&device(&host).to_string()), "{notices:?}");
    assert_eq!((host.read_journal(&key).unwrap(), attachment(&host)), (None, Fact::None));
    assert_eq!(metric(&sweeper, "attachments_released_total"), 1);
    tokio::time::timeout(Duration::from_secs(1), sweeper.released.notified()).await.unwrap();
    assert!(sweeper.sweep().await.is_empty());
}

#[tokio::test]
async fn a_failure_is_reported_once_and_retried() {
    let host = machine();
    let key = attach(&host);
    let journal = damage(&host, &key);
    let mut sweeper = sweeper(&host);
    let notices = sweeper.sweep().await;
    assert_eq!(reasons(&notices), ["AttachmentNotReleased"]);
    assert!(notices[0].note.contains("vfleet node pods"), "{notices:?}");
    assert_eq!((reasons(&sweeper.sweep().await), sweeper.failures), (vec![], 2));
    assert_eq!(metric(&sweeper, "attachment_release_failures_total"), 2);

    host.modify_kernel(|kernel| kernel.cni.journals.insert(key.clone(), journal));
    assert_eq!((reasons(&sweeper.sweep().await), sweeper.failures), (vec![], 0));
    damage(&host, &key);
    assert_eq!(reasons(&sweeper.sweep().await), ["AttachmentNotReleased"], "a new failure");
}

#[tokio::test]
async fn a_device_that_another_process_has_locked_is_retried_without_a_report() {
    let host = machine();
    let key = attach(&host);
    host.modify_kernel(|kernel| kernel.delete_namespace(POD));
    let lock = host.lock(&LockSubject::of(&key), "DEL", Duration::ZERO).unwrap();
    let mut sweeper = sweeper(&host);
    assert_eq!((reasons(&sweeper.sweep().await), sweeper.failures), (vec![], 1));
    drop(lock);
    assert_eq!(reasons(&sweeper.sweep().await), ["AttachmentReleased"]);
}

#[tokio::test]
async fn a_change_of_the_machine_causes_a_sweep() {
    let host = machine();
    let key = attach(&host);
    let (changed, stop) = (Arc::new(Notify::new()), CancellationToken::new());
    let wake = Arc::clone(&changed);
    let _watch = host.on_change(Box::new(move || wake.notify_one())).unwrap();
    let mut sweeper = sweeper(&host);
    let released = Arc::clone(&sweeper.released);
    sweeper.timer.clear();
    let running = tokio::spawn(sweeper.run(changed, None, stop.clone()));
    host.modify_kernel(|kernel| kernel.delete_namespace(POD));
    tokio::time::timeout(Duration::from_secs(20), released.notified()).await.unwrap();
    assert_eq!(host.read_journal(&key).unwrap(), None);
    stop.cancel();
    running.await.unwrap();
}
