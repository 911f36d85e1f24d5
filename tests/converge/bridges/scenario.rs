//! Random machines, desired bridges, and histories.

use std::collections::BTreeMap;
use std::fmt;

use proptest::prelude::*;
use serde_json::{Value, json};
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_api::bridge::{Bridges, OvsConfigExt};
use vfleet_host::sim::{HexId, Machine, MachineBridge, MachinePf};
use vfleet_host::{Host, SimHost};
use vfleet_plan::files::MANAGED_OVS_BRIDGES;
use vfleet_plan::firmware::MELLANOX;
use vfleet_plan::{EswitchMode, NodeOptions, bridge_port};

use super::disturbance::{self, Disturbance};
use crate::convergence::{Desired, FailedLanes, plan};
use crate::machine::address;

/// Machine with a history of software bridges, and its desired state.
#[derive(Clone)]
pub(super) struct Scenario {
    pub(super) machine: Machine,
    pub(super) before: Desired,
    /// The Go daemon configured `before`. Otherwise vfleet did.
    pub(super) is_taken_over: bool,
    /// Number of executed steps for `before`.
    pub(super) executed_before: usize,
    pub(super) disturbances: Vec<(usize, Disturbance)>,
    pub(super) desired: Desired,
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let print = |spec| serde_json::to_string(spec).map_err(|_| fmt::Error);
        for MachinePf { address, up, eswitch, driver, speed, .. } in &self.machine.pfs {
            write!(f, "\n  {address}: up {up}, {eswitch:?}, {driver:?}, speed {speed:?}")?;
        }
        write!(f, "\n  {:?}, {:?}", self.machine.open_vswitch, self.machine.linux_bridges)?;
        for (desired, what) in [(&self.before, "before"), (&self.desired, "desired")] {
            let NodeOptions { manage_bridges, ovs_offload, .. } = desired.options;
            write!(f, "\n  {what}: gate {manage_bridges}, offload {ovs_offload}, {}", print(&desired.spec)?)?;
        }
        let (steps, go, disturbances) = (self.executed_before, self.is_taken_over, &self.disturbances);
        writeln!(f, "\n  Go {go}, {steps} steps of before, then {disturbances:?}")
    }
}

pub(super) fn scenario() -> impl Strategy<Value = Scenario> {
    machine().prop_flat_map(|machine| {
        let cards = machine.pfs.len();
        let disturbances = prop::collection::vec((0..cards, disturbance::disturbance()), 0..5);
        let executed = prop_oneof![3 => Just(usize::MAX), 1 => 0_usize..40];
        let is_taken_over = prop::bool::weighted(0.1);
        // Often only the bridges change.
        let keeps_interfaces = prop::bool::weighted(0.6);
        let states = (desired(cards), desired(cards));
        (Just(machine), states, is_taken_over, executed, disturbances, keeps_interfaces).prop_map(
            |(machine, (before, mut desired), is_taken_over, executed_before, disturbances, keeps)| {
                if keeps {
                    desired.spec.interfaces.clone_from(&before.spec.interfaces);
                    follow_mtus(&mut desired.spec);
                }
                Scenario { machine, before, is_taken_over, executed_before, disturbances, desired }
            },
        )
    })
}

/// Creates the machine of a scenario and applies its history. The result is deterministic.
pub(super) fn prepare_host(scenario: &Scenario) -> SimHost {
    let mut machine = scenario.machine.clone();
    if scenario.is_taken_over {
        add_go_files(&mut machine, &scenario.before.spec);
    }
    let host = SimHost::new(&machine, "bridges").expect("a possible machine");
    if scenario.is_taken_over {
        create_go_bridges(&host, &scenario.before.spec);
    } else {
        let failed = FailedLanes::default();
        for planned in plan(&host, &scenario.before).steps.iter().take(scenario.executed_before) {
            failed.execute(&host, planned).unwrap_or_else(|error| panic!("`{planned}`: {error}"));
        }
    }
    for (card, disturbance) in &scenario.disturbances {
        disturbance.apply(&host, scenario.machine.pfs[*card].address);
    }
    host.new_process()
}

/// Adds the state files of a Go daemon that configured the spec.
fn add_go_files(machine: &mut Machine, spec: &SriovNetworkNodeStateSpec) {
    let interfaces = spec.interfaces.iter().flatten();
    machine.go_records =
        interfaces.filter(|interface| interface.pci_address.value().is_ok()).cloned().collect();
    let list: BTreeMap<&str, &OvsConfigExt> =
        go_bridges(spec).map(|bridge| (bridge.name.as_str(), bridge)).collect();
    if !list.is_empty() {
        let text = serde_json::to_string(&list).expect("JSON");
        machine.files.insert(MANAGED_OVS_BRIDGES.to_owned(), text);
    }
}

/// Creates the bridges as the Go daemon does: without our marks.
fn create_go_bridges(host: &SimHost, spec: &SriovNetworkNodeStateSpec) {
    let facts = host.facts().expect("facts");
    host.modify_kernel(|kernel| {
        for bridge in go_bridges(spec).filter(|_| kernel.ovs.is_installed).collect::<Vec<_>>() {
            let uplink =
                bridge.uplinks.iter().flatten().next().and_then(|uplink| uplink.pci_address.value().ok());
            let Some(link) = uplink.and_then(|pf| facts.pf(*pf)?.link.as_ref()) else { continue };
            kernel.ovs.add_bridge(&bridge.name);
            // A port of another bridge is left there.
            let _ = kernel.ovs.add_port(&bridge.name, &link.name, "");
            let settings = bridge.bridge.clone().unwrap_or_default();
            if let Some(row) = kernel.ovs.bridge_mut(&bridge.name) {
                row.external_ids.extend(settings.external_ids.unwrap_or_default());
                row.datapath_type = settings.datapath_type.unwrap_or_default();
            }
        }
    });
}

fn go_bridges(spec: &SriovNetworkNodeStateSpec) -> impl Iterator<Item = &OvsConfigExt> {
    let bridges = spec.bridges.iter().flat_map(|bridges| bridges.ovs.iter().flatten());
    bridges.filter(|bridge| bridge.uplinks.iter().flatten().count() == 1)
}

fn machine() -> impl Strategy<Value = Machine> {
    let ovs = (prop::bool::weighted(0.95), prop::bool::weighted(0.95), any::<bool>());
    // A foreign bridge may have the name of ours, or the first card as port.
    let foreign = (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (prop::collection::vec(card(), 1..=2), ovs, foreign).prop_map(|(cards, ovs, foreign)| {
        let mut machine = Machine { pfs: cards, ..Machine::lab() };
        for (pf, number) in machine.pfs.iter_mut().zip(1..) {
            (pf.name, pf.address) = (format!("ens{number}"), address(number));
        }
        let first = machine.pfs[0].name.clone();
        let bridge = |name: &str, ports: &[&str]| MachineBridge {
            name: name.to_owned(),
            ports: ports.iter().map(|port| (*port).to_owned()).collect(),
        };
        let switch = &mut machine.open_vswitch;
        (switch.installed, switch.running, switch.offload) = ovs;
        switch.bridges = vec![bridge("br-ex", &["eth7"])];
        machine.linux_bridges = vec![bridge("br0", &["eth8"])];
        if foreign.0 {
            switch.bridges.push(bridge(&bridge_name(1), &["eth6"]));
        }
        if foreign.1 {
            machine.linux_bridges.push(bridge(&bridge_name(2), &[]));
        }
        if foreign.2 {
            machine.linux_bridges[0].ports.push(first);
        }
        machine
    })
}

fn card() -> impl Strategy<Value = MachinePf> {
    let driver = prop::sample::select(vec![("mlx5_core", "mlx5_core"), ("igb", "igbvf"), ("ice", "iavf")]);
    let speed = prop::sample::select(vec![None, Some(1000), Some(25_000)]);
    (driver, speed, prop::bool::weighted(0.8)).prop_map(|((driver, vf_driver), speed, up)| MachinePf {
        driver: Some(driver.to_owned()),
        vf_driver: vf_driver.to_owned(),
        vendor: HexId(if driver == "mlx5_core" { MELLANOX } else { 0x8086 }),
        eswitch: Some(EswitchMode::Legacy),
        max_mtu: Some(9216),
        num_vfs: 0,
        speed,
        up,
        ..Machine::lab().pfs.remove(0)
    })
}

/// Returns the name that the operator gives the bridge of a card.
pub(super) fn bridge_name(number: u8) -> String {
    format!("br-{}", address(number).to_string().replace(':', "_"))
}

fn desired(cards: usize) -> impl Strategy<Value = Desired> {
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
fn follow_mtus(spec: &mut SriovNetworkNodeStateSpec) {
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
        let has_invalid_setting = bridge.uplinks.iter().flatten().any(|uplink| {
            uplink.uplink.iter().flatten().any(|(name, value)| bridge_port::validate(name, value).is_err())
        });
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
