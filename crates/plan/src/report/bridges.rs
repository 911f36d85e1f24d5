//! Report of the software bridges that vfleet created.

use vfleet_api::PciAddress;
use vfleet_api::bridge::{
    Bridges, LinuxBridgeConfigExt, LinuxBridgeSettings, LinuxBridgeUplinkConfigExt, OvsBridgeConfig,
    OvsConfigExt, OvsFailMode, OvsInterfaceConfig, OvsUplinkConfigExt,
};
use vfleet_api::keys::{OVS_KEYS, OVS_UPLINK};

use crate::facts::{HostFacts, LinuxBridgeFacts, OvsBridgeFacts, OvsFacts, OvsInterfaceFacts};
use crate::prelude::*;

type Map = BTreeMap<String, String>;

/// Returns the software bridges of a machine that vfleet created, without conditions. Those of Open vSwitch are reported
/// as in `last` while its database cannot be read. Bridges of PFs that vfleet does not manage now are left out: those of
/// externally managed PFs, and those that were left on the machine.
pub fn bridges(facts: &HostFacts, last: Option<&Bridges>) -> Bridges {
    let ovs = match &facts.bridges.ovs {
        OvsFacts::NotRead => Vec::new(),
        OvsFacts::Database(database) => {
            database.bridges.iter().filter_map(|bridge| ovs_bridge(bridge, facts)).collect()
        }
        OvsFacts::NotRunning { .. } | OvsFacts::Unreadable { .. } => {
            let last = last.into_iter().flat_map(|last| last.ovs.iter().flatten());
            last.filter(|bridge| is_created(bridge) && is_of_managed_pf(bridge, facts))
                .map(|bridge| OvsConfigExt { conditions: None, ..bridge.clone() })
                .collect()
        }
    };
    let linux: Vec<_> = facts.bridges.linux.iter().filter_map(|bridge| linux_bridge(bridge, facts)).collect();
    Bridges {
        ovs: Some(ovs).filter(|bridges| !bridges.is_empty()),
        linux: Some(linux).filter(|bridges| !bridges.is_empty()),
    }
}

/// Returns whether a reported bridge was found on the machine. Desired bridges are reported without settings before.
fn is_created(bridge: &OvsConfigExt) -> bool {
    bridge.bridge.is_some()
}

fn ovs_bridge(bridge: &OvsBridgeFacts, facts: &HostFacts) -> Option<OvsConfigExt> {
    let pf: PciAddress = bridge.external_ids.get(OVS_UPLINK)?.parse().ok()?;
    if !is_managed(pf, facts) {
        return None;
    }
    let name = interface_name(pf, facts);
    let mut ports = bridge.ports.iter().filter(|port| port.name != bridge.name);
    let port = ports.find(|port| {
        let is_named = name.is_some_and(|name| port.interfaces.iter().any(|member| member.name == name));
        is_named || port.external_ids.get(OVS_UPLINK).is_some_and(|mark| *mark == pf.to_string())
    });
    let uplink = port.and_then(|port| port.interfaces.first()).map(|interface| OvsUplinkConfigExt {
        pci_address: pf.into(),
        name: Some(interface.name.clone()),
        interface: Some(ovs_interface(interface)),
    });
    Some(OvsConfigExt {
        name: bridge.name.clone(),
        bridge: Some(OvsBridgeConfig {
            datapath_type: text(&bridge.datapath_type),
            external_ids: map(&bridge.external_ids),
            other_config: map(&bridge.other_config),
            fail_mode: bridge.fail_mode.as_deref().and_then(fail_mode),
        }),
        uplinks: uplink.map(|uplink| vec![uplink]),
        conditions: None,
    })
}

fn ovs_interface(interface: &OvsInterfaceFacts) -> OvsInterfaceConfig {
    OvsInterfaceConfig {
        type_: text(&interface.type_),
        options: map(&interface.options),
        external_ids: map(&interface.external_ids),
        other_config: map(&interface.other_config),
        mtu_request: interface.mtu_request,
    }
}

fn fail_mode(text: &str) -> Option<OvsFailMode> {
    match text {
        "secure" => Some(OvsFailMode::Secure),
        "standalone" => Some(OvsFailMode::Standalone),
        _ => None,
    }
}

fn linux_bridge(bridge: &LinuxBridgeFacts, facts: &HostFacts) -> Option<LinuxBridgeConfigExt> {
    let pf = bridge.marked_uplink().filter(|pf| is_managed(*pf, facts))?;
    let name = interface_name(pf, facts);
    let port = bridge.ports.iter().find(|port| Some(port.name.as_str()) == name);
    let recorded = facts.record(pf).and_then(|record| record.bridge.as_ref());
    let is_set = |setting: &str| recorded.is_some_and(|recorded| recorded.port_settings.contains(setting));
    let uplink = port.map(|port| {
        let settings: Map = port
            .settings
            .iter()
            .filter(|(setting, _)| is_set(setting))
            .map(|(setting, value)| (setting.clone(), value.clone()))
            .collect();
        LinuxBridgeUplinkConfigExt {
            pci_address: pf.into(),
            name: Some(port.name.clone()),
            uplink: map(&settings),
        }
    });
    Some(LinuxBridgeConfigExt {
        name: bridge.name.clone(),
        bridge: Some(LinuxBridgeSettings {
            vlan_filtering: Some(bridge.vlan_filtering),
            vlan_protocol: bridge.vlan_protocol,
        }),
        uplinks: uplink.map(|uplink| vec![uplink]),
        conditions: None,
    })
}

/// Returns whether vfleet manages the PF, or did until it is reset.
fn is_managed(pf: PciAddress, facts: &HostFacts) -> bool {
    facts.unreadable_records.contains(&pf) || facts.record(pf).is_some_and(|record| !record.is_external())
}

/// Returns whether vfleet manages the PF of a reported bridge. A bridge without its uplink was of a managed PF.
fn is_of_managed_pf(bridge: &OvsConfigExt, facts: &HostFacts) -> bool {
    let mut uplinks = bridge.uplinks.iter().flatten();
    uplinks.all(|uplink| uplink.pci_address.value().is_ok_and(|pf| is_managed(*pf, facts)))
}

fn interface_name(pf: PciAddress, facts: &HostFacts) -> Option<&str> {
    Some(facts.pf(pf)?.link.as_ref()?.name.as_str())
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

/// Returns the entries other than our marks.
fn map(entries: &Map) -> Option<Map> {
    let is_mark = |key: &str| key == OVS_UPLINK || key == OVS_KEYS;
    let entries = entries.iter().filter(|(key, _)| !is_mark(key));
    let map: Map = entries.map(|(key, value)| (key.clone(), value.clone())).collect();
    Some(map).filter(|map| !map.is_empty())
}
