//! Configuration of the Go device plugin: the VFs that belong to each resource of a node.
//!
//! The key order is that of the Go operator: as compact JSON the text is identical, so that a take-over restarts no
//! plugin. Devices are selected by policies, not by the state of the node.
//!
//! There are two differences to the Go operator, which omits a selector that it cannot express, so that every device
//! matches: policies whose VFs have an unknown device ID, and policies for a network that no card of the node is on.
//! Values that would crash the plugin, and with it all other resources of the node, are not written.

mod nic_ids;

use alloc::collections::BTreeMap;

use serde::Serialize;
use vfleet_api::node_policy::{DeviceType, VdpaType};
use vfleet_api::node_state::{InterfaceExt, UnknownFact};
use vfleet_api::{Parsed, PfSelector, SriovNetworkNodeStateSpec};

use crate::policy::{NamedPolicy, has_name, is_on_network, select_policies};
use crate::prelude::*;
pub use nic_ids::{InvalidNicId, NicIds};

/// Device ID that no device has: reading an absent PCI device returns all ones.
const NO_DEVICE: &str = "ffff";

/// Resources of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceList {
    /// One entry for each resource; `null` if there is none, as Go writes it.
    #[serde(rename = "resourceList")]
    pub resources: Option<Vec<Resource>>,
}

/// Device plugin resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resource {
    /// Name without prefix.
    #[serde(rename = "resourceName")]
    pub name: String,
    /// Do not report NUMA nodes to the kubelet.
    #[serde(rename = "excludeTopology", skip_serializing_if = "is_false")]
    pub exclude_topology: bool,
    /// Selectors of its devices.
    pub selectors: Selectors,
    /// Always `null`: an internal field of the plugin, which the Go operator writes by accident.
    #[serde(rename = "SelectorObj")]
    selector_obj: Option<()>,
}

/// Selectors of the devices of a resource: a device must match every list that is not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Selectors {
    /// PCI vendor IDs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vendors: Vec<String>,
    /// PCI device IDs of VFs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Drivers of the VFs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<String>,
    /// PCI addresses of the devices, in virtual machines.
    #[serde(rename = "pciAddresses", skip_serializing_if = "Vec::is_empty")]
    pub pci_addresses: Vec<String>,
    /// Names of PFs with VF ranges.
    #[serde(rename = "pfNames", skip_serializing_if = "Vec::is_empty")]
    pub pf_names: Vec<String>,
    /// PCI addresses of PFs.
    #[serde(rename = "rootDevices", skip_serializing_if = "Vec::is_empty")]
    pub root_devices: Vec<String>,
    /// Link types in the spelling of the kernel.
    #[serde(rename = "linkTypes", skip_serializing_if = "Vec::is_empty")]
    pub link_types: Vec<String>,
    /// Pods also get the RDMA devices.
    #[serde(rename = "IsRdma")]
    pub is_rdma: bool,
    /// Pods also get `/dev/vhost-net`.
    #[serde(rename = "NeedVhostNet")]
    pub need_vhost_net: bool,
    /// Type of vDPA devices.
    #[serde(rename = "vdpaType", skip_serializing_if = "Option::is_none")]
    pub vdpa_type: Option<&'static str>,
}

/// Builds the configuration for a node with these labels and cards. `current` is the spec of the node state: a card
/// whose network is unknown keeps its resource.
pub fn build_device_plugin_config(
    policies: &[NamedPolicy<'_>],
    labels: &BTreeMap<String, String>,
    cards: &[InterfaceExt],
    current: &SriovNetworkNodeStateSpec,
    nic_ids: &NicIds,
) -> ResourceList {
    let mut resources: Vec<Resource> = Vec::new();
    for policy in select_policies(policies, labels) {
        let network = find_cards_on_network(&policy, cards, current);
        // The kubelet treats a resource without devices like an absent one.
        if network.as_ref().is_some_and(Vec::is_empty) {
            continue;
        }
        let existing = resources.iter().position(|resource| resource.name == policy.spec.resource_name);
        let at = existing.unwrap_or_else(|| {
            resources.push(Resource::new(&policy));
            resources.len() - 1
        });
        resources[at].add_policy(&policy, cards, network, nic_ids);
    }
    ResourceList { resources: Some(resources).filter(|resources| !resources.is_empty()) }
}

impl Resource {
    /// Creates a resource with the fields that only its first policy decides.
    fn new(policy: &NamedPolicy<'_>) -> Self {
        let spec = policy.spec;
        Self {
            name: spec.resource_name.clone(),
            exclude_topology: false,
            selectors: Selectors {
                // The plugin crashes if both are set. The policy has a fault, which its status reports.
                is_rdma: spec.is_rdma.unwrap_or(false) && spec.vdpa_type.is_none(),
                need_vhost_net: spec.need_vhost_net.unwrap_or(false),
                vdpa_type: spec.vdpa_type.map(VdpaType::as_str),
                ..Selectors::default()
            },
            selector_obj: None,
        }
    }

    /// Adds the selectors of a policy.
    fn add_policy(
        &mut self,
        policy: &NamedPolicy<'_>,
        cards: &[InterfaceExt],
        network: Option<Vec<String>>,
        nic_ids: &NicIds,
    ) {
        let spec = policy.spec;
        let nic = &spec.nic_selector;
        let vfio = spec.device_type == Some(DeviceType::VfioPci);
        let lists = &mut self.selectors;
        add_missing(&mut lists.vendors, normalize_id(nic.vendor.as_deref()));
        add_missing(&mut lists.devices, find_device_ids(policy, cards, nic_ids));
        add_missing(&mut lists.drivers, vfio.then(|| DeviceType::VfioPci.as_str().to_owned()));
        add_missing(&mut lists.pci_addresses, network.into_iter().flatten());
        add_missing(
            &mut lists.pf_names,
            resolve_pf_names(nic.pf_names.as_deref().unwrap_or_default(), cards),
        );
        let roots = nic.root_devices.iter().flatten();
        add_missing(
            &mut lists.root_devices,
            roots.map(|root| root.value().map_or_else(|_| root.text().to_owned(), ToString::to_string)),
        );
        // A VF that is bound to vfio-pci has no link type.
        let kind = spec.link_type.filter(|_| !vfio);
        add_missing(&mut lists.link_types, kind.map(|kind| kernel_link_type(kind.upper()).to_owned()));
        self.exclude_topology = spec.exclude_topology.unwrap_or(false);
    }
}

/// Returns the PCI addresses of the cards on the network that the policy names; `None` if it names none.
fn find_cards_on_network(
    policy: &NamedPolicy<'_>,
    cards: &[InterfaceExt],
    current: &SriovNetworkNodeStateSpec,
) -> Option<Vec<String>> {
    let network = policy.spec.nic_selector.net_filter.as_deref().filter(|network| !network.is_empty())?;
    let has_group = |card: &InterfaceExt| {
        let mut entries = current.interfaces.iter().flatten();
        let entry = entries.find(|entry| entry.pci_address.value() == card.pci_address.value());
        let mut groups = entry.into_iter().flat_map(|entry| entry.vf_groups.iter().flatten());
        groups.any(|group| group.policy_name.as_deref() == Some(policy.name))
    };
    let is_selected = |card: &&InterfaceExt| {
        is_on_network(card, network) || card.is_unknown(UnknownFact::NetFilter) && has_group(card)
    };
    Some(cards.iter().filter(is_selected).map(|card| card.pci_address.text().to_owned()).collect())
}

/// Returns the IDs of the devices that the policy selects. IDs of VFs are looked up in `nic_ids`, or else taken from
/// existing VFs of such cards; if there are none, no device is selected.
fn find_device_ids(policy: &NamedPolicy<'_>, cards: &[InterfaceExt], nic_ids: &NicIds) -> Vec<String> {
    let nic = &policy.spec.nic_selector;
    let Some(pf) = normalize_id(nic.device_id.as_deref()) else { return Vec::new() };
    if policy.spec.num_vfs == 0 {
        return vec![pf];
    }
    if let Some(vf) = nic_ids.vf_device(&pf) {
        return vec![vf];
    }
    let vendor = normalize_id(nic.vendor.as_deref());
    let matches = |card: &&InterfaceExt| {
        normalize_id(card.device_id.as_deref()).as_ref() == Some(&pf)
            && vendor
                .as_ref()
                .is_none_or(|vendor| normalize_id(card.vendor.as_deref()).as_ref() == Some(vendor))
    };
    let vfs = cards.iter().filter(matches).flat_map(|card| card.vfs.iter().flatten());
    let mut found = Vec::new();
    add_missing(&mut found, vfs.filter_map(|vf| normalize_id(vf.device_id.as_deref())));
    if found.is_empty() { vec![NO_DEVICE.to_owned()] } else { found }
}

/// Returns the PF names for the plugin. The plugin reads only the first entry of a PF, so several ranges of one PF are
/// joined in one entry. Invalid entries are kept: the plugin then selects no PF, while omitting them would select all
/// PFs.
fn resolve_pf_names(selectors: &[Parsed<PfSelector>], cards: &[InterfaceExt]) -> Vec<String> {
    let mut names: Vec<(String, Vec<String>)> = Vec::new();
    for entry in selectors {
        let Ok(selector) = entry.value() else {
            names.push((entry.text().to_owned(), Vec::new()));
            continue;
        };
        let card = cards.iter().find(|card| has_name(card, &selector.name));
        let name = card.and_then(|card| card.name.as_ref()).unwrap_or(&selector.name);
        let range = selector.range.map(|range| range.to_string());
        match names.iter_mut().find(|(existing, _)| existing == name) {
            None => names.push((name.clone(), range.into_iter().collect())),
            Some((_, ranges)) => match range {
                Some(range) if !ranges.is_empty() => add_missing(ranges, [range]),
                _ => ranges.clear(),
            },
        }
    }
    let text = |(name, ranges): (String, Vec<String>)| {
        if ranges.is_empty() { name } else { format!("{name}#{}", ranges.join(",")) }
    };
    names.into_iter().map(text).collect()
}

/// Returns the ID in lower case, as the kernel writes it: the plugin compares IDs as text.
fn normalize_id(id: Option<&str>) -> Option<String> {
    id.filter(|id| !id.is_empty()).map(str::to_ascii_lowercase)
}

fn kernel_link_type(kind: &str) -> &'static str {
    if kind == "IB" { "infiniband" } else { "ether" }
}

fn add_missing(list: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
    for one in more {
        if !list.contains(&one) {
            list.push(one);
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this form")]
fn is_false(value: &bool) -> bool {
    !*value
}
