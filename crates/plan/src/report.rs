//! What the node is like: host facts => node state status.

use vfleet_api::PciAddress;
use vfleet_api::node_state::{InterfaceExt, VirtualFunction};

use crate::facts::{HostFacts, LinkFacts, PfFacts, Record, VfFacts};
use crate::prelude::*;
use crate::resources::NicIds;

/// What counts for a report besides the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct View<'a> {
    /// What was reported last.
    pub known: &'a [InterfaceExt],
    /// The kinds of cards that are reported; `None` for all.
    pub narrow: Option<&'a NicIds>,
}

/// The PFs of a machine as its node state reports them. A PF without an interface is left out, since no policy can
/// do anything with it, and one of a kind that is not listed; but not one that is ours. Its interface may be away for a
/// moment (a driver that resets), and a card that is not reported looks like one that no policy selects, whose VFs would
/// be removed. A card that cannot be read now is as it was last seen.
pub fn interfaces(facts: &HostFacts, view: &View<'_>) -> Vec<InterfaceExt> {
    let is_listed = |pf: &PfFacts| view.narrow.is_none_or(|ids| ids.lists(pf.vendor, pf.device));
    let read = facts.pfs.iter().filter_map(|pf| {
        let record = facts.record(pf.address);
        let is_usable = pf.link.is_some() || pf.is_lone_vf;
        (is_usable && is_listed(pf) || record.is_some()).then(|| (pf.address, interface(pf, record, facts)))
    });
    let unread = facts.unread.iter().filter_map(|unread| {
        let known = view.known.iter().find(|card| card.pci_address.value() == Ok(&unread.pf)).cloned();
        let card = known.or_else(|| facts.record(unread.pf).map(only_recorded));
        card.map(|card| (unread.pf, card))
    });
    let mut cards: Vec<_> = read.chain(unread).collect();
    cards.sort_by_key(|(address, _)| *address);
    cards.into_iter().map(|(_, card)| card).collect()
}

/// All that is known of a card that cannot be read, and was never reported.
fn only_recorded(record: &Record) -> InterfaceExt {
    InterfaceExt {
        name: record.interface.name.clone(),
        externally_managed: record.is_external().then_some(true),
        ..empty(record.pf)
    }
}

fn empty(address: PciAddress) -> InterfaceExt {
    InterfaceExt {
        name: None,
        alt_names: None,
        mac: None,
        driver: None,
        pci_address: address.into(),
        vendor: None,
        device_id: None,
        net_filter: None,
        mtu: None,
        num_vfs: None,
        link_speed: None,
        link_type: None,
        link_admin_state: None,
        e_switch_mode: None,
        externally_managed: None,
        totalvfs: None,
        numa_node: None,
        in_use_by: None,
        vfs: None,
        conditions: None,
    }
}

fn interface(pf: &PfFacts, record: Option<&Record>, facts: &HostFacts) -> InterfaceExt {
    let link = pf.link.as_ref();
    let recorded = record.map(|record| &record.interface);
    InterfaceExt {
        name: link
            .map(|link| link.name.clone())
            .or_else(|| recorded.and_then(|recorded| recorded.name.clone())),
        alt_names: link.map(|link| link.alt_names.clone()).filter(|names| !names.is_empty()),
        mac: link.and_then(|link| link.mac).map(|mac| mac.to_string()),
        driver: pf.driver.clone(),
        pci_address: pf.address.into(),
        vendor: Some(hex(pf.vendor)),
        device_id: Some(hex(pf.device)),
        net_filter: pf.net_filter.clone(),
        mtu: link.map(|link| link.mtu.into()),
        num_vfs: Some(i64::try_from(pf.vfs.len()).unwrap_or(i64::MAX)).filter(|count| *count > 0),
        link_speed: link.and_then(|link| link.speed).map(|speed| format!("{speed} Mb/s")),
        link_type: link.map(|link| link.kind.as_api().to_owned()).filter(|kind| !kind.is_empty()),
        link_admin_state: link.map(|link| if link.admin_up { "up" } else { "down" }.to_owned()),
        e_switch_mode: pf.eswitch.map(|mode| mode.as_str().to_owned()),
        externally_managed: recorded.and_then(|recorded| recorded.externally_managed).filter(|is| *is),
        // A card whose firmware shows no VFs now is not one that can have none: nothing is said.
        totalvfs: Some(pf.total_vfs.into()).filter(|total| *total > 0),
        numa_node: pf.numa_node.map(Into::into),
        in_use_by: in_use_by(pf.address, link, facts),
        vfs: Some(pf.vfs.iter().map(|vf| virtual_function(vf, facts)).collect::<Vec<_>>())
            .filter(|vfs| !vfs.is_empty()),
        conditions: None,
    }
}

fn virtual_function(vf: &VfFacts, facts: &HostFacts) -> VirtualFunction {
    let link = vf.link.as_ref();
    VirtualFunction {
        name: link.map(|link| link.name.clone()),
        mac: link
            .and_then(|link| link.mac)
            .or(vf.admin_mac.filter(|mac| mac.is_usable()))
            .map(|mac| mac.to_string()),
        assigned: None,
        driver: vf.driver.clone(),
        pci_address: vf.address.into(),
        vendor: Some(hex(vf.vendor)),
        device_id: Some(hex(vf.device)),
        vlan: None,
        mtu: link.map(|link| link.mtu.into()),
        vf_id: vf.index.into(),
        vdpa_type: vf.vdpa.map(|kind| kind.as_str().to_owned()),
        representor_name: vf.representor.clone(),
        guid: vf.rdma.as_ref().map(|rdma| rdma.node_guid).or(vf.admin_guid).map(|guid| guid.to_string()),
        in_use_by: in_use_by(vf.address, link, facts),
    }
}

fn in_use_by(address: PciAddress, link: Option<&LinkFacts>, facts: &HostFacts) -> Option<String> {
    facts.in_use(address, link).map(|in_use| in_use.to_string())
}

fn hex(id: u16) -> String {
    format!("{id:04x}")
}
