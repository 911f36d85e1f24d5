//! Which interface stands for a VF on an embedded switch.

use std::collections::{BTreeMap, BTreeSet};

use super::netlink::rtnl::Link;
use super::parse::{self, VfPort};

/// A PF, as far as its representors are concerned.
pub(super) struct Pf<'a> {
    /// Its own interface.
    pub(super) link: &'a Link,
    /// Its number on its PCI device.
    pub(super) function: u32,
    /// The interfaces that its driver made on its PCI function.
    pub(super) own: &'a BTreeSet<u32>,
}

/// Names of representors, by the VF's index. Most drivers make them on the PF's own PCI function; those that do not are
/// found by the switch that they have in common.
pub(super) fn of_vfs<'a>(pf: &Pf<'_>, links: impl Iterator<Item = &'a Link>) -> BTreeMap<u16, String> {
    let mut found: BTreeMap<u16, (bool, String)> = BTreeMap::new();
    for link in links {
        let Some((is_own, vf)) = stands_for(pf, link) else { continue };
        let known = found.entry(vf).or_insert_with(|| (is_own, link.name.clone()));
        if is_own && !known.0 {
            *known = (is_own, link.name.clone());
        }
    }
    found.into_iter().map(|(vf, (_, name))| (vf, name)).collect()
}

/// The VF that an interface stands for, and whether it is on the PF's own PCI function.
fn stands_for(pf: &Pf<'_>, link: &Link) -> Option<(bool, u16)> {
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
        of_vfs(&Pf { link: &links[0], function, own: &own }, links.iter()).into_iter().collect()
    }

    #[test]
    fn takes_those_on_the_pfs_own_function() {
        let links =
            [link(2, "aa", "p1"), link(3, "aa", "pf1vf0"), link(4, "aa", "pf1vf1"), link(5, "aa", "pf1sf0")];
        let expected = [(0, "if3".to_owned()), (1, "if4".to_owned())];
        assert_eq!(representors(0, &[2, 3, 4, 5], &links), expected);
    }

    #[test]
    fn takes_others_on_the_same_switch_with_the_pfs_number() {
        let links =
            [link(2, "aa", "p0"), link(3, "aa", "pf0vf0"), link(4, "aa", "pf1vf1"), link(5, "bb", "pf0vf2")];
        assert_eq!(representors(0, &[2], &links), [(0, "if3".to_owned())]);
    }

    #[test]
    fn its_own_go_first() {
        let links = [link(2, "aa", "p0"), link(3, "aa", "pf0vf0"), link(4, "aa", "pf0vf0")];
        assert_eq!(representors(0, &[2, 4], &links), [(0, "if4".to_owned())]);
    }
}
