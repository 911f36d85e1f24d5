//! Machines with software bridges, and networks of the plugins that attach pods to them.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use vfleet_api::bridge::BridgeVlanProtocol;
use vfleet_host::sim::{Kernel, NamespacePath};
use vfleet_plan::EswitchMode;
use vfleet_plan::cni::facts::{NAMESPACE_KEY, OVS_OWNER, OWNER_KEY};

use super::scenario::{IPAM, device, vf_ref};

const OVS_BRIDGE: &str = "br-ovs";
const LINUX_BRIDGE: &str = "br-linux";
const BOND: &str = "bond0";

/// Kind of the bridge that the uplink of the card is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UplinkBridge {
    OpenVswitch,
    Linux,
}

/// State of the software bridges before.
#[derive(Clone, Debug)]
pub(crate) struct SwitchBefore {
    pub(crate) uplink: UplinkBridge,
    /// The uplink is a bond, of which the PF is a member.
    pub(crate) has_bond: bool,
    /// VLANs of the uplink in the Linux bridge.
    pub(crate) uplink_vlans: Vec<u16>,
    pub(crate) representor_is_up: bool,
}

impl SwitchBefore {
    /// Sets the eswitch to switchdev mode, and creates the bridges. The rows of Open vSwitch survive a boot.
    pub(crate) fn configure(&self, kernel: &mut Kernel) {
        let pf = vf_ref().pf;
        kernel.set_eswitch_mode(pf, EswitchMode::Switchdev).expect("an eswitch");
        kernel.change_representor(vf_ref(), |link| link.up = self.representor_is_up).expect("a representor");
        let name = kernel.pf(pf).and_then(|pf| pf.link.as_ref()).expect("an interface").name.clone();
        if self.has_bond {
            kernel.add_bond_member(BOND, &name).expect("a bond");
        }
        let uplink = if self.has_bond { BOND.to_owned() } else { name };
        kernel.ovs.add_bridge(OVS_BRIDGE);
        kernel.create_bridge(LINUX_BRIDGE, 0).expect("a bridge");
        kernel.set_bridge_vlans(LINUX_BRIDGE, true, BridgeVlanProtocol::Ieee8021Q).expect("a bridge");
        kernel.set_bridge_up(LINUX_BRIDGE, true).expect("a bridge");
        match self.uplink {
            UplinkBridge::OpenVswitch => {
                // It is there since the last boot.
                let _ = kernel.ovs.add_port(OVS_BRIDGE, &uplink, "");
            }
            UplinkBridge::Linux => {
                kernel.add_bridge_port(LINUX_BRIDGE, &uplink).expect("a port");
                for vlan in &self.uplink_vlans {
                    kernel.add_port_vlan(LINUX_BRIDGE, &uplink, *vlan).expect("a VLAN");
                }
            }
        }
    }
}

/// Returns random bridges.
pub(crate) fn switch_before() -> impl Strategy<Value = SwitchBefore> {
    let uplink = prop::sample::select(vec![UplinkBridge::OpenVswitch, UplinkBridge::Linux]);
    let vlans = prop::sample::subsequence(vec![100, 300], 0..=2);
    (uplink, any::<bool>(), vlans, any::<bool>()).prop_map(
        |(uplink, has_bond, uplink_vlans, representor_is_up)| SwitchBefore {
            uplink,
            has_bond,
            uplink_vlans,
            representor_is_up,
        },
    )
}

type Keys = Map<String, Value>;

/// Returns random networks for bridges: a plugin, or one with mirrors after it.
pub(crate) fn switch_chain(switch: &SwitchBefore) -> impl Strategy<Value = Vec<Value>> + use<> {
    let is_linux = switch.uplink == UplinkBridge::Linux;
    let plugin = if is_linux { accelerated_bridge().boxed() } else { ovs_with_vf().boxed() };
    prop_oneof![2 => plugin, 1 => ovs_with_veth().boxed()]
}

fn version() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["0.3.1", "0.4.0", "1.0.0", "1.1.0"])
}

fn keys(all: Vec<(&'static str, Value)>) -> impl Strategy<Value = Keys> {
    let count = all.len();
    prop::sample::subsequence(all, 0..=count)
        .prop_map(|keys| keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn network(version: &str, plugin: &str, keys: Keys, has_ipam: bool) -> Value {
    let mut config = json!({"cniVersion": version, "name": "net-a", "type": plugin});
    if has_ipam {
        config["ipam"] = json!({"type": IPAM});
    }
    for (key, value) in keys {
        config[key] = value;
    }
    config
}

fn accelerated_bridge() -> impl Strategy<Value = Vec<Value>> {
    let all = vec![
        ("bridge", json!(format!("br-other, {LINUX_BRIDGE}"))),
        ("vlan", json!(100)),
        ("trunk", json!([{"minID": 200, "maxID": 205}, {"id": 300}])),
        ("setUplinkVlan", json!(true)),
        ("mac", json!("02:00:00:aa:00:01")),
        ("mtu", json!(1300)),
    ];
    (version(), keys(all), any::<bool>()).prop_map(|(version, mut keys, has_ipam)| {
        keys.insert("deviceID".to_owned(), json!(device().to_string()));
        vec![network(version, "accelerated-bridge", keys, has_ipam)]
    })
}

fn ovs_keys() -> Vec<(&'static str, Value)> {
    vec![
        ("vlan", json!(100)),
        ("trunk", json!([{"minID": 200, "maxID": 205}, {"id": 7}])),
        ("mtu", json!(1300)),
        ("ofport_request", json!(77)),
        ("args", json!({"cni": {"mac": "02:00:00:aa:00:01"}})),
    ]
}

fn ovs_with_vf() -> impl Strategy<Value = Vec<Value>> {
    let all = [ovs_keys(), vec![("bridge", json!(OVS_BRIDGE))]].concat();
    (version(), keys(all), any::<bool>()).prop_map(|(version, mut keys, has_ipam)| {
        keys.insert("deviceID".to_owned(), json!(device().to_string()));
        vec![network(version, "ovs", keys, has_ipam)]
    })
}

fn ovs_with_veth() -> impl Strategy<Value = Vec<Value>> {
    let keys = (version(), keys(ovs_keys()), any::<bool>(), any::<bool>());
    keys.prop_map(|(version, mut keys, has_ipam, is_mirrored)| {
        keys.insert("bridge".to_owned(), json!(OVS_BRIDGE));
        let mut chain = vec![network(version, "ovs", keys, has_ipam)];
        chain.extend(is_mirrored.then(|| mirror(version, "ovs-mirror-producer")));
        chain
    })
}

/// Returns a mirror. The two plugins use different ones: a port cannot be the output of frames that it sends itself.
fn mirror(version: &str, plugin: &str) -> Value {
    let mirror = match plugin {
        "ovs-mirror-producer" => json!({"name": "m-source", "ingress": true, "egress": true}),
        _ => json!({"name": "m-output"}),
    };
    let keys = [("bridge".to_owned(), json!(OVS_BRIDGE)), ("mirrors".to_owned(), json!([mirror]))];
    network(version, plugin, keys.into_iter().collect(), false)
}

/// Returns a network of each plugin that changes everything, with its bridges.
pub(crate) fn networks_with_all_settings() -> Vec<(SwitchBefore, Vec<Value>)> {
    let before =
        |uplink| SwitchBefore { uplink, has_bond: true, uplink_vlans: vec![300], representor_is_up: false };
    let all = |entries: Vec<(&'static str, Value)>| -> Keys {
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    };
    let device = || ("deviceID", json!(device().to_string()));
    let mut bridge = all(vec![
        device(),
        ("vlan", json!(100)),
        ("trunk", json!([{"minID": 200, "maxID": 202}, {"id": 300}])),
        ("setUplinkVlan", json!(true)),
        ("mac", json!("02:00:00:aa:00:01")),
    ]);
    bridge.insert("mtu".to_owned(), json!(1300));
    let with_vf = all([ovs_keys(), vec![device()]].concat());
    let with_veth = all([ovs_keys(), vec![("bridge", json!(OVS_BRIDGE))]].concat());
    let chain = vec![network("1.0.0", "ovs", with_veth, true), mirror("1.0.0", "ovs-mirror-producer")];
    vec![
        (before(UplinkBridge::Linux), vec![network("1.0.0", "accelerated-bridge", bridge, true)]),
        (before(UplinkBridge::OpenVswitch), vec![network("1.0.0", "ovs", with_vf, true)]),
        (before(UplinkBridge::OpenVswitch), chain),
    ]
}

/// Returns a network whose port gets the frames of a mirror, which only one pod at a time can have.
pub(crate) fn consumer() -> (SwitchBefore, Vec<Value>) {
    let (before, mut chain) = networks_with_all_settings().remove(2);
    chain[1] = mirror("1.0.0", "ovs-mirror-consumer");
    (before, chain)
}

/// Returns everything about software bridges that an attachment may change, in lines. A line about a port of a pod has the
/// path of its namespace.
pub(crate) fn switch_lines(kernel: &Kernel) -> Vec<String> {
    let path_of = |inode: u64| {
        let mut paths = kernel.namespaces.paths.iter();
        let found = paths.find(|(_, path)| **path == NamespacePath::Namespace(inode));
        found.map_or("a namespace that is gone", |(path, _)| path.as_str())
    };
    let veths = kernel.veths.iter();
    let mut lines: Vec<String> =
        veths.map(|(name, veth)| format!("veth {name} of {}", path_of(veth.namespace))).collect();
    for bridge in &kernel.bridges {
        lines.extend(bridge.vlans.iter().map(|(port, vlans)| {
            format!("port {port} of Linux bridge {}: {:?}", bridge.name, vlans.values().collect::<Vec<_>>())
        }));
    }
    for bridge in &kernel.ovs.bridges {
        let is_owned = |ids: &std::collections::BTreeMap<String, String>| {
            ids.get(OWNER_KEY).is_some_and(|owner| owner == OVS_OWNER)
        };
        let ports = bridge.ports.iter().filter(|port| is_owned(&port.external_ids));
        lines.extend(ports.map(|port| {
            let columns = kernel.ovs.columns.get(&port.name);
            let path = port.external_ids.get(NAMESPACE_KEY);
            format!("OVS port {} of {} for {path:?}: {columns:?}", port.name, bridge.name)
        }));
    }
    lines.extend(kernel.ovs.mirrors.iter().map(|(key, mirror)| format!("OVS mirror {key:?}: {mirror:?}")));
    lines
}
