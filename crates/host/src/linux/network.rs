//! The machine's network as a whole: its interfaces, and what the node itself uses them for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use vfleet_plan::HostUse;

use super::netlink::rtnl::{Address, Link, NextHop, Route, Rtnl};
use super::root::HostRoot;
use super::storage::{self, Session};
use crate::HostError;

/// What software switches are made by whose interfaces do not say which of them belong together.
const OPEN_VSWITCH: &str = "openvswitch";

/// Returns the use that an address makes of its interface; the node is known by `node_addresses`.
pub(super) fn use_for(address: &Address, node_addresses: &[IpAddr]) -> Option<HostUse> {
    let is_the_nodes = address.ip.is_some_and(|ip| node_addresses.contains(&ip));
    let other = address.is_global.then_some(HostUse::Address);
    if is_the_nodes { Some(HostUse::NodeAddress) } else { other }
}

/// All interfaces of the host's own network namespace.
#[derive(Debug)]
pub(super) struct Network {
    links: BTreeMap<u32, Link>,
    uses: BTreeMap<u32, HostUse>,
    is_complete: bool,
}

impl Network {
    /// As it is now.
    pub(super) fn read(root: &HostRoot, node_addresses: &[IpAddr]) -> Result<Self, HostError> {
        let mut rtnl = Rtnl::open()?;
        let addresses = rtnl.addresses()?;
        let routes: Vec<Route> = rtnl.routes()?.into_iter().filter(|route| route.is_default).collect();
        let by_id = routes.iter().any(|route| route.next_hop.is_some());
        let hops = if by_id { rtnl.next_hops()? } else { Vec::new() };
        let links: BTreeMap<u32, Link> = rtnl.links()?.into_iter().map(|link| (link.index, link)).collect();
        let mut used = Used::default();
        for address in &addresses {
            used.extend(use_for(address, node_addresses), [address.index]);
        }
        for session in storage::sessions(root)? {
            let interfaces = carriers(&session, &addresses, &links, &mut rtnl)?;
            used.is_complete &= !interfaces.is_empty();
            used.extend(Some(HostUse::Storage), interfaces);
        }
        for route in routes {
            let of_hop = route.next_hop.map(|id| interfaces_of(id, &hops));
            used.is_complete &= of_hop.as_ref().is_none_or(Option::is_some);
            used.extend(Some(HostUse::DefaultRoute), of_hop.flatten().into_iter().flatten());
            used.extend(Some(HostUse::DefaultRoute), route.interfaces);
        }
        Ok(Self::new(links, &used))
    }

    fn new(links: BTreeMap<u32, Link>, found: &Used) -> Self {
        let mut uses = BTreeMap::new();
        // What says most comes last.
        for host_use in [HostUse::Address, HostUse::Storage, HostUse::NodeAddress, HostUse::DefaultRoute] {
            let of_kind = found.interfaces.iter().filter(|(_, found)| *found == host_use);
            let below = below(&links, of_kind.map(|(index, _)| *index).collect());
            uses.extend(below.into_iter().map(|index| (index, host_use)));
        }
        Self { links, uses, is_complete: found.is_complete }
    }

    /// Whether all uses are known. What nobody is seen to use may be in use otherwise.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
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

/// Interfaces that something leads through.
#[derive(Debug)]
struct Used {
    interfaces: Vec<(u32, HostUse)>,
    /// Whether it could be told for all that leads somewhere.
    is_complete: bool,
}

impl Default for Used {
    fn default() -> Self {
        Self { interfaces: Vec::new(), is_complete: true }
    }
}

impl Used {
    fn extend(&mut self, host_use: Option<HostUse>, interfaces: impl IntoIterator<Item = u32>) {
        let used = host_use.into_iter();
        let interfaces = interfaces.into_iter().collect::<Vec<_>>();
        self.interfaces
            .extend(used.flat_map(|host_use| interfaces.iter().map(move |index| (*index, host_use))));
    }
}

/// Returns the interfaces of a session: those with its own address, or that it is bound to, or else those on the way to
/// the server. None when that cannot be told now.
fn carriers(
    session: &Session,
    addresses: &[Address],
    links: &BTreeMap<u32, Link>,
    rtnl: &mut Rtnl,
) -> Result<Vec<u32>, HostError> {
    let mut found = Vec::new();
    if let Some(local) = session.local {
        found.extend(
            addresses.iter().filter(|address| address.ip == Some(local)).map(|address| address.index),
        );
    }
    if let Some(name) = &session.interface {
        found.extend(links.values().filter(|link| link.name == *name).map(|link| link.index));
    }
    match session.server {
        Some(server) if found.is_empty() => rtnl.interfaces_towards(server),
        _ => Ok(found),
    }
}

/// Returns the interfaces of a next hop, or of those that a group consists of; `None` when one of them is not listed.
fn interfaces_of(id: u32, hops: &[NextHop]) -> Option<Vec<u32>> {
    let find = |id: &u32| hops.iter().find(|hop| hop.id == *id);
    let hop = find(&id)?;
    let parts: Vec<&NextHop> = hop.group.iter().map(find).collect::<Option<_>>()?;
    Some(parts.into_iter().chain([hop]).filter_map(|hop| hop.interface).collect())
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
        let used = Used { interfaces: vec![(routed, HostUse::DefaultRoute)], is_complete: true };
        let network = Network::new(links.into_iter().collect(), &used);
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
    fn what_says_most_of_a_use_is_told() {
        use HostUse::{Address, DefaultRoute, NodeAddress, Storage};
        let links = (2..6).map(|index| link(index, None, None, None));
        let interfaces =
            vec![(2, DefaultRoute), (2, Address), (3, NodeAddress), (3, Storage), (4, Storage), (4, Address)];
        let network = Network::new(links.collect(), &Used { interfaces, is_complete: true });
        let uses = [2, 3, 4, 5].map(|index| network.host_use(index));
        assert_eq!(uses, [Some(DefaultRoute), Some(NodeAddress), Some(Storage), None]);
    }

    #[test]
    fn a_group_of_next_hops_leads_through_all_of_them() {
        let hop = |id, interface, group: &[u32]| NextHop { id, interface, group: group.to_vec() };
        let hops = [hop(1, Some(4), &[]), hop(2, Some(5), &[]), hop(3, None, &[1, 2]), hop(4, None, &[1, 9])];
        assert_eq!(interfaces_of(3, &hops), Some(vec![4, 5]));
        assert_eq!(interfaces_of(2, &hops), Some(vec![5]));
        assert_eq!((interfaces_of(4, &hops), interfaces_of(9, &hops)), (None, None), "unknown is not absent");
    }

    #[test]
    fn any_address_beyond_the_link_is_a_use() {
        let of = |is_global, ip: [u8; 4]| {
            use_for(&super::Address { index: 2, is_global, ip: Some(ip.into()) }, &[[10, 0, 0, 1].into()])
        };
        assert_eq!(of(true, [10, 0, 0, 1]), Some(HostUse::NodeAddress));
        assert_eq!(of(false, [10, 0, 0, 1]), Some(HostUse::NodeAddress));
        assert_eq!(of(true, [10, 0, 0, 2]), Some(HostUse::Address));
        assert_eq!(of(false, [169, 254, 0, 2]), None);
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
