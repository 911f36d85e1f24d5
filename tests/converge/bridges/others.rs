//! State of bridges, ports and keys of others, which never changes.

use std::collections::{BTreeMap, BTreeSet};

use vfleet_api::PciAddress;
use vfleet_api::keys::OVS_UPLINK;
use vfleet_host::sim::Kernel;
use vfleet_plan::files::MANAGED_OVS_BRIDGES;
use vfleet_plan::{LinuxBridgeFacts, Master, OvsBridgeFacts, OvsPortFacts};

use crate::convergence::POD_INTERFACE;

/// Key that others set in maps of our bridges.
pub(super) const OTHER_KEY: &str = "other";

type Ports = BTreeMap<String, BTreeMap<String, String>>;

/// State of everything that vfleet did not create.
#[derive(Debug, PartialEq)]
pub(super) struct Others {
    ovs_bridges: Vec<OvsBridgeFacts>,
    /// Foreign ports of our bridges, by bridge.
    ovs_ports: BTreeMap<String, Vec<OvsPortFacts>>,
    linux_bridges: BTreeMap<String, (Option<String>, bool, Ports)>,
    linux_ports: BTreeMap<String, Ports>,
    /// Masters of cards other than Open vSwitch and our Linux bridges.
    masters: BTreeMap<PciAddress, Master>,
}

/// Values of [`OTHER_KEY`], by UUID of the row and column.
pub(super) type OtherKeys = BTreeMap<(String, &'static str), String>;

/// Returns the state of others. Ports of pods are left out: a drain removes them.
pub(super) fn others(kernel: &Kernel) -> Others {
    let is_foreign_ovs = |bridge: &&OvsBridgeFacts| uplink_of(kernel, bridge).is_none();
    let ours = kernel.ovs.bridges.iter().filter_map(|bridge| Some((bridge, uplink_of(kernel, bridge)?)));
    let ovs_ports = ours.map(|(bridge, pf)| {
        let is_theirs = |port: &&OvsPortFacts| {
            port.name != bridge.name
                && !port.external_ids.contains_key(OVS_UPLINK)
                && Some(port.name.as_str()) != interface(kernel, pf)
                && !port.name.starts_with(POD_INTERFACE)
        };
        (bridge.name.clone(), bridge.ports.iter().filter(is_theirs).cloned().map(without_errors).collect())
    });
    let is_ours =
        |alias: Option<&String>| alias.is_some_and(|alias| alias.starts_with(LinuxBridgeFacts::ALIAS_PREFIX));
    let (our_linux, foreign_linux): (Vec<_>, Vec<_>) = kernel.bridges.iter().partition(|bridge| {
        is_ours(bridge.alias.as_ref())
            || bridge.group == LinuxBridgeFacts::NEW_GROUP && bridge.alias.is_none()
    });
    let is_card =
        |port: &str| kernel.pfs.iter().any(|pf| pf.link.as_ref().is_some_and(|link| link.name == port));
    // The state of a port follows the carrier of a card.
    let ports = |ports: &Ports, with_cards: bool| -> Ports {
        let kept = ports
            .iter()
            .filter(|(name, _)| !name.starts_with(POD_INTERFACE) && (with_cards || !is_card(name)));
        kept.map(|(name, settings)| {
            let settings = settings.iter().filter(|(setting, _)| *setting != "state");
            (name.clone(), settings.map(|(name, value)| (name.clone(), value.clone())).collect())
        })
        .collect()
    };
    let masters = kernel.pfs.iter().filter_map(|pf| {
        let master = kernel.master_of(&pf.link.as_ref()?.name)?;
        let is_left_alone = match master.kind.as_str() {
            "openvswitch" => false,
            "bridge" => foreign_linux.iter().any(|bridge| bridge.name == master.name),
            _ => true,
        };
        is_left_alone.then_some((pf.address, master))
    });
    Others {
        ovs_bridges: kernel
            .ovs
            .bridges
            .iter()
            .filter(is_foreign_ovs)
            .map(|bridge| {
                let ports = bridge.ports.iter().filter(|port| !port.name.starts_with(POD_INTERFACE));
                let ports = ports.cloned().map(without_errors).collect();
                OvsBridgeFacts { ports, lacks_datapath: false, ..bridge.clone() }
            })
            .collect(),
        ovs_ports: ovs_ports.filter(|(_, ports): &(_, Vec<_>)| !ports.is_empty()).collect(),
        linux_bridges: foreign_linux
            .iter()
            .map(|bridge| {
                let state = (bridge.alias.clone(), bridge.vlan_filtering, ports(&bridge.ports, true));
                (bridge.name.clone(), state)
            })
            .collect(),
        linux_ports: our_linux
            .iter()
            .map(|bridge| (bridge.name.clone(), ports(&bridge.ports, false)))
            .filter(|(_, ports)| !ports.is_empty())
            .collect(),
        masters: masters.collect(),
    }
}

/// Returns the PF whose bridge this is: by its mark, or by the list of the Go daemon.
pub(super) fn uplink_of(kernel: &Kernel, bridge: &OvsBridgeFacts) -> Option<PciAddress> {
    if let Some(mark) = bridge.external_ids.get(OVS_UPLINK) {
        return mark.parse().ok();
    }
    let list = kernel.files.get(MANAGED_OVS_BRIDGES)?;
    let list: serde_json::Value = serde_json::from_str(list).ok()?;
    let entry = list.get(&bridge.name).filter(|entry| entry.get("vfleet").is_none())?;
    entry["uplinks"][0]["pciAddress"].as_str()?.parse().ok()
}

/// Returns the entries of others in the rows of all bridges.
pub(super) fn other_keys(kernel: &Kernel) -> OtherKeys {
    let mut all = OtherKeys::new();
    let mut add = |uuid: &str, column, map: &BTreeMap<String, String>| {
        all.extend(map.get(OTHER_KEY).map(|value| ((uuid.to_owned(), column), value.clone())));
    };
    for bridge in &kernel.ovs.bridges {
        add(&bridge.uuid, "external_ids", &bridge.external_ids);
        add(&bridge.uuid, "other_config", &bridge.other_config);
        for port in &bridge.ports {
            add(&port.uuid, "external_ids", &port.external_ids);
            for interface in &port.interfaces {
                add(&interface.uuid, "options", &interface.options);
                add(&interface.uuid, "external_ids", &interface.external_ids);
                add(&interface.uuid, "other_config", &interface.other_config);
            }
        }
    }
    all
}

/// Returns the UUIDs of all rows.
pub(super) fn rows(kernel: &Kernel) -> Vec<&String> {
    let bridges = kernel.ovs.bridges.iter();
    bridges
        .flat_map(|bridge| {
            let ports = bridge.ports.iter().flat_map(|port| {
                std::iter::once(&port.uuid).chain(port.interfaces.iter().map(|interface| &interface.uuid))
            });
            std::iter::once(&bridge.uuid).chain(ports)
        })
        .collect()
}

/// Returns the PFs that are ports of Open vSwitch bridges of others in the database, and of our Linux bridges in the
/// kernel.
pub(super) fn stolen_ports(kernel: &Kernel) -> BTreeSet<PciAddress> {
    let is_port_of_other = |interface: &str| {
        let mut others = kernel.ovs.bridges.iter().filter(|bridge| uplink_of(kernel, bridge).is_none());
        others.any(|bridge| bridge.ports.iter().any(|port| port.name == interface))
    };
    let is_port_of_ours = |interface: &str| {
        let mut ours = kernel.bridges.iter().filter(|bridge| bridge.facts().marked_uplink().is_some());
        ours.any(|bridge| bridge.ports.contains_key(interface))
    };
    let is_stolen = |pf: &PciAddress| {
        interface(kernel, *pf).is_some_and(|name| is_port_of_other(name) && is_port_of_ours(name))
    };
    kernel.pfs.iter().map(|pf| pf.address).filter(is_stolen).collect()
}

fn interface(kernel: &Kernel, pf: PciAddress) -> Option<&str> {
    Some(kernel.pf(pf)?.link.as_ref()?.name.as_str())
}

/// Removes errors of interfaces, which are results of ovs-vswitchd.
fn without_errors(mut port: OvsPortFacts) -> OvsPortFacts {
    port.interfaces.iter_mut().for_each(|interface| interface.error = None);
    port
}
