//! Facts of a simulated machine.

use std::collections::{BTreeMap, BTreeSet};

use vfleet_api::PciAddress;
use vfleet_api::node_state::Interface;
use vfleet_plan::files::{BOOT_PROGRAM, is_ours};
use vfleet_plan::modules::KNOWN_MODULES;
use vfleet_plan::{
    BridgeKind, Fact, HostFacts, KernelFacts, LinkFacts, LinkKind, PfFacts, RdmaFacts, Record,
    UnreadableCard, VfFacts,
};

use super::devices::{SimLink, SimPf, SimRdmaDevice, SimVf};
use super::kernel::Kernel;
use super::steps::DEADLINE;
use super::{attached, bridges};
use crate::{HostError, format_error_chain};

/// Reads the facts of a simulated machine.
pub(super) fn read(kernel: &Kernel, reads_ovs: bool) -> HostFacts {
    let unreadable_records = unreadable_records(kernel);
    let is_read = |pf: &&SimPf| !pf.is_hanging && !unreadable_records.contains(&pf.address);
    let records = records(kernel, &unreadable_records);
    let bridges = bridges::read_facts(kernel, reads_ovs || records.iter().any(has_ovs_bridge));
    HostFacts {
        pfs: kernel.pfs.iter().filter(is_read).map(|pf| pf_facts(kernel, pf)).collect(),
        unreadable: unread(kernel, &unreadable_records),
        failed_queries: Vec::new(),
        records,
        kernel: kernel_facts(kernel),
        files: kernel.files.clone().into_iter().filter(|(path, _)| is_ours(path)).collect(),
        enabled_units: kernel.enabled_units.clone(),
        running_units: kernel.running_units.clone(),
        has_boot_program: kernel.programs.contains(BOOT_PROGRAM),
        guid_file: kernel.guid_file.clone(),
        unreadable_records,
        bridges,
        ..HostFacts::default()
    }
}

fn has_ovs_bridge(record: &Record) -> bool {
    record.bridge.as_ref().is_some_and(|bridge| bridge.kind == BridgeKind::Ovs)
}

/// Returns the PFs without an intact record. An intact file of the Go daemon replaces a damaged record.
fn unreadable_records(kernel: &Kernel) -> BTreeSet<PciAddress> {
    let has_copy = |pf: &PciAddress| kernel.go_records.contains_key(pf);
    let ours = kernel.damaged_records.iter().filter(|pf| !has_copy(pf));
    ours.chain(&kernel.damaged_go_records).copied().collect()
}

/// Returns the intact records. A PF with a record of the Go daemon only is taken over. If both records exist and
/// differ, the Go daemon ran last, because vfleet writes both.
fn records(kernel: &Kernel, unread: &BTreeSet<PciAddress>) -> Vec<Record> {
    let mut records: BTreeMap<_, Record> = kernel.records.clone();
    records.retain(|pf, _| !unread.contains(pf));
    for (pf, interface) in kernel.go_records.iter().filter(|(pf, _)| !unread.contains(pf)) {
        let taken_over = || Record::taken_over(*pf, Interface::clone(interface));
        let record = records.entry(*pf).or_insert_with(taken_over);
        record.interface.clone_from(interface);
    }
    records.into_values().collect()
}

fn kernel_facts(kernel: &Kernel) -> KernelFacts {
    let described = &kernel.machine.kernel;
    let is_known = |(name, _): &(String, _)| KNOWN_MODULES.contains(&name.as_str());
    KernelFacts {
        command_line: kernel.command_line.clone(),
        boot_loader: described.boot_loader,
        boot_id: kernel.boot_id(),
        reboots: kernel.reboots.clone(),
        processor: described.processor,
        has_iommu: kernel.has_iommu,
        is_locked_down: described.locked_down,
        modules: kernel.modules.clone().into_iter().filter(is_known).collect(),
        rdma_mode: kernel.rdma_mode,
    }
}

fn unread(kernel: &Kernel, records: &BTreeSet<PciAddress>) -> Vec<UnreadableCard> {
    let hanging = kernel.pfs.iter().filter(|pf| pf.is_hanging).map(|pf| {
        let attempt = format!("report the state of {}", pf.address);
        (pf.address, HostError::DeadlineExceeded { attempt, after: DEADLINE })
    });
    let damaged = records.iter().map(|pf| (*pf, damaged(*pf)));
    let unread: BTreeMap<_, _> = hanging.chain(damaged).collect();
    let to_unreadable = |(pf, error): (_, HostError)| UnreadableCard {
        pf,
        error: format_error_chain(&error),
        reason: error.reason(),
    };
    unread.into_iter().map(to_unreadable).collect()
}

fn damaged(pf: PciAddress) -> HostError {
    HostError::DamagedRecord {
        path: format!("/etc/sriov-operator/vfleet/pci/{pf}").into(),
        remedy: "remove it to make vfleet treat this card as not configured".to_owned(),
        source: "EOF while parsing a value".into(),
    }
}

fn pf_facts(kernel: &Kernel, pf: &SimPf) -> PfFacts {
    let switch_port = kernel.switch_port(pf.address);
    let lone_vf = pf.vfs.first().filter(|_| pf.is_lone_vf);
    let link = lone_vf.map_or(pf.link.as_ref(), visible_link);
    PfFacts {
        address: pf.address,
        vendor: pf.vendor,
        device: pf.device,
        driver: lone_vf.map_or(&pf.driver, |vf| &vf.driver).clone(),
        numa_node: pf.numa_node,
        total_vfs: u16::try_from(pf.vf_addresses.len()).unwrap_or(u16::MAX),
        drivers_autoprobe: pf.autoprobe,
        eswitch: kernel.eswitch_mode(pf.address),
        tc_offload: pf.tc_offload,
        rdma: pf.rdma.as_ref().map(rdma_facts),
        firmware: pf.firmware.clone(),
        is_lone_vf: pf.is_lone_vf,
        net_filter: net_filter(pf, link),
        link: link.map(|link| LinkFacts { switch_port, ..link_facts(kernel, link) }),
        vfs: (0..).zip(&pf.vfs).map(|(index, vf)| vf_facts(kernel, index, vf, pf)).collect(),
    }
}

/// Returns the network of a card, which is unknown without an interface: a cloud identifies cards by MAC address.
fn net_filter(pf: &SimPf, link: Option<&SimLink>) -> Fact<String> {
    match (&pf.net_filter, link) {
        (Some(network), Some(_)) => Fact::Value(network.clone()),
        (Some(_), None) => Fact::Unknown,
        (None, _) => Fact::None,
    }
}

fn vf_facts(kernel: &Kernel, index: u16, vf: &SimVf, pf: &SimPf) -> VfFacts {
    let is_stored = |kind: LinkKind| pf.link.is_some() && pf.link_kind() == kind;
    VfFacts {
        index,
        address: vf.address,
        vendor: pf.vendor,
        device: pf.vf_device,
        driver: vf.driver.clone(),
        admin_mac: is_stored(LinkKind::Ethernet).then_some(vf.admin_mac),
        admin_guid: is_stored(LinkKind::Infiniband).then_some(vf.admin_guid),
        rdma: vf.rdma.as_ref().filter(|_| vf.rdma_namespace.is_none()).map(rdma_facts),
        vdpa: vf.vdpa,
        representor: vf.representor.clone(),
        link: visible_link(vf).map(|link| link_facts(kernel, link)),
        attachment: attached::read(kernel, vf.address).into(),
    }
}

/// Returns the interface of a VF, if it is in the network namespace of the host.
fn visible_link(vf: &SimVf) -> Option<&SimLink> {
    vf.link.as_ref().filter(|_| vf.namespace.is_none())
}

fn rdma_facts(rdma: &SimRdmaDevice) -> RdmaFacts {
    let port_guid = Some(rdma.port_guid).filter(|guid| guid.0 != [0; 8]);
    RdmaFacts { device: rdma.device.clone(), node_guid: rdma.node_guid, port_guid }
}

fn link_facts(kernel: &Kernel, link: &SimLink) -> LinkFacts {
    let is_ethernet = link.kind == LinkKind::Ethernet;
    LinkFacts {
        name: link.name.clone(),
        alt_names: link.alt_names.clone(),
        is_named: link.is_named,
        kind: link.kind,
        mac: is_ethernet.then_some(link.mac),
        permanent_mac: link.permanent_mac.filter(|_| is_ethernet),
        mtu: link.mtu,
        max_mtu: link.max_mtu,
        admin_up: link.up,
        has_carrier: link.up,
        speed: link.speed.filter(|_| link.up),
        switch_port: None,
        master: kernel.master_of(&link.name),
        host_use: link.host_use,
        possible_use: None,
    }
}
