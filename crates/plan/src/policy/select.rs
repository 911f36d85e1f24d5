//! Which nodes and PFs a policy selects.

use alloc::collections::BTreeMap;

use vfleet_api::keys::IGNORED_POLICY;
use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{Invalid, PciAddress, PfSelector, VfRange, Written};

use super::{NamedPolicy, NodeRule, PfRule, PfVerdict, PolicyFault};
use crate::prelude::*;

/// Why a policy does not select a node with these labels; `None` when it does.
pub fn why_not_node(policy: &NamedPolicy<'_>, labels: &BTreeMap<String, String>) -> Option<NodeRule> {
    if policy.name == IGNORED_POLICY {
        return Some(NodeRule::Ignored);
    }
    let (key, wanted) =
        policy.spec.node_selector.iter().find(|(key, wanted)| labels.get(*key) != Some(*wanted))?;
    Some(NodeRule::Label { key: key.clone(), wanted: wanted.clone(), found: labels.get(key).cloned() })
}

/// Which VFs of a PF a policy names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// The ranges that it gives, as they are written.
    pub(super) ranges: Vec<VfRange>,
    /// Whether it also means all that it makes.
    pub(super) all: bool,
}

type Check<T = ()> = Result<T, PfVerdict>;

/// Which VFs of `card` the policy names. Every field of the selector that is given must match. A field that cannot be
/// read is a fault only where no other field says that another card is meant.
pub(super) fn select(policy: &NamedPolicy<'_>, card: &InterfaceExt) -> Check<Selection> {
    let nic = &policy.spec.nic_selector;
    let names = nic.pf_names.as_deref().unwrap_or_default();
    let addresses = nic.root_devices.as_deref().unwrap_or_default();
    let (vendor, device) = (given(nic.vendor.as_deref()), given(nic.device_id.as_deref()));
    let network = given(nic.net_filter.as_deref());
    if names.is_empty() && addresses.is_empty() && vendor.or(device).or(network).is_none() {
        return Err(PfRule::EmptySelector.into());
    }
    let by_name = by_name(names, card);
    let checks = [
        by_id("vendor", vendor, card.vendor.as_deref(), |wanted, found| PfRule::Vendor { wanted, found }),
        by_id("deviceID", device, card.device_id.as_deref(), |wanted, found| PfRule::DeviceId {
            wanted,
            found,
        }),
        by_network(network, card),
        by_address(addresses, card),
        by_name.as_ref().map(|_| ()).map_err(Clone::clone),
    ];
    let is_rule = |check: &&Check| matches!(check, Err(PfVerdict::NotSelected(_)));
    match checks.iter().find(is_rule).or_else(|| checks.iter().find(|check| check.is_err())) {
        Some(Err(verdict)) => Err(verdict.clone()),
        _ => by_name,
    }
}

fn by_id(
    field: &'static str,
    wanted: Option<&str>,
    found: Option<&str>,
    rule: impl Fn(String, Option<String>) -> PfRule,
) -> Check {
    let Some(wanted) = wanted else { return Ok(()) };
    if wanted.len() != 4 || !wanted.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(invalid(field, Invalid::new(wanted, "a PCI id of four hexadecimal digits such as 8086")));
    }
    if found.is_some_and(|found| wanted.eq_ignore_ascii_case(found)) {
        return Ok(());
    }
    Err(rule(wanted.to_owned(), found.map(str::to_owned)).into())
}

fn by_network(wanted: Option<&str>, card: &InterfaceExt) -> Check {
    let Some(wanted) = wanted else { return Ok(()) };
    if network(wanted).is_none() {
        let expected = "a network such as openstack/NetworkID:<id>";
        return Err(invalid("netFilter", Invalid::new(wanted, expected)));
    }
    if is_on_network(card, wanted) {
        return Ok(());
    }
    Err(PfRule::NetFilter { wanted: wanted.to_owned(), found: card.net_filter.clone() }.into())
}

fn by_address(wanted: &[Written<PciAddress>], card: &InterfaceExt) -> Check {
    if let Some(error) = wanted.iter().find_map(|address| address.value().err()) {
        return Err(invalid("rootDevices", error.clone()));
    }
    if wanted.is_empty() || wanted.iter().any(|address| address.value() == card.pci_address.value()) {
        return Ok(());
    }
    Err(PfRule::RootDevices { wanted: texts(wanted), found: card.pci_address.text().to_owned() }.into())
}

fn by_name(wanted: &[Written<PfSelector>], card: &InterfaceExt) -> Check<Selection> {
    let mut selection = Selection { ranges: Vec::new(), all: wanted.is_empty() };
    for written in wanted {
        let selector = written.value().map_err(|error| invalid("pfNames", error.clone()))?;
        if has_name(card, &selector.name) {
            selection.all |= selector.range.is_none();
            selection.ranges.extend(selector.range);
        }
    }
    if selection.all || !selection.ranges.is_empty() {
        return Ok(selection);
    }
    let found = card.name.iter().chain(card.alt_names.iter().flatten()).cloned().collect();
    Err(PfRule::PfNames { wanted: texts(wanted), found }.into())
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

fn invalid(field: &'static str, invalid: Invalid) -> PfVerdict {
    PolicyFault::Invalid { field, invalid }.into()
}

fn texts<T: vfleet_api::written::Grammar>(written: &[Written<T>]) -> Vec<String> {
    written.iter().map(|written| written.text().to_owned()).collect()
}
