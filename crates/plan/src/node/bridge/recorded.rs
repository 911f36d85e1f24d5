//! Bridges that vfleet created, as a desired state: for machines without a cluster, where nothing else stores it.

use vfleet_api::PciAddress;
use vfleet_api::bridge::{
    Bridges, LinuxBridgeConfigExt, LinuxBridgeUplinkConfigExt, OvsConfigExt, OvsUplinkConfigExt,
};
use vfleet_api::keys::OVS_KEYS;

use super::ovs_keys::{FAIL_MODE, MTU_REQUEST, OvsKeys};
use crate::facts::{BridgeKind, HostFacts};
use crate::prelude::*;
use crate::report;

type Map = BTreeMap<String, String>;

/// Returns the bridges in the records of PFs that vfleet manages, with the settings that vfleet made as they are now. A bridge that is missing or
/// cannot be read has no settings.
pub(crate) fn recorded_bridges(facts: &HostFacts) -> Option<Bridges> {
    let Bridges { ovs, linux } = report::bridges(facts, None);
    let (mut ovs, mut linux) = (ovs.unwrap_or_default(), linux.unwrap_or_default());
    for bridge in &mut ovs {
        retain_own_settings(bridge, facts);
    }
    let managed = || facts.records.iter().filter(|record| !record.is_external());
    for record in managed() {
        let Some(recorded) = &record.bridge else { continue };
        let interface = record.interface.name.clone();
        match recorded.kind {
            BridgeKind::Ovs => add_ovs(&mut ovs, &recorded.name, record.pf, interface),
            BridgeKind::Linux => add_linux(&mut linux, &recorded.name, record.pf, interface),
        }
    }
    let is_recorded = |kind: BridgeKind, name: &str| {
        let mut bridges = managed().filter_map(|record| record.bridge.as_ref());
        bridges.any(|recorded| recorded.kind == kind && recorded.name == name)
    };
    ovs.retain(|bridge| is_recorded(BridgeKind::Ovs, &bridge.name));
    linux.retain(|bridge| is_recorded(BridgeKind::Linux, &bridge.name));
    let (has_ovs, has_linux) = (!ovs.is_empty(), !linux.is_empty());
    (has_ovs || has_linux)
        .then(|| Bridges { ovs: Some(ovs).filter(|_| has_ovs), linux: Some(linux).filter(|_| has_linux) })
}

/// Adds the bridge, or its uplink, if it is missing.
fn add_ovs(bridges: &mut Vec<OvsConfigExt>, name: &str, pf: PciAddress, interface: Option<String>) {
    let at = bridges.iter().position(|bridge| bridge.name == name).unwrap_or_else(|| {
        bridges.push(OvsConfigExt { name: name.to_owned(), ..OvsConfigExt::default() });
        bridges.len() - 1
    });
    let uplink = OvsUplinkConfigExt { pci_address: pf.into(), name: interface, interface: None };
    bridges[at].uplinks.get_or_insert_with(|| vec![uplink]);
}

/// Adds the bridge, or its uplink, if it is missing.
fn add_linux(bridges: &mut Vec<LinuxBridgeConfigExt>, name: &str, pf: PciAddress, interface: Option<String>) {
    let at = bridges.iter().position(|bridge| bridge.name == name).unwrap_or_else(|| {
        bridges.push(LinuxBridgeConfigExt { name: name.to_owned(), ..LinuxBridgeConfigExt::default() });
        bridges.len() - 1
    });
    let uplink = LinuxBridgeUplinkConfigExt { pci_address: pf.into(), name: interface, uplink: None };
    bridges[at].uplinks.get_or_insert_with(|| vec![uplink]);
}

/// Removes settings that others made.
fn retain_own_settings(bridge: &mut OvsConfigExt, facts: &HostFacts) {
    let observed = facts.bridges.ovs.database().and_then(|ovs| ovs.bridge(&bridge.name));
    let keys = observed.and_then(|observed| observed.external_ids.get(OVS_KEYS));
    let keys = keys.map(|text| OvsKeys::parse(text)).unwrap_or_default();
    if let Some(settings) = &mut bridge.bridge {
        retain(&mut settings.external_ids, &keys.bridge_external_ids);
        retain(&mut settings.other_config, &keys.bridge_other_config);
        settings.fail_mode = settings.fail_mode.filter(|_| keys.columns.contains(FAIL_MODE));
    }
    for uplink in bridge.uplinks.iter_mut().flatten() {
        if let Some(interface) = &mut uplink.interface {
            retain(&mut interface.options, &keys.options);
            retain(&mut interface.external_ids, &keys.external_ids);
            retain(&mut interface.other_config, &keys.other_config);
            interface.mtu_request = interface.mtu_request.filter(|_| keys.columns.contains(MTU_REQUEST));
        }
    }
}

fn retain(map: &mut Option<Map>, keys: &BTreeSet<String>) {
    if let Some(entries) = map {
        entries.retain(|key, _| keys.contains(key));
    }
}
