//! Steps that attach representors to Linux bridges.

use vfleet_plan::cni::facts::{BridgeVlan, Representor};

use super::representor;
use crate::HostError;
use crate::linux::attachment::settle::settle;
use crate::linux::netlink::rtnl::{BRIDGE, Link, Rtnl};
use crate::linux::root::HostRoot;
use crate::linux::stable_read::read_stable;
use crate::linux::steps::verify;

/// Descriptions of interfaces for errors.
const PORT: &str = "a port of the bridge";
const NO_PORT: &str = "no port of the bridge";

/// Makes a representor a port of a bridge. With `vlans` it has these VLANs and no others, else those that the bridge gives
/// to a new port.
pub(super) fn attach(
    root: &HostRoot,
    representor: &Representor,
    bridge: &str,
    vlans: Option<&[BridgeVlan]>,
) -> Result<(), HostError> {
    let attempt = format!("attach {representor} to Linux bridge {bridge}");
    let link = representor::require(root, representor, &attempt)?;
    let mut rtnl = Rtnl::open()?;
    enslave(&mut rtnl, link.clone(), bridge, attempt)?;
    vlans.map_or(Ok(()), |vlans| set_vlans(&mut rtnl, &link, vlans))
}

/// Makes an interface a port of a bridge.
fn enslave(rtnl: &mut Rtnl, link: Link, bridge: &str, attempt: String) -> Result<(), HostError> {
    let to = require_bridge(rtnl, bridge, &attempt)?;
    match link.master {
        Some(master) if master == to.index => {}
        None => settle(|| rtnl.set_master(link.index, Some(to.index), &attempt))?,
        Some(master) => {
            let master = rtnl.link(master)?.name;
            return Err(HostError::InterfaceHasMaster { attempt, interface: link.name, master });
        }
    }
    let found = if rtnl.link(link.index)?.master == Some(to.index) { PORT } else { NO_PORT };
    verify(&attempt, &PORT, &found)
}

/// Returns the Linux bridge with this name.
fn require_bridge(rtnl: &mut Rtnl, name: &str, attempt: &str) -> Result<Link, HostError> {
    let found = rtnl.link_by_name(name)?;
    found
        .filter(|link| link.name == name && link.kind_name.as_deref() == Some(BRIDGE))
        .ok_or_else(|| HostError::NoLinuxBridge { attempt: attempt.to_owned(), bridge: name.to_owned() })
}

/// Gives a port these VLANs and no others.
fn set_vlans(rtnl: &mut Rtnl, port: &Link, vlans: &[BridgeVlan]) -> Result<(), HostError> {
    let attempt = format!("set the VLANs of bridge port {}", port.name);
    let found = read_vlans(rtnl, port.index)?;
    let is_called = |vlan: &BridgeVlan| vlans.iter().any(|wanted| wanted.id == vlan.id);
    let removed: Vec<_> = found.iter().filter(|vlan| !is_called(vlan)).copied().collect();
    let mut added: Vec<_> = vlans.iter().filter(|vlan| !found.contains(vlan)).copied().collect();
    added.sort();
    // The native VLAN of the port changes only once: frames without a tag never get into another VLAN.
    if !removed.is_empty() {
        rtnl.remove_port_vlans(port.index, &removed, &attempt)?;
    }
    if !added.is_empty() {
        rtnl.add_port_vlans(port.index, &added, &attempt)?;
    }
    let mut expected = vlans.to_vec();
    expected.sort();
    verify(&attempt, &describe(&expected), &describe(&read_vlans(rtnl, port.index)?))
}

/// Reads the VLANs of a port, by their IDs.
pub(super) fn read_vlans(rtnl: &mut Rtnl, index: u32) -> Result<Vec<BridgeVlan>, HostError> {
    let all = read_stable(|| rtnl.port_vlans())?;
    let of_port = all.into_iter().filter(|port| port.index == index);
    Ok(of_port.flat_map(|port| port.vlans).collect())
}

/// Describes VLANs as bridge(8) does.
fn describe(vlans: &[BridgeVlan]) -> String {
    let describe = |vlan: &BridgeVlan| {
        let native = if vlan.is_native { " pvid" } else { "" };
        let untagged = if vlan.is_untagged { " untagged" } else { "" };
        format!("{}{native}{untagged}", vlan.id)
    };
    if vlans.is_empty() {
        "no VLAN".to_owned()
    } else {
        vlans.iter().map(describe).collect::<Vec<_>>().join(", ")
    }
}

/// Takes a representor out of a bridge, if it is a port of it.
pub(super) fn detach(root: &HostRoot, representor: &Representor, bridge: &str) -> Result<(), HostError> {
    let Some(link) = representor::find(root, representor)? else { return Ok(()) };
    release(&mut Rtnl::open()?, &link, bridge, &format!("detach {representor} from Linux bridge {bridge}"))
}

/// Takes an interface out of a bridge, if it is a port of it.
fn release(rtnl: &mut Rtnl, link: &Link, bridge: &str, attempt: &str) -> Result<(), HostError> {
    let of = rtnl.link_by_name(bridge)?.filter(|of| link.master == Some(of.index));
    let Some(of) = of else { return Ok(()) };
    settle(|| rtnl.set_master(link.index, None, attempt))?;
    let found = if rtnl.link(link.index)?.master == Some(of.index) { PORT } else { NO_PORT };
    verify(attempt, &NO_PORT, &found)
}

#[cfg(test)]
#[path = "bridge_port/tests.rs"]
mod tests;
