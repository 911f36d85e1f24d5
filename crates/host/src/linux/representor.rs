//! Representors of VFs on an eswitch.

use std::collections::{BTreeMap, BTreeSet};

use vfleet_api::VfRef;

use super::devlink::{self, DevlinkHandle, DevlinkPort};
use super::netdev;
use super::netlink::rtnl::Link;
use super::parse::{self, VfPort};
use super::root::HostRoot;
use crate::HostError;

/// PF with an eswitch.
pub(super) struct SwitchPf<'a> {
    /// Interface of the PF.
    pub(super) link: &'a Link,
    /// PCI function number.
    pub(super) function: u32,
    /// Indexes of all interfaces on the PCI function of the PF.
    pub(super) own: &'a BTreeSet<u32>,
}

/// Returns the representor of a VF among all interfaces of the machine. The card names it (devlink); for a driver without
/// devlink ports it is found by the name of its port.
pub(super) fn find<'a>(root: &HostRoot, vf: VfRef, links: &'a [Link]) -> Result<Option<&'a Link>, HostError> {
    let ports = devlink::list_ports(&DevlinkHandle::pci(vf.pf))?;
    if let Some(index) = interface_of_port(vf.index, &ports) {
        return Ok(links.iter().find(|link| link.index == index));
    }
    let netdevs = netdev::list(&root.device(vf.pf))?;
    let own = netdevs.own.and_then(|own| links.iter().find(|link| link.index == own.index));
    let Some(link) = own else { return Ok(None) };
    let pf = SwitchPf { link, function: vf.pf.function().into(), own: &netdevs.indexes };
    let name = find_representors(&pf, links.iter()).remove(&vf.index);
    Ok(name.and_then(|name| links.iter().find(|link| link.name == name)))
}

/// Returns the index of the interface of the port of a VF.
pub(super) fn interface_of_port(vf: u16, ports: &[DevlinkPort]) -> Option<u32> {
    ports.iter().find(|port| port.vf == Some(vf))?.interface
}

/// Returns the names of representors by VF index. Most drivers create representors on the PCI function of the PF;
/// others are found by their common switch ID.
pub(super) fn find_representors<'a>(
    pf: &SwitchPf<'_>,
    links: impl Iterator<Item = &'a Link>,
) -> BTreeMap<u16, String> {
    let mut found: BTreeMap<u16, (bool, String)> = BTreeMap::new();
    for link in links {
        let Some((is_own, vf)) = represented_vf(pf, link) else { continue };
        let representor = found.entry(vf).or_insert_with(|| (is_own, link.name.clone()));
        if is_own && !representor.0 {
            *representor = (is_own, link.name.clone());
        }
    }
    found.into_iter().map(|(vf, (_, name))| (vf, name)).collect()
}

/// Returns the VF that an interface represents, and whether the interface is on the PCI function of the PF.
fn represented_vf(pf: &SwitchPf<'_>, link: &Link) -> Option<(bool, u16)> {
    let (switch, port) = link.switch_port.as_ref()?;
    let VfPort { pf: number, vf } = parse::vf_port(port)?;
    if pf.own.contains(&link.index) {
        return Some((true, vf));
    }
    let (own_switch, _) = pf.link.switch_port.as_ref()?;
    (switch == own_switch && number == pf.function).then_some((false, vf))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, switch: &str, port: &str) -> Link {
        Link { switch_port: Some((switch.to_owned(), port.to_owned())), ..Link::plain(index) }
    }

    fn representors(function: u32, own: &[u32], links: &[Link]) -> Vec<(u16, String)> {
        let own = own.iter().copied().collect();
        find_representors(&SwitchPf { link: &links[0], function, own: &own }, links.iter())
            .into_iter()
            .collect()
    }

    #[test]
    fn finds_representors_on_the_function_of_the_pf() {
        let links =
            [link(2, "aa", "p1"), link(3, "aa", "pf1vf0"), link(4, "aa", "pf1vf1"), link(5, "aa", "pf1sf0")];
        let expected = [(0, "if3".to_owned()), (1, "if4".to_owned())];
        assert_eq!(representors(0, &[2, 3, 4, 5], &links), expected);
    }

    #[test]
    fn finds_representors_on_the_same_switch_with_the_number_of_the_pf() {
        let links =
            [link(2, "aa", "p0"), link(3, "aa", "pf0vf0"), link(4, "aa", "pf1vf1"), link(5, "bb", "pf0vf2")];
        assert_eq!(representors(0, &[2], &links), [(0, "if3".to_owned())]);
    }

    #[test]
    fn representors_on_the_function_of_the_pf_take_precedence() {
        let links = [link(2, "aa", "p0"), link(3, "aa", "pf0vf0"), link(4, "aa", "pf0vf0")];
        assert_eq!(representors(0, &[2, 4], &links), [(0, "if4".to_owned())]);
    }
}
