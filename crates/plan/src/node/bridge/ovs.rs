//! Steps for Open vSwitch bridges.

use vfleet_api::PciAddress;
use vfleet_api::bridge::OvsFailMode;
use vfleet_api::keys::{OVS_KEYS, OVS_UPLINK};

use super::desired::OvsSettings;
use super::ovs_keys::{FAIL_MODE, MTU_REQUEST, OvsKeys, change};
use super::{BridgeFault, BridgePf, GoStore, Removal, check_attachable, linux, unreadable_ovs};
use crate::facts::{BridgeKind, OvsBridgeFacts, OvsInterfaceFacts, OvsPortFacts};
use crate::node::planned;
use crate::policy::bridge_name;
use crate::prelude::*;
use crate::step::{Disruption, OvsBridgeChange, OvsUplinkChange, PlannedStep, Step};

/// Returns whether the bridge has our mark for this PF.
fn is_ours(bridge: &OvsBridgeFacts, pf: PciAddress) -> bool {
    is_marked(&bridge.external_ids, pf)
}

fn is_marked(external_ids: &BTreeMap<String, String>, pf: PciAddress) -> bool {
    external_ids.get(OVS_UPLINK).is_some_and(|mark| *mark == pf.to_string())
}

/// Returns whether the bridge was created by vfleet, or by the Go daemon and never configured by vfleet.
pub(super) fn is_owned(bridge: &OvsBridgeFacts, pf: &BridgePf<'_>, go_store: &GoStore) -> bool {
    check_owner(bridge, pf, go_store).is_ok()
}

/// Returns the fault if the bridge was created by somebody else, or if it is unknown whether the Go daemon created it.
fn check_owner(bridge: &OvsBridgeFacts, pf: &BridgePf<'_>, go_store: &GoStore) -> Result<(), BridgeFault> {
    let is_marked = bridge.external_ids.contains_key(OVS_UPLINK);
    let name = bridge.name.clone();
    match go_store.lists(&name, pf.address) {
        _ if is_ours(bridge, pf.address) => Ok(()),
        Ok(true) if !is_marked => Ok(()),
        Err(error) if !is_marked => Err(BridgeFault::GoListInvalid { error: error.to_owned(), bridge: name }),
        _ => Err(BridgeFault::NameTaken { bridge: name, kind: BridgeKind::Ovs }),
    }
}

/// Returns the fault if an Open vSwitch bridge of this name is not ours.
pub(super) fn check_name(name: &str, pf: &BridgePf<'_>, go_store: &GoStore) -> Result<(), BridgeFault> {
    let named = pf.facts.bridges.ovs.database().and_then(|ovs| ovs.bridge(name));
    named.map_or(Ok(()), |bridge| check_owner(bridge, pf, go_store))
}

/// Adds the steps that remove our Open vSwitch bridges of a PF other than `desired`, or with another datapath.
pub(super) fn plan_removal(
    desired: Option<(&str, &OvsSettings)>,
    pf: &BridgePf<'_>,
    go_store: &GoStore,
    removal: &mut Removal,
) {
    let recorded = pf.recorded().filter(|recorded| recorded.kind == BridgeKind::Ovs);
    let last_name = recorded.map(|recorded| recorded.name.as_str()).or(go_store.bridge_of(pf.address));
    let Some(ovs) = pf.facts.bridges.ovs.database() else {
        // A desired bridge of this name has the same fault already.
        if let Some(name) = last_name.filter(|last| desired.is_none_or(|(name, _)| name != *last)) {
            removal.is_left = true;
            removal.faults.extend(unreadable_ovs(name, &pf.facts.bridges.ovs));
        }
        return;
    };
    let is_kept = |bridge: &OvsBridgeFacts| {
        desired.is_some_and(|(name, settings)| {
            name == bridge.name && datapath(&bridge.datapath_type) == desired_datapath(settings)
        })
    };
    // The datapath still has a bridge whose removal is not applied.
    let is_removed =
        |name: &&str| ovs.bridge(name).is_none() && desired.is_none_or(|(kept, _)| kept != *name);
    let recorded = recorded.map(|recorded| recorded.name.as_str());
    if let Some(name) = recorded.filter(is_removed).filter(|_| ovs.is_behind) {
        removal.is_left = true;
        removal.faults.push(BridgeFault::OvsBehind { bridge: name.to_owned() });
    }
    for bridge in ovs.bridges.iter().filter(|bridge| is_owned(bridge, pf, go_store) && !is_kept(bridge)) {
        let why = match desired {
            Some((name, _)) if name == bridge.name => "the datapath type changes",
            _ => "no policy requests the bridge anymore",
        };
        remove(bridge, pf, why, removal);
    }
    let is_desired = |name: &str| desired.is_some_and(|(desired, _)| desired == name);
    let standard = bridge_name(&pf.address.to_string());
    if let Err(fault @ BridgeFault::GoListInvalid { .. }) = check_name(&standard, pf, go_store)
        && !is_desired(&standard)
    {
        removal.is_left = true;
        removal.faults.push(fault);
    }
}

fn remove(bridge: &OvsBridgeFacts, pf: &BridgePf<'_>, why: &str, removal: &mut Removal) {
    let (uplinks, others): (Vec<_>, Vec<_>) =
        bridge.ports.iter().filter(|port| port.name != bridge.name).partition(|port| is_uplink(port, pf));
    if let Some(in_use) = pf.observed.and_then(|observed| pf.protection.pf(observed)) {
        removal.is_left = true;
        removal.faults.push(BridgeFault::BridgeUsedByNode { bridge: bridge.name.clone(), in_use });
        return;
    }
    match (others.first(), uplinks.first()) {
        (None, _) => {
            let step = Step::RemoveOvsBridge { pf: pf.address, observed: bridge.clone() };
            removal.steps.push(planned(step, Disruption::Pf, why));
        }
        (Some(_), Some(uplink)) => {
            removal.is_left = true;
            let step =
                Step::RemoveOvsPort { pf: pf.address, port: uplink.name.clone(), observed: bridge.clone() };
            removal.steps.push(planned(step, Disruption::Drain, why));
        }
        (Some(port), None) => {
            removal.is_left = true;
            removal.faults.push(BridgeFault::StillUsed {
                bridge: bridge.name.clone(),
                kind: BridgeKind::Ovs,
                port: port.name.clone(),
            });
        }
    }
}

/// Returns whether the port is the uplink: it has our mark, or the name of the PF, which is the recorded one if the PF
/// is missing.
fn is_uplink(port: &OvsPortFacts, pf: &BridgePf<'_>) -> bool {
    let recorded = || pf.record?.interface.name.as_deref();
    let name = pf.link().map(|link| link.name.as_str()).or_else(recorded);
    is_marked(&port.external_ids, pf.address) || name == Some(port.name.as_str())
}

/// Returns the bridge of this name, unless it has to be recreated.
pub(super) fn find_existing<'a>(
    name: &str,
    settings: &OvsSettings,
    pf: &BridgePf<'a>,
) -> Option<&'a OvsBridgeFacts> {
    let named = pf.facts.bridges.ovs.database()?.bridge(name)?;
    (datapath(&named.datapath_type) == desired_datapath(settings)).then_some(named)
}

/// Returns the steps that create and configure an Open vSwitch bridge.
pub(super) fn plan(
    name: &str,
    settings: &OvsSettings,
    pf: &BridgePf<'_>,
    go_store: &GoStore,
) -> Result<Vec<PlannedStep>, BridgeFault> {
    let Some(ovs) = pf.facts.bridges.ovs.database() else {
        return unreadable_ovs(name, &pf.facts.bridges.ovs).map_or(Ok(Vec::new()), Err);
    };
    check_name(name, pf, go_store)?;
    // Our own Linux bridge of this name is removed before.
    if pf.facts.bridges.linux_bridge(name).is_some_and(|bridge| !linux::is_owned(bridge, pf)) {
        return Err(BridgeFault::NameTaken { bridge: name.to_owned(), kind: BridgeKind::Linux });
    }
    // Ports have the names of interfaces, which udev is about to change.
    if let Some(link) = pf.link().filter(|link| !link.is_named) {
        let (bridge, interface) = (name.to_owned(), link.name.clone());
        return Err(BridgeFault::UplinkNotNamed { bridge, interface });
    }
    // A higher mtu of the policies, which is the mtuRequest too, is a problem of the PF.
    let max_mtu = pf.link().and_then(|link| link.max_mtu);
    let max_mtu = max_mtu.filter(|max| pf.mtu.is_none_or(|mtu| mtu <= *max));
    if let (Some(requested), Some(max)) = (settings.interface.mtu_request, max_mtu)
        && requested > i64::from(max)
    {
        return Err(BridgeFault::MtuRequest { bridge: name.to_owned(), requested, max });
    }
    let existing = find_existing(name, settings, pf);
    let attached = pf.link().and_then(|link| find_uplink(existing?, &link.name));
    let link_name = match (attached, pf.link()) {
        (Some(_), Some(link)) => &link.name,
        _ => &check_attachable(name, BridgeKind::Ovs, pf, go_store)?.name,
    };
    let change = build_change(name, settings, pf, go_store, existing, attached, link_name);
    if !existing.is_some_and(|bridge| is_done(&change, bridge)) {
        let step = Step::SetOvsBridge { pf: pf.address, bridge: change, observed: existing.cloned() };
        let why = if existing.is_some() { "the settings differ" } else { "a policy requests the bridge" };
        return Ok(vec![planned(step, Disruption::Pf, why)]);
    }
    if existing.is_some_and(|bridge| bridge.lacks_datapath) {
        let datapath_type = match desired_datapath(settings) {
            "" => "system",
            other => other,
        };
        let (bridge, datapath_type) = (name.to_owned(), datapath_type.to_owned());
        return Err(BridgeFault::NoDatapath { bridge, datapath_type });
    }
    let error = attached.and_then(|(_, interface)| interface.error.clone());
    match error {
        Some(error) => Err(BridgeFault::UplinkError { bridge: name.to_owned(), error }),
        None if ovs.is_behind => Err(BridgeFault::OvsBehind { bridge: name.to_owned() }),
        None => Ok(Vec::new()),
    }
}

/// Returns the port of the bridge that is named after the PF, and its only interface.
pub(super) fn find_uplink<'a>(
    bridge: &'a OvsBridgeFacts,
    name: &str,
) -> Option<(&'a OvsPortFacts, &'a OvsInterfaceFacts)> {
    let port = bridge.ports.iter().find(|port| port.name == name)?;
    match port.interfaces.as_slice() {
        [interface] if interface.name == name => Some((port, interface)),
        _ => None,
    }
}

fn build_change(
    name: &str,
    settings: &OvsSettings,
    pf: &BridgePf<'_>,
    go_store: &GoStore,
    existing: Option<&OvsBridgeFacts>,
    attached: Option<(&OvsPortFacts, &OvsInterfaceFacts)>,
    link: &str,
) -> OvsBridgeChange {
    let OvsSettings { bridge, interface, .. } = settings;
    let stored = existing.and_then(|existing| existing.external_ids.get(OVS_KEYS));
    let earlier = match (existing, stored) {
        (_, Some(text)) => OvsKeys::parse(text),
        (Some(existing), None) => go_store.keys_of(&existing.name),
        (None, None) => OvsKeys::default(),
    };
    let mut external_ids = change(bridge.external_ids.as_ref(), &earlier.bridge_external_ids);
    external_ids.set.insert(OVS_UPLINK.to_owned(), pf.address.to_string());
    external_ids.set.insert(OVS_KEYS.to_owned(), OvsKeys::of(bridge, interface).text());
    let mut port_external_ids = change(None, &BTreeSet::new());
    port_external_ids.set.insert(OVS_UPLINK.to_owned(), pf.address.to_string());
    let found_mode = existing.and_then(|existing| existing.fail_mode.clone());
    let found_mtu = attached.and_then(|(_, interface)| interface.mtu_request);
    // ovs-vswitchd sets the MTU of the PF.
    let mtu_request = if pf.observed.is_some_and(|observed| pf.protection.pf(observed).is_some()) {
        found_mtu
    } else {
        let requested =
            interface.mtu_request.or(found_mtu.filter(|_| !earlier.columns.contains(MTU_REQUEST)));
        let highest = requested.map(|mtu| mtu.max(pf.mtu.map_or(mtu, i64::from)));
        // One that the PF does not accept has no effect.
        let max = pf.link().and_then(|link| link.max_mtu);
        if highest.is_some_and(|mtu| max.is_some_and(|max| mtu > i64::from(max))) {
            found_mtu
        } else {
            highest
        }
    };
    let is_stale = |port: &&OvsPortFacts| is_marked(&port.external_ids, pf.address) && port.name != link;
    let stale = existing.into_iter().flat_map(|existing| &existing.ports).filter(is_stale);
    OvsBridgeChange {
        name: name.to_owned(),
        datapath_type: desired_datapath(settings).to_owned(),
        fail_mode: bridge
            .fail_mode
            .map(|mode| fail_mode(mode).to_owned())
            .or_else(|| found_mode.filter(|_| !earlier.columns.contains(FAIL_MODE))),
        external_ids,
        other_config: change(bridge.other_config.as_ref(), &earlier.bridge_other_config),
        uplink: OvsUplinkChange {
            name: link.to_owned(),
            port_external_ids,
            type_: interface_type(interface.type_.as_deref().unwrap_or_default()).to_owned(),
            options: change(interface.options.as_ref(), &earlier.options),
            external_ids: change(interface.external_ids.as_ref(), &earlier.external_ids),
            other_config: change(interface.other_config.as_ref(), &earlier.other_config),
            mtu_request,
        },
        stale_ports: stale.map(|port| port.name.clone()).collect(),
    }
}

fn is_done(change: &OvsBridgeChange, bridge: &OvsBridgeFacts) -> bool {
    let uplink = find_uplink(bridge, &change.uplink.name);
    change.external_ids.is_done(&bridge.external_ids)
        && change.other_config.is_done(&bridge.other_config)
        && change.fail_mode == bridge.fail_mode
        && change.stale_ports.is_empty()
        && bridge.ports.iter().any(|port| port.name == bridge.name)
        && uplink.is_some_and(|(port, interface)| {
            let wanted = &change.uplink;
            wanted.port_external_ids.is_done(&port.external_ids)
                && wanted.type_ == interface_type(&interface.type_)
                && wanted.options.is_done(&interface.options)
                && wanted.external_ids.is_done(&interface.external_ids)
                && wanted.other_config.is_done(&interface.other_config)
                && wanted.mtu_request == interface.mtu_request
        })
}

fn desired_datapath(settings: &OvsSettings) -> &str {
    datapath(settings.bridge.datapath_type.as_deref().unwrap_or_default())
}

/// Returns a datapath type with its default name, which is empty.
fn datapath(type_: &str) -> &str {
    if type_ == "system" { "" } else { type_ }
}

/// Returns an interface type with its default name, which is empty.
fn interface_type(type_: &str) -> &str {
    if type_ == "system" { "" } else { type_ }
}

const fn fail_mode(mode: OvsFailMode) -> &'static str {
    match mode {
        OvsFailMode::Secure => "secure",
        OvsFailMode::Standalone => "standalone",
    }
}
