//! Steps that change Open vSwitch, each in one transaction.

use vfleet_api::PciAddress;
use vfleet_api::keys::OVS_UPLINK;
use vfleet_plan::{
    MapChange, OvsBridgeChange, OvsBridgeFacts, OvsInterfaceFacts, OvsPortFacts, OvsUplinkChange, Step,
};

use crate::HostError;
use crate::sim::kernel::Kernel;
use crate::sim::ovs::{APPLY_DEADLINE, SimOvs};

/// Creates or changes a bridge with its uplink. A bridge that already has the result is not changed.
pub(super) fn set(
    kernel: &mut Kernel,
    pf: PciAddress,
    change: &OvsBridgeChange,
    observed: Option<&OvsBridgeFacts>,
    step: &Step,
) -> Result<(), HostError> {
    let attempt = step.to_string();
    kernel.ovs.check_server(&attempt)?;
    let found = kernel.ovs.bridge(&change.name);
    if !found.is_some_and(|found| is_done(change, found)) {
        let is_marked = |found: &OvsBridgeFacts| found.external_ids.get(OVS_UPLINK) == Some(&pf.to_string());
        if observed.is_none() && found.is_some_and(|found| !is_marked(found)) {
            let bridge = format!("Open vSwitch bridge {}", change.name);
            return Err(HostError::ForeignBridge { attempt, bridge });
        }
        let part = |bridge| decisive(change, bridge);
        if found.map(part) != observed.map(part) {
            return Err(HostError::BridgeChanged { attempt, bridge: change.name.clone() });
        }
        transact(kernel, &attempt, |ovs| apply(ovs, change))?;
    }
    wait_for_switch(kernel, &attempt)?;
    let bridge = kernel.ovs.bridge(&change.name);
    if let Some(failed) = bridge.filter(|bridge| bridge.lacks_datapath) {
        let type_ = &failed.datapath_type;
        let datapath_type = if type_.is_empty() { "system".to_owned() } else { type_.clone() };
        return Err(HostError::OvsBridgeFailed { attempt, bridge: change.name.clone(), datapath_type });
    }
    let uplink = bridge.and_then(|bridge| find_uplink(bridge, &change.uplink.name));
    match uplink.and_then(|(_, interface)| interface.error.clone()) {
        Some(message) => {
            let interface = change.uplink.name.clone();
            Err(HostError::OvsInterfaceFailed { attempt, interface, message })
        }
        None => Ok(()),
    }
}

/// Removes a bridge. Does nothing if there is none of this name.
pub(super) fn remove(kernel: &mut Kernel, observed: &OvsBridgeFacts, step: &Step) -> Result<(), HostError> {
    let attempt = step.to_string();
    kernel.ovs.check_server(&attempt)?;
    if let Some(found) = kernel.ovs.bridge(&observed.name) {
        require_same(found, observed, &attempt)?;
        transact(kernel, &attempt, |ovs| {
            ovs.remove_bridge(&observed.name);
            Ok(())
        })?;
    }
    wait_for_switch(kernel, &attempt)
}

/// Removes a port. Does nothing if the bridge does not have it.
pub(super) fn remove_port(
    kernel: &mut Kernel,
    port: &str,
    observed: &OvsBridgeFacts,
    step: &Step,
) -> Result<(), HostError> {
    let attempt = step.to_string();
    kernel.ovs.check_server(&attempt)?;
    let mut bridges = kernel.ovs.bridges.iter();
    let found = bridges.find(|found| found.uuid == observed.uuid && find_port(found, port).is_some());
    if let Some(found) = found {
        require_same(found, observed, &attempt)?;
        transact(kernel, &attempt, |ovs| {
            ovs.remove_port(port);
            Ok(())
        })?;
    }
    wait_for_switch(kernel, &attempt)
}

/// Requests hardware offload. Does not wait for ovs-vswitchd, which may not run.
pub(super) fn enable_offload(kernel: &mut Kernel, step: &Step) -> Result<(), HostError> {
    let attempt = step.to_string();
    kernel.ovs.check_server(&attempt)?;
    if !kernel.ovs.has_offload() {
        transact(kernel, &attempt, |ovs| {
            ovs.set_offload();
            ovs.next_cfg += 1;
            Ok(())
        })?;
    }
    Ok(())
}

/// Executes a transaction, of which nothing is left if the server refuses it.
fn transact(
    kernel: &mut Kernel,
    attempt: &str,
    change: impl FnOnce(&mut SimOvs) -> Result<(), String>,
) -> Result<(), HostError> {
    let mut ovs = kernel.ovs.clone();
    let result = ovs.refusal.clone().map_or_else(|| change(&mut ovs), Err);
    result.map_err(|message| HostError::OvsRefused { attempt: attempt.to_owned(), message })?;
    kernel.ovs = ovs;
    kernel.count_event();
    Ok(())
}

/// Fails if ovs-vswitchd does not apply the latest change.
fn wait_for_switch(kernel: &mut Kernel, attempt: &str) -> Result<(), HostError> {
    kernel.run_switch();
    if kernel.ovs.cur_cfg < kernel.ovs.next_cfg {
        return Err(HostError::OvsNotApplied { attempt: attempt.to_owned(), after: APPLY_DEADLINE });
    }
    Ok(())
}

fn apply(ovs: &mut SimOvs, change: &OvsBridgeChange) -> Result<(), String> {
    let (name, uplink) = (change.name.as_str(), &change.uplink);
    ovs.add_bridge(name);
    let has_port =
        |ovs: &SimOvs, port: &str| ovs.bridge(name).is_some_and(|found| find_port(found, port).is_some());
    let is_stale = |ovs: &SimOvs, port: &&String| has_port(ovs, port) && port.as_str() != uplink.name;
    let stale: Vec<&String> = change.stale_ports.iter().filter(|port| is_stale(ovs, port)).collect();
    for port in stale {
        ovs.remove_port(port);
    }
    for (port, type_) in [(name, "internal"), (&uplink.name, "")] {
        if !has_port(ovs, port) {
            ovs.add_port(name, port, type_)?;
        }
    }
    ovs.next_cfg += 1;
    let Some(bridge) = ovs.bridge_mut(name) else { return Err(format!("no bridge named {name}")) };
    bridge.datapath_type.clone_from(&change.datapath_type);
    bridge.fail_mode.clone_from(&change.fail_mode);
    update(&mut bridge.external_ids, &change.external_ids);
    update(&mut bridge.other_config, &change.other_config);
    let port = bridge.ports.iter_mut().find(|port| port.name == uplink.name);
    let Some(port) = port else { return Ok(()) };
    update(&mut port.external_ids, &uplink.port_external_ids);
    let Some(interface) = port.interfaces.first_mut() else { return Ok(()) };
    interface.type_.clone_from(&uplink.type_);
    update(&mut interface.options, &uplink.options);
    update(&mut interface.external_ids, &uplink.external_ids);
    update(&mut interface.other_config, &uplink.other_config);
    interface.mtu_request = uplink.mtu_request;
    Ok(())
}

fn update(map: &mut std::collections::BTreeMap<String, String>, change: &MapChange) {
    *map = change.apply(map);
}

fn is_done(change: &OvsBridgeChange, bridge: &OvsBridgeFacts) -> bool {
    let has_stale = change.stale_ports.iter().any(|port| find_port(bridge, port).is_some());
    let uplink = find_uplink(bridge, &change.uplink.name);
    !has_stale
        && find_port(bridge, &change.name).is_some()
        && default_empty(&bridge.datapath_type) == default_empty(&change.datapath_type)
        && bridge.fail_mode == change.fail_mode
        && change.external_ids.is_done(&bridge.external_ids)
        && change.other_config.is_done(&bridge.other_config)
        && uplink.is_some_and(|(port, interface)| is_uplink_done(&change.uplink, port, interface))
}

fn is_uplink_done(change: &OvsUplinkChange, port: &OvsPortFacts, interface: &OvsInterfaceFacts) -> bool {
    change.port_external_ids.is_done(&port.external_ids)
        && default_empty(&interface.type_) == default_empty(&change.type_)
        && change.options.is_done(&interface.options)
        && change.external_ids.is_done(&interface.external_ids)
        && change.other_config.is_done(&interface.other_config)
        && change.mtu_request == interface.mtu_request
}

/// Returns a type of a datapath or interface with its default name, which is empty.
fn default_empty(type_: &str) -> &str {
    if type_ == "system" { "" } else { type_ }
}

/// Returns the port of the uplink, and its only interface.
fn find_uplink<'a>(
    bridge: &'a OvsBridgeFacts,
    name: &str,
) -> Option<(&'a OvsPortFacts, &'a OvsInterfaceFacts)> {
    let port = find_port(bridge, name)?;
    match port.interfaces.as_slice() {
        [interface] if interface.name == name => Some((port, interface)),
        _ => None,
    }
}

fn find_port<'a>(bridge: &'a OvsBridgeFacts, name: &str) -> Option<&'a OvsPortFacts> {
    bridge.ports.iter().find(|port| port.name == name)
}

fn require_same(found: &OvsBridgeFacts, observed: &OvsBridgeFacts, attempt: &str) -> Result<(), HostError> {
    if without_results(found) == without_results(observed) {
        return Ok(());
    }
    Err(HostError::BridgeChanged { attempt: attempt.to_owned(), bridge: observed.name.clone() })
}

/// Returns the part of a bridge that a change depends on. Ports of pods come and go.
fn decisive(change: &OvsBridgeChange, bridge: &OvsBridgeFacts) -> OvsBridgeFacts {
    let mut part = without_results(bridge);
    let names = [&bridge.name, &change.uplink.name];
    part.ports.retain(|port| names.contains(&&port.name) || change.stale_ports.contains(&port.name));
    if let Some(internal) = part.ports.iter_mut().find(|port| port.name == bridge.name) {
        // It only has to exist.
        internal.external_ids.clear();
        internal.interfaces.clear();
    }
    part
}

/// Returns a bridge without results of ovs-vswitchd, which are no settings.
fn without_results(bridge: &OvsBridgeFacts) -> OvsBridgeFacts {
    let mut bridge = OvsBridgeFacts { lacks_datapath: false, ..bridge.clone() };
    for interface in bridge.ports.iter_mut().flat_map(|port| &mut port.interfaces) {
        interface.error = None;
    }
    bridge
}
