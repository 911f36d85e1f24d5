//! Steps that change Open vSwitch, each in one transaction.

use vfleet_plan::{MapChange, OvsBridgeChange, OvsBridgeFacts, OvsPortFacts, Step};

use crate::HostError;
use crate::sim::kernel::Kernel;
use crate::sim::ovs::{APPLY_DEADLINE, SimOvs};

/// Creates or changes a bridge with its uplink. A bridge that already has the result is not changed.
pub(super) fn set(
    kernel: &mut Kernel,
    change: &OvsBridgeChange,
    observed: Option<&OvsBridgeFacts>,
    step: &Step,
) -> Result<(), HostError> {
    let attempt = step.to_string();
    kernel.ovs.check_server(&attempt)?;
    let found = kernel.ovs.bridge(&change.name);
    if !found.is_some_and(|found| is_done(change, found)) {
        if !is_same(found, observed) {
            return Err(HostError::BridgeChanged { attempt, bridge: change.name.clone() });
        }
        transact(kernel, &attempt, |ovs| apply(ovs, change))?;
    }
    wait_for_switch(kernel, &attempt)?;
    let uplink = &change.uplink.name;
    let bridge = kernel.ovs.bridge(&change.name);
    let interface =
        bridge.and_then(|bridge| find_port(bridge, uplink)).and_then(|port| port.interfaces.first());
    match interface.and_then(|interface| interface.error.clone()) {
        Some(message) => Err(HostError::OvsInterfaceFailed { attempt, interface: uplink.clone(), message }),
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
    let found = kernel.ovs.bridge(&observed.name).filter(|found| find_port(found, port).is_some());
    if let Some(found) = found {
        require_same(found, observed, &attempt)?;
        transact(kernel, &attempt, |ovs| {
            ovs.remove_port(port);
            Ok(())
        })?;
    }
    wait_for_switch(kernel, &attempt)
}

/// Requests hardware offload.
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
    wait_for_switch(kernel, &attempt)
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
    let wanted = &change.uplink;
    let has_stale = change.stale_ports.iter().any(|port| find_port(bridge, port).is_some());
    let port = find_port(bridge, &wanted.name);
    !has_stale
        && find_port(bridge, &change.name).is_some()
        && bridge.datapath_type == change.datapath_type
        && bridge.fail_mode == change.fail_mode
        && change.external_ids.is_done(&bridge.external_ids)
        && change.other_config.is_done(&bridge.other_config)
        && port.is_some_and(|port| wanted.port_external_ids.is_done(&port.external_ids))
        && port.and_then(|port| port.interfaces.first()).is_some_and(|interface| {
            interface.type_ == wanted.type_
                && wanted.options.is_done(&interface.options)
                && wanted.external_ids.is_done(&interface.external_ids)
                && wanted.other_config.is_done(&interface.other_config)
                && wanted.mtu_request == interface.mtu_request
        })
}

fn find_port<'a>(bridge: &'a OvsBridgeFacts, name: &str) -> Option<&'a OvsPortFacts> {
    bridge.ports.iter().find(|port| port.name == name)
}

fn require_same(found: &OvsBridgeFacts, observed: &OvsBridgeFacts, attempt: &str) -> Result<(), HostError> {
    if is_same(Some(found), Some(observed)) {
        return Ok(());
    }
    Err(HostError::BridgeChanged { attempt: attempt.to_owned(), bridge: observed.name.clone() })
}

/// Returns whether two states of a bridge are the same. Errors are results of ovs-vswitchd, not settings.
fn is_same(found: Option<&OvsBridgeFacts>, observed: Option<&OvsBridgeFacts>) -> bool {
    found.map(without_errors) == observed.map(without_errors)
}

fn without_errors(bridge: &OvsBridgeFacts) -> OvsBridgeFacts {
    let mut bridge = bridge.clone();
    for interface in bridge.ports.iter_mut().flat_map(|port| &mut port.interfaces) {
        interface.error = None;
    }
    bridge
}
