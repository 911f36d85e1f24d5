//! The machine's network as a whole: its interfaces, and what the node itself uses them for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use vfleet_plan::HostUse;

use super::netlink::rtnl::{Address, Link, Rtnl};
use crate::HostError;

/// What software switches are made by whose interfaces do not say which of them belong together.
const OPEN_VSWITCH: &str = "openvswitch";

/// Addresses by which others reach the node: the interfaces that carry them are in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeAddresses {
    /// These.
    Known(Vec<IpAddr>),
    /// Nobody said which: any that means something beyond the next wire may be one.
    AnyGlobal,
}

impl NodeAddresses {
    pub(super) fn have(&self, address: &Address) -> bool {
        match self {
            Self::Known(known) => address.ip.is_some_and(|ip| known.contains(&ip)),
            Self::AnyGlobal => address.is_global,
        }
    }
}

/// All interfaces of the host's own network namespace.
#[derive(Debug)]
pub(super) struct Network {
    links: BTreeMap<u32, Link>,
    uses: BTreeMap<u32, HostUse>,
}

impl Network {
    /// As it is now.
    pub(super) fn read(node_addresses: &NodeAddresses) -> Result<Self, HostError> {
        let mut rtnl = Rtnl::open()?;
        let addresses = rtnl.addresses()?.into_iter();
        let carrying = addresses.filter(|address| node_addresses.have(address)).map(|address| address.index);
        let routes = rtnl.routes()?.into_iter().filter(|route| route.is_default);
        let links = rtnl.links()?.into_iter().map(|link| (link.index, link)).collect();
        Ok(Self::new(links, routes.flat_map(|route| route.interfaces).collect(), carrying.collect()))
    }

    fn new(links: BTreeMap<u32, Link>, routed: BTreeSet<u32>, carrying: BTreeSet<u32>) -> Self {
        let below =
            |indices, host_use| below(&links, indices).into_iter().map(move |index| (index, host_use));
        let mut uses: BTreeMap<u32, HostUse> = below(carrying, HostUse::NodeAddress).collect();
        uses.extend(below(routed, HostUse::DefaultRoute));
        Self { links, uses }
    }

    /// The interface with this index.
    pub(super) fn link(&self, index: u32) -> Option<&Link> {
        self.links.get(&index)
    }

    /// All interfaces.
    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// What the node itself uses the interface for.
    pub(super) fn host_use(&self, index: u32) -> Option<HostUse> {
        self.uses.get(&index).copied()
    }
}

/// These interfaces and all that their traffic goes through.
fn below(links: &BTreeMap<u32, Link>, indices: BTreeSet<u32>) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut to_visit: Vec<u32> = indices.into_iter().collect();
    while let Some(index) = to_visit.pop() {
        if found.insert(index) {
            to_visit.extend(directly_below(links, index));
        }
    }
    found
}

fn directly_below(links: &BTreeMap<u32, Link>, index: u32) -> Vec<u32> {
    let Some(upper) = links.get(&index) else { return Vec::new() };
    let is_open_vswitch = |link: &Link| link.made_by.as_deref() == Some(OPEN_VSWITCH);
    let is_part = |link: &Link| match link.master.and_then(|master| links.get(&master)) {
        // An address is on a bridge's own port, and only Open vSwitch itself knows which cards that leads to: all.
        Some(master) => master.index == index || (is_open_vswitch(master) && is_open_vswitch(upper)),
        None => false,
    };
    let parts = links.values().filter(|link| is_part(link)).map(|link| link.index);
    parts.chain(upper.lower).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn link(index: u32, made_by: Option<&str>, master: Option<u32>, lower: Option<u32>) -> (u32, Link) {
        (index, Link { made_by: made_by.map(str::to_owned), master, lower, ..Link::plain(index) })
    }

    fn used(links: impl IntoIterator<Item = (u32, Link)>, routed: u32) -> Vec<u32> {
        let network = Network::new(links.into_iter().collect(), [routed].into(), BTreeSet::new());
        network.uses.into_keys().collect()
    }

    #[test]
    fn follows_a_vlan_on_a_bond_in_a_bridge() {
        let links = [
            link(2, None, Some(4), None),
            link(3, None, Some(4), None),
            link(4, Some("bond"), None, None),
            link(5, Some("vlan"), Some(6), Some(4)),
            link(6, Some("bridge"), None, None),
            link(7, None, None, None),
            link(8, Some("veth"), Some(6), None),
        ];
        assert_eq!(used(links, 6), [2, 3, 4, 5, 6, 8]);
    }

    #[test]
    fn an_address_behind_open_vswitch_may_use_any_of_its_cards() {
        let links = [
            link(2, None, Some(3), None),
            link(3, Some("openvswitch"), None, None),
            link(4, Some("openvswitch"), None, None),
            link(5, None, None, None),
        ];
        assert_eq!(used(links, 4), [2, 4]);
    }

    #[test]
    fn a_default_route_says_more_than_an_address() {
        let links = [link(2, None, None, None), link(3, None, None, None)];
        let network = Network::new(links.into(), [2].into(), [2, 3].into());
        assert_eq!(network.host_use(2), Some(HostUse::DefaultRoute));
        assert_eq!(network.host_use(3), Some(HostUse::NodeAddress));
        assert_eq!(network.host_use(4), None);
    }

    proptest! {
        #[test]
        fn ends_on_any_links(
            links in prop::collection::vec((0_u32..6, prop::option::of(0_u32..6), prop::option::of(0_u32..6)), 0..8)
        ) {
            let links = links.into_iter().map(|(index, master, lower)| link(index, None, master, lower));
            prop_assert!(used(links, 1).contains(&1));
        }
    }
}
