//! Pods that the Go plugins have started, and IPAM plugins that were built for earlier versions of CNI.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vfleet_api::pool_config::RdmaMode;
use vfleet_cni::call::PluginCall;
use vfleet_cni::engine;
use vfleet_host::SimHost;
use vfleet_host::attachment::DelegateOutput;
use vfleet_host::sim::{DelegateRecord, Kernel, Machine, MachinePf};
use vfleet_plan::cni::journal::Plugin;
use vfleet_plan::cni::protocol::CniError;

use super::runtime::{INTERFACE, Pod, state};
use super::scenario::{IPAM, device};

/// ID of the container of the pod of a Go plugin.
const CONTAINER: &str = "g0";
const NETNS: &str = "/run/netns/go";
/// Name of the RDMA device of the VF.
const RDMA: &str = "mlx5_go";

fn machine() -> SimHost {
    let mut machine = Machine::lab();
    let card = machine.pfs[0].clone();
    machine.pfs[0] = MachinePf { num_vfs: 3, up: true, rdma: true, ..card };
    machine.kernel.rdma_mode = Some(RdmaMode::Exclusive);
    let host = SimHost::new(&machine, "go pods").expect("a possible machine");
    host.install_ipam(IPAM);
    host.modify_kernel(|kernel| {
        kernel.create_namespace(NETNS);
    });
    host
}

fn network(plugin: &str) -> Value {
    json!({ "cniVersion": "1.1.0", "name": "net-a", "type": plugin, "deviceID": device().to_string() })
}

fn with_ipam(mut network: Value) -> Value {
    network["ipam"] = json!({ "type": IPAM });
    network
}

/// Moves the interface of the VF to the pod, as the Go plugin does, and writes its cache.
fn attach_as_go_plugin(host: &SimHost) {
    host.modify_kernel(|kernel| {
        let link = kernel.device_link(device()).expect("an interface").clone();
        let original = json!({
            "HostIFName": link.name, "SpoofChk": true, "Trust": false, "AdminMAC": "00:00:00:00:00:00",
            "EffectiveMAC": link.mac.to_string(), "Vlan": 0, "VlanQoS": 0, "VlanProto": 33024, "MinTxRate": 0,
            "MaxTxRate": 0, "LinkState": 0, "MTU": link.mtu,
        });
        let mut cache = with_ipam(network("sriov"));
        cache["OrigVfState"] = original;
        let namespace = kernel.create_namespace(NETNS);
        kernel.move_link(device(), Some(namespace), Some(INTERFACE)).expect("a move");
        let name = format!("{CONTAINER}-{INTERFACE}");
        kernel.cni.go_caches.insert((Plugin::Sriov, name), cache.to_string().into_bytes());
        kernel.cni.go_allocations.insert(device(), NETNS.to_owned());
    });
}

fn call(host: &SimHost, command: &str, config: &Value, netns: Option<&str>) -> Result<(), CniError> {
    let variables = [
        ("CNI_COMMAND", Some(command)),
        ("CNI_PATH", Some("/opt/cni/bin")),
        ("CNI_CONTAINERID", Some(CONTAINER)),
        ("CNI_IFNAME", Some(INTERFACE)),
        ("CNI_NETNS", netns),
    ];
    let variables: BTreeMap<String, String> = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    let plugin = config["type"].as_str().and_then(Plugin::find).expect("a plugin");
    let call = PluginCall::parse(plugin, &variables, config.to_string().as_bytes())?;
    engine::execute(host, &call).map(drop)
}

fn collect(host: &SimHost, network: &Value) {
    let mut config = network.clone();
    config["cni.dev/valid-attachments"] = json!([]);
    call(host, "GC", &config, None).expect("GC");
}

/// A runtime that has lost the namespace of a pod names none. If the kernel is late as well, only the next ADD or the agent can
/// finish the release.
#[test]
fn a_go_pod_without_a_namespace_whose_interface_is_late_does_not_keep_its_vf() {
    for is_swept in [false, true] {
        let host = machine();
        let before = state(&host);
        attach_as_go_plugin(&host);
        host.modify_kernel(|kernel| {
            kernel.namespaces.returns_late = true;
            kernel.delete_namespace(NETNS);
        });
        call(&host.new_process(), "DEL", &with_ipam(network("sriov")), None).expect("DEL");
        host.modify_kernel(Kernel::return_devices);
        if is_swept {
            engine::sweep(&host.new_process()).expect("a sweep");
            // The allocation does not count: it names a namespace that does not exist.
            let mut swept = state(&host);
            swept.retain(|line| !line.starts_with("allocation"));
            assert_eq!(swept, before, "after the sweep");
        }
        let pod = Pod::new(1, &[network("sriov")]);
        pod.start(&host);
        pod.add(&host.new_process()).expect("ADD of the next pod");
        pod.del_once(&host.new_process()).expect("DEL of the next pod");
        assert_eq!(state(&host), before);
    }
}

#[test]
fn gc_leaves_the_rdma_device_of_a_pod_of_another_network_whose_name_begins_the_same() {
    let host = machine();
    host.modify_kernel(|kernel| {
        kernel.rename_rdma(device(), RDMA).expect("a name");
        let namespace = kernel.create_namespace(NETNS);
        kernel.move_rdma(device(), Some(namespace)).expect("a move");
        let cache = json!({
            "version": "1.0", "deviceID": device().to_string(), "sandboxRdmaDevName": RDMA,
            "containerRdmaDevName": RDMA,
        });
        let name = format!("net-a-b-{CONTAINER}-{INTERFACE}");
        kernel.cni.go_caches.insert((Plugin::Rdma, name), cache.to_string().into_bytes());
        kernel.cni.go_allocations.insert(device(), NETNS.to_owned());
    });
    let attached = state(&host);
    let network = |name: &str| json!({ "cniVersion": "1.1.0", "name": name, "type": "rdma" });
    for other in ["net", "net-a"] {
        collect(&host, &network(other));
        assert_eq!(state(&host), attached, "{other}");
    }
    collect(&host, &network("net-a-b"));
    assert!(host.kernel().cni.go_caches.is_empty());
    assert_eq!(host.kernel().device_vf(device()).expect("a VF").rdma_namespace, None);
}

/// The file of the allocation names the namespace of the pod that has the device now, not that of an earlier one.
#[test]
fn gc_of_a_go_pod_that_is_gone_leaves_the_device_to_the_go_pod_that_has_it_now() {
    let host = machine();
    attach_as_go_plugin(&host);
    host.modify_kernel(|kernel| {
        let cache = kernel.cni.go_caches[&(Plugin::Sriov, format!("{CONTAINER}-{INTERFACE}"))].clone();
        kernel.cni.go_caches.insert((Plugin::Sriov, format!("gone-{INTERFACE}")), cache);
    });
    let attached = state(&host);
    let mut config = network("sriov");
    config["cni.dev/valid-attachments"] = json!([{ "containerID": CONTAINER, "ifname": INTERFACE }]);
    call(&host.new_process(), "GC", &config, None).expect("GC");
    let expected: Vec<String> = attached.into_iter().filter(|line| !line.contains("gone-net1")).collect();
    assert_eq!(state(&host), expected);
    collect(&host.new_process(), &network("sriov"));
    assert!(state(&host).iter().all(|line| !line.contains(CONTAINER)), "{:#?}", state(&host));
}

#[test]
fn an_ipam_plugin_that_does_not_know_gc_and_status_does_not_make_them_fail() {
    let host = machine();
    let refuse = |record: &DelegateRecord| {
        let error = json!({ "code": 4, "msg": format!("unknown CNI_COMMAND: {}", record.command()) });
        DelegateOutput {
            is_success: false,
            outcome: "exit status 1".to_owned(),
            stdout: error.to_string().into_bytes(),
            stderr: String::new(),
        }
    };
    host.install_plugin(IPAM, refuse);
    let config = with_ipam(network("sriov"));
    call(&host, "STATUS", &config, None).expect("every ADD can succeed");
    collect(&host, &config);
    call(&host, "DEL", &config, None).expect_err("DEL is as old as CNI");
}
