//! Which nodes and PFs a policy selects.

use alloc::collections::BTreeMap;

use vfleet_api::keys::IGNORED_POLICY;
use vfleet_api::node_policy::NicSelector;
use vfleet_api::node_state::{InterfaceExt, UnknownFact};
use vfleet_api::written::Grammar;
use vfleet_api::{Invalid, PciAddress, PfSelector, VfRange, Written};

use super::{NamedPolicy, NodeRule, PfRule, PfVerdict, PolicyFault};
use crate::prelude::*;

/// Why a policy does not select a node with these labels; `None` when it does.
pub fn why_not_node(policy: &NamedPolicy<'_>, labels: &BTreeMap<String, String>) -> Option<NodeRule> {
    if policy.name == IGNORED_POLICY {
        return Some(NodeRule::Ignored);
    }
    let (key, wanted) = missing_label(policy, labels)?;
    Some(NodeRule::Label { key: key.clone(), wanted: wanted.clone(), found: labels.get(key).cloned() })
}

/// Whether a policy selects a node with these labels.
pub fn selects_node(policy: &NamedPolicy<'_>, labels: &BTreeMap<String, String>) -> bool {
    policy.name != IGNORED_POLICY && missing_label(policy, labels).is_none()
}

/// The first label that the policy asks for and that is not among these.
fn missing_label<'a>(
    policy: &NamedPolicy<'a>,
    labels: &BTreeMap<String, String>,
) -> Option<(&'a String, &'a String)> {
    policy.spec.node_selector.iter().find(|(key, wanted)| labels.get(*key) != Some(*wanted))
}

/// Which VFs of a PF a policy names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// The ranges that it gives, as they are written.
    pub(super) ranges: Vec<VfRange>,
    /// Whether it also means all that it makes.
    pub(super) all: bool,
}

/// Returns the VFs of `card` that the policy names. Every field of the selector that is given must match. A field that
/// cannot be read is a fault only where no other field says that another card is meant, and so is a fact that is unknown.
pub(super) fn select(policy: &NamedPolicy<'_>, card: &InterfaceExt) -> Result<Selection, PfVerdict> {
    let nic = &policy.spec.nic_selector;
    if is_empty(nic) {
        return Err(PfRule::EmptySelector.into());
    }
    let mut fault = None;
    let mut undecided = Vec::new();
    for field in FIELDS {
        match field.matches(nic, card) {
            Ok(FieldMatch::Yes) => {}
            Ok(FieldMatch::No) => return Err(field.why_not(nic, card).into()),
            Ok(FieldMatch::Unknown(facts)) => undecided.extend(facts),
            Err(error) => fault = fault.or(Some(error)),
        }
    }
    match fault {
        Some(fault) => Err(fault.into()),
        None if !undecided.is_empty() => Err(PfVerdict::Undecided(undecided)),
        None => Ok(selection(nic, card)),
    }
}

/// Whether `card` is selected for certain: all that is given can be read, and matches.
pub(crate) fn selects(nic: &NicSelector, card: &InterfaceExt) -> bool {
    !is_empty(nic) && FIELDS.iter().all(|field| field.matches(nic, card) == Ok(FieldMatch::Yes))
}

/// Whether nothing is given, so that no card is selected.
pub(crate) fn is_empty(nic: &NicSelector) -> bool {
    FIELDS.iter().all(|field| !field.is_given(nic))
}

/// Whether the selector names each PF that it selects.
pub(crate) fn names_pfs(nic: &NicSelector) -> bool {
    Field::RootDevices.is_given(nic) || Field::PfNames.is_given(nic)
}

/// All that cannot be read, each with its field.
pub(super) fn faults(nic: &NicSelector) -> impl Iterator<Item = (String, PolicyFault)> {
    FIELDS.into_iter().flat_map(|field| field.faults(nic))
}

/// All of a card that decides which policies select it, and which of its VFs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SelectedBy<'a> {
    pci_address: &'a str,
    names: (Option<&'a str>, Option<&'a [String]>),
    kind: (Option<&'a str>, Option<&'a str>),
    net_filter: Option<&'a str>,
    unknown: Option<&'a [String]>,
}

impl<'a> From<&'a InterfaceExt> for SelectedBy<'a> {
    fn from(card: &'a InterfaceExt) -> Self {
        Self {
            pci_address: card.pci_address.text(),
            names: (card.name.as_deref(), card.alt_names.as_deref()),
            kind: (card.vendor.as_deref(), card.device_id.as_deref()),
            net_filter: card.net_filter.as_deref(),
            unknown: card.unknown_facts.as_deref(),
        }
    }
}

/// Answer of one field of a selector to one card.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FieldMatch {
    Yes,
    No,
    /// These facts would decide, and are unknown.
    Unknown(Vec<UnknownFact>),
}

impl From<bool> for FieldMatch {
    fn from(matches: bool) -> Self {
        if matches { Self::Yes } else { Self::No }
    }
}

/// A field of the selector.
#[derive(Clone, Copy, Debug)]
enum Field {
    Vendor,
    DeviceId,
    NetFilter,
    RootDevices,
    PfNames,
}

/// The first that does not match is what people are told.
const FIELDS: [Field; 5] =
    [Field::Vendor, Field::DeviceId, Field::NetFilter, Field::RootDevices, Field::PfNames];

impl Field {
    fn is_given(self, nic: &NicSelector) -> bool {
        match self {
            Self::Vendor => given(nic.vendor.as_deref()).is_some(),
            Self::DeviceId => given(nic.device_id.as_deref()).is_some(),
            Self::NetFilter => given(nic.net_filter.as_deref()).is_some(),
            Self::RootDevices => !addresses(nic).is_empty(),
            Self::PfNames => !names(nic).is_empty(),
        }
    }

    /// What of it cannot be read, and where that stands in a policy.
    fn faults(self, nic: &NicSelector) -> Vec<(String, PolicyFault)> {
        match self {
            Self::Vendor => nic.vendor.as_deref().and_then(|id| id_fault("vendor", id)).into_iter().collect(),
            Self::DeviceId => {
                nic.device_id.as_deref().and_then(|id| id_fault("deviceID", id)).into_iter().collect()
            }
            Self::NetFilter => nic.net_filter.as_deref().and_then(network_fault).into_iter().collect(),
            Self::RootDevices => list_faults("rootDevices", addresses(nic)),
            Self::PfNames => list_faults("pfNames", names(nic)),
        }
    }

    fn matches(self, nic: &NicSelector, card: &InterfaceExt) -> Result<FieldMatch, PolicyFault> {
        if let Some((_, fault)) = self.faults(nic).into_iter().next() {
            return Err(fault);
        }
        if !self.is_given(nic) {
            return Ok(FieldMatch::Yes);
        }
        let unknown: Vec<_> = self.facts().iter().copied().filter(|fact| card.is_unknown(*fact)).collect();
        // Names that are known are not enough: with another one the policy may mean more VFs.
        Ok(if unknown.is_empty() {
            self.matches_known(nic, card).into()
        } else {
            FieldMatch::Unknown(unknown)
        })
    }

    /// Returns the facts that decide the field, besides the PCI address, which is always known.
    const fn facts(self) -> &'static [UnknownFact] {
        match self {
            Self::Vendor => &[UnknownFact::Vendor],
            Self::DeviceId => &[UnknownFact::DeviceId],
            Self::NetFilter => &[UnknownFact::NetFilter],
            Self::RootDevices => &[],
            Self::PfNames => &[UnknownFact::Name, UnknownFact::AltNames],
        }
    }

    /// Returns whether a field that is given matches, where its facts are known.
    fn matches_known(self, nic: &NicSelector, card: &InterfaceExt) -> bool {
        let has_id = |wanted: &Option<String>, found: &Option<String>| {
            let (wanted, found) = (wanted.as_deref().unwrap_or_default(), found.as_deref());
            found.is_some_and(|found| wanted.eq_ignore_ascii_case(found))
        };
        match self {
            Self::Vendor => has_id(&nic.vendor, &card.vendor),
            Self::DeviceId => has_id(&nic.device_id, &card.device_id),
            Self::NetFilter => is_on_network(card, nic.net_filter.as_deref().unwrap_or_default()),
            Self::RootDevices => {
                addresses(nic).iter().any(|address| address.value() == card.pci_address.value())
            }
            Self::PfNames => names(nic)
                .iter()
                .any(|name| name.value().is_ok_and(|selector| has_name(card, &selector.name))),
        }
    }

    /// What a card that does not match is told.
    fn why_not(self, nic: &NicSelector, card: &InterfaceExt) -> PfRule {
        let text = |wanted: &Option<String>| wanted.clone().unwrap_or_default();
        match self {
            Self::Vendor => PfRule::Vendor { wanted: text(&nic.vendor), found: card.vendor.clone() },
            Self::DeviceId => {
                PfRule::DeviceId { wanted: text(&nic.device_id), found: card.device_id.clone() }
            }
            Self::NetFilter => {
                PfRule::NetFilter { wanted: text(&nic.net_filter), found: card.net_filter.clone() }
            }
            Self::RootDevices => PfRule::RootDevices {
                wanted: texts(addresses(nic)),
                found: card.pci_address.text().to_owned(),
            },
            Self::PfNames => {
                let found = card.name.iter().chain(card.alt_names.iter().flatten()).cloned().collect();
                PfRule::PfNames { wanted: texts(names(nic)), found }
            }
        }
    }
}

/// The VFs of a card that is selected.
fn selection(nic: &NicSelector, card: &InterfaceExt) -> Selection {
    let mut selection = Selection { ranges: Vec::new(), all: names(nic).is_empty() };
    let selectors = names(nic).iter().filter_map(|name| name.value().ok());
    for selector in selectors.filter(|selector| has_name(card, &selector.name)) {
        selection.all |= selector.range.is_none();
        selection.ranges.extend(selector.range);
    }
    selection
}

fn addresses(nic: &NicSelector) -> &[Written<PciAddress>] {
    nic.root_devices.as_deref().unwrap_or_default()
}

fn names(nic: &NicSelector) -> &[Written<PfSelector>] {
    nic.pf_names.as_deref().unwrap_or_default()
}

/// Whether it is a vendor's or a device's id.
pub(crate) fn is_pci_id(text: &str) -> bool {
    text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn id_fault(field: &'static str, text: &str) -> Option<(String, PolicyFault)> {
    let expected = "a PCI id of four hexadecimal digits such as 8086";
    (!text.is_empty() && !is_pci_id(text)).then(|| invalid(field, field, Invalid::new(text, expected)))
}

fn network_fault(text: &str) -> Option<(String, PolicyFault)> {
    let expected = "a network such as openstack/NetworkID:<id>";
    let is_fault = !text.is_empty() && network(text).is_none();
    is_fault.then(|| invalid("netFilter", "netFilter", Invalid::new(text, expected)))
}

fn list_faults<T: Grammar>(field: &'static str, list: &[Written<T>]) -> Vec<(String, PolicyFault)> {
    let fault = |(at, written): (usize, &Written<T>)| {
        Some(invalid(field, &format!("{field}[{at}]"), written.value().err()?.clone()))
    };
    list.iter().enumerate().filter_map(fault).collect()
}

fn invalid(field: &'static str, place: &str, invalid: Invalid) -> (String, PolicyFault) {
    (format!("nicSelector.{place}"), PolicyFault::Invalid { field, invalid })
}

/// Whether the PF goes by this name, or has it as an alternative one.
pub(crate) fn has_name(card: &InterfaceExt, name: &str) -> bool {
    card.name.as_deref() == Some(name) || card.alt_names.iter().flatten().any(|other| other == name)
}

/// Whether the card is on this network.
pub(crate) fn is_on_network(card: &InterfaceExt, wanted: &str) -> bool {
    network(wanted).is_some_and(|wanted| card.net_filter.as_deref().and_then(network) == Some(wanted))
}

/// `kind : id`, spaces allowed.
fn network(text: &str) -> Option<(&str, &str)> {
    let (kind, id) = text.split_once(':')?;
    let kind = kind.trim();
    let id = id.split_whitespace().next()?;
    (!kind.is_empty() && !kind.contains(char::is_whitespace)).then_some((kind, id))
}

fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn texts<T: Grammar>(written: &[Written<T>]) -> Vec<String> {
    written.iter().map(|written| written.text().to_owned()).collect()
}
