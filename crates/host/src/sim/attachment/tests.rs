//! Tests of the simulated machine, not of decisions: it follows the rules of a kernel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{MacAddr, PciAddress, VfRef};
use vfleet_plan::cni::facts::{
    DevicePart, HolderFacts, HolderNamespace, LinkState, Namespace, NamespaceFacts, VfSettings, VfVlan,
    VlanProtocol,
};
use vfleet_plan::cni::journal::{
    AttachmentKey, DeviceChanges, JOURNAL_VERSION, Journal, Phase, Plugin, RdmaChanges,
};
use vfleet_plan::cni::step::{CniStep, OriginalInterface};

use super::EffectFault;
use crate::attachment::{
    AttachmentHost, AttachmentQuery, DelegateCall, DeviceLockError, LockSubject, NamespaceQuery,
};
use crate::sim::{CardLinkKind, Kernel, Machine, VfRules};
use crate::{Host, HostError, SimHost};

const POD: &str = "/run/netns/pod";
const MAC: MacAddr = MacAddr([2, 0, 0, 0xaa, 0, 1]);

/// Machine of the lab with VFs on its first card, and a pod.
fn machine() -> (SimHost, VfRef, PciAddress, Namespace) {
    with_machine(|_| ())
}

fn with_machine(change: impl FnOnce(&mut Machine)) -> (SimHost, VfRef, PciAddress, Namespace) {
    let mut machine = Machine::lab();
    (machine.pfs[0].num_vfs, machine.pfs[0].up) = (3, true);
    change(&mut machine);
    let host = SimHost::new(&machine, "attachment").unwrap();
    let vf = VfRef { pf: machine.pfs[0].address, index: 1 };
    let device = machine.pfs[0].vf_address(1).unwrap();
    let namespace = create_pod(&host, POD);
    (host, vf, device, namespace)
}

fn create_pod(host: &SimHost, path: &str) -> Namespace {
    host.modify_kernel(|kernel| kernel.create_namespace(path));
    Namespace { path: path.to_owned(), id: host.kernel().namespace_id(path).unwrap() }
}

fn to_pod(device: PciAddress, namespace: &Namespace, name: &str) -> CniStep {
    CniStep::MoveToPod {
        device,
        namespace: namespace.clone(),
        name: name.to_owned(),
        drop_alt_names: Vec::new(),
    }
}

fn to_host(device: PciAddress, namespace: &Namespace) -> CniStep {
    let original = OriginalInterface { name: "enp1s0v1".to_owned(), ..OriginalInterface::default() };
    let namespace = Some(namespace.clone());
    CniStep::ReturnToHost { device, namespace, pod_name: "net1".to_owned(), original }
}

fn query(device: PciAddress) -> AttachmentQuery<'static> {
    AttachmentQuery {
        device: Some(device),
        namespace: NamespaceQuery::Path(POD),
        key: None,
        with_addresses: true,
    }
}

fn wait(host: &SimHost, device: PciAddress, part: DevicePart) -> bool {
    host.wait_for_device(device, &[part].into(), Duration::ZERO).unwrap()
}

fn names_in_pod(host: &SimHost, device: PciAddress) -> Vec<String> {
    match host.attachment_facts(&query(device)).unwrap().namespace {
        NamespaceFacts::Present { links, .. } => links.into_iter().map(|link| link.name).collect(),
        other => panic!("{other:?}"),
    }
}

fn vlan(id: u16, protocol: VlanProtocol) -> VfSettings {
    VfSettings { vlan: Some(VfVlan { id, qos: 0, protocol }), ..VfSettings::default() }
}

fn journal(device: PciAddress, namespace: &Namespace, boot_id: &str) -> Journal {
    let key = AttachmentKey {
        plugin: Plugin::Rdma,
        container_id: "c1".to_owned(),
        interface: "net1".to_owned(),
        device: Some(device),
    };
    Journal {
        version: JOURNAL_VERSION,
        key,
        network: "n".to_owned(),
        namespace: namespace.clone(),
        boot_id: boot_id.to_owned(),
        phase: Phase::Attached,
        pod: None,
        config: serde_json::Value::Null,
        cni_path: String::new(),
        changes: DeviceChanges::Rdma(RdmaChanges { rdma: "mlx5_2".to_owned() }),
        result: None,
    }
}

#[test]
fn a_vf_in_a_pod_has_a_driver_and_no_interface_for_the_agent() {
    let (host, vf, device, namespace) = machine();
    let before = host.facts().unwrap();
    host.execute_cni(&to_pod(device, &namespace, "net1")).unwrap();
    let found = &host.facts().unwrap().pfs[0].vfs[1];
    assert_eq!((found.driver.as_deref(), &found.link), (Some("igbvf"), &None));
    assert_eq!(names_in_pod(&host, device), ["lo", "eth0", "net1"]);
    host.execute_cni(&to_host(device, &namespace)).unwrap();
    assert_eq!(host.facts().unwrap().pfs[0].vfs, before.pfs[0].vfs);
    assert_eq!(host.kernel().vf_at(device), Some(vf));
}

#[test]
fn an_interface_keeps_its_index_if_it_is_free() {
    let (host, _, device, namespace) = machine();
    let index = host.kernel().index_of(device);
    host.execute_cni(&to_pod(device, &namespace, "net1")).unwrap();
    assert_eq!(host.kernel().index_of(device), index);
    host.execute_cni(&to_host(device, &namespace)).unwrap();
    let taken = create_pod(&host, "/run/netns/other");
    host.modify_kernel(|kernel| {
        (0..index).for_each(|number| kernel.add_virtual_link(&taken.path, &format!("veth{number}")));
    });
    host.execute_cni(&to_pod(device, &taken, "net1")).unwrap();
    assert_ne!(host.kernel().index_of(device), index);
}

#[test]
fn a_used_name_is_refused_after_the_move_and_the_step_moves_back() {
    let (host, _, device, namespace) = machine();
    let error = host.execute_cni(&to_pod(device, &namespace, "eth0")).unwrap_err();
    assert_eq!(error.errno(), Some(17));
    assert_eq!(host.executed_effects(), ["move enp1s0v1 as eth0", "move enp1s0v1 back"]);
    let facts = host.attachment_facts(&query(device)).unwrap();
    assert_eq!(facts.device.unwrap().link.unwrap().name, "enp1s0v1");

    let process = host.new_process();
    process.inject_at_effect(0, EffectFault::KillAfter);
    let killed = process.execute_cni(&to_pod(device, &namespace, "eth0")).unwrap_err();
    assert!(matches!(killed, HostError::ProcessKilled { .. }) && process.boot_id().is_err(), "{killed}");
    assert_eq!(names_in_pod(&host, device), ["lo", "eth0", "enp1s0v1"]);
}

#[test]
fn alternative_names_are_names() {
    let (host, _, device, namespace) = machine();
    host.modify_kernel(|kernel| kernel.add_alt_name(device, "net1")).unwrap();
    let refused = host.execute_cni(&to_pod(device, &namespace, "net1")).unwrap_err();
    assert_eq!(refused.errno(), Some(17), "its own alternative name");
    let CniStep::MoveToPod { device, namespace, name, .. } = to_pod(device, &namespace, "net1") else {
        panic!()
    };
    let drop_alt_names = vec!["net1".to_owned()];
    host.execute_cni(&CniStep::MoveToPod { device, namespace, name, drop_alt_names }).unwrap();
    assert_eq!(names_in_pod(&host, device), ["lo", "eth0", "net1"]);
}

#[test]
fn the_kernel_returns_interfaces_of_deleted_namespaces_later() {
    let (host, vf, device, namespace) = machine();
    host.execute_cni(&to_pod(device, &namespace, "net1")).unwrap();
    let second = host.kernel().pf(vf.pf).unwrap().vfs[2].address;
    let other = create_pod(&host, "/run/netns/other");
    host.execute_cni(&to_pod(second, &other, "net1")).unwrap();
    host.modify_kernel(|kernel| {
        kernel.delete_namespace(POD);
        kernel.delete_namespace(&other.path);
    });
    let facts = host.attachment_facts(&query(device)).unwrap();
    assert_eq!((facts.namespace, facts.device.unwrap().link), (NamespaceFacts::Gone, None));
    assert!(wait(&host, device, DevicePart::Interface));
    let kernel = host.kernel();
    let link = kernel.device_link(device).unwrap();
    assert_eq!((link.name.as_str(), &link.alt_names[..]), ("net1", &["enp1s0v1".to_owned()][..]));
    let clash = kernel.device_link(second).unwrap();
    assert_eq!(clash.name, format!("dev{}", kernel.index_of(second)));
    for found in [device, second] {
        let original = kernel.device_vf(found).unwrap();
        let name = format!("enp1s0v{}", kernel.vf_at(found).unwrap().index);
        let original = OriginalInterface {
            name: name.clone(),
            mac: original.link.as_ref().map(|link| link.mac),
            mtu: Some(1500),
            ..OriginalInterface::default()
        };
        let pod_name = "net1".to_owned();
        let step = CniStep::ReturnToHost { device: found, namespace: None, pod_name, original };
        host.execute_cni(&step).unwrap();
        let link = host.kernel().device_link(found).unwrap().clone();
        assert_eq!((link.name, link.alt_names), (name, Vec::new()));
    }
}

#[test]
fn a_late_return_needs_an_event() {
    let (host, _, device, namespace) = machine();
    host.modify_kernel(|kernel| kernel.namespaces.returns_late = true);
    host.execute_cni(&to_pod(device, &namespace, "net1")).unwrap();
    host.modify_kernel(|kernel| kernel.delete_namespace(POD));
    assert!(!wait(&host, device, DevicePart::Interface));
    host.modify_kernel(Kernel::return_devices);
    assert!(wait(&host, device, DevicePart::Interface));
}

#[test]
fn a_later_namespace_gets_the_inode_of_a_deleted_one_and_another_cookie() {
    let (host, _, device, namespace) = machine();
    let written = journal(device, &namespace, &host.boot_id().unwrap());
    let state = || host.namespace_state(&written).unwrap();
    assert_eq!(state(), HolderNamespace::Alive);
    host.modify_kernel(|kernel| kernel.delete_namespace(POD));
    assert_eq!(state(), HolderNamespace::Gone);
    host.modify_kernel(Kernel::return_devices);
    let later = create_pod(&host, POD);
    assert_eq!(later.id.inode, namespace.id.inode);
    assert!(later != namespace && state() == HolderNamespace::Gone);
    host.modify_kernel(|kernel| kernel.namespaces.hides_identities = true);
    assert_eq!(state(), HolderNamespace::Alive, "an old kernel does not tell");
}

#[test]
fn igb_refuses_what_it_does_not_support_and_keeps_earlier_settings() {
    let (host, vf, device, _) = machine();
    let refused = |settings| {
        let error = host.execute_cni(&CniStep::SetVf { vf, settings }).unwrap_err();
        error.errno()
    };
    let min = VfSettings { min_tx_rate: Some(1), max_tx_rate: Some(2), ..VfSettings::default() };
    let link_state = VfSettings { link_state: Some(LinkState::Enable), ..VfSettings::default() };
    assert_eq!(refused(vlan(7, VlanProtocol::Ieee8021ad)), Some(93));
    assert_eq!((refused(min), refused(link_state)), (Some(22), Some(95)));
    let partial = VfSettings { link_state: Some(LinkState::Enable), ..vlan(9, VlanProtocol::Ieee8021q) };
    assert_eq!(refused(partial), Some(95));
    let settings =
        host.attachment_facts(&query(device)).unwrap().device.unwrap().pf.unwrap().settings.unwrap();
    assert_eq!((settings.vlan.unwrap().id, settings.link_state), (9, Some(LinkState::Auto)));
}

#[test]
fn a_vf_takes_the_administrative_mac_over_when_it_is_bound_again() {
    let (host, vf, device, _) = machine();
    let settings = VfSettings { mac: Some(MAC), ..VfSettings::default() };
    host.execute_cni(&CniStep::SetVf { vf, settings }).unwrap();
    let mac = || host.attachment_facts(&query(device)).unwrap().device.unwrap().link.unwrap().mac();
    assert_ne!(mac(), Some(MAC));
    host.execute_cni(&CniStep::SetInterfaceMac { device, mac: MAC }).unwrap();
    assert_eq!(mac(), Some(MAC));
    assert!(host.executed_effects().iter().any(|effect| effect.starts_with("unbind")));
}

#[test]
fn other_drivers_accept_everything() {
    let (host, vf, device, _) = with_machine(|machine| {
        machine.pfs[0].driver = Some("mlx5_core".to_owned());
        machine.pfs[1].vf_rules = Some(VfRules { takes_mac_at_once: true, ..VfRules::default() });
        machine.pfs[1].num_vfs = 2;
    });
    let settings = VfSettings {
        mac: Some(MAC),
        min_tx_rate: Some(10),
        max_tx_rate: Some(100),
        link_state: Some(LinkState::Disable),
        ..vlan(9, VlanProtocol::Ieee8021ad)
    };
    host.execute_cni(&CniStep::SetVf { vf, settings }).unwrap();
    host.execute_cni(&CniStep::SetInterfaceMac { device, mac: MAC }).unwrap();
    assert!(!host.executed_effects().iter().any(|effect| effect.starts_with("unbind")));

    let vf = VfRef { pf: Machine::lab().pfs[1].address, index: 0 };
    let settings = VfSettings { mac: Some(MAC), ..VfSettings::default() };
    host.execute_cni(&CniStep::SetVf { vf, settings }).unwrap();
    assert_eq!(host.kernel().pf(vf.pf).unwrap().vfs[0].link.as_ref().unwrap().mac, MAC);
}

#[test]
fn rdma_devices_belong_to_namespaces_only_in_exclusive_mode() {
    let infiniband = |machine: &mut Machine| {
        machine.pfs[0].link_kind = CardLinkKind::Infiniband;
        machine.pfs[0].numbers_rdma = true;
    };
    let (host, _, device, namespace) = with_machine(infiniband);
    let rdma = "mlx5_1".to_owned();
    let step = CniStep::MoveRdmaToPod { device, rdma: rdma.clone(), namespace: namespace.clone() };
    assert_eq!(host.execute_cni(&step).unwrap_err().errno(), Some(95));
    host.modify_kernel(|kernel| kernel.rdma_mode = Some(RdmaMode::Exclusive));
    let index = host.kernel().index_of(device);
    host.execute_cni(&step).unwrap();
    let facts = host.attachment_facts(&query(device)).unwrap();
    let found = facts.device.unwrap();
    assert!(found.rdma.is_empty() && found.link.unwrap().index != index);
    assert!(
        matches!(facts.namespace, NamespaceFacts::Present { rdma: found, .. } if found == [rdma.as_str()])
    );
    assert_eq!(host.facts().unwrap().pfs[0].vfs[1].rdma, None);
    host.modify_kernel(|kernel| {
        kernel.delete_namespace(POD);
        kernel.namespaces.returns_late = true;
    });
    assert!(!wait(&host, device, DevicePart::RdmaDevice) && wait(&host, device, DevicePart::Interface));
    host.modify_kernel(Kernel::return_devices);
    assert!(wait(&host, device, DevicePart::RdmaDevice));
    assert_eq!(host.attachment_facts(&query(device)).unwrap().device.unwrap().rdma, [rdma]);
}

#[test]
fn files_survive_a_reboot_and_name_the_holders() {
    let (host, vf, device, namespace) = machine();
    let written = journal(device, &namespace, &host.boot_id().unwrap());
    host.write_journal(&written).unwrap();
    let path = "/run/netns/of-go".to_owned();
    host.execute_cni(&CniStep::WriteGoAllocation { device, path: path.clone() }).unwrap();
    let holders = || host.attachment_facts(&query(device)).unwrap().holders;
    let gone = HolderFacts::GoAllocation { path, namespace: HolderNamespace::Gone };
    let alive = HolderFacts::Journal { journal: written.clone(), namespace: HolderNamespace::Alive };
    assert_eq!(holders(), [alive, gone.clone()]);
    let own = AttachmentQuery { key: Some(&written.key), ..query(device) };
    assert_eq!(host.attachment_facts(&own).unwrap().holders, [gone]);

    host.modify_kernel(Kernel::reboot);
    assert!(host.attachment_keys().is_err(), "the process is dead");
    host.restart_process();
    host.modify_kernel(|kernel| kernel.set_num_vfs(vf.pf, 3)).unwrap();
    create_pod(&host, POD);
    assert_ne!(host.boot_id().unwrap(), written.boot_id);
    let states = holders();
    assert!(matches!(&states[0], HolderFacts::Journal { namespace: HolderNamespace::Gone, .. }));
    assert_eq!(host.attachment_keys().unwrap(), [written.key]);
}

#[test]
fn nothing_is_written_to_a_full_disk_and_damaged_journals_are_errors() {
    let (host, _, device, namespace) = machine();
    let written = journal(device, &namespace, &host.boot_id().unwrap());
    host.modify_kernel(|kernel| kernel.cni.is_full = true);
    assert_eq!(host.write_journal(&written).unwrap_err().errno(), Some(28));
    assert_eq!(host.attachment_keys().unwrap(), []);
    host.modify_kernel(|kernel| kernel.cni.journals.insert(written.key.clone(), "{".to_owned()));
    assert_eq!(host.attachment_facts(&query(device)).unwrap_err().reason(), "RecordDamaged");
}

#[test]
fn a_lock_excludes_other_processes_until_it_is_released() {
    let (host, _, device, _) = machine();
    let held = host.lock(&LockSubject::Device(device), "the first", Duration::ZERO).unwrap();
    match host.new_process().lock(&LockSubject::Device(device), "the second", Duration::from_millis(1)) {
        Err(DeviceLockError::Busy { holder, .. }) => assert_eq!(holder, "the first"),
        other => panic!("{other:?}"),
    }
    let host = Arc::new(host);
    let waiting = Arc::clone(&host);
    let second = thread::spawn(move || {
        waiting
            .lock(&LockSubject::Device(device), "the second", Duration::from_secs(10))
            .map(drop)
            .map_err(|_| ())
    });
    drop(held);
    assert_eq!(second.join().unwrap(), Ok(()));
    assert_eq!(host.device_lock_holder(device), None);
}

#[test]
fn a_plugin_gives_addresses_out_and_takes_them_back() {
    let (host, ..) = machine();
    host.install_ipam("host-local");
    let path = ["/usr/lib/cni".to_owned(), "/opt/cni/bin".to_owned()];
    assert_eq!(host.find_plugin("host-local", &path[..1]).unwrap(), None);
    assert!(host.find_plugin("host-local", &path).unwrap().is_some());
    let run = |command: &str| {
        let variables = [("CNI_COMMAND", command), ("CNI_CONTAINERID", "c1"), ("CNI_IFNAME", "net1")];
        let environment: BTreeMap<_, _> =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let call = DelegateCall {
            plugin: "host-local",
            search_path: &path,
            environment: &environment,
            stdin: br#"{"cniVersion": "1.0.0", "name": "n"}"#,
            limit: Duration::from_secs(1),
        };
        host.delegate(&call)
    };
    assert!(run("ADD").unwrap().is_success && !run("ADD").unwrap().is_success);
    assert_eq!(host.given_addresses().len(), 1);
    assert!(run("DEL").unwrap().is_success && run("DEL").unwrap().is_success);
    assert!(host.given_addresses().is_empty());
    host.inject_at_effect(0, EffectFault::FailAfter);
    assert!(run("ADD").is_err());
    assert_eq!(host.given_addresses().len(), 1);
    assert_eq!(host.delegate_records().len(), 5);
}

#[test]
fn faults_happen_before_or_after_the_effect() {
    for fault in EffectFault::ALL {
        let (host, vf, device, _) = machine();
        let settings = vlan(9, VlanProtocol::Ieee8021q);
        host.inject_at_effect(1, fault);
        host.execute_cni(&CniStep::SetVf { vf, settings: vlan(8, VlanProtocol::Ieee8021q) }).unwrap();
        host.execute_cni(&CniStep::SetVf { vf, settings }).unwrap_err();
        assert_eq!(host.boot_id().is_err(), fault.kills(), "{fault:?}");
        let found = host.kernel().device_vf(device).unwrap().settings.vlan.id;
        let has_effect = matches!(fault, EffectFault::FailAfter | EffectFault::KillAfter);
        assert_eq!(found, if has_effect { 9 } else { 8 }, "{fault:?}");
    }
}
