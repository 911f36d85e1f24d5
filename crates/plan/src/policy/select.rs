//! Selection of nodes and PFs by policies.

use alloc::collections::BTreeMap;

use vfleet_api::keys::IGNORED_POLICY;
use vfleet_api::node_policy::NicSelector;
use vfleet_api::node_state::{InterfaceExt, UnknownFact};
use vfleet_api::parsed::TextFormat;
use vfleet_api::{ParseError, Parsed, PciAddress, PfSelector, VfRange};

use super::{NamedPolicy, NodeMismatch, PfMismatch, PfOutcome, PolicyFault};
use crate::prelude::*;

/// Returns why a policy does not select a node with these labels; `None` if it does.
pub fn find_node_mismatch(
    policy: &NamedPolicy<'_>,
    labels: &BTreeMap<String, String>,
) -> Option<NodeMismatch> {
    if policy.name == IGNORED_POLICY {
        return Some(NodeMismatch::Ignored);
    }
    let (key, expected) = missing_label(policy, labels)?;
    Some(NodeMismatch::Label {
        key: key.clone(),
        expected: expected.clone(),
        found: labels.get(key).cloned(),
    })
}

/// Returns whether a policy selects a node with these labels.
pub fn selects_node(policy: &NamedPolicy<'_>, labels: &BTreeMap<String, String>) -> bool {
    policy.name != IGNORED_POLICY && missing_label(policy, labels).is_none()
}

/// Returns the first label of nodeSelector that `labels` lacks.
fn missing_label<'a>(
    policy: &NamedPolicy<'a>,
    labels: &BTreeMap<String, String>,
) -> Option<(&'a String, &'a String)> {
    policy.spec.node_selector.iter().find(|(key, value)| labels.get(*key) != Some(*value))
}

/// VFs of a PF that a policy selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VfSelection {
    /// Ranges of pfNames, which may overlap.
    pub(super) ranges: Vec<VfRange>,
    /// The policy also selects all VFs of the PF.
    pub(super) all: bool,
}

/// Returns the VFs of `card` that the policy selects. Every field that is set must match. An invalid field or an
/// unknown fact counts only if no other field excludes the card.
pub(super) fn select(policy: &NamedPolicy<'_>, card: &InterfaceExt) -> Result<VfSelection, PfOutcome> {
    let nic = &policy.spec.nic_selector;
    if is_empty(nic) {
        return Err(PfMismatch::EmptySelector.into());
    }
    let mut fault = None;
    let mut undecided = Vec::new();
    for field in FIELDS {
        match field.matches(nic, card) {
            Ok(FieldMatch::Yes) => {}
            Ok(FieldMatch::No) => return Err(field.describe_mismatch(nic, card).into()),
            Ok(FieldMatch::Unknown(facts)) => undecided.extend(facts),
            Err(error) => fault = fault.or(Some(error)),
        }
    }
    match fault {
        Some(fault) => Err(fault.into()),
        None if !undecided.is_empty() => Err(PfOutcome::Undecided(undecided)),
        None => Ok(collect_vfs(nic, card)),
    }
}

/// Returns whether `card` is certainly selected: all fields that are set are valid and match.
pub(crate) fn selects(nic: &NicSelector, card: &InterfaceExt) -> bool {
    !is_empty(nic) && FIELDS.iter().all(|field| field.matches(nic, card) == Ok(FieldMatch::Yes))
}

/// Returns whether no field is set, so that no card is selected.
pub(crate) fn is_empty(nic: &NicSelector) -> bool {
    FIELDS.iter().all(|field| !field.is_set(nic))
}

/// Returns whether the selector names its PFs, by name or PCI address.
pub(crate) fn names_pfs(nic: &NicSelector) -> bool {
    SelectorField::RootDevices.is_set(nic) || SelectorField::PfNames.is_set(nic)
}

/// Returns the values that are invalid, each with its field.
pub(super) fn find_faults(nic: &NicSelector) -> impl Iterator<Item = (String, PolicyFault)> {
    FIELDS.into_iter().flat_map(|field| field.find_faults(nic))
}

/// Facts of a card that decide which policies select it, and which of its VFs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SelectorFacts<'a> {
    pci_address: &'a str,
    names: (Option<&'a str>, Option<&'a [String]>),
    kind: (Option<&'a str>, Option<&'a str>),
    net_filter: Option<&'a str>,
    unknown: Option<&'a [String]>,
}

impl<'a> From<&'a InterfaceExt> for SelectorFacts<'a> {
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

/// Result of matching one field of a selector with a card.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FieldMatch {
    Yes,
    No,
    /// The facts that decide the match are unknown.
    Unknown(Vec<UnknownFact>),
}

impl From<bool> for FieldMatch {
    fn from(matches: bool) -> Self {
        if matches { Self::Yes } else { Self::No }
    }
}

/// Field of nicSelector.
#[derive(Clone, Copy, Debug)]
enum SelectorField {
    Vendor,
    DeviceId,
    NetFilter,
    RootDevices,
    PfNames,
}

/// All fields. The first one that does not match is reported.
const FIELDS: [SelectorField; 5] = [
    SelectorField::Vendor,
    SelectorField::DeviceId,
    SelectorField::NetFilter,
    SelectorField::RootDevices,
    SelectorField::PfNames,
];

impl SelectorField {
    fn is_set(self, nic: &NicSelector) -> bool {
        match self {
            Self::Vendor => non_empty(nic.vendor.as_deref()).is_some(),
            Self::DeviceId => non_empty(nic.device_id.as_deref()).is_some(),
            Self::NetFilter => non_empty(nic.net_filter.as_deref()).is_some(),
            Self::RootDevices => !addresses(nic).is_empty(),
            Self::PfNames => !names(nic).is_empty(),
        }
    }

    /// Returns the invalid values of the field, each with its path in the policy.
    fn find_faults(self, nic: &NicSelector) -> Vec<(String, PolicyFault)> {
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
        if let Some((_, fault)) = self.find_faults(nic).into_iter().next() {
            return Err(fault);
        }
        if !self.is_set(nic) {
            return Ok(FieldMatch::Yes);
        }
        let unknown: Vec<_> = self.facts().iter().copied().filter(|fact| card.is_unknown(*fact)).collect();
        // A match by a known name is not enough: by another name the policy may select more VFs.
        Ok(if unknown.is_empty() {
            self.matches_known(nic, card).into()
        } else {
            FieldMatch::Unknown(unknown)
        })
    }

    /// Returns the facts that decide the field. The PCI address is always known.
    const fn facts(self) -> &'static [UnknownFact] {
        match self {
            Self::Vendor => &[UnknownFact::Vendor],
            Self::DeviceId => &[UnknownFact::DeviceId],
            Self::NetFilter => &[UnknownFact::NetFilter],
            Self::RootDevices => &[],
            Self::PfNames => &[UnknownFact::Name, UnknownFact::AltNames],
        }
    }

    /// Returns whether a field that is set matches a card whose facts are known.
    fn matches_known(self, nic: &NicSelector, card: &InterfaceExt) -> bool {
        let has_id = |expected: &Option<String>, found: &Option<String>| {
            let (expected, found) = (expected.as_deref().unwrap_or_default(), found.as_deref());
            found.is_some_and(|found| expected.eq_ignore_ascii_case(found))
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

    /// Returns why the field does not match `card`.
    fn describe_mismatch(self, nic: &NicSelector, card: &InterfaceExt) -> PfMismatch {
        let text = |expected: &Option<String>| expected.clone().unwrap_or_default();
        match self {
            Self::Vendor => PfMismatch::Vendor { expected: text(&nic.vendor), found: card.vendor.clone() },
            Self::DeviceId => {
                PfMismatch::DeviceId { expected: text(&nic.device_id), found: card.device_id.clone() }
            }
            Self::NetFilter => {
                PfMismatch::NetFilter { expected: text(&nic.net_filter), found: card.net_filter.clone() }
            }
            Self::RootDevices => PfMismatch::RootDevices {
                expected: texts(addresses(nic)),
                found: card.pci_address.text().to_owned(),
            },
            Self::PfNames => {
                let found = card.name.iter().chain(card.alt_names.iter().flatten()).cloned().collect();
                PfMismatch::PfNames { expected: texts(names(nic)), found }
            }
        }
    }
}

/// Returns the selected VFs of a card that matches.
fn collect_vfs(nic: &NicSelector, card: &InterfaceExt) -> VfSelection {
    let mut selection = VfSelection { ranges: Vec::new(), all: names(nic).is_empty() };
    let selectors = names(nic).iter().filter_map(|name| name.value().ok());
    for selector in selectors.filter(|selector| has_name(card, &selector.name)) {
        selection.all |= selector.range.is_none();
        selection.ranges.extend(selector.range);
    }
    selection
}

fn addresses(nic: &NicSelector) -> &[Parsed<PciAddress>] {
    nic.root_devices.as_deref().unwrap_or_default()
}

fn names(nic: &NicSelector) -> &[Parsed<PfSelector>] {
    nic.pf_names.as_deref().unwrap_or_default()
}

/// Returns whether `text` is a PCI vendor or device ID.
pub(crate) fn is_pci_id(text: &str) -> bool {
    text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn id_fault(field: &'static str, text: &str) -> Option<(String, PolicyFault)> {
    let expected = "a PCI ID of four hexadecimal digits such as 8086";
    (!text.is_empty() && !is_pci_id(text)).then(|| invalid(field, field, ParseError::new(text, expected)))
}

fn network_fault(text: &str) -> Option<(String, PolicyFault)> {
    let expected = "a network such as openstack/NetworkID:<id>";
    let is_fault = !text.is_empty() && parse_network(text).is_none();
    is_fault.then(|| invalid("netFilter", "netFilter", ParseError::new(text, expected)))
}

fn list_faults<T: TextFormat>(field: &'static str, list: &[Parsed<T>]) -> Vec<(String, PolicyFault)> {
    let fault = |(at, entry): (usize, &Parsed<T>)| {
        Some(invalid(field, &format!("{field}[{at}]"), entry.value().err()?.clone()))
    };
    list.iter().enumerate().filter_map(fault).collect()
}

fn invalid(field: &'static str, path: &str, invalid: ParseError) -> (String, PolicyFault) {
    (format!("nicSelector.{path}"), PolicyFault::Invalid { field, invalid })
}

/// Returns whether `name` is the name or an alternative name of the PF.
pub(crate) fn has_name(card: &InterfaceExt, name: &str) -> bool {
    card.name.as_deref() == Some(name) || card.alt_names.iter().flatten().any(|other| other == name)
}

/// Returns whether the card is on the network `filter`.
pub(crate) fn is_on_network(card: &InterfaceExt, filter: &str) -> bool {
    parse_network(filter)
        .is_some_and(|expected| card.net_filter.as_deref().and_then(parse_network) == Some(expected))
}

/// Parses `kind : id`, with optional spaces.
fn parse_network(text: &str) -> Option<(&str, &str)> {
    let (kind, id) = text.split_once(':')?;
    let kind = kind.trim();
    let id = id.split_whitespace().next()?;
    (!kind.is_empty() && !kind.contains(char::is_whitespace)).then_some((kind, id))
}

fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn texts<T: TextFormat>(entries: &[Parsed<T>]) -> Vec<String> {
    entries.iter().map(|entry| entry.text().to_owned()).collect()
}
