//! What the Go device plugin is told about a node: which VFs make up which resource.
//!
//! The form is that plugin's, and the order of keys is the Go operator's: written as compact JSON, the bytes are the
//! same, so that a take-over starts no plugin anew. Selection goes by what policies say, not by what was configured.
//!
//! Two things are other than with the Go operator, which drops a selector that it cannot express, so that every device
//! matches: a policy whose VFs' device id is not known, and one for a network that no card of the node is on. And what
//! makes the plugin stop, and all other resources of the node with it, is not written.

mod nic_ids;

use alloc::collections::BTreeMap;

use serde::Serialize;
use vfleet_api::node_policy::{DeviceType, VdpaType};
use vfleet_api::node_state::{InterfaceExt, UnknownFact};
use vfleet_api::{PfSelector, SriovNetworkNodeStateSpec, Written};

use crate::policy::{NamedPolicy, has_name, in_order_of_application, is_on_network};
use crate::prelude::*;
pub use nic_ids::{BadNicId, NicIds};

/// A device id that no device has: where there is no device, the PCI bus reads as ones.
const NO_DEVICE: &str = "ffff";

/// The resources of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceList {
    /// One entry for each resource; `null` of none, as Go writes it.
    #[serde(rename = "resourceList")]
    pub resources: Option<Vec<Resource>>,
}

/// One resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resource {
    /// Its name, without prefix.
    #[serde(rename = "resourceName")]
    pub name: String,
    /// Whether the kubelet is told nothing about NUMA nodes.
    #[serde(rename = "excludeTopology", skip_serializing_if = "is_false")]
    pub exclude_topology: bool,
    /// Which devices belong to it.
    pub selectors: Selectors,
    /// Always `null`: an internal field of the plugin that the Go operator writes by accident.
    #[serde(rename = "SelectorObj")]
    selector_obj: Option<()>,
}

/// Which devices belong to a resource: a device must match every list that is not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Selectors {
    /// PCI vendor ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vendors: Vec<String>,
    /// PCI device ids, of VFs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Drivers that the VFs are bound to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<String>,
    /// PCI addresses of the devices themselves, on virtual platforms.
    #[serde(rename = "pciAddresses", skip_serializing_if = "Vec::is_empty")]
    pub pci_addresses: Vec<String>,
    /// Names of PFs, with ranges of VFs.
    #[serde(rename = "pfNames", skip_serializing_if = "Vec::is_empty")]
    pub pf_names: Vec<String>,
    /// PCI addresses of PFs.
    #[serde(rename = "rootDevices", skip_serializing_if = "Vec::is_empty")]
    pub root_devices: Vec<String>,
    /// Link types, by the kernel's names.
    #[serde(rename = "linkTypes", skip_serializing_if = "Vec::is_empty")]
    pub link_types: Vec<String>,
    /// Whether RDMA devices go along.
    #[serde(rename = "IsRdma")]
    pub is_rdma: bool,
    /// Whether vhost-net goes along.
    #[serde(rename = "NeedVhostNet")]
    pub need_vhost_net: bool,
    /// The kind of vDPA device.
    #[serde(rename = "vdpaType", skip_serializing_if = "Option::is_none")]
    pub vdpa_type: Option<&'static str>,
}

/// Returns the resources of the node with these labels and cards. `current` is what was decided for the node: a card whose
/// network is unknown keeps the resource that it was decided to belong to.
pub fn device_plugin_config(
    policies: &[NamedPolicy<'_>],
    labels: &BTreeMap<String, String>,
    cards: &[InterfaceExt],
    current: &SriovNetworkNodeStateSpec,
    nic_ids: &NicIds,
) -> ResourceList {
    let mut resources: Vec<Resource> = Vec::new();
    for policy in in_order_of_application(policies, labels) {
        let network = on_network(&policy, cards, current);
        // A resource without devices is the same to the kubelet as none.
        if network.as_ref().is_some_and(Vec::is_empty) {
            continue;
        }
        let known = resources.iter().position(|resource| resource.name == policy.spec.resource_name);
        let at = known.unwrap_or_else(|| {
            resources.push(Resource::of(&policy));
            resources.len() - 1
        });
        resources[at].add(&policy, cards, network, nic_ids);
    }
    ResourceList { resources: Some(resources).filter(|resources| !resources.is_empty()) }
}

impl Resource {
    /// With what only the first policy of a resource decides.
    fn of(policy: &NamedPolicy<'_>) -> Self {
        let spec = policy.spec;
        Self {
            name: spec.resource_name.clone(),
            exclude_topology: false,
            selectors: Selectors {
                // The plugin stops at both. The policy is at fault, and says so.
                is_rdma: spec.is_rdma.unwrap_or(false) && spec.vdpa_type.is_none(),
                need_vhost_net: spec.need_vhost_net.unwrap_or(false),
                vdpa_type: spec.vdpa_type.map(VdpaType::as_str),
                ..Selectors::default()
            },
            selector_obj: None,
        }
    }

    /// What every policy of a resource adds to it.
    fn add(
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
        add_new(&mut lists.vendors, given(nic.vendor.as_deref()));
        add_new(&mut lists.devices, devices(policy, cards, nic_ids));
        add_new(&mut lists.drivers, vfio.then(|| DeviceType::VfioPci.as_str().to_owned()));
        add_new(&mut lists.pci_addresses, network.into_iter().flatten());
        add_new(&mut lists.pf_names, pf_names(nic.pf_names.as_deref().unwrap_or_default(), cards));
        let roots = nic.root_devices.iter().flatten();
        add_new(
            &mut lists.root_devices,
            roots.map(|root| root.value().map_or_else(|_| root.text().to_owned(), ToString::to_string)),
        );
        // The link type of a VF cannot be seen while vfio-pci holds it.
        let kind = spec.link_type.filter(|_| !vfio);
        add_new(&mut lists.link_types, kind.map(|kind| link_type(kind.upper()).to_owned()));
        self.exclude_topology = spec.exclude_topology.unwrap_or(false);
    }
}

/// Returns the PCI addresses of the cards on the network that the policy names; `None` if it names none.
fn on_network(
    policy: &NamedPolicy<'_>,
    cards: &[InterfaceExt],
    current: &SriovNetworkNodeStateSpec,
) -> Option<Vec<String>> {
    let network = policy.spec.nic_selector.net_filter.as_deref().filter(|network| !network.is_empty())?;
    let is_decided = |card: &InterfaceExt| {
        let mut entries = current.interfaces.iter().flatten();
        let entry = entries.find(|entry| entry.pci_address.value() == card.pci_address.value());
        let mut groups = entry.into_iter().flat_map(|entry| entry.vf_groups.iter().flatten());
        groups.any(|group| group.policy_name.as_deref() == Some(policy.name))
    };
    let is_there = |card: &&InterfaceExt| {
        is_on_network(card, network) || card.is_unknown(UnknownFact::NetFilter) && is_decided(card)
    };
    Some(cards.iter().filter(is_there).map(|card| card.pci_address.text().to_owned()).collect())
}

/// The ids of the devices that the policy means. Of VFs they are looked up, or else taken from the VFs that such cards
/// of the node have; while they have none, nothing is offered.
fn devices(policy: &NamedPolicy<'_>, cards: &[InterfaceExt], nic_ids: &NicIds) -> Vec<String> {
    let nic = &policy.spec.nic_selector;
    let Some(pf) = given(nic.device_id.as_deref()) else { return Vec::new() };
    if policy.spec.num_vfs == 0 {
        return vec![pf];
    }
    if let Some(vf) = nic_ids.vf_device(&pf) {
        return vec![vf];
    }
    let vendor = given(nic.vendor.as_deref());
    let is_such = |card: &&InterfaceExt| {
        given(card.device_id.as_deref()).as_ref() == Some(&pf)
            && vendor.as_ref().is_none_or(|vendor| given(card.vendor.as_deref()).as_ref() == Some(vendor))
    };
    let vfs = cards.iter().filter(is_such).flat_map(|card| card.vfs.iter().flatten());
    let mut found = Vec::new();
    add_new(&mut found, vfs.filter_map(|vf| given(vf.device_id.as_deref())));
    if found.is_empty() { vec![NO_DEVICE.to_owned()] } else { found }
}

/// The names that the plugin knows PFs by. It looks at the first entry of a PF only, so that several ranges of one PF
/// go into one entry. What cannot be read stays as it is written: the plugin then finds nothing, where leaving it out
/// would give it all PFs.
fn pf_names(written: &[Written<PfSelector>], cards: &[InterfaceExt]) -> Vec<String> {
    let mut names: Vec<(String, Vec<String>)> = Vec::new();
    for entry in written {
        let Ok(selector) = entry.value() else {
            names.push((entry.text().to_owned(), Vec::new()));
            continue;
        };
        let card = cards.iter().find(|card| has_name(card, &selector.name));
        let name = card.and_then(|card| card.name.as_ref()).unwrap_or(&selector.name);
        let range = selector.range.map(|range| range.to_string());
        match names.iter_mut().find(|(known, _)| known == name) {
            None => names.push((name.clone(), range.into_iter().collect())),
            Some((_, ranges)) => match range {
                Some(range) if !ranges.is_empty() => add_new(ranges, [range]),
                _ => ranges.clear(),
            },
        }
    }
    let text = |(name, ranges): (String, Vec<String>)| {
        if ranges.is_empty() { name } else { format!("{name}#{}", ranges.join(",")) }
    };
    names.into_iter().map(text).collect()
}

/// Ids are compared as text by the plugin, and the kernel writes them in lower case.
fn given(id: Option<&str>) -> Option<String> {
    id.filter(|id| !id.is_empty()).map(str::to_ascii_lowercase)
}

fn link_type(kind: &str) -> &'static str {
    if kind == "IB" { "infiniband" } else { "ether" }
}

fn add_new(list: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
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
