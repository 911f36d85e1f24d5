//! Network of the machine: its interfaces, and their use by the node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use vfleet_plan::{HostUse, OvsDatabase};

use super::netlink::rtnl::{InterfaceAddress, Link, NextHop, Route, Rtnl};
use super::ovs::connected_interfaces;
use super::root::HostRoot;
use super::storage::{self, StorageSession};
use crate::HostError;

/// Link kind of Open vSwitch, whose interfaces do not show which of them belong to the same bridge.
const OPEN_VSWITCH: &str = "openvswitch";
/// Link kind of one end of a veth pair.
const VETH: &str = "veth";

/// Returns the use of an interface that carries `address`, if the node has the addresses `node_addresses`.
pub(super) fn address_use(address: &InterfaceAddress, node_addresses: &[IpAddr]) -> Option<HostUse> {
    let is_node_address = address.ip.is_some_and(|ip| node_addresses.contains(&ip));
    let other = address.is_global.then_some(HostUse::Address);
    if is_node_address { Some(HostUse::NodeAddress) } else { other }
}

/// Interfaces in the network namespace of the host, and their uses.
#[derive(Debug)]
pub(super) struct Network {
    links: BTreeMap<u32, Link>,
    uses: BTreeMap<u32, HostUse>,
    /// Uses of interfaces that may be below used ones.
    possible_uses: BTreeMap<u32, HostUse>,
    is_complete: bool,
}

impl Network {
    /// Reads all interfaces, and their uses. `ovs` tells which interfaces of Open vSwitch exchange packets; `None` if that
    /// is not known.
    pub(super) fn read(
        root: &HostRoot,
        node_addresses: &[IpAddr],
        ovs: Option<&OvsDatabase>,
    ) -> Result<Self, HostError> {
        let mut rtnl = Rtnl::open()?;
        let addresses = rtnl.addresses()?;
        let routes: Vec<Route> = rtnl.routes()?.into_iter().filter(|route| route.is_default).collect();
        let has_hop_ids = routes.iter().any(|route| route.next_hop.is_some());
        let hops = if has_hop_ids { rtnl.next_hops()? } else { Vec::new() };
        let links: BTreeMap<u32, Link> = rtnl.links()?.into_iter().map(|link| (link.index, link)).collect();
        let mut used = UsedInterfaces::default();
        for address in &addresses {
            used.add(address_use(address, node_addresses), [address.index]);
        }
        for session in storage::read_sessions(root)? {
            let interfaces = session_interfaces(&session, &addresses, &links, &mut rtnl)?;
            used.is_complete &= !interfaces.is_empty();
            used.add(Some(HostUse::Storage), interfaces);
        }
        for route in routes {
            let of_hop = route.next_hop.map(|id| next_hop_interfaces(id, &hops));
            used.is_complete &= of_hop.as_ref().is_none_or(Option::is_some);
            used.add(Some(HostUse::DefaultRoute), of_hop.flatten().into_iter().flatten());
            used.add(Some(HostUse::DefaultRoute), route.interfaces);
        }
        Ok(Self::new(links, &used, ovs))
    }

    fn new(links: BTreeMap<u32, Link>, used: &UsedInterfaces, ovs: Option<&OvsDatabase>) -> Self {
        let find_uses = |membership| {
            let mut by_index = BTreeMap::new();
            // The most important use comes last, because later uses replace earlier ones.
            for host_use in [HostUse::Address, HostUse::Storage, HostUse::NodeAddress, HostUse::DefaultRoute]
            {
                let of_kind = used.interfaces.iter().filter(|(_, found)| *found == host_use);
                let lower = with_lower_links(&links, of_kind.map(|(index, _)| *index).collect(), membership);
                by_index.extend(lower.into_iter().map(|index| (index, host_use)));
            }
            by_index
        };
        let certain_uses = find_uses(Membership { ovs, otherwise: false });
        let mut possible_uses = find_uses(Membership { ovs, otherwise: true });
        possible_uses.retain(|index, _| !certain_uses.contains_key(index));
        Self { links, uses: certain_uses, possible_uses, is_complete: used.is_complete }
    }

    /// Returns whether all uses are known. If not, an interface without a use may be in use.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the interface with this index.
    pub(super) fn link(&self, index: u32) -> Option<&Link> {
        self.links.get(&index)
    }

    /// Returns all interfaces.
    pub(super) fn links(&self) -> impl Iterator<Item = &Link> + Clone {
        self.links.values()
    }

    /// Returns the use of an interface by the node.
    pub(super) fn host_use(&self, index: u32) -> Option<HostUse> {
        self.uses.get(&index).copied()
    }

    /// Returns the use of an interface that may be a member of a used bridge of Open vSwitch.
    pub(super) fn possible_use(&self, index: u32) -> Option<HostUse> {
        self.possible_uses.get(&index).copied()
    }
}

/// Interfaces that the node uses directly.
#[derive(Debug)]
struct UsedInterfaces {
    interfaces: Vec<(u32, HostUse)>,
    /// The interfaces of all routes and storage sessions are known.
    is_complete: bool,
}

impl Default for UsedInterfaces {
    fn default() -> Self {
        Self { interfaces: Vec::new(), is_complete: true }
    }
}

impl UsedInterfaces {
    fn add(&mut self, host_use: Option<HostUse>, interfaces: impl IntoIterator<Item = u32>) {
        let used = host_use.into_iter();
        let interfaces = interfaces.into_iter().collect::<Vec<_>>();
        self.interfaces
            .extend(used.flat_map(|host_use| interfaces.iter().map(move |index| (*index, host_use))));
    }
}

/// Returns the interfaces of a storage session: those that carry its local address or that it is bound to, else those
/// of the route to the server. Returns no interface if they are not known now.
fn session_interfaces(
    session: &StorageSession,
    addresses: &[InterfaceAddress],
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
        Some(server) if found.is_empty() => rtnl.interfaces_of_route_to(server),
        _ => Ok(found),
    }
}

/// Returns the interfaces of a next hop, or of the members of a next hop group; `None` if one of them is not listed.
fn next_hop_interfaces(id: u32, hops: &[NextHop]) -> Option<Vec<u32>> {
    let find = |id: &u32| hops.iter().find(|hop| hop.id == *id);
    let hop = find(&id)?;
    let members: Vec<&NextHop> = hop.group.iter().map(find).collect::<Option<_>>()?;
    Some(members.into_iter().chain([hop]).filter_map(|hop| hop.interface).collect())
}

/// Source of the members of Open vSwitch bridges.
#[derive(Clone, Copy, Debug)]
struct Membership<'a> {
    /// Content of the database; `None` if it is not known now.
    ovs: Option<&'a OvsDatabase>,
    /// Answer for an interface if the database is not known, or does not have the bridge.
    otherwise: bool,
}

impl Membership<'_> {
    /// Returns the members of the Open vSwitch bridge of this interface, and of bridges connected to it, which only
    /// Open vSwitch knows.
    fn members<'l>(
        &self,
        links: &'l BTreeMap<u32, Link>,
        interface: &Link,
    ) -> impl Iterator<Item = u32> + use<'l> {
        let connected = self.ovs.and_then(|ovs| connected_interfaces(ovs, &interface.name));
        let connected = connected.map(|names| names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>());
        let otherwise = self.otherwise;
        let is_member = move |link: &&Link| {
            let master = link.master.and_then(|master| links.get(&master));
            master.is_some_and(is_open_vswitch)
                && connected.as_ref().map_or(otherwise, |names| names.contains(&link.name))
        };
        links.values().filter(is_member).map(|link| link.index)
    }
}

/// Returns these interfaces and all interfaces below them (members of bonds and bridges, parents of VLANs), also below
/// bridges that veth pairs connect.
fn with_lower_links(
    links: &BTreeMap<u32, Link>,
    indexes: BTreeSet<u32>,
    membership: Membership<'_>,
) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut to_visit: Vec<u32> = indexes.into_iter().collect();
    while let Some(index) = to_visit.pop() {
        if found.insert(index) {
            to_visit.extend(direct_lower_links(links, index, membership));
        }
    }
    found
}

fn direct_lower_links(links: &BTreeMap<u32, Link>, index: u32, membership: Membership<'_>) -> Vec<u32> {
    let Some(upper) = links.get(&index) else { return Vec::new() };
    let mut lower: Vec<u32> = upper.lower.into_iter().collect();
    lower.extend(links.values().filter(|link| link.master == Some(index)).map(|link| link.index));
    if is_open_vswitch(upper) {
        lower.extend(membership.members(links, upper));
    }
    // What is sent to one end of a veth pair arrives in the bridge of the other end.
    let peer = upper.lower.filter(|_| upper.kind_name.as_deref() == Some(VETH));
    let peer = peer.and_then(|peer| links.get(&peer));
    if let Some((peer, bridge)) = peer.and_then(|peer| Some((peer, links.get(&peer.master?)?))) {
        if is_open_vswitch(bridge) {
            lower.extend(membership.members(links, peer));
        } else {
            lower.push(bridge.index);
        }
    }
    lower
}

fn is_open_vswitch(link: &Link) -> bool {
    link.kind_name.as_deref() == Some(OPEN_VSWITCH)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vfleet_plan::{OvsBridgeFacts, OvsInterfaceFacts, OvsPortFacts};

    use super::*;

    fn link(index: u32, kind_name: Option<&str>, master: Option<u32>, lower: Option<u32>) -> (u32, Link) {
        (index, Link { kind_name: kind_name.map(str::to_owned), master, lower, ..Link::plain(index) })
    }

    fn network(
        links: impl IntoIterator<Item = (u32, Link)>,
        routed: u32,
        ovs: Option<&OvsDatabase>,
    ) -> Network {
        let used = UsedInterfaces { interfaces: vec![(routed, HostUse::DefaultRoute)], is_complete: true };
        Network::new(links.into_iter().collect(), &used, ovs)
    }

    fn used(links: impl IntoIterator<Item = (u32, Link)>, routed: u32) -> Vec<u32> {
        network(links, routed, None).uses.into_keys().collect()
    }

    fn used_or_possible(
        links: impl IntoIterator<Item = (u32, Link)>,
        routed: u32,
        ovs: &OvsDatabase,
    ) -> [Vec<u32>; 2] {
        let network = network(links, routed, Some(ovs));
        [network.uses, network.possible_uses].map(|uses| uses.into_keys().collect())
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
    fn an_address_on_open_vswitch_may_use_any_of_its_cards() {
        let links = [
            link(2, None, Some(3), None),
            link(3, Some("openvswitch"), None, None),
            link(4, Some("openvswitch"), None, None),
            link(5, None, None, None),
        ];
        let network = network(links, 4, None);
        let route = Some(HostUse::DefaultRoute);
        assert_eq!([2, 3, 4, 5].map(|index| network.host_use(index)), [None, None, route, None]);
        assert_eq!([2, 3, 4, 5].map(|index| network.possible_use(index)), [route, None, None, None]);
    }

    /// Returns a database with bridges that have these interfaces.
    fn database(bridges: &[&[u32]]) -> OvsDatabase {
        let interface =
            |index: &u32| OvsInterfaceFacts { name: format!("if{index}"), ..OvsInterfaceFacts::default() };
        let port = |index: &u32| OvsPortFacts {
            interfaces: vec![interface(index)],
            name: format!("if{index}"),
            ..OvsPortFacts::default()
        };
        let bridge = |(number, ports): (usize, &&[u32])| OvsBridgeFacts {
            uuid: number.to_string(),
            ports: ports.iter().map(port).collect(),
            ..OvsBridgeFacts::default()
        };
        OvsDatabase { bridges: bridges.iter().enumerate().map(bridge).collect(), ..OvsDatabase::default() }
    }

    #[test]
    fn follows_a_veth_pair_between_open_vswitch_bridges() {
        let links = [
            link(2, None, Some(3), None),
            link(3, Some("openvswitch"), None, None),
            link(4, Some("openvswitch"), None, None),
            link(5, Some("veth"), Some(3), Some(6)),
            link(6, Some("veth"), Some(3), Some(5)),
            link(7, None, Some(3), None),
        ];
        let used = |bridges: &[&[u32]]| used_or_possible(links.clone(), 4, &database(bridges));
        assert_eq!(used(&[&[4, 5], &[6, 2], &[7]]), [vec![2, 4, 5, 6], vec![]]);
        assert_eq!(used(&[&[4, 5], &[6], &[2], &[7]]), [vec![4, 5, 6], vec![]]);
        let unknown = "a bridge that is not in the database may have any port";
        assert_eq!(used(&[&[4, 5], &[2]]), [vec![4, 5, 6], vec![2, 7]], "{unknown}");
    }

    #[test]
    fn follows_a_veth_pair_between_linux_bridges() {
        let links = [
            link(2, None, Some(3), None),
            link(3, Some("bridge"), None, None),
            link(4, Some("bridge"), None, None),
            link(5, Some("veth"), Some(4), Some(6)),
            link(6, Some("veth"), Some(3), Some(5)),
            link(7, None, None, None),
        ];
        assert_eq!(used(links, 4), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn the_most_important_use_is_reported() {
        use HostUse::{Address, DefaultRoute, NodeAddress, Storage};
        let links = (2..6).map(|index| link(index, None, None, None));
        let interfaces =
            vec![(2, DefaultRoute), (2, Address), (3, NodeAddress), (3, Storage), (4, Storage), (4, Address)];
        let network = Network::new(links.collect(), &UsedInterfaces { interfaces, is_complete: true }, None);
        let uses = [2, 3, 4, 5].map(|index| network.host_use(index));
        assert_eq!(uses, [Some(DefaultRoute), Some(NodeAddress), Some(Storage), None]);
    }

    #[test]
    fn a_group_of_next_hops_uses_all_their_interfaces() {
        let hop = |id, interface, group: &[u32]| NextHop { id, interface, group: group.to_vec() };
        let hops = [hop(1, Some(4), &[]), hop(2, Some(5), &[]), hop(3, None, &[1, 2]), hop(4, None, &[1, 9])];
        assert_eq!(next_hop_interfaces(3, &hops), Some(vec![4, 5]));
        assert_eq!(next_hop_interfaces(2, &hops), Some(vec![5]));
        assert_eq!(
            (next_hop_interfaces(4, &hops), next_hop_interfaces(9, &hops)),
            (None, None),
            "unknown is not absent"
        );
    }

    #[test]
    fn any_address_that_is_not_link_local_is_a_use() {
        let of = |is_global, ip: [u8; 4]| {
            let (index, prefix_length, is_tentative, is_duplicate) = (2, 24, false, false);
            let ip = Some(ip.into());
            let address =
                super::InterfaceAddress { index, is_global, ip, prefix_length, is_tentative, is_duplicate };
            address_use(&address, &[[10, 0, 0, 1].into()])
        };
        assert_eq!(of(true, [10, 0, 0, 1]), Some(HostUse::NodeAddress));
        assert_eq!(of(false, [10, 0, 0, 1]), Some(HostUse::NodeAddress));
        assert_eq!(of(true, [10, 0, 0, 2]), Some(HostUse::Address));
        assert_eq!(of(false, [169, 254, 0, 2]), None);
    }

    proptest! {
        #[test]
        fn terminates_for_any_links(
            links in prop::collection::vec((0_u32..6, prop::option::of(0_u32..6), prop::option::of(0_u32..6)), 0..8)
        ) {
            let links = links.into_iter().map(|(index, master, lower)| link(index, None, master, lower));
            prop_assert!(used(links, 1).contains(&1));
        }
    }
}
