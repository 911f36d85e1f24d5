//! Facts for attachments on a simulated machine.

use std::collections::BTreeSet;

use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{Guid, PciAddress};
use vfleet_plan::LinkKind;
use vfleet_plan::cni::facts::{
    AttachmentFacts, DeviceFacts, DevicePart, HolderFacts, HolderNamespace, InterfaceFacts, Namespace,
    NamespaceFacts, ParentPf, VfSettings,
};
use vfleet_plan::cni::journal::Journal;

use super::super::devices::{SimPf, SimVf};
use super::super::kernel::Kernel;
use super::super::namespaces::NamespacePath;
use super::super::steps::DEADLINE;
use crate::HostError;
use crate::attachment::{AttachmentQuery, NamespaceQuery};

const MIN_MTU: u32 = 68;
/// Start of the hardware address of an InfiniBand interface: queue pair number, and prefix of the subnet.
const INFINIBAND_PREFIX: [u8; 12] = [0, 0, 1, 0x28, 0xfe, 0x80, 0, 0, 0, 0, 0, 0];

pub(super) fn read(kernel: &Kernel, query: &AttachmentQuery<'_>) -> Result<AttachmentFacts, HostError> {
    let device = query.device;
    let is_card =
        |device| move |pf: &&SimPf| pf.address == device || pf.vfs.iter().any(|vf| vf.address == device);
    let card = device.and_then(|device| kernel.pfs.iter().find(is_card(device)));
    if let Some(card) = card.filter(|card| card.is_hanging) {
        let attempt = format!("report the state of {}", card.address);
        return Err(HostError::DeadlineExceeded { attempt, after: DEADLINE });
    }
    Ok(AttachmentFacts {
        device: device.map(|device| device_facts(kernel, device)),
        switch: None,
        namespace: namespace_facts(kernel, query.namespace, query.with_addresses),
        has_exclusive_rdma: kernel.rdma_mode == Some(RdmaMode::Exclusive),
        holders: holders(kernel, query)?,
        host_names: host_names(kernel, device),
        boot_id: kernel.boot_id(),
    })
}

fn device_facts(kernel: &Kernel, device: PciAddress) -> DeviceFacts {
    let vf = kernel.device_vf(device);
    let driver = match vf {
        Some(vf) => vf.driver.clone(),
        None => kernel.pf(device).and_then(|pf| pf.driver.clone()),
    };
    let is_in_host = kernel.links_in(None).any(|found| found == device);
    let rdma = match vf {
        Some(vf) => vf.rdma.as_ref().filter(|_| shows_rdma(kernel, vf, None)),
        None => kernel.pf(device).and_then(|pf| pf.rdma.as_ref()),
    };
    DeviceFacts {
        address: device,
        exists: vf.is_some() || kernel.pf(device).is_some(),
        driver,
        pf: parent_pf(kernel, device),
        link: if is_in_host { interface_facts(kernel, device, true) } else { None },
        rdma: rdma.map(|rdma| rdma.device.clone()).into_iter().collect(),
    }
}

/// Returns whether these parts of a device are in the namespace of the host.
pub(super) fn has_parts(kernel: &Kernel, device: PciAddress, parts: &BTreeSet<DevicePart>) -> bool {
    let facts = device_facts(kernel, device);
    parts.iter().all(|part| facts.has(*part))
}

/// Returns whether a namespace shows the RDMA device of a VF; `None` is the host's.
fn shows_rdma(kernel: &Kernel, vf: &SimVf, namespace: Option<u64>) -> bool {
    kernel.rdma_mode != Some(RdmaMode::Exclusive) || vf.rdma_namespace == namespace
}

fn parent_pf(kernel: &Kernel, device: PciAddress) -> Option<ParentPf> {
    let vf = kernel.vf_at(device)?;
    let link = kernel.pf(vf.pf)?.link.as_ref()?;
    let found = kernel.device_vf(device)?;
    let stored = found.settings;
    let settings = match link.kind {
        LinkKind::Infiniband => VfSettings {
            link_state: Some(stored.link_state),
            node_guid: Some(found.admin_guid),
            port_guid: Some(found.admin_guid),
            ..VfSettings::default()
        },
        LinkKind::Ethernet | LinkKind::Other(_) => VfSettings {
            mac: Some(found.admin_mac),
            vlan: Some(stored.vlan),
            spoof_check: Some(stored.spoof_check),
            trust: Some(stored.trust),
            min_tx_rate: Some(stored.min_tx_rate),
            max_tx_rate: Some(stored.max_tx_rate),
            link_state: Some(stored.link_state),
            ..VfSettings::default()
        },
    };
    Some(ParentPf {
        vf,
        name: link.name.clone(),
        index: kernel.index_of(vf.pf),
        mtu: link.mtu,
        is_up: link.up,
        settings: Some(settings),
    })
}

/// Returns the facts of the interface of a PF or VF, in whatever namespace it is.
fn interface_facts(kernel: &Kernel, device: PciAddress, with_addresses: bool) -> Option<InterfaceFacts> {
    let link = kernel.device_link(device)?;
    let rdma = match kernel.device_vf(device) {
        Some(vf) => vf.rdma.as_ref(),
        None => kernel.pf(device)?.rdma.as_ref(),
    };
    let guid = rdma.map_or(Guid([0; 8]), |rdma| rdma.port_guid);
    let address = match link.kind {
        LinkKind::Infiniband => [&INFINIBAND_PREFIX[..], &guid.0].concat(),
        LinkKind::Ethernet | LinkKind::Other(_) => link.mac.0.to_vec(),
    };
    Some(InterfaceFacts {
        index: kernel.index_of(device),
        name: link.name.clone(),
        alt_names: link.alt_names.clone(),
        address,
        mtu: link.mtu,
        min_mtu: Some(MIN_MTU),
        max_mtu: link.max_mtu,
        is_up: link.up,
        device: Some(device).filter(|_| !kernel.namespaces.hides_identities),
        ips: if with_addresses { link.ips.clone() } else { Vec::new() },
    })
}

fn namespace_facts(kernel: &Kernel, query: NamespaceQuery<'_>, with_addresses: bool) -> NamespaceFacts {
    let (path, expected) = match query {
        NamespaceQuery::NotGiven => return NamespaceFacts::NotGiven,
        NamespaceQuery::Path(path) => (path, None),
        // The boot of an attachment of a Go plugin is unknown.
        NamespaceQuery::Recorded { boot_id, .. } if !boot_id.is_empty() && boot_id != kernel.boot_id() => {
            return NamespaceFacts::Gone;
        }
        NamespaceQuery::Recorded { namespace, .. } => (namespace.path.as_str(), Some(namespace.id)),
    };
    let present = |inode, is_own| NamespaceFacts::Present {
        namespace: Namespace { path: path.to_owned(), id: kernel.identify(inode) },
        is_own,
        links: if is_own { Vec::new() } else { pod_links(kernel, inode, with_addresses) },
        rdma: pod_rdma(kernel, Some(inode).filter(|_| !is_own)),
    };
    match kernel.namespaces.paths.get(path) {
        // The path of a journal of a Go plugin's pod whose runtime named no namespace: a directory.
        None if path.is_empty() => NamespaceFacts::Unknown { reason: "not a network namespace".to_owned() },
        None => NamespaceFacts::Gone,
        Some(NamespacePath::OtherFile) => {
            NamespaceFacts::Unknown { reason: format!("{path} is not a network namespace") }
        }
        Some(NamespacePath::Host) if expected.is_some() => NamespaceFacts::Gone,
        Some(NamespacePath::Host) => present(0, true),
        Some(NamespacePath::Namespace(inode))
            if expected.is_some_and(|id| !id.is_same(&kernel.identify(*inode))) =>
        {
            NamespaceFacts::Gone
        }
        Some(NamespacePath::Namespace(inode)) => present(*inode, false),
    }
}

fn pod_links(kernel: &Kernel, inode: u64, with_addresses: bool) -> Vec<InterfaceFacts> {
    let virtual_links = kernel.namespaces.by_inode.get(&inode).into_iter().flat_map(|found| &found.links);
    let virtual_links = virtual_links.map(|(name, link)| InterfaceFacts {
        index: link.index,
        name: name.clone(),
        alt_names: link.alt_names.iter().cloned().collect(),
        address: link.mac.0.to_vec(),
        mtu: link.mtu,
        min_mtu: Some(MIN_MTU),
        max_mtu: None,
        is_up: link.is_up,
        device: None,
        ips: if with_addresses { link.ips.clone() } else { Vec::new() },
    });
    let of_cards =
        kernel.links_in(Some(inode)).filter_map(|device| interface_facts(kernel, device, with_addresses));
    let mut links: Vec<InterfaceFacts> = virtual_links.chain(of_cards).collect();
    links.sort_by_key(|link| link.index);
    links
}

fn pod_rdma(kernel: &Kernel, namespace: Option<u64>) -> Vec<String> {
    let of_pfs = kernel.pfs.iter().filter_map(|pf| pf.rdma.as_ref());
    let of_pfs = of_pfs.filter(|_| namespace.is_none() || kernel.rdma_mode != Some(RdmaMode::Exclusive));
    let vfs = kernel.pfs.iter().flat_map(|pf| &pf.vfs).filter(|vf| shows_rdma(kernel, vf, namespace));
    let devices = of_pfs.chain(vfs.filter_map(|vf| vf.rdma.as_ref()));
    devices.map(|rdma| rdma.device.clone()).collect()
}

fn holders(kernel: &Kernel, query: &AttachmentQuery<'_>) -> Result<Vec<HolderFacts>, HostError> {
    let Some(device) = query.device else { return Ok(Vec::new()) };
    let keys = kernel.cni.journals.keys().filter(|key| key.device == Some(device));
    let mut holders = Vec::new();
    let mut our_paths = BTreeSet::new();
    for key in keys {
        let Some(journal) = kernel.cni.journal(key)? else { continue };
        our_paths.insert(journal.namespace.path.clone());
        if query.key == Some(key) {
            continue;
        }
        let namespace = namespace_state(kernel, &journal);
        holders.push(HolderFacts::Journal { journal, namespace });
    }
    let allocation = kernel.cni.go_allocations.get(&device);
    if let Some(path) = allocation.filter(|path| !our_paths.contains(*path)) {
        let namespace = holder_namespace(kernel, NamespaceQuery::Path(path));
        holders.push(HolderFacts::GoAllocation { path: path.clone(), namespace });
    }
    Ok(holders)
}

/// Returns the state of the namespace of an attachment.
pub(super) fn namespace_state(kernel: &Kernel, journal: &Journal) -> HolderNamespace {
    let recorded = NamespaceQuery::Recorded { namespace: &journal.namespace, boot_id: &journal.boot_id };
    holder_namespace(kernel, recorded)
}

fn holder_namespace(kernel: &Kernel, query: NamespaceQuery<'_>) -> HolderNamespace {
    match namespace_facts(kernel, query, false) {
        NamespaceFacts::NotGiven | NamespaceFacts::Gone => HolderNamespace::Gone,
        NamespaceFacts::Unknown { .. } => HolderNamespace::Unknown,
        NamespaceFacts::Present { .. } => HolderNamespace::Alive,
    }
}

fn host_names(kernel: &Kernel, device: Option<PciAddress>) -> BTreeSet<String> {
    let of_cards = kernel.links_in(None).filter(|found| Some(*found) != device).flat_map(|found| {
        let link = kernel.device_link(found);
        link.into_iter().flat_map(|link| link.alt_names.iter().chain([&link.name]))
    });
    let bridges = kernel.bridges.iter().map(|bridge| &bridge.name);
    let representors = kernel.pfs.iter().flat_map(|pf| &pf.vfs).filter_map(|vf| vf.representor.as_ref());
    let others = kernel.other_links.iter().chain(&kernel.ovs.internal_links).chain(kernel.veths.keys());
    let names = of_cards.chain(bridges).chain(representors).chain(others).cloned();
    names.chain(["lo".to_owned()]).collect()
}
