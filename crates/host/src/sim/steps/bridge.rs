//! Steps that change Linux bridges.

use std::collections::BTreeMap;

use vfleet_api::PciAddress;
use vfleet_plan::{LinuxBridgeFacts, LinuxBridgeState, Step, bridge_port};

use super::{netlink_error, require_pf};
use crate::HostError;
use crate::sim::bridges::SimBridge;
use crate::sim::kernel::Kernel;
use crate::sim::requests::Refusal;

/// Owner of an interface that has the name of a bridge.
enum BridgeOwner {
    /// No interface has the name.
    Nobody,
    /// Bridge with the expected alias.
    Ours,
    /// Bridge that an interrupted step created: the kernel sets the group at once and the alias only afterwards.
    Begun,
    /// Other interface, with a description.
    Other(&'static str),
}

impl BridgeOwner {
    fn of(kernel: &Kernel, name: &str, alias: &str) -> Self {
        let Some(bridge) = kernel.bridge(name) else {
            let is_taken = kernel.has_interface(name);
            return if is_taken { Self::Other("an interface of another kind") } else { Self::Nobody };
        };
        match bridge.alias.as_deref() {
            Some(found) if found == alias => Self::Ours,
            Some(_) => Self::Other("a bridge with another alias"),
            None if bridge.group == LinuxBridgeFacts::NEW_GROUP => Self::Begun,
            None => Self::Other("a bridge without an alias"),
        }
    }
}

/// Creates a bridge, or gives the alias to one that an interrupted step created.
pub(super) fn create(kernel: &mut Kernel, name: &str, alias: &str, step: &Step) -> Result<(), HostError> {
    begin_creation(kernel, name, step)?;
    match BridgeOwner::of(kernel, name, alias) {
        BridgeOwner::Nobody => Err(not_found(name, step)),
        BridgeOwner::Ours => Ok(()),
        BridgeOwner::Begun => request(step, kernel.set_bridge_alias(name, alias)),
        BridgeOwner::Other(found) => Err(not_ours(name, found, step)),
    }
}

/// Sends the first request of [`create`], unless the name is taken.
pub(super) fn begin_creation(kernel: &mut Kernel, name: &str, step: &Step) -> Result<(), HostError> {
    if kernel.has_interface(name) {
        return Ok(());
    }
    request(step, kernel.create_bridge(name, LinuxBridgeFacts::NEW_GROUP))
}

/// Configures our bridge of a PF. Values that it has already are not set.
pub(super) fn set(
    kernel: &mut Kernel,
    pf: PciAddress,
    name: &str,
    settings: LinuxBridgeState,
    step: &Step,
) -> Result<(), HostError> {
    let LinuxBridgeState { vlan_filtering, vlan_protocol, mtu } = settings;
    let bridge = expect_ours(kernel, pf, name, step)?;
    let has_vlans = (bridge.vlan_filtering, bridge.vlan_protocol) == (vlan_filtering, vlan_protocol);
    let (has_mtu, has_group, is_up) = (bridge.mtu == mtu, bridge.group == 0, bridge.up);
    request(step, kernel.set_bridge_accepts_ra(name, false))?;
    if !has_vlans {
        request(step, kernel.set_bridge_vlans(name, vlan_filtering, vlan_protocol))?;
    }
    if !has_mtu {
        request(step, kernel.set_bridge_mtu(name, mtu))?;
    }
    if !has_group {
        request(step, kernel.set_bridge_group(name, 0))?;
    }
    if is_up { Ok(()) } else { request(step, kernel.set_bridge_up(name, true)) }
}

/// Attaches a PF that has no master, or is attached already.
pub(super) fn attach(
    kernel: &mut Kernel,
    pf: PciAddress,
    bridge: &str,
    step: &Step,
) -> Result<(), HostError> {
    let interface = require_interface(kernel, pf)?;
    expect_ours(kernel, pf, bridge, step)?;
    if let Some(master) = kernel.master_of(&interface)
        && master.name != bridge
    {
        return Err(HostError::UplinkHasMaster { attempt: step.to_string(), interface, master: master.name });
    }
    request(step, kernel.add_bridge_port(bridge, &interface))
}

/// Detaches a PF. Does nothing if it is not a port of the bridge, or if there is none.
pub(super) fn detach(
    kernel: &mut Kernel,
    pf: PciAddress,
    bridge: &str,
    step: &Step,
) -> Result<(), HostError> {
    let interface = require_interface(kernel, pf)?;
    match expect_ours(kernel, pf, bridge, step) {
        Err(HostError::LinuxBridgeNotFound { .. }) => Ok(()),
        Ok(found) if !found.ports.contains_key(&interface) => Ok(()),
        Ok(_) => request(step, kernel.remove_bridge_port(bridge, &interface)),
        Err(error) => Err(error),
    }
}

/// Changes settings of a port. Changes nothing if one of them is unknown.
pub(super) fn set_port(
    kernel: &mut Kernel,
    pf: PciAddress,
    bridge: &str,
    settings: &BTreeMap<String, String>,
    step: &Step,
) -> Result<(), HostError> {
    let attempt = || step.to_string();
    let normalize = |(name, value): (&String, &String)| {
        bridge_port::normalize(name, value).map(|value| (name.clone(), value))
    };
    let desired: Result<BTreeMap<_, _>, _> = settings.iter().map(normalize).collect();
    let desired = desired.map_err(|source| HostError::BridgePortSetting { attempt: attempt(), source })?;
    let interface = require_interface(kernel, pf)?;
    let find_port = |kernel: &Kernel| -> Result<BTreeMap<String, String>, HostError> {
        let port = expect_ours(kernel, pf, bridge, step)?.ports.get(&interface).cloned();
        let (interface, bridge) = (interface.clone(), bridge.to_owned());
        port.ok_or_else(|| HostError::UplinkNotAttached { attempt: attempt(), interface, bridge })
    };
    let differing = |port: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        let differs = |(name, value): &(&String, &String)| port.get(*name) != Some(*value);
        desired.iter().filter(differs).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let changed = differing(&find_port(kernel)?);
    if !changed.is_empty() {
        request(step, kernel.set_port_settings(bridge, &interface, &changed))?;
    }
    let found = find_port(kernel)?;
    match differing(&found).pop_first() {
        None => Ok(()),
        Some((name, expected)) => {
            let found = found.get(&name).cloned().unwrap_or_default();
            Err(HostError::NotVerified { attempt: attempt(), expected, found })
        }
    }
}

/// Removes a bridge. Does nothing if there is none of this name.
pub(super) fn remove(kernel: &mut Kernel, name: &str, alias: &str, step: &Step) -> Result<(), HostError> {
    match BridgeOwner::of(kernel, name, alias) {
        BridgeOwner::Nobody => return Ok(()),
        BridgeOwner::Ours | BridgeOwner::Begun => {}
        BridgeOwner::Other(found) => return Err(not_ours(name, found, step)),
    }
    if let Some(port) = kernel.bridge(name).and_then(|bridge| bridge.ports.keys().next()) {
        return Err(HostError::LinuxBridgeInUse { attempt: step.to_string(), port: port.clone() });
    }
    request(step, kernel.remove_bridge(name))
}

/// Returns our bridge of a PF.
fn expect_ours<'k>(
    kernel: &'k Kernel,
    pf: PciAddress,
    name: &str,
    step: &Step,
) -> Result<&'k SimBridge, HostError> {
    match BridgeOwner::of(kernel, name, &LinuxBridgeFacts::alias_of(pf)) {
        BridgeOwner::Ours => kernel.bridge(name).ok_or_else(|| not_found(name, step)),
        BridgeOwner::Nobody => Err(not_found(name, step)),
        BridgeOwner::Begun => Err(not_ours(name, "a bridge without an alias", step)),
        BridgeOwner::Other(found) => Err(not_ours(name, found, step)),
    }
}

fn request(step: &Step, result: Result<(), Refusal>) -> Result<(), HostError> {
    result.map_err(|refusal| netlink_error(step, &refusal))
}

fn not_ours(name: &str, found: &str, step: &Step) -> HostError {
    let (attempt, found) = (step.to_string(), found.to_owned());
    HostError::LinuxBridgeNotOurs { attempt, bridge: name.to_owned(), found }
}

fn not_found(name: &str, step: &Step) -> HostError {
    HostError::LinuxBridgeNotFound { attempt: step.to_string(), bridge: name.to_owned() }
}

/// Returns the name of the interface of a PF.
fn require_interface(kernel: &Kernel, pf: PciAddress) -> Result<String, HostError> {
    let link = require_pf(kernel, pf)?.link.as_ref();
    link.map(|link| link.name.clone()).ok_or_else(|| HostError::NoInterface { device: pf.to_string() })
}
