//! Changes of bridges, ports and of Open vSwitch by others.

use std::fmt;

use proptest::prelude::*;
use vfleet_api::bridge::BridgeVlanProtocol;
use vfleet_api::keys::OVS_UPLINK;
use vfleet_api::{PciAddress, VfRef};
use vfleet_host::SimHost;
use vfleet_host::sim::Kernel;
use vfleet_plan::files::MANAGED_OVS_BRIDGES;
use vfleet_plan::{HostUse, LinuxBridgeFacts, Master};

use super::others::OTHER_KEY;
use crate::convergence::POD_INTERFACE;

/// Change by others of one card, its bridge, or of Open vSwitch.
#[derive(Clone, Copy)]
pub(super) struct Disturbance {
    name: &'static str,
    effect: fn(&mut Kernel, &Card),
}

/// Card with the names of its interface and bridge.
struct Card {
    address: PciAddress,
    interface: String,
    bridge: String,
}

const ALL: [Disturbance; 36] = [
    change("a foreign port", |kernel, card| add_port(kernel, card, &format!("vm{}", card.interface))),
    change("a port of a pod", |kernel, card| {
        add_port(kernel, card, &format!("{POD_INTERFACE}{}", card.interface));
        let vf = VfRef { pf: card.address, index: 0 };
        let _ = kernel.set_in_other_namespace(vf, true);
    }),
    change("uplink removed", |kernel, card| {
        kernel.ovs.remove_port(&card.interface);
        let _ = kernel.remove_bridge_port(&card.bridge, &card.interface);
    }),
    change("bridge removed", |kernel, card| {
        kernel.ovs.remove_bridge(&card.bridge);
        let _ = kernel.remove_bridge(&card.bridge);
    }),
    change("key changed", |kernel, card| for_each_map(kernel, card, |map| set(map, "a", "changed"))),
    change("key removed", |kernel, card| for_each_map(kernel, card, |map| drop(map.remove("a")))),
    change("foreign key", |kernel, card| for_each_map(kernel, card, |map| set(map, OTHER_KEY, "theirs"))),
    change("mark removed", |kernel, card| {
        if let Some(bridge) = kernel.ovs.bridge_mut(&card.bridge) {
            bridge.external_ids.remove(OVS_UPLINK);
            // A lower MTU that others request is not seen, and changed in turns, while vfleet does not read Open vSwitch.
            let interfaces = bridge.ports.iter_mut().flat_map(|port| &mut port.interfaces);
            interfaces.for_each(|interface| interface.mtu_request = None);
        }
        let _ = kernel.set_bridge_alias(&card.bridge, "theirs");
    }),
    change("fail mode changed", |kernel, card| {
        if let Some(bridge) = kernel.ovs.bridge_mut(&card.bridge) {
            bridge.fail_mode = Some("secure".to_owned());
        }
    }),
    change("datapath changed", |kernel, card| {
        if let Some(bridge) = kernel.ovs.bridge_mut(&card.bridge) {
            "netdev".clone_into(&mut bridge.datapath_type);
        }
    }),
    change("Open vSwitch stopped", |kernel, _| {
        (kernel.ovs.has_server, kernel.ovs.has_switch) = (false, false);
    }),
    change("Open vSwitch started", |kernel, _| {
        (kernel.ovs.has_server, kernel.ovs.has_switch) = (kernel.ovs.is_installed, kernel.ovs.is_installed);
    }),
    change("ovs-vswitchd stopped", |kernel, _| kernel.ovs.has_switch = false),
    // ovs-vswitchd depends on the server.
    change("ovsdb-server does not answer", |kernel, _| {
        (kernel.ovs.is_unanswering, kernel.ovs.has_switch) = (true, false);
    }),
    change("ovsdb-server answers again", |kernel, _| {
        (kernel.ovs.is_unanswering, kernel.ovs.has_switch) = (false, kernel.ovs.has_server);
    }),
    change("transactions refused", |kernel, _| kernel.ovs.refusal = Some("disk full".to_owned())),
    change("database emptied", |kernel, _| {
        kernel.ovs.empty_database();
        kernel.ovs.has_switch = kernel.ovs.has_server;
    }),
    change("foreign Open vSwitch bridge of the same name", |kernel, card| {
        kernel.ovs.add_bridge(&card.bridge);
    }),
    change("foreign Linux bridge of the same name", |kernel, card| {
        let _ = kernel.create_bridge(&card.bridge, 0);
    }),
    change("interrupted creation of a Linux bridge", |kernel, card| {
        let _ = kernel.create_bridge(&card.bridge, LinuxBridgeFacts::NEW_GROUP);
    }),
    change("PF in a bond", |kernel, card| {
        kernel.ovs.remove_port(&card.interface);
        let _ = kernel.remove_bridge_port(&card.bridge, &card.interface);
        let _ = kernel.add_bond_member("bond0", &card.interface);
    }),
    change("PF in a foreign Linux bridge", |kernel, card| {
        kernel.ovs.remove_port(&card.interface);
        let _ = kernel.add_bridge_port("br0", &card.interface);
    }),
    change("PF in a foreign Open vSwitch bridge", |kernel, card| {
        kernel.ovs.remove_port(&card.interface);
        let _ = kernel.remove_bridge_port(&card.bridge, &card.interface);
        let _ = kernel.ovs.add_port("br-ex", &card.interface, "");
    }),
    change("PF in a foreign Open vSwitch bridge with a userspace datapath", |kernel, card| {
        kernel.ovs.remove_port(&card.interface);
        let _ = kernel.remove_bridge_port(&card.bridge, &card.interface);
        let _ = kernel.ovs.add_port("br-ex", &card.interface, "");
        if let Some(bridge) = kernel.ovs.bridge_mut("br-ex") {
            "netdev".clone_into(&mut bridge.datapath_type);
        }
    }),
    change("port setting changed", |kernel, card| {
        let _ = kernel.set_port_setting(&card.bridge, &card.interface, "learning", "off");
        let _ = kernel.set_port_setting(&card.bridge, &card.interface, "priority", "3");
    }),
    change("VLAN filtering changed", |kernel, card| {
        let _ = kernel.set_bridge_vlans(&card.bridge, true, BridgeVlanProtocol::Ieee8021ad);
    }),
    change("bridge down, with another MTU", |kernel, card| {
        let _ = kernel.set_bridge_up(&card.bridge, false);
        let _ = kernel.set_bridge_mtu(&card.bridge, 1400);
    }),
    change("PF renamed", rename),
    change("rule removed", |kernel, card| {
        kernel
            .files
            .retain(|path, _| !(path.contains("nm-bridge") && path.contains(&card.address.to_string())));
    }),
    change("bridge created again by the Go daemon", create_again),
    change("list of the Go daemon torn", |kernel, _| {
        kernel.files.insert(MANAGED_OVS_BRIDGES.to_owned(), "{\"br".to_owned());
    }),
    change("list of the Go daemon removed", |kernel, _| drop(kernel.files.remove(MANAGED_OVS_BRIDGES))),
    change("PF in use", |kernel, card| {
        let _ = kernel.set_pf_host_use(card.address, Some(HostUse::NodeAddress));
    }),
    change("PF down", |kernel, card| {
        let _ = kernel.set_link_up(card.address, false);
    }),
    change("card hangs", |kernel, card| {
        if let Some(pf) = kernel.pf_mut(card.address) {
            pf.is_hanging = true;
        }
    }),
    change("rebooted", |kernel, _| kernel.reboot()),
];

const fn change(name: &'static str, effect: fn(&mut Kernel, &Card)) -> Disturbance {
    Disturbance { name, effect }
}

pub(super) fn disturbance() -> impl Strategy<Value = Disturbance> {
    prop::sample::select(ALL.to_vec())
}

impl Disturbance {
    pub(super) fn apply(self, host: &SimHost, pf: PciAddress) {
        host.modify_kernel(|kernel| {
            let link = kernel.pf(pf).and_then(|found| found.link.as_ref());
            let interface = link.map(|link| link.name.clone()).unwrap_or_default();
            let recorded = kernel.records.get(&pf).and_then(|record| record.bridge.as_ref());
            let standard = || format!("br-{}", pf.to_string().replace(':', "_"));
            let bridge = recorded.map_or_else(standard, |bridge| bridge.name.clone());
            (self.effect)(kernel, &Card { address: pf, interface, bridge });
        });
    }
}

impl fmt::Debug for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Deletes our Open vSwitch bridge, and creates one without our mark and with an entry in the list, as the Go daemon does.
fn create_again(kernel: &mut Kernel, card: &Card) {
    if kernel.ovs.bridge(&card.bridge).is_none() {
        return;
    }
    kernel.ovs.remove_bridge(&card.bridge);
    kernel.ovs.add_bridge(&card.bridge);
    let _ = kernel.ovs.add_port(&card.bridge, &card.interface, "");
    let text = kernel.files.get(MANAGED_OVS_BRIDGES);
    let list = text.and_then(|text| serde_json::from_str(text).ok());
    let mut list: serde_json::Map<String, serde_json::Value> = list.unwrap_or_default();
    let uplinks = serde_json::json!([{ "pciAddress": card.address, "name": card.interface }]);
    let entry = serde_json::json!({ "name": card.bridge, "bridge": {}, "uplinks": uplinks });
    list.insert(card.bridge.clone(), entry);
    kernel.files.insert(MANAGED_OVS_BRIDGES.to_owned(), serde_json::Value::from(list).to_string());
}

/// Adds a port to the bridges of a card.
fn add_port(kernel: &mut Kernel, card: &Card, port: &str) {
    if kernel.ovs.bridge(&card.bridge).is_none() && kernel.bridge(&card.bridge).is_none() {
        return;
    }
    kernel.other_links.insert(port.to_owned());
    // The port may exist already.
    let _ = kernel.ovs.add_port(&card.bridge, port, "");
    let _ = kernel.add_bridge_port(&card.bridge, port);
}

type Map = std::collections::BTreeMap<String, String>;

fn set(map: &mut Map, key: &str, value: &str) {
    map.insert(key.to_owned(), value.to_owned());
}

/// Changes all maps of the Open vSwitch bridge of a card and of its uplink.
fn for_each_map(kernel: &mut Kernel, card: &Card, change: fn(&mut Map)) {
    let Some(bridge) = kernel.ovs.bridge_mut(&card.bridge) else { return };
    change(&mut bridge.external_ids);
    change(&mut bridge.other_config);
    let uplinks = bridge.ports.iter_mut().filter(|port| port.name == card.interface);
    for port in uplinks {
        change(&mut port.external_ids);
        for interface in &mut port.interfaces {
            change(&mut interface.options);
            change(&mut interface.external_ids);
            change(&mut interface.other_config);
        }
    }
}

/// Renames the interface of a PF. Linux bridges follow, Open vSwitch does not.
fn rename(kernel: &mut Kernel, card: &Card) {
    let name = format!("{}x", card.interface);
    if card.interface.is_empty() || card.interface.ends_with('x') {
        return;
    }
    for bridge in &mut kernel.bridges {
        if let Some(settings) = bridge.ports.remove(&card.interface) {
            bridge.ports.insert(name.clone(), settings);
        }
    }
    let link = kernel.pf_mut(card.address).and_then(|pf| pf.link.as_mut());
    if let Some(link) = link {
        let is_ovs = |master: &Master| master.kind == "openvswitch";
        link.master = link.master.take().filter(|master| !is_ovs(master));
        link.name = name;
    }
}
