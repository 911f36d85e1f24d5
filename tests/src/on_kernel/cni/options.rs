//! Options of the plugin `sriov`, and plugins that it is chained with.

use serde_json::{Value, json};

use super::super::guest::assert_unchanged;
use super::pod_node::{INTERFACE, LabVf, PodNode, sriov};

const NETWORK: &str = "options";
const VF: LabVf = LabVf::new(1, 1);
/// VF with the driver `vfio-pci`.
const VFIO: LabVf = LabVf::new(1, 6);
const MAC: &str = "02:00:00:00:0a:01";
const RUNTIME_MAC: &str = "02:00:00:00:0a:02";
const IPV4: &str = "198.51.100.77";
const IPV6: &str = "2001:db8:1::77";

/// All options that the card supports take effect, also those of a VF with a driver for userspace.
pub(in super::super) fn applies_all_options(node: &PodNode<'_>) {
    node.create_pods(&["tuned", "vfio"]);
    applies_options(node);
    attaches_vf_with_userspace_driver(node);
}

fn applies_options(node: &PodNode<'_>) {
    let mac = [("CAP_ARGS", format!(r#"{{"mac":"{RUNTIME_MAC}"}}"#))];
    let variables = mac.each_ref().map(|(name, value)| (*name, value.as_str()));
    let call = |verb: &str| node.cnitool_with(verb, "tuned", NETWORK, &tuned_plugins(), &variables);
    let result = call("add").result();
    assert_eq!(result["interfaces"][0]["mac"], RUNTIME_MAC, "{result:#}");
    assert_eq!(result["interfaces"][0]["mtu"], 1400, "{result:#}");

    let settings = node.vf_settings(VF);
    assert_eq!(settings["address"], RUNTIME_MAC, "{settings:#}");
    assert_eq!(settings["vlan_list"], json!([{ "vlan": 200, "qos": 3 }]), "{settings:#}");
    assert_eq!(settings["spoofchk"], false, "{settings:#}");
    assert_eq!(settings["trust"], true, "{settings:#}");
    assert_eq!(settings["rate"]["max_tx"], 100, "{settings:#}");

    let link = node.pod_link("tuned");
    assert_eq!(link["address"], RUNTIME_MAC, "{link:#}");
    assert_eq!(link["mtu"], 1400, "{link:#}");
    let has_address = |address: &str, length: u64| {
        let mut addresses = link["addr_info"].as_array().into_iter().flatten();
        addresses.any(|info| info["local"] == address && info["prefixlen"] == length)
    };
    assert!(has_address(IPV4, 24) && has_address(IPV6, 64), "{link:#}");
    let has_route = |arguments: &str, gateway: &str| {
        let routes = node.ip_json(&format!("-n tuned {arguments}"));
        routes[0]["gateway"] == gateway && routes[0]["dev"] == INTERFACE
    };
    assert!(has_route("route show 203.0.113.0/24", "198.51.100.1"));
    assert!(has_route("-6 route show default", "2001:db8:1::1"));
    let sysctl = format!("ip netns exec tuned cat /proc/sys/net/ipv4/conf/{INTERFACE}/log_martians");
    assert_eq!(node.guest.run(&sysctl), "1", "tuning is chained");

    call("check").assert_silent_success();
    call("del").assert_silent_success();
    node.assert_restored("after a pod with all options");
}

fn tuned_plugins() -> Value {
    let addresses = json!([
        { "address": format!("{IPV4}/24"), "gateway": "198.51.100.1" },
        { "address": format!("{IPV6}/64"), "gateway": "2001:db8:1::1" },
    ]);
    let routes = json!([{ "dst": "203.0.113.0/24", "gw": "198.51.100.1" }, { "dst": "::/0" }]);
    let config = sriov(
        VF,
        // Keys are matched regardless of case.
        &json!({
            "VLAN": 200, "vlanQoS": 3, "MAC": MAC, "spoofchk": "off", "trust": "on", "max_tx_rate": 100, "mtu": 1400,
            "capabilities": { "mac": true },
            "ipam": { "type": "static", "addresses": addresses, "routes": routes },
        }),
    );
    let sysctl = json!({ format!("net.ipv4.conf.{INTERFACE}.log_martians"): "1" });
    json!([config, { "type": "tuning", "sysctl": sysctl }])
}

/// Addresses are allocated and reported, but there is no interface to configure.
fn attaches_vf_with_userspace_driver(node: &PodNode<'_>) {
    node.bind_to_vfio(VFIO);
    let before = node.vf_settings(VFIO);
    let ipam = json!({ "type": "host-local", "ranges": [[{ "subnet": "198.51.100.0/24" }]] });
    let config = sriov(VFIO, &json!({ "vlan": 300, "mac": MAC, "ipam": ipam }));
    let result = node.call("ADD", "vfio", &config).result();
    assert_eq!(result["interfaces"][0]["mac"], MAC, "{result:#}");
    assert_eq!(result["ips"][0]["address"], "198.51.100.2/24", "{result:#}");
    let settings = node.vf_settings(VFIO);
    assert_eq!(settings["address"], MAC, "{settings:#}");
    assert_eq!(settings["vlan_list"], json!([{ "vlan": 300 }]), "{settings:#}");
    assert!(node.pod_interfaces("vfio").is_empty());

    let mut check = config.clone();
    check["prevResult"] = result;
    node.call("CHECK", "vfio", &check).assert_silent_success();
    node.guest.run(&format!("ip link set {} vf {} vlan 0", VFIO.pf(), VFIO.index));
    node.call("CHECK", "vfio", &check).assert_error(101, &["vlan"]);

    node.call("DEL", "vfio", &config).assert_silent_success();
    assert_unchanged(&format!("{before:#}"), &format!("{:#}", node.vf_settings(VFIO)), "after DEL");
    node.bind_to_kernel(VFIO);
    node.assert_restored("after a pod with a driver for userspace");
}
