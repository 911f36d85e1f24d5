//! Mishaps of a node: a full disk, drivers and names that others change, allocations of the Go plugin.

use std::sync::{Arc, Barrier};
use std::thread;

use serde_json::{Value, json};
use vfleet_api::PciAddress;
use vfleet_cni::engine;
use vfleet_host::SimHost;
use vfleet_host::sim::{EffectFault, Kernel, Machine, NamespacePath};
use vfleet_plan::cni::facts::VfSettings;
use vfleet_plan::cni::journal::{Phase, Plugin};
use vfleet_plan::cni::protocol::ErrorCode;

use super::runtime::{Pod, device_state, phase, state};
use super::scenario::{IPAM, device};

/// Machine of the lab with VFs, a pod, and a network with many settings.
fn machine() -> (SimHost, Pod) {
    let mut machine = Machine::lab();
    (machine.pfs[0].num_vfs, machine.pfs[0].up) = (7, true);
    let host = SimHost::new(&machine, "mishaps").expect("a possible machine");
    host.install_ipam(IPAM);
    let pod = Pod::new(0, &[network(device())]);
    pod.start(&host);
    (host, pod)
}

fn network(device: PciAddress) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net-a", "type": "sriov", "deviceID": device.to_string(),
        "vlan": 100, "spoofchk": "off", "trust": "on", "max_tx_rate": 200, "mac": "02:00:00:aa:00:01",
        "ipam": {"type": IPAM},
    })
}

#[test]
fn an_add_on_a_full_disk_touches_nothing() {
    let (host, pod) = machine();
    let before = state(&host);
    host.modify_kernel(|kernel| kernel.cni.is_full = true);
    let process = host.new_process();
    let error = pod.add(&process).expect_err("the disk is full");
    assert_eq!((error.code, process.executed_effects().len()), (ErrorCode::Io, 1), "{error}");
    assert_eq!(state(&host), before);
    pod.del_once(&host.new_process()).expect("DEL");
    host.modify_kernel(|kernel| kernel.cni.is_full = false);
    pod.add(&host.new_process()).expect("ADD");
}

#[test]
fn a_disk_that_becomes_full_during_an_add_leaves_nothing_behind() {
    let (host, pod) = machine();
    let before = state(&host);
    let (process, machine) = (host.new_process(), host.new_process());
    process.set_effect_hook(move |number, _| machine.modify_kernel(|kernel| kernel.cni.is_full = number > 0));
    let error = pod.add(&process).expect_err("the disk is full");
    assert_eq!(error.code, ErrorCode::Io, "{error}");
    assert_eq!(state(&host), before);
}

/// Attaches the pod, and fills the disk.
fn attach_and_fill(host: &SimHost, pod: &Pod) {
    pod.add(&host.new_process()).expect("ADD");
    host.modify_kernel(|kernel| kernel.cni.is_full = true);
}

#[test]
fn a_pod_is_deleted_on_a_full_disk_also_after_an_interruption() {
    let (host, pod) = machine();
    attach_and_fill(&host, &pod);
    let process = host.new_process();
    pod.del_once(&process).expect("DEL");
    for at in 0..process.executed_effects().len() {
        for fault in EffectFault::ALL {
            let (host, pod) = machine();
            let before = state(&host);
            attach_and_fill(&host, &pod);
            let process = host.new_process();
            process.inject_at_effect(at, fault);
            let _ = pod.del_once(&process);
            pod.del_once(&host.new_process()).expect("DEL");
            assert_eq!(state(&host), before, "{fault:?} at {}", process.executed_effects()[at]);
        }
    }
}

/// The namespace is deleted before the runtime tries again. ADD needs space, a sweep does not.
#[test]
fn a_del_that_was_interrupted_on_a_full_disk_is_finished_without_its_pod() {
    for is_full in [true, false] {
        let (host, pod) = machine();
        let before = state(&host);
        attach_and_fill(&host, &pod);
        let process = host.new_process();
        process.inject_at_effect(3, EffectFault::KillAfter);
        pod.del_once(&process).expect_err("the process is dead");
        host.modify_kernel(|kernel| {
            kernel.delete_namespace(pod.netns);
            kernel.return_devices();
            kernel.cni.is_full = is_full;
        });
        let other = Pod::new(1, &pod.chain);
        other.start(&host);
        let added = other.add(&host.new_process());
        assert_eq!(added.is_ok(), !is_full, "{added:?}");
        other.del_once(&host.new_process()).expect("DEL of the other pod");
        assert_eq!(state(&host), before, "the ADD has released the VF first");
    }
}

#[test]
fn a_kernel_that_returns_the_vf_late_does_not_lose_it_on_a_full_disk() {
    let (host, pod) = machine();
    let before = state(&host);
    attach_and_fill(&host, &pod);
    host.modify_kernel(|kernel| {
        kernel.namespaces.returns_late = true;
        kernel.delete_namespace(pod.netns);
    });
    pod.del_once(&host.new_process()).expect("DEL");
    assert_eq!(phase(&host, &pod, device()), Some(Phase::Attached));
    host.modify_kernel(Kernel::return_devices);
    engine::sweep(&host.new_process()).expect("a sweep");
    pod.del_once(&host.new_process()).expect("a second DEL");
    assert_eq!(state(&host), before);
}

/// No runtime calls DEL once more after one that succeeded, so nothing may be left for it.
#[test]
fn a_vf_that_returns_after_its_del_is_released_by_the_agent_without_a_rest() {
    let (host, pod) = machine();
    let before = state(&host);
    pod.add(&host.new_process()).expect("ADD");
    host.modify_kernel(|kernel| {
        kernel.namespaces.returns_late = true;
        kernel.delete_namespace(pod.netns);
    });
    pod.del_once(&host.new_process()).expect("DEL");
    assert_eq!(phase(&host, &pod, device()), Some(Phase::Releasing), "the VF is not back");
    host.modify_kernel(Kernel::return_devices);
    engine::sweep(&host.new_process()).expect("a sweep");
    assert_eq!(state(&host), before);
}

/// The cache of the Go plugin is the only record of the attachment until there is a journal.
#[test]
fn a_pod_of_the_go_plugin_is_deleted_on_a_full_disk_when_its_vf_is_back() {
    let (host, pod) = machine();
    let before = state(&host);
    let link = host.kernel().device_link(device()).cloned().expect("an interface");
    attach_and_fill(&host, &pod);
    let cache = json!({
        "deviceID": device().to_string(), "Master": "enp1s0", "VFID": 1, "vlan": 100, "spoofchk": "off",
        "trust": "on", "max_tx_rate": 200, "OrigVfState": {
            "HostIFName": link.name, "SpoofChk": true, "EffectiveMAC": link.mac.to_string(),
            "AdminMAC": "00:00:00:00:00:00", "MTU": link.mtu,
        },
    });
    host.modify_kernel(|kernel| {
        kernel.cni.journals.clear();
        kernel.cni.go_caches.insert((Plugin::Sriov, "a0-net1".to_owned()), cache.to_string().into_bytes());
        kernel.namespaces.returns_late = true;
        kernel.delete_namespace(pod.netns);
    });
    let error = pod.del_once(&host.new_process()).expect_err("the VF is not back");
    assert_eq!(error.code, ErrorCode::Io, "{error}");
    host.modify_kernel(Kernel::return_devices);
    pod.del_once(&host.new_process()).expect("DEL");
    assert_eq!(state(&host), before);
}

#[test]
fn a_missing_ipam_plugin_is_found_before_anything_is_touched() {
    let (host, pod) = machine();
    host.remove_plugin(IPAM);
    let process = host.new_process();
    let error = pod.add(&process).expect_err("the plugin is missing");
    assert_eq!(error.code, ErrorCode::InvalidConfig, "{error}");
    assert_eq!(process.executed_effects(), Vec::<String>::new());
}

#[test]
fn a_pf_may_be_renamed_while_a_pod_has_its_vf() {
    let (host, pod) = machine();
    let before = state(&host);
    pod.add(&host.new_process()).expect("ADD");
    let pf = Machine::lab().pfs[0].address;
    host.modify_kernel(|kernel| {
        let link = kernel.pf_mut(pf).and_then(|pf| pf.link.as_mut()).expect("an interface");
        link.name = "uplink".to_owned();
    });
    pod.del_once(&host.new_process()).expect("DEL");
    assert_eq!(state(&host), before);
}

#[test]
fn a_driver_may_be_unbound_while_a_pod_has_the_vf() {
    let (host, pod) = machine();
    let before = state(&host);
    pod.add(&host.new_process()).expect("ADD");
    let vf = host.kernel().vf_at(device()).expect("a VF");
    host.modify_kernel(|kernel| kernel.unbind(vf)).expect("a driver");
    pod.del(&host.new_process()).expect("DEL");
    assert_eq!(state(&host), before);
}

#[test]
fn removed_vfs_do_not_keep_a_pod_from_being_deleted() {
    let (host, pod) = machine();
    pod.add(&host.new_process()).expect("ADD");
    let pf = Machine::lab().pfs[0].address;
    host.modify_kernel(|kernel| kernel.set_num_vfs(pf, 0)).expect("no VFs");
    pod.del_once(&host.new_process()).expect("DEL");
    assert_eq!(state(&host), Vec::<String>::new());
}

/// The rate of igb cannot be restored while the PF is down. Nobody gets the VF before that.
#[test]
fn a_setting_that_cannot_be_restored_keeps_the_vf_and_not_the_pod() {
    let (host, pod) = machine();
    let vf = host.kernel().vf_at(device()).expect("a VF");
    let rate = VfSettings { min_tx_rate: Some(0), max_tx_rate: Some(300), ..VfSettings::default() };
    host.modify_kernel(|kernel| kernel.set_vf_settings(vf, &rate)).expect("a rate");
    let before = state(&host);
    pod.add(&host.new_process()).expect("ADD");
    let pf = Machine::lab().pfs[0].address;
    host.modify_kernel(|kernel| kernel.set_link_up(pf, false)).expect("a PF");
    pod.del_once(&host.new_process()).expect_err("the rate cannot be set");
    pod.del_once(&host.new_process()).expect("the second DEL");
    let other = Pod::new(1, &pod.chain);
    other.start(&host);
    other.add(&host.new_process()).expect_err("the VF is not restored");
    host.modify_kernel(|kernel| kernel.set_link_up(pf, true)).expect("a PF");
    other.add(&host.new_process()).expect("ADD");
    other.del_once(&host.new_process()).expect("DEL");
    assert_eq!(state(&host), before);
}

/// A runtime that is killed while it removes a namespace leaves a file that is none. Nobody can tell what it was, but no pod has
/// an interface that is on the host.
#[test]
fn a_file_that_a_runtime_left_does_not_keep_a_vf_whose_interface_is_back() {
    for is_deleted_late in [false, true] {
        let (host, pod) = machine();
        let before = state(&host);
        pod.add(&host.new_process()).expect("ADD");
        host.modify_kernel(|kernel| {
            kernel.namespaces.returns_late = true;
            kernel.delete_namespace(pod.netns);
            kernel.namespaces.paths.insert(pod.netns.to_owned(), NamespacePath::OtherFile);
        });
        if !is_deleted_late {
            pod.del_once(&host.new_process()).expect("DEL");
        }
        let other = Pod::new(1, &pod.chain);
        other.start(&host);
        other.add(&host.new_process()).expect_err("the kernel has not returned the interface");
        host.modify_kernel(Kernel::return_devices);
        other.add(&host.new_process()).expect("ADD of the next pod");
        pod.del_once(&host.new_process()).expect("a late DEL");
        other.del_once(&host.new_process()).expect("DEL of the next pod");
        assert_eq!(state(&host), before);
    }
}

#[test]
fn a_vf_of_the_go_plugin_is_not_given_out() {
    let (host, pod) = machine();
    let path = "/run/netns/of-go";
    host.modify_kernel(|kernel| {
        kernel.create_namespace(path);
        kernel.cni.go_allocations.insert(device(), path.to_owned());
    });
    let error = pod.add(&host.new_process()).expect_err("the VF is held");
    assert_eq!(error.code, ErrorCode::TryAgainLater);
    assert!(error.message.contains(path), "{error}");
    host.modify_kernel(|kernel| kernel.delete_namespace(path));
    pod.add(&host.new_process()).expect("ADD");
    let allocation = host.kernel().cni.go_allocations.get(&device()).cloned();
    assert_eq!(allocation.as_deref(), Some(pod.netns));
    pod.del_once(&host.new_process()).expect("DEL");
    assert!(host.kernel().cni.go_allocations.is_empty());
}

#[test]
fn pods_with_different_vfs_do_not_wait_for_each_other() {
    let (host, _) = machine();
    let before = state(&host);
    let pf = Machine::lab().pfs[0].clone();
    let host = Arc::new(host);
    let in_the_middle = Arc::new(Barrier::new(3));
    let threads = [0, 1, 2].map(|number: usize| {
        let device = pf.vf_address(u16::try_from(number).expect("a number")).expect("a VF");
        let pod = Pod::new(number, &[network(device)]);
        let (host, barrier) = (Arc::clone(&host), Arc::clone(&in_the_middle));
        if number > 0 {
            pod.start(&host);
        }
        thread::spawn(move || {
            let process = host.new_process();
            process.set_effect_hook(move |number, _| {
                if number == 1 {
                    barrier.wait();
                }
            });
            pod.add(&process).expect("ADD");
            pod.del_once(&host.new_process()).expect("DEL");
        })
    });
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(state(&host), before);
}

/// A card that does not answer would delay each attachment of a sweep.
#[test]
fn a_sweep_looks_only_at_the_namespaces_of_pods_that_run() {
    let (host, pod) = machine();
    let before = state(&host);
    pod.add(&host.new_process()).expect("ADD");
    let pf = Machine::lab().pfs[0].address;
    let set_hanging = |is_hanging| {
        host.modify_kernel(|kernel| kernel.pf_mut(pf).expect("a PF").is_hanging = is_hanging);
    };
    set_hanging(true);
    let sweep = || engine::sweep(&host.new_process()).expect("a sweep");
    assert!(sweep().is_empty());
    host.modify_kernel(|kernel| kernel.delete_namespace(pod.netns));
    let swept = sweep();
    assert!(matches!(&swept[..], [attachment] if attachment.outcome.is_err()), "{swept:?}");
    set_hanging(false);
    assert!(sweep()[0].outcome.is_ok());
    pod.del_once(&host.new_process()).expect("DEL");
    assert_eq!(state(&host), before);
}

#[test]
fn an_attachment_of_an_earlier_boot_is_removed_although_the_card_does_not_answer() {
    let (host, pod) = machine();
    pod.add(&host.new_process()).expect("ADD");
    host.modify_kernel(Kernel::reboot);
    host.restart_process();
    let pf = Machine::lab().pfs[0].address;
    host.modify_kernel(|kernel| kernel.set_num_vfs(pf, 7)).expect("VFs");
    let before = device_state(&host);
    host.modify_kernel(|kernel| kernel.pf_mut(pf).expect("a PF").is_hanging = true);
    pod.del_once(&host.new_process()).expect("DEL");
    let expected: Vec<String> = before.into_iter().filter(|line| line.contains("driver")).collect();
    assert_eq!(state(&host), expected);
}
