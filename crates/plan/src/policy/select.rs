//! Which nodes and PFs a policy selects.

use alloc::collections::BTreeMap;

use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{Invalid, VfRange};

use super::{NamedPolicy, is_ignored};
use crate::prelude::*;

/// Whether the policy selects a node with these labels: all of its selector's must be there.
pub(super) fn selects_node(policy: &NamedPolicy<'_>, labels: &BTreeMap<String, String>) -> bool {
    !is_ignored(policy.name)
        && policy.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Which VFs of a PF a policy selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// None: it selects other PFs.
    Nothing,
    /// All that it makes.
    AllVfs,
    /// These, of those that it makes.
    Ranges(Vec<VfRange>),
}

/// Which VFs of `card` the policy selects. Every field of the selector that is given must match.
pub(super) fn select(policy: &NamedPolicy<'_>, card: &InterfaceExt) -> Result<Selection, Invalid> {
    let nic = &policy.spec.nic_selector;
    let names = nic.pf_names.as_deref().unwrap_or_default();
    let addresses = nic.root_devices.as_deref().unwrap_or_default();
    let vendor = given(nic.vendor.as_deref());
    let device = given(nic.device_id.as_deref());
    let network = given(nic.net_filter.as_deref());
    let nothing_given =
        names.is_empty() && addresses.is_empty() && vendor.is_none() && device.is_none() && network.is_none();
    if nothing_given
        || !same_id(vendor, card.vendor.as_deref())
        || !same_id(device, card.device_id.as_deref())
    {
        return Ok(Selection::Nothing);
    }
    if let Some(network) = network
        && !same_network(network, card.net_filter.as_deref())
    {
        return Ok(Selection::Nothing);
    }
    if !addresses.is_empty() {
        let mut selected = false;
        for address in addresses {
            selected |= Ok(address.value().map_err(Clone::clone)?) == card.pci_address.value();
        }
        if !selected {
            return Ok(Selection::Nothing);
        }
    }
    select_by_name(names, card)
}

fn select_by_name(
    names: &[vfleet_api::Written<vfleet_api::PfSelector>],
    card: &InterfaceExt,
) -> Result<Selection, Invalid> {
    if names.is_empty() {
        return Ok(Selection::AllVfs);
    }
    let mut ranges = Vec::new();
    let mut all = false;
    for name in names {
        let selector = name.value().map_err(Clone::clone)?;
        if has_name(card, &selector.name) {
            all |= selector.range.is_none();
            ranges.extend(selector.range);
        }
    }
    Ok(match (all, ranges.is_empty()) {
        (true, _) => Selection::AllVfs,
        (false, true) => Selection::Nothing,
        (false, false) => Selection::Ranges(ranges),
    })
}

fn has_name(card: &InterfaceExt, name: &str) -> bool {
    card.name.as_deref() == Some(name) || card.alt_names.iter().flatten().any(|other| other == name)
}

fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn same_id(wanted: Option<&str>, found: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| found.is_some_and(|found| wanted.eq_ignore_ascii_case(found)))
}

/// Both are `kind : value`, spaces allowed.
fn same_network(wanted: &str, found: Option<&str>) -> bool {
    let pair =
        |text: &str| text.split_once(':').map(|(kind, id)| (kind.trim().to_owned(), id.trim().to_owned()));
    pair(wanted).is_some_and(|wanted| found.and_then(pair) == Some(wanted))
}
