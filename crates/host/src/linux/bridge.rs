//! Linux bridges among the interfaces of the machine.

use std::path::PathBuf;

use vfleet_plan::{LinuxBridgeFacts, LinuxPortFacts, bridge_port};

use super::netlink::invalid_answer;
use super::netlink::rtnl::Link;
use super::root::HostRoot;
use super::sysfs;
use crate::HostError;

/// Returns the Linux bridges among all interfaces of the machine, sorted by name. `accepts_ra` is [`accepts_ra`].
pub(super) fn list<'a>(
    links: &(impl Iterator<Item = &'a Link> + Clone),
    accepts_ra: impl Fn(&str) -> Result<bool, HostError>,
) -> Result<Vec<LinuxBridgeFacts>, HostError> {
    let bridges = links.clone().filter(|link| link.bridge.is_some());
    let read = |bridge: &Link| {
        let facts = to_facts(bridge, links.clone()).ok_or_else(|| incomplete(&bridge.name))?;
        Ok(LinuxBridgeFacts { accepts_ra: accepts_ra(&bridge.name)?, ..facts })
    };
    let mut found = bridges.map(read).collect::<Result<Vec<_>, HostError>>()?;
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Returns whether the kernel gives the interface addresses and routes from IPv6 router advertisements. A kernel
/// without IPv6 does not.
pub(super) fn accepts_ra(root: &HostRoot, name: &str) -> Result<bool, HostError> {
    let number = |text: &str| text.parse::<i32>().ok();
    let found = sysfs::read_if_exists(&accept_ra(root, name), "a number", number)?;
    Ok(found.is_some_and(|number| number != 0))
}

/// Makes the interface ignore IPv6 router advertisements. rtnetlink cannot express it.
pub(super) fn refuse_ra(root: &HostRoot, name: &str) -> Result<(), HostError> {
    if accepts_ra(root, name)? { sysfs::write(&accept_ra(root, name), "0") } else { Ok(()) }
}

fn accept_ra(root: &HostRoot, name: &str) -> PathBuf {
    root.proc(&format!("sys/net/ipv6/conf/{name}/accept_ra"))
}

/// Returns the error of a bridge without an attribute that all kernels report.
fn incomplete(name: &str) -> HostError {
    invalid_answer(&format!("read Linux bridge {name}"))
}

/// Returns the facts of a bridge; `None` if the kernel did not report an attribute that they need.
fn to_facts<'a>(bridge: &Link, links: impl Iterator<Item = &'a Link>) -> Option<LinuxBridgeFacts> {
    let info = bridge.bridge?;
    let mut ports: Vec<_> = ports_of(bridge.index, links).map(port_facts).collect();
    ports.sort_by(|one, other| one.name.cmp(&other.name));
    Some(LinuxBridgeFacts {
        name: bridge.name.clone(),
        alias: bridge.alias.clone(),
        group: bridge.group?,
        vlan_filtering: info.vlan_filtering?,
        vlan_protocol: info.vlan_protocol,
        mtu: bridge.mtu,
        admin_up: bridge.is_up,
        accepts_ra: false,
        ports,
    })
}

/// Returns the interfaces that are ports of the bridge with this index.
pub(super) fn ports_of<'a>(
    bridge: u32,
    links: impl Iterator<Item = &'a Link>,
) -> impl Iterator<Item = &'a Link> {
    links.filter(move |link| link.master == Some(bridge))
}

fn port_facts(port: &Link) -> LinuxPortFacts {
    let settings = port.port.iter().flat_map(|port| &port.settings);
    let settings = settings
        .filter_map(|(name, number)| Some(((*name).to_owned(), bridge_port::format_value(name, *number)?)));
    LinuxPortFacts { name: port.name.clone(), settings: settings.collect() }
}
