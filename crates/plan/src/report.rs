//! Report of a node: host facts => status of the node state.

mod bridges;

pub use bridges::bridges;

use vfleet_api::PciAddress;
use vfleet_api::node_state::{InterfaceExt, VirtualFunction};

use crate::facts::{CardIdentity, HostFacts, LinkFacts, PfFacts, Record, VfFacts, hex};
use crate::prelude::*;
use crate::resources::NicIds;

/// Context of a report, besides host facts.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportContext<'a> {
    /// Last report.
    pub last_reported: &'a [InterfaceExt],
    /// Supported cards by PCI ID; `None` for all.
    pub nic_ids: Option<&'a NicIds>,
}

/// Returns the PFs of a machine as its node state reports them.
///
/// A PF without an interface is left out, since no policy can configure it, and so is an unsupported card. PFs with a
/// record or an earlier report are kept: their interface may be missing only for a moment (a driver reset), and VFs of
/// a card that is not reported would be removed. For the same reason, unknown facts of the identity are reported with
/// their last known value, and a card that cannot be read is reported as before.
pub fn interfaces(facts: &HostFacts, context: &ReportContext<'_>) -> Vec<InterfaceExt> {
    let is_listed = |pf: &PfFacts| context.nic_ids.is_none_or(|ids| ids.lists(pf.vendor, pf.device));
    let read = facts.pfs.iter().filter_map(|pf| {
        let (record, last_report) = (facts.record(pf.address), context.last_report(pf.address));
        let is_usable = pf.link.is_some() || pf.is_lone_vf || last_report.is_some();
        let is_reported = is_usable && is_listed(pf) || record.is_some();
        is_reported.then(|| (pf.address, interface(pf, record, last_report, facts)))
    });
    let unreadable = facts.unreadable.iter().filter_map(|card| {
        let report =
            context.last_report(card.pf).cloned().or_else(|| facts.record(card.pf).map(only_recorded));
        report.map(|report| (card.pf, report))
    });
    let mut cards: Vec<_> = read.chain(unreadable).collect();
    cards.sort_by_key(|(address, _)| *address);
    cards.into_iter().map(|(_, card)| card).collect()
}

impl ReportContext<'_> {
    /// Returns the last report of the card at `address`.
    fn last_report(&self, address: PciAddress) -> Option<&InterfaceExt> {
        self.last_reported.iter().find(|card| card.pci_address.value() == Ok(&address))
    }
}

/// Returns the report of a card that cannot be read and was never reported.
fn only_recorded(record: &Record) -> InterfaceExt {
    let card = InterfaceExt { externally_managed: record.is_external().then_some(true), ..empty(record.pf) };
    identified(card, CardIdentity::recorded(record))
}

/// Returns `card` with this identity.
fn identified(card: InterfaceExt, identity: CardIdentity) -> InterfaceExt {
    let unknown: Vec<_> = identity.unknown().into_iter().map(|fact| fact.as_str().to_owned()).collect();
    InterfaceExt {
        vendor: identity.vendor.value(),
        device_id: identity.device_id.value(),
        name: identity.name.value(),
        alt_names: identity.alt_names.value().filter(|names| !names.is_empty()),
        net_filter: identity.net_filter.value(),
        unknown_facts: Some(unknown).filter(|facts| !facts.is_empty()),
        ..card
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
        unknown_facts: None,
    }
}

fn interface(
    pf: &PfFacts,
    record: Option<&Record>,
    last_report: Option<&InterfaceExt>,
    facts: &HostFacts,
) -> InterfaceExt {
    let link = pf.link.as_ref();
    let recorded = record.map(|record| &record.interface);
    let last = record.map(CardIdentity::recorded).unwrap_or_default();
    let last = last.or_last(last_report.map(CardIdentity::reported).unwrap_or_default());
    let card = InterfaceExt {
        mac: link.and_then(|link| link.mac).map(|mac| mac.to_string()),
        driver: pf.driver.clone(),
        mtu: link.map(|link| link.mtu.into()),
        num_vfs: Some(i64::try_from(pf.vfs.len()).unwrap_or(i64::MAX)).filter(|count| *count > 0),
        link_speed: link.and_then(|link| link.speed).map(|speed| format!("{speed} Mb/s")),
        link_type: link.map(|link| link.kind.as_api().to_owned()).filter(|kind| !kind.is_empty()),
        link_admin_state: link.map(|link| if link.admin_up { "up" } else { "down" }.to_owned()),
        e_switch_mode: pf.eswitch.value().map(|mode| mode.as_str().to_owned()),
        externally_managed: recorded.and_then(|recorded| recorded.externally_managed).filter(|is| *is),
        // 0 would mean that the card supports no VFs, but its firmware may only have disabled them.
        totalvfs: Some(pf.total_vfs.into()).filter(|total| *total > 0),
        numa_node: pf.numa_node.map(Into::into),
        in_use_by: in_use_by(pf.address, link, facts),
        vfs: Some(pf.vfs.iter().map(|vf| virtual_function(vf, facts)).collect::<Vec<_>>())
            .filter(|vfs| !vfs.is_empty()),
        ..empty(pf.address)
    };
    identified(card, CardIdentity::observed(pf).or_last(last))
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
