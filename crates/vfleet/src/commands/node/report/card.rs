//! Cards of a machine.

use serde::Serialize;
use vfleet_api::PciAddress;
use vfleet_plan::{EswitchMode, HostFacts, LinkFacts, PfFacts, Record, UnreadableCard, VfFacts};

/// Card that supports SR-IOV.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Card {
    pub(in super::super) pci_address: String,
    pub(in super::super) interface: Option<String>,
    pub(in super::super) driver: Option<String>,
    pub(in super::super) mac: Option<String>,
    pub(in super::super) mtu: Option<u32>,
    pub(in super::super) up: Option<bool>,
    pub(in super::super) eswitch: Option<&'static str>,
    pub(in super::super) total_vfs: u16,
    /// Record of vfleet: `ours`, `external` (externally managed), `being made` (interrupted), or none.
    pub(in super::super) record: Option<&'static str>,
    pub(in super::super) in_use_by: Option<String>,
    /// Error, if the card cannot be read.
    #[serde(rename = "unread")]
    pub(in super::super) read_error: Option<String>,
    pub(in super::super) vfs: Vec<Vf>,
}

/// VF of a card.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Vf {
    pub(in super::super) index: u16,
    pub(in super::super) pci_address: String,
    pub(in super::super) interface: Option<String>,
    pub(in super::super) driver: Option<String>,
    pub(in super::super) mac: Option<String>,
    pub(in super::super) mtu: Option<u32>,
    pub(in super::super) representor: Option<String>,
    /// Policy that configured the VF.
    pub(in super::super) policy: Option<String>,
    pub(in super::super) in_use_by: Option<String>,
}

/// Returns all cards, also those that cannot be read.
pub(super) fn cards(facts: &HostFacts) -> Vec<Card> {
    let read = facts.pfs.iter().map(|pf| card(pf, facts));
    read.chain(facts.unreadable.iter().map(unreadable_card)).collect()
}

fn unreadable_card(unread: &UnreadableCard) -> Card {
    Card {
        pci_address: unread.pf.to_string(),
        read_error: Some(format!("{}: {}", unread.reason, unread.error)),
        ..Card::default()
    }
}

fn card(pf: &PfFacts, facts: &HostFacts) -> Card {
    let record = facts.record(pf.address);
    let link = pf.link.as_ref();
    Card {
        pci_address: pf.address.to_string(),
        interface: name(link),
        driver: pf.driver.clone(),
        mac: link.and_then(|link| link.mac).map(|mac| mac.to_string()),
        mtu: link.map(|link| link.mtu),
        up: link.map(|link| link.admin_up),
        eswitch: pf.eswitch.value().map(EswitchMode::as_str),
        total_vfs: pf.total_vfs,
        record: record.map(record_kind),
        in_use_by: usage(pf.address, link, facts),
        read_error: None,
        vfs: pf.vfs.iter().map(|found| vf(found, record, facts)).collect(),
    }
}

fn record_kind(record: &Record) -> &'static str {
    match (record.is_external(), record.creating_vfs) {
        (true, _) => "external",
        (false, true) => "being made",
        (false, false) => "ours",
    }
}

fn vf(vf: &VfFacts, record: Option<&Record>, facts: &HostFacts) -> Vf {
    let link = vf.link.as_ref();
    let mac = link.and_then(|link| link.mac).or(vf.admin_mac.filter(|mac| mac.is_usable()));
    let groups = record.and_then(|record| record.interface.vf_groups.as_deref()).unwrap_or_default();
    let group = groups.iter().find(|group| {
        let range = group.vf_range.as_ref().and_then(|range| range.value().ok());
        range.is_some_and(|range| range.contains(vf.index))
    });
    Vf {
        index: vf.index,
        pci_address: vf.address.to_string(),
        interface: name(link),
        driver: vf.driver.clone(),
        mac: mac.map(|mac| mac.to_string()),
        mtu: link.map(|link| link.mtu),
        representor: vf.representor.clone(),
        policy: group.and_then(|group| group.policy_name.clone()),
        in_use_by: usage(vf.address, link, facts),
    }
}

fn name(link: Option<&LinkFacts>) -> Option<String> {
    link.map(|link| link.name.clone())
}

fn usage(address: PciAddress, link: Option<&LinkFacts>, facts: &HostFacts) -> Option<String> {
    facts.in_use(address, link).map(|in_use| in_use.to_string())
}
