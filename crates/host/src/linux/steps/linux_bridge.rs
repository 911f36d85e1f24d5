//! Steps that create, configure and remove Linux bridges.
//!
//! The kernel sets the device group of a bridge when it creates it, and the alias only afterwards: a bridge without an
//! alias in [`LinuxBridgeFacts::NEW_GROUP`] was created by a step that was interrupted.

use vfleet_api::PciAddress;
use vfleet_api::bridge::BridgeVlanProtocol;
use vfleet_plan::{LinuxBridgeFacts, LinuxBridgeState};

use super::verify;
use crate::HostError;
use crate::linux::bridge::{self, ports_of};
use crate::linux::netlink::rtnl::{BRIDGE, BridgeChange, Link, Rtnl};
use crate::linux::root::HostRoot;
use crate::linux::stable_read::read_stable;

/// Device group of a bridge that is configured.
const DEFAULT_GROUP: u32 = 0;

/// Owner of an interface that has the name of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BridgeOwner {
    /// Bridge with the expected alias.
    Ours,
    /// Bridge that an interrupted step created.
    Begun,
    /// Other interface, with a description.
    Other(String),
}

impl BridgeOwner {
    fn of(link: &Link, name: &str, alias: &str) -> Self {
        let kind = link.kind_name.as_deref();
        match link.alias.as_deref() {
            _ if link.name != name => Self::Other(format!("another name of interface {}", link.name)),
            _ if kind != Some(BRIDGE) => {
                Self::Other(format!("an interface of kind {}", kind.unwrap_or("none")))
            }
            Some(found) if found == alias => Self::Ours,
            None if link.group == Some(LinuxBridgeFacts::NEW_GROUP) => Self::Begun,
            None => Self::Other("a bridge without an alias".to_owned()),
            Some(found) => Self::Other(format!("a bridge with the alias {found:?}")),
        }
    }
}

fn not_ours(attempt: &str, name: &str, found: String) -> HostError {
    HostError::LinuxBridgeNotOurs { attempt: attempt.to_owned(), bridge: name.to_owned(), found }
}

/// Creates a bridge with this alias. A bridge that an interrupted step created gets the alias.
pub(super) fn create(name: &str, alias: &str, attempt: &str) -> Result<(), HostError> {
    let mut rtnl = Rtnl::open()?;
    if rtnl.link_by_name(name)?.is_none() {
        rtnl.create_bridge(name, LinuxBridgeFacts::NEW_GROUP, attempt)?;
    }
    let link = rtnl.link_by_name(name)?.ok_or_else(|| not_found(name, attempt))?;
    match BridgeOwner::of(&link, name, alias) {
        BridgeOwner::Ours => return Ok(()),
        BridgeOwner::Begun => rtnl.set_alias(link.index, alias, attempt)?,
        BridgeOwner::Other(found) => return Err(not_ours(attempt, name, found)),
    }
    find_ours(&mut rtnl, name, alias, attempt).map(drop)
}

/// Sets VLAN filtering, VLAN protocol and MTU of our bridge of a PF, and sets it up without router advertisements.
pub(super) fn set(
    root: &HostRoot,
    pf: PciAddress,
    name: &str,
    settings: LinuxBridgeState,
    attempt: &str,
) -> Result<(), HostError> {
    let mut rtnl = Rtnl::open()?;
    let alias = LinuxBridgeFacts::alias_of(pf);
    let link = find_ours(&mut rtnl, name, &alias, attempt)?;
    let expected = describe_settings(settings);
    if expected == describe(root, &link)? {
        return Ok(());
    }
    bridge::refuse_ra(root, name)?;
    rtnl.set_bridge(link.index, &changes(&link, settings), attempt)?;
    // An MTU that is too low for IPv6 removes its settings. With a higher one they have the defaults again.
    bridge::refuse_ra(root, name)?;
    verify(attempt, &expected, &describe(root, &find_ours(&mut rtnl, name, &alias, attempt)?)?)
}

/// Returns the values that differ. A kernel without VLAN filtering refuses even its current value.
fn changes(link: &Link, settings: LinuxBridgeState) -> BridgeChange {
    let found = link.bridge.unwrap_or_default();
    let LinuxBridgeState { vlan_filtering, vlan_protocol, mtu } = settings;
    BridgeChange {
        vlan_filtering: Some(vlan_filtering).filter(|_| found.vlan_filtering != Some(vlan_filtering)),
        vlan_protocol: Some(vlan_protocol).filter(|_| found.vlan_protocol != Some(vlan_protocol)),
        mtu: Some(mtu).filter(|_| link.mtu != mtu),
        group: Some(DEFAULT_GROUP).filter(|_| link.group != Some(DEFAULT_GROUP)),
    }
}

/// Describes the result of [`set`].
fn describe_settings(settings: LinuxBridgeState) -> String {
    let LinuxBridgeState { vlan_filtering, vlan_protocol, mtu } = settings;
    let protocol = vlan_protocol.as_str();
    format_settings(Some(vlan_filtering), Some(protocol), mtu, true, false, Some(DEFAULT_GROUP))
}

/// Describes the settings of a bridge that [`set`] changes.
fn describe(root: &HostRoot, link: &Link) -> Result<String, HostError> {
    let info = link.bridge.unwrap_or_default();
    let protocol = info.vlan_protocol.map(BridgeVlanProtocol::as_str);
    let accepts_ra = bridge::accepts_ra(root, &link.name)?;
    Ok(format_settings(info.vlan_filtering, protocol, link.mtu, link.is_up, accepts_ra, link.group))
}

fn format_settings(
    vlan_filtering: Option<bool>,
    vlan_protocol: Option<&str>,
    mtu: u32,
    is_up: bool,
    accepts_ra: bool,
    group: Option<u32>,
) -> String {
    let filtering = vlan_filtering.map_or("unknown", |on| if on { "on" } else { "off" });
    let protocol = vlan_protocol.unwrap_or("unknown");
    let state = if is_up { "up" } else { "down" };
    let advertisements = if accepts_ra { "on" } else { "off" };
    let group = group.map_or_else(|| "unknown".to_owned(), |group| group.to_string());
    format!(
        "vlan_filtering {filtering}, vlan_protocol {protocol}, mtu {mtu}, {state}, accept_ra {advertisements}, group {group}"
    )
}

/// Removes our bridge, or one that an interrupted step created. A bridge with ports is an error.
pub(super) fn remove(name: &str, alias: &str, attempt: &str) -> Result<(), HostError> {
    let links = read_stable(|| Rtnl::open()?.links())?;
    let Some(link) = links.iter().find(|link| link.name == name) else { return Ok(()) };
    if let BridgeOwner::Other(found) = BridgeOwner::of(link, name, alias) {
        return Err(not_ours(attempt, name, found));
    }
    if let Some(port) = ports_of(link.index, links.iter()).next() {
        return Err(HostError::LinuxBridgeInUse { attempt: attempt.to_owned(), port: port.name.clone() });
    }
    let mut rtnl = Rtnl::open()?;
    rtnl.remove_link(link.index, attempt)?;
    let still_exists = rtnl.link_by_name(name)?.is_some_and(|found| found.index == link.index);
    verify(attempt, &"no bridge", &if still_exists { "the bridge" } else { "no bridge" })
}

/// Returns our bridge with this alias.
pub(super) fn find_ours(rtnl: &mut Rtnl, name: &str, alias: &str, attempt: &str) -> Result<Link, HostError> {
    let link = rtnl.link_by_name(name)?.ok_or_else(|| not_found(name, attempt))?;
    match BridgeOwner::of(&link, name, alias) {
        BridgeOwner::Ours => Ok(link),
        BridgeOwner::Begun => Err(not_ours(attempt, name, "a bridge without an alias".to_owned())),
        BridgeOwner::Other(found) => Err(not_ours(attempt, name, found)),
    }
}

fn not_found(name: &str, attempt: &str) -> HostError {
    HostError::LinuxBridgeNotFound { attempt: attempt.to_owned(), bridge: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::netlink::rtnl::BridgeInfo;

    const ALIAS: &str = "vfleet bridge of 0000:01:00.0";

    fn bridge(alias: Option<&str>, group: u32) -> Link {
        Link {
            name: "br0".to_owned(),
            kind_name: Some("bridge".to_owned()),
            alias: alias.map(str::to_owned),
            group: Some(group),
            bridge: Some(BridgeInfo::default()),
            ..Link::plain(7)
        }
    }

    #[test]
    fn only_a_bridge_with_the_alias_is_ours() {
        let owner = |link: &Link| BridgeOwner::of(link, "br0", ALIAS);
        for group in [0, LinuxBridgeFacts::NEW_GROUP] {
            assert_eq!(owner(&bridge(Some(ALIAS), group)), BridgeOwner::Ours);
        }
        assert_eq!(owner(&bridge(None, LinuxBridgeFacts::NEW_GROUP)), BridgeOwner::Begun);
        let others = [
            (bridge(None, 0), "a bridge without an alias"),
            (bridge(Some("lab"), LinuxBridgeFacts::NEW_GROUP), "a bridge with the alias \"lab\""),
            (
                Link { kind_name: Some("bond".to_owned()), ..bridge(Some(ALIAS), 0) },
                "an interface of kind bond",
            ),
            (Link { kind_name: None, ..bridge(Some(ALIAS), 0) }, "an interface of kind none"),
            (Link { name: "eth0".to_owned(), ..bridge(Some(ALIAS), 0) }, "another name of interface eth0"),
        ];
        for (link, text) in others {
            assert_eq!(owner(&link), BridgeOwner::Other(text.to_owned()));
        }
    }
}
