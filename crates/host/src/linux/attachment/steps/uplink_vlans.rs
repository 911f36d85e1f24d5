//! Steps that change the VLANs of the uplink of a Linux bridge.

use std::collections::BTreeSet;

use vfleet_plan::cni::facts::BridgeVlan;

use super::bridge_port::read_vlans;
use super::veth::require_on_host;
use crate::HostError;
use crate::linux::netlink::rtnl::Rtnl;
use crate::linux::steps::verify;

/// Adds tagged VLANs to an uplink. Those that it has stay as they are.
pub(super) fn add(uplink: &str, vlans: &BTreeSet<u16>) -> Result<(), HostError> {
    let attempt = format!("add VLANs to uplink {uplink}");
    let mut rtnl = Rtnl::open()?;
    let link = require_on_host(&mut rtnl, uplink)?;
    let added: Vec<_> = find_missing(&mut rtnl, link.index, vlans)?.map(BridgeVlan::tagged).collect();
    if added.is_empty() {
        return Ok(());
    }
    rtnl.add_port_vlans(link.index, &added, &attempt)?;
    let missing: Vec<_> = find_missing(&mut rtnl, link.index, vlans)?.map(|id| id.to_string()).collect();
    verify(&attempt, &"no missing VLAN".to_owned(), &describe_missing(&missing))
}

fn describe_missing(missing: &[String]) -> String {
    if missing.is_empty() { "no missing VLAN".to_owned() } else { format!("missing: {}", missing.join(", ")) }
}

/// Returns the VLANs that a port does not have.
fn find_missing<'v>(
    rtnl: &mut Rtnl,
    index: u32,
    vlans: &'v BTreeSet<u16>,
) -> Result<impl Iterator<Item = u16> + use<'v>, HostError> {
    let found: BTreeSet<u16> = read_vlans(rtnl, index)?.iter().map(|vlan| vlan.id).collect();
    Ok(vlans.iter().copied().filter(move |id| !found.contains(id)))
}

/// Removes VLANs from an uplink. One that is no port of a bridge any more has none.
pub(super) fn remove(uplink: &str, vlans: &BTreeSet<u16>) -> Result<(), HostError> {
    let attempt = format!("remove VLANs from uplink {uplink}");
    let mut rtnl = Rtnl::open()?;
    let Some(link) = rtnl.link_by_name(uplink)? else { return Ok(()) };
    let found = read_vlans(&mut rtnl, link.index)?;
    let removed: Vec<_> = found.into_iter().filter(|vlan| vlans.contains(&vlan.id)).collect();
    if removed.is_empty() {
        return Ok(());
    }
    rtnl.remove_port_vlans(link.index, &removed, &attempt)?;
    let left = read_vlans(&mut rtnl, link.index)?.into_iter().filter(|vlan| vlans.contains(&vlan.id)).count();
    verify(&attempt, &"0 of them".to_owned(), &format!("{left} of them"))
}
