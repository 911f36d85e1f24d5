use serde_json::{Value, json};
use vfleet_api::{MacAddr, PciAddress};
use vfleet_cni::call::PluginCall;
use vfleet_cni::engine;
use vfleet_host::SimHost;
use vfleet_host::attachment::{AttachmentHost, LockSubject};
use vfleet_host::sim::{EffectFault, Machine};
use vfleet_plan::cni::journal::Plugin;

use super::super::tables::format_pods;
use super::*;

const CONTAINER: &str = "0123456789abcdef0123456789abcdef";

/// Returns a machine with six VFs and an IPAM plugin.
fn machine() -> SimHost {
    let mut machine = Machine::lab();
    (machine.pfs[0].num_vfs, machine.pfs[0].up) = (6, true);
    let host = SimHost::new(&machine, "pods").unwrap();
    host.install_ipam("host-local");
    host
}

fn device(host: &SimHost, index: usize) -> PciAddress {
    host.kernel().pfs[0].vfs[index].address
}

fn path(index: usize) -> String {
    format!("/run/netns/pod-{index}")
}

/// Calls a plugin for the VF with this index and a pod of its own.
fn call(process: &SimHost, command: &str, index: usize, more: &Value) -> bool {
    let variables = [
        ("CNI_COMMAND", command.to_owned()),
        ("CNI_CONTAINERID", format!("{CONTAINER}{index}")),
        ("CNI_NETNS", path(index)),
        ("CNI_IFNAME", "net1".to_owned()),
        ("CNI_PATH", "/opt/cni/bin".to_owned()),
        ("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=pod-{index}")),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
    let mut config = json!({
        "cniVersion": "1.0.0", "name": "blue", "type": "sriov", "deviceID": device(process, index),
    });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let call = PluginCall::parse(Plugin::Sriov, &variables, config.to_string().as_bytes()).unwrap();
    engine::execute(process, &call).is_ok()
}

fn attach(host: &SimHost, index: usize, more: &Value) {
    host.modify_kernel(|kernel| kernel.create_namespace(&path(index)));
    assert!(call(host, "ADD", index, more));
}

fn delete_pod(host: &SimHost, index: usize) {
    host.modify_kernel(|kernel| kernel.delete_namespace(&path(index)));
}

/// Kills an ADD after its third effect.
fn interrupt(host: &SimHost, index: usize) {
    host.modify_kernel(|kernel| kernel.create_namespace(&path(index)));
    let process = host.new_process();
    process.inject_at_effect(2, EffectFault::KillAfter);
    assert!(!call(&process, "ADD", index, &json!({ "vlan": 7 })));
}

fn states(report: &PodsReport) -> Vec<&'static str> {
    report.attachments.iter().map(|line| line.state.name()).collect()
}

fn journals(host: &SimHost) -> usize {
    host.attachment_keys().unwrap().len()
}

#[test]
fn an_attachment_is_listed_with_pod_vf_settings_and_state() {
    let host = machine();
    attach(&host, 2, &json!({ "vlan": 5, "mac": "02:00:00:00:00:aa", "spoofchk": "off" }));
    let report = list(&host).unwrap();
    assert_eq!(report.exit, ExitStatus::Done);
    let json = serde_json::to_value(&report).unwrap();
    let line = &json["attachments"][0];
    let expected = json!({
        "pod": "shop/pod-2",
        "containerId": format!("{CONTAINER}2"),
        "interface": "net1",
        "device": device(&host, 2),
        "pf": "enp1s0",
        "vfIndex": 2,
        "plugin": "sriov",
        "network": "blue",
        "namespace": "/run/netns/pod-2",
        "settings": [
            { "key": "vlan", "value": "5 qos 0 proto 802.1q" },
            { "key": "mac", "value": "02:00:00:00:00:aa" },
            { "key": "spoofchk", "value": "off" },
        ],
        "state": "attached",
        "says": "attached",
    });
    assert_eq!(*line, expected);
    assert!(json.get("repairs").is_none());

    let text = format_pods(&report);
    let row = text.lines().nth(1).unwrap();
    let words = ["shop/pod-2", "0123456789abc ", "enp1s0 2", "blue", "vlan 5 qos 0", "attached"];
    assert!(words.iter().all(|word| row.contains(word)), "{text}");
    assert!(text.ends_with("\n1 attachment\n"), "{text}");
}

#[test]
fn nothing_is_listed_on_a_machine_without_attachments() {
    let report = list(&machine()).unwrap();
    assert_eq!(
        (report.exit, format_pods(&report)),
        (ExitStatus::Done, "no pod has a device of a CNI plugin\n".to_owned())
    );
}

#[test]
fn every_state_is_recognised_and_only_what_nobody_has_is_repaired() {
    let host = machine();
    let ipam = json!({ "vlan": 5, "ipam": { "type": "host-local" } });
    attach(&host, 0, &json!({}));
    attach(&host, 1, &ipam);
    delete_pod(&host, 1);
    engine::sweep(&host).unwrap().iter().for_each(|swept| assert!(swept.outcome.is_ok()));
    interrupt(&host, 2);
    attach(&host, 3, &json!({}));
    attach(&host, 4, &ipam);
    delete_pod(&host, 4);
    host.modify_kernel(|kernel| {
        kernel.return_devices();
        let key = kernel.cni.journals.keys().find(|key| key.container_id.ends_with('3')).cloned().unwrap();
        kernel.cni.journals.insert(key, "{".to_owned());
    });
    let report = list(&host).unwrap();
    let before = ["attached", "addressesLeft", "interrupted", "unreadable", "namespaceGone"];
    assert_eq!((report.exit, states(&report)), (ExitStatus::Failed, before.to_vec()));
    let text = format_pods(&report);
    assert!(text.contains("5 attachments, 4 NOT as they should be: release"), "{text}");

    let repaired = repair(&host, true).unwrap();
    assert_eq!((repaired.exit, states(&repaired)), (ExitStatus::Failed, vec!["attached", "unreadable"]));
    let repairs = repaired.repairs.as_ref().unwrap();
    assert!(repairs.len() == 3 && repairs.iter().all(|line| line.is_released), "{repairs:?}");
    assert_eq!(host.given_addresses(), [[""; 4]; 0]);
    assert!(host.kernel().pfs[0].vfs[2].settings.vlan.id == 0, "the interrupted ADD is undone");
    assert!(format_pods(&repaired).starts_with("REPAIRED DEVICE"), "{}", format_pods(&repaired));
}

#[test]
fn addresses_that_the_ipam_plugin_does_not_free_stay_listed() {
    let host = machine();
    attach(&host, 0, &json!({ "ipam": { "type": "host-local" } }));
    delete_pod(&host, 0);
    host.remove_plugin("host-local");
    let report = repair(&host, true).unwrap();
    assert_eq!((report.exit, states(&report)), (ExitStatus::Failed, vec!["addressesLeft"]));
    let repairs = report.repairs.unwrap();
    assert!(!repairs[0].is_released && repairs[0].message.contains("IP addresses are not"), "{repairs:?}");
    host.install_ipam("host-local");
    assert_eq!((repair(&host, true).unwrap().exit, journals(&host)), (ExitStatus::Done, 0));
}

#[test]
fn freeing_the_addresses_of_an_attachment_leaves_its_device_alone() {
    let host = machine();
    attach(&host, 0, &json!({ "vlan": 7, "ipam": { "type": "host-local" } }));
    delete_pod(&host, 0);
    host.remove_plugin("host-local");
    assert_eq!(states(&repair(&host, true).unwrap()), ["addressesLeft"]);
    // The device is free, and a policy may configure it.
    let administrative_mac = MacAddr([2, 0, 0, 0, 7, 7]);
    host.modify_kernel(|kernel| kernel.pfs[0].vfs[0].admin_mac = administrative_mac);
    host.install_ipam("host-local");
    assert_eq!((repair(&host, true).unwrap().exit, journals(&host)), (ExitStatus::Done, 0));
    host.modify_kernel(|kernel| assert_eq!(kernel.pfs[0].vfs[0].admin_mac, administrative_mac));
}

#[test]
fn a_device_that_is_not_in_its_running_pod_is_a_fault_that_no_repair_ends() {
    let host = machine();
    attach(&host, 0, &json!({}));
    let moved = device(&host, 0);
    host.modify_kernel(|kernel| {
        let vf = kernel.pfs[0].vfs.iter_mut().find(|vf| vf.address == moved).unwrap();
        vf.namespace = None;
    });
    let report = repair(&host, true).unwrap();
    assert_eq!((report.exit, states(&report), journals(&host)), (ExitStatus::Failed, vec!["notInPod"], 1));
    assert!(format_pods(&report).contains("delete the pod"));
}

#[test]
fn an_operation_that_is_running_is_not_stale_and_not_repaired() {
    let host = machine();
    interrupt(&host, 0);
    let lock = host.lock(&LockSubject::Device(device(&host, 0)), "ADD of plugin sriov", Duration::ZERO).unwrap();
    let report = list(&host).unwrap();
    assert_eq!((report.exit, states(&report)), (ExitStatus::Done, vec!["inProgress"]));
    assert_eq!(report.attachments[0].message, "in progress: ADD of plugin sriov");
    drop(lock);
    assert_eq!(states(&list(&host).unwrap()), ["interrupted"]);
}

#[test]
fn an_interface_that_the_kernel_has_not_returned_is_waited_for() {
    let host = machine();
    attach(&host, 0, &json!({}));
    host.modify_kernel(|kernel| kernel.namespaces.returns_late = true);
    delete_pod(&host, 0);
    let report = repair(&host, true).unwrap();
    assert_eq!((report.exit, states(&report)), (ExitStatus::Failed, vec!["awaitingKernel"]));
    assert!(report.repairs.unwrap()[0].message.contains("run the command again"));
    host.modify_kernel(|kernel| {
        kernel.namespaces.returns_late = false;
        kernel.return_devices();
    });
    assert_eq!((repair(&host, true).unwrap().exit, journals(&host)), (ExitStatus::Done, 0));
}

#[test]
fn a_namespace_that_cannot_be_examined_is_not_gone() {
    let host = machine();
    attach(&host, 0, &json!({}));
    host.modify_kernel(|kernel| {
        kernel.namespaces.paths.insert(path(0), vfleet_host::sim::NamespacePath::OtherFile)
    });
    let report = repair(&host, true).unwrap();
    assert_eq!((report.exit, states(&report), journals(&host)), (ExitStatus::Failed, vec!["unknown"], 1));
}

#[test]
fn attachments_of_the_go_plugins_are_listed_and_left_to_their_runtime() {
    let host = machine();
    let (with_cache, allocated, left) = (device(&host, 0), device(&host, 1), device(&host, 2));
    let cache = json!({
        "type": "sriov", "name": "red", "deviceID": with_cache, "vlan": 9, "ContIFNames": "net1",
        "Master": "enp1s0", "VFID": 0, "OrigVfState": { "HostIFName": "enp1s0v0", "Vlan": 0 },
    });
    host.modify_kernel(|kernel| {
        (0..2).for_each(|index| _ = kernel.create_namespace(&path(index)));
        let caches = &mut kernel.cni.go_caches;
        caches.insert((Plugin::Sriov, "c0-net1".to_owned()), cache.to_string().into_bytes());
        caches.insert((Plugin::Sriov, "c9-net1".to_owned()), b"{".to_vec());
        for (index, device) in (0..).zip([with_cache, allocated, left]) {
            kernel.cni.go_allocations.insert(device, path(index));
        }
    });
    // A journal replaces the cache of the same attachment.
    attach(&host, 3, &json!({}));
    let ours = format!("{CONTAINER}3-net1");
    host.modify_kernel(|kernel| kernel.cni.go_caches.insert((Plugin::Sriov, ours), b"{".to_vec()));

    let report = list(&host).unwrap();
    assert_eq!(states(&report), ["attached", "goPlugin", "unreadable", "goPlugin"]);
    let [_, of_cache, torn, of_allocation] = report.attachments.as_slice() else { panic!("{report:?}") };
    assert_eq!((of_cache.network.as_deref(), of_cache.container_id.as_deref()), (Some("red"), Some("c0")));
    assert!(of_cache.settings.iter().any(|setting| setting.key == "vlan"), "{of_cache:?}");
    assert!(torn.message.contains("delete its pod"), "{torn:?}");
    assert_eq!((of_allocation.device, of_allocation.vf_index), (Some(allocated), Some(1)));
    assert_eq!(of_allocation.namespace, Some(path(1)));

    delete_pod(&host, 0);
    let report = repair(&host, true).unwrap();
    assert_eq!(states(&report)[1], "leftByGoPlugin");
    assert_eq!((report.exit, report.repairs.unwrap().len()), (ExitStatus::Failed, 0));
}
