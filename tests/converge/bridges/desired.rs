//! Random desired bridges.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_api::bridge::Bridges;
use vfleet_plan::{NodeOptions, bridge_port};

use crate::convergence::Desired;
use crate::machine::address;

/// Returns the name that the operator gives the bridge of a card.
pub(super) fn bridge_name(number: u8) -> String {
    format!("br-{}", address(number).to_string().replace(':', "_"))
}

/// Desired states of a machine with this number of cards, mostly valid ones.
pub(super) fn desired(cards: usize) -> impl Strategy<Value = Desired> {
    let one_for_each: Vec<_> = (1_u8..).take(cards).map(desired_card).collect();
    let gates = (prop::bool::weighted(0.85), prop::bool::weighted(0.3));
    (one_for_each, gates).prop_map(|(cards, (manage_bridges, ovs_offload))| {
        let (mut interfaces, mut ovs, mut linux) = (Vec::new(), Vec::new(), Vec::new());
        for DesiredCard { interface, bridge } in cards {
            interfaces.extend(interface);
            match bridge {
                Some(Kind::Ovs(bridge)) => ovs.push(bridge),
                Some(Kind::Linux(bridge)) => linux.push(bridge),
                None => {}
            }
        }
        let spec = json!({ "interfaces": interfaces, "bridges": { "ovs": ovs, "linux": linux } });
        let mut spec: SriovNetworkNodeStateSpec = serde_json::from_value(spec).expect("a spec");
        follow_mtus(&mut spec);
        let options = NodeOptions { manage_bridges, ovs_offload, ..NodeOptions::default() };
        Desired { spec, options }
    })
}

/// Requests the MTU of the PF from Open vSwitch, as the operator does. The MTU does not change with an invalid bridge:
/// Open vSwitch would restore the one that was requested from it.
pub(super) fn follow_mtus(spec: &mut SriovNetworkNodeStateSpec) {
    let Some(bridges) = &mut spec.bridges else { return };
    let invalid = uplinks_of_invalid_bridges(bridges);
    let interfaces = spec.interfaces.iter_mut().flatten();
    interfaces
        .filter(|interface| invalid.contains(&interface.pci_address.to_string()))
        .for_each(|interface| interface.mtu = None);
    let Some(bridges) = &mut bridges.ovs else { return };
    for uplink in bridges.iter_mut().flat_map(|bridge| bridge.uplinks.iter_mut().flatten()) {
        let mut interfaces = spec.interfaces.iter().flatten();
        let pf = interfaces.find(|interface| interface.pci_address == uplink.pci_address);
        if let (Some(mtu), Some(interface)) = (pf.and_then(|pf| pf.mtu), &mut uplink.interface) {
            interface.mtu_request = Some(mtu);
        }
    }
}

fn uplinks_of_invalid_bridges(bridges: &Bridges) -> Vec<String> {
    let ovs = bridges.ovs.iter().flatten().map(|bridge| {
        let uplinks = bridge.uplinks.iter().flatten().map(|uplink| uplink.pci_address.to_string());
        (&bridge.name, uplinks.collect::<Vec<_>>(), false)
    });
    let linux = bridges.linux.iter().flatten().map(|bridge| {
        let has_invalid_setting = bridge
            .uplinks
            .iter()
            .flatten()
            .any(|uplink| uplink.uplink.iter().flat_map(bridge_port::find_faults).next().is_some());
        let uplinks = bridge.uplinks.iter().flatten().map(|uplink| uplink.pci_address.to_string());
        (&bridge.name, uplinks.collect(), has_invalid_setting)
    });
    let is_invalid = |(name, uplinks, has_invalid_setting): &(&String, Vec<String>, bool)| {
        name.len() > 15 || uplinks.len() != 1 || *has_invalid_setting
    };
    ovs.chain(linux).filter(is_invalid).flat_map(|(_, uplinks, _)| uplinks).collect()
}

#[derive(Clone, Debug)]
struct DesiredCard {
    interface: Option<Value>,
    bridge: Option<Kind>,
}

#[derive(Clone, Debug)]
enum Kind {
    Ovs(Value),
    Linux(Value),
}

fn desired_card(number: u8) -> impl Strategy<Value = DesiredCard> {
    let bridge = prop_oneof![
        2 => Just(None),
        4 => ovs_bridge(number).prop_map(|bridge| Some(Kind::Ovs(bridge))),
        4 => linux_bridge(number).prop_map(|bridge| Some(Kind::Linux(bridge))),
    ];
    (prop::option::weighted(0.85, interface(number)), bridge).prop_map(|(interface, bridge)| DesiredCard {
        // A node state has bridges of its PFs only.
        bridge: bridge.filter(|_| interface.is_some()),
        interface,
    })
}

fn interface(number: u8) -> impl Strategy<Value = Value> {
    let switches = (prop::bool::weighted(0.08), prop::bool::weighted(0.2), prop::bool::weighted(0.9));
    let mtu = prop::sample::select(vec![None, None, Some(1500), Some(9000)]);
    (switches, mtu, 0_u16..=3, any::<bool>()).prop_map(
        move |((is_external, is_overridden, is_switchdev), mtu, num_vfs, is_vfio)| {
            let mut interface = json!({
                "pciAddress": address(number), "name": format!("ens{number}"), "numVfs": num_vfs,
                "eSwitchMode": if is_switchdev { "switchdev" } else { "legacy" },
            });
            if num_vfs > 0 {
                let device_type = if is_vfio { "vfio-pci" } else { "netdevice" };
                interface["vfGroups"] = json!([{
                    "deviceType": device_type, "vfRange": format!("0-{}", num_vfs - 1),
                    "resourceName": "vfs", "policyName": "policy",
                }]);
            }
            if let Some(mtu) = mtu {
                interface["mtu"] = json!(mtu);
            }
            if is_external {
                interface["externallyManaged"] = json!(true);
            }
            if is_overridden {
                interface["overrideHostProtection"] = json!(true);
            }
            interface
        },
    )
}

/// Names of bridges: mostly that of the operator.
fn name(number: u8) -> impl Strategy<Value = String> {
    prop_oneof![18 => Just(bridge_name(number)), 2 => Just(format!("br-card{number}")),
        1 => Just("a-name-that-is-too-long".to_owned())]
}

fn uplinks(number: u8, settings: &Value, has_two: bool) -> Value {
    let uplink = |number: u8| {
        let mut uplink = settings.clone();
        uplink["pciAddress"] = json!(address(number));
        uplink["name"] = json!(format!("ens{number}"));
        uplink
    };
    Value::Array((0..=u8::from(has_two)).map(|more| uplink(number + more)).collect())
}

fn keys() -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = prop::sample::select(vec!["a", "b"]);
    let value = prop::sample::select(vec!["1", "2"]);
    prop::collection::btree_map(key.prop_map(str::to_owned), value.prop_map(str::to_owned), 0..=2)
}

fn ovs_bridge(number: u8) -> impl Strategy<Value = Value> {
    let datapath = prop::sample::select(vec![None, None, Some("system"), Some("netdev")]);
    let fail_mode = prop::sample::select(vec![None, None, Some("secure"), Some("standalone")]);
    let type_ = prop_oneof![9 => Just(None), 2 => Just(Some("system")), 1 => Just(Some("dpdk"))];
    let mtu = prop::sample::select(vec![None, None, Some(9000)]);
    let columns = (datapath, fail_mode, type_, mtu);
    let maps = (keys(), keys(), keys(), keys(), keys());
    (name(number), columns, maps, prop::bool::weighted(0.03)).prop_map(
        move |(name, (datapath, fail_mode, type_, mtu), maps, has_two)| {
            let settings = json!({ "interface": {
                "type": type_, "mtuRequest": mtu, "options": maps.2, "externalIDs": maps.3, "otherConfig": maps.4,
            }});
            json!({
                "name": name,
                "bridge": {
                    "datapathType": datapath, "failMode": fail_mode, "externalIDs": maps.0, "otherConfig": maps.1,
                },
                "uplinks": uplinks(number, &settings, has_two),
            })
        },
    )
}

fn linux_bridge(number: u8) -> impl Strategy<Value = Value> {
    let protocol = prop::sample::select(vec![None, Some("802.1Q"), Some("802.1ad")]);
    (name(number), any::<bool>(), protocol, port_settings(), prop::bool::weighted(0.03)).prop_map(
        move |(name, vlan_filtering, vlan_protocol, settings, has_two)| {
            json!({
                "name": name,
                "bridge": { "vlanFiltering": vlan_filtering, "vlanProtocol": vlan_protocol },
                "uplinks": uplinks(number, &json!({ "uplink": settings }), has_two),
            })
        },
    )
}

fn port_settings() -> impl Strategy<Value = BTreeMap<&'static str, &'static str>> {
    let setting = prop::sample::select(vec![
        ("learning", "off"),
        ("learning", "on"),
        ("flood", "off"),
        ("isolated", "on"),
        ("cost", "50"),
        ("priority", "08"),
        ("mcast_router", "2"),
        // Not `blocking`, which the kernel does not keep without a spanning tree protocol.
        ("state", "listening"),
        ("state", "2"),
        ("hairpin", "maybe"),
    ]);
    prop::collection::vec(setting, 0..=3).prop_map(|settings| settings.into_iter().collect())
}
