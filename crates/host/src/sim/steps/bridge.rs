//! Steps that change Linux bridges.

use std::collections::BTreeMap;

use vfleet_api::PciAddress;
use vfleet_plan::{LinuxBridgeFacts, LinuxBridgeState, Step, bridge_port};

use super::{netlink_error, require_pf};
use crate::HostError;
use crate::sim::bridges::SimBridge;
use crate::sim::kernel::Kernel;

/// Creates a bridge, or continues the creation of one that is still in the group of new bridges. The kernel sets the group
/// at once and the alias only afterwards.
pub(super) fn create(kernel: &mut Kernel, name: &str, alias: &str, step: &Step) -> Result<(), HostError> {
    begin_creation(kernel, name, step)?;
    let is_new = |bridge: &SimBridge| bridge.group == LinuxBridgeFacts::NEW_GROUP;
    let is_done = |bridge: &SimBridge| bridge.alias.as_deref() == Some(alias);
    let found = kernel.bridge(name);
    if found.is_some_and(|bridge| !is_new(bridge) && !is_done(bridge)) {
        return Err(not_ours(name, step));
    }
    kernel.set_bridge_alias(name, alias).map_err(|refusal| netlink_error(step, &refusal))
}

/// Sends the first request of [`create`], unless the bridge exists.
pub(super) fn begin_creation(kernel: &mut Kernel, name: &str, step: &Step) -> Result<(), HostError> {
    if kernel.bridge(name).is_some() {
        return Ok(());
    }
    kernel.create_bridge(name, LinuxBridgeFacts::NEW_GROUP).map_err(|refusal| netlink_error(step, &refusal))
}

pub(super) fn set(
    kernel: &mut Kernel,
    name: &str,
    settings: LinuxBridgeState,
    step: &Step,
) -> Result<(), HostError> {
    kernel
        .set_bridge_vlans(name, settings.vlan_filtering, settings.vlan_protocol)
        .and_then(|()| kernel.set_bridge_mtu(name, settings.mtu))
        .and_then(|()| kernel.set_bridge_group(name, 0))
        .and_then(|()| kernel.set_bridge_up(name, true))
        .map_err(|refusal| netlink_error(step, &refusal))
}

/// Attaches a PF that has no master, or is attached already.
pub(super) fn attach(
    kernel: &mut Kernel,
    pf: PciAddress,
    bridge: &str,
    step: &Step,
) -> Result<(), HostError> {
    let interface = require_interface(kernel, pf)?;
    if let Some(master) = kernel.master_of(&interface)
        && master.name != bridge
    {
        return Err(HostError::UplinkHasMaster { attempt: step.to_string(), interface, master: master.name });
    }
    kernel.add_bridge_port(bridge, &interface).map_err(|refusal| netlink_error(step, &refusal))
}

/// Detaches a PF. Does nothing if it is not a port of the bridge.
pub(super) fn detach(
    kernel: &mut Kernel,
    pf: PciAddress,
    bridge: &str,
    step: &Step,
) -> Result<(), HostError> {
    let interface = require_interface(kernel, pf)?;
    if !is_port(kernel, bridge, &interface) {
        return Ok(());
    }
    kernel.remove_bridge_port(bridge, &interface).map_err(|refusal| netlink_error(step, &refusal))
}

/// Changes settings of a port. Changes nothing if one of them is unknown.
pub(super) fn set_port(
    kernel: &mut Kernel,
    pf: PciAddress,
    bridge: &str,
    settings: &BTreeMap<String, String>,
    step: &Step,
) -> Result<(), HostError> {
    let interface = require_interface(kernel, pf)?;
    for (setting, value) in settings {
        bridge_port::normalize(setting, value)
            .map_err(|source| HostError::BridgePortSetting { attempt: step.to_string(), source })?;
    }
    if !is_port(kernel, bridge, &interface) {
        let (attempt, bridge) = (step.to_string(), bridge.to_owned());
        return Err(HostError::UplinkNotAttached { attempt, interface, bridge });
    }
    settings
        .iter()
        .try_for_each(|(setting, value)| kernel.set_port_setting(bridge, &interface, setting, value))
        .map_err(|refusal| netlink_error(step, &refusal))
}

/// Removes a bridge. Does nothing if there is none of this name.
pub(super) fn remove(kernel: &mut Kernel, name: &str, alias: &str, step: &Step) -> Result<(), HostError> {
    let Some(bridge) = kernel.bridge(name) else { return Ok(()) };
    let is_begun = bridge.alias.is_none() && bridge.group == LinuxBridgeFacts::NEW_GROUP;
    if bridge.alias.as_deref() != Some(alias) && !is_begun {
        return Err(not_ours(name, step));
    }
    if let Some(port) = bridge.ports.keys().next() {
        return Err(HostError::LinuxBridgeInUse { attempt: step.to_string(), port: port.clone() });
    }
    kernel.remove_bridge(name).map_err(|refusal| netlink_error(step, &refusal))
}

fn not_ours(name: &str, step: &Step) -> HostError {
    let (attempt, found) = (step.to_string(), "a bridge without the alias".to_owned());
    HostError::LinuxBridgeNotOurs { attempt, bridge: name.to_owned(), found }
}

fn is_port(kernel: &Kernel, bridge: &str, interface: &str) -> bool {
    kernel.bridge(bridge).is_some_and(|bridge| bridge.ports.contains_key(interface))
}

/// Returns the name of the interface of a PF.
fn require_interface(kernel: &Kernel, pf: PciAddress) -> Result<String, HostError> {
    let link = require_pf(kernel, pf)?.link.as_ref();
    link.map(|link| link.name.clone()).ok_or_else(|| HostError::NoInterface { device: pf.to_string() })
}
