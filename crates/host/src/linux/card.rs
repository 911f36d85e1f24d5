//! Facts of one card.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfleet_api::PciAddress;
use vfleet_plan::{ExternalQuery, Fact, FailedQuery, LinkFacts, LinkKind, Master, PfFacts, VfFacts};

use super::devlink::{self, DevlinkHandle};
use super::netdev::{self, Netdev, Netdevs};
use super::netlink::rtnl::{Link, Rtnl};
use super::network::Network;
use super::pci::{self, CardKind};
use super::representor::{self, SwitchPf};
use super::root::HostRoot;
use super::stable_read::read_stable;
use super::{ethtool, firmware, parse, platform, rdma, sysfs, udev, vdpa};
use crate::{HostError, format_error_chain};

/// Facts of a card, and the queries to sources other than the kernel that failed.
pub(super) type CardReading = (PfFacts, Vec<FailedQuery>);

/// Reads the facts of a card; `None` if the card is gone. If something vanishes during the read, everything is read
/// again, so that the facts are consistent.
pub(super) fn read(
    root: &HostRoot,
    address: PciAddress,
    kind: CardKind,
    network: &Network,
) -> Result<Option<CardReading>, HostError> {
    let mut reader = CardReader { root, network, rtnl: Rtnl::open()? };
    read_stable(|| match reader.read_card(address, kind) {
        Err(_) if !root.device(address).exists() => Ok(None),
        read => read.map(Some),
    })
}

/// Queries to sources other than the kernel. A failed query does not make the card unreadable.
struct ExternalQueries<'a> {
    pf: PciAddress,
    failed: &'a mut Vec<FailedQuery>,
}

impl ExternalQueries<'_> {
    /// Returns the answer, or records the failure and returns the default.
    fn or_default<T: Default>(&mut self, query: ExternalQuery, answer: Result<T, Arc<HostError>>) -> T {
        answer.unwrap_or_else(|error| {
            let (error, reason) = (format_error_chain(&error), error.reason());
            self.failed.push(FailedQuery { pf: self.pf, query, error, reason });
            T::default()
        })
    }
}

/// Reader of the facts of one card.
struct CardReader<'a> {
    root: &'a HostRoot,
    network: &'a Network,
    rtnl: Rtnl,
}

/// Facts of VFs that their PF knows.
struct PfContext<'a> {
    link: Option<&'a Link>,
    representors: BTreeMap<u16, String>,
}

impl CardReader<'_> {
    fn read_card(&mut self, address: PciAddress, kind: CardKind) -> Result<CardReading, HostError> {
        let device = self.root.device(address);
        let vfs = match kind {
            CardKind::Pf { .. } => pci::read_vf_addresses(self.root, address)?,
            CardKind::LoneVf => vec![address],
        };
        let netdevs = netdev::list(&device)?;
        // Checked before the names are read: only names that are read after udev has finished are final.
        let is_named = netdevs.own.as_ref().is_none_or(|netdev| udev::has_named(self.root, netdev.index));
        // Read again, because the list of all links lacks the settings of VFs.
        let link = netdevs.own.as_ref().map(|netdev| self.rtnl.link(netdev.index)).transpose()?;
        let pf_context = PfContext {
            link: link.as_ref(),
            representors: self.find_representors(address, link.as_ref(), &netdevs),
        };
        let is_pf = kind != CardKind::LoneVf;
        let mac = link.as_ref().and_then(|link| link.permanent_mac.or_else(|| link.mac()));
        let (vendor, id) = self.read_ids(address)?;
        let mut failed = Vec::new();
        let mut queries = ExternalQueries { pf: address, failed: &mut failed };
        let firmware =
            queries.or_default(ExternalQuery::Firmware, firmware::read_settings(self.root, vendor, address));
        let net_filter =
            queries.or_default(ExternalQuery::Network, platform::read_network(self.root, address, mac));
        let facts = PfFacts {
            address,
            vendor,
            device: id,
            driver: pci::bus_device(self.root, address).driver()?,
            numa_node: self.read_numa_node(address)?,
            total_vfs: match kind {
                CardKind::Pf { total_vfs } => total_vfs,
                CardKind::LoneVf => 1,
            },
            drivers_autoprobe: pci::read_drivers_autoprobe(self.root, address)?,
            eswitch: if is_pf {
                devlink::read_eswitch_mode(&DevlinkHandle::pci(address))?
            } else {
                Fact::None
            },
            tc_offload: match &link {
                Some(link) if is_pf && link.kind == LinkKind::Ethernet => {
                    ethtool::read_tc_offload(link.index)?
                }
                _ => None,
            },
            rdma: rdma::of_device(&device)?,
            firmware,
            is_lone_vf: !is_pf,
            net_filter,
            vfs: (0..)
                .zip(vfs)
                .map(|(index, vf)| self.read_vf(index, vf, &pf_context))
                .collect::<Result<_, _>>()?,
            link: self
                .read_link_facts(link.as_ref(), netdevs.own.as_ref())?
                .map(|link| LinkFacts { is_named, ..link }),
        };
        Ok((facts, failed))
    }

    fn read_vf(&mut self, index: u16, address: PciAddress, pf: &PfContext<'_>) -> Result<VfFacts, HostError> {
        let device = self.root.device(address);
        let netdev = netdev::of_device(&device)?;
        let link = netdev.as_ref().map(|netdev| self.read_link(netdev.index)).transpose()?;
        // An InfiniBand PF stores GUIDs of its VFs; its MAC fields are meaningless.
        let pf_of_kind = |kind| pf.link.filter(|link| link.kind == kind);
        let (vendor, id) = self.read_ids(address)?;
        Ok(VfFacts {
            index,
            address,
            vendor,
            device: id,
            driver: pci::bus_device(self.root, address).driver()?,
            admin_mac: pf_of_kind(LinkKind::Ethernet).and_then(|pf| pf.vfs.get(&index.into())?.mac),
            admin_guid: pf_of_kind(LinkKind::Infiniband).and_then(|pf| pf.vfs.get(&index.into())?.node_guid),
            rdma: rdma::of_device(&device)?,
            vdpa: vdpa::read_kind(self.root, address)?,
            representor: pf.representors.get(&index).cloned(),
            link: self.read_link_facts(link.as_ref(), netdev.as_ref())?,
            // Read for all cards at once.
            attachment: Fact::Unknown,
        })
    }

    fn read_ids(&self, address: PciAddress) -> Result<(u16, u16), HostError> {
        let device = self.root.device(address);
        Ok((
            pci::vendor(self.root, address)?,
            sysfs::read_as(&device.join("device"), "a PCI device id", parse::id)?,
        ))
    }

    fn read_numa_node(&self, address: PciAddress) -> Result<Option<u16>, HostError> {
        let path = self.root.device(address).join("numa_node");
        let node = sysfs::read_if_exists(&path, "a NUMA node", parse::numa_node)?;
        Ok(node.and_then(|node| u16::try_from(node).ok()))
    }

    /// Returns a link from the list of all links, or reads one that is not in the list yet.
    fn read_link(&mut self, index: u32) -> Result<Link, HostError> {
        match self.network.link(index) {
            Some(link) => Ok(link.clone()),
            None => self.rtnl.link(index),
        }
    }

    fn find_representors(
        &self,
        address: PciAddress,
        link: Option<&Link>,
        netdevs: &Netdevs,
    ) -> BTreeMap<u16, String> {
        let Some(link) = link.filter(|link| link.switch_port.is_some()) else { return BTreeMap::new() };
        let pf = SwitchPf { link, function: address.function().into(), own: &netdevs.indexes };
        representor::find_representors(&pf, self.network.links())
    }

    /// Returns the interface that `link` is a member of.
    fn read_master(&mut self, link: &Link) -> Result<Option<Master>, HostError> {
        let Some(index) = link.master else { return Ok(None) };
        let master = self.read_link(index)?;
        let kind = link.port.as_ref().map(|port| port.kind.clone()).or(master.kind_name);
        Ok(Some(Master { name: master.name, kind: kind.unwrap_or_default() }))
    }

    fn read_link_facts(
        &mut self,
        link: Option<&Link>,
        netdev: Option<&Netdev>,
    ) -> Result<Option<LinkFacts>, HostError> {
        let Some((link, netdev)) = link.zip(netdev) else { return Ok(None) };
        Ok(Some(LinkFacts {
            name: link.name.clone(),
            alt_names: link.alt_names.clone(),
            // Policies do not select VFs by name.
            is_named: true,
            kind: link.kind,
            mac: link.mac(),
            permanent_mac: link.permanent_mac,
            mtu: link.mtu,
            max_mtu: link.max_mtu,
            admin_up: link.is_up,
            has_carrier: link.has_carrier,
            speed: netdev.read_speed()?,
            switch_port: link.switch_port.clone(),
            master: self.read_master(link)?,
            host_use: self.network.host_use(link.index),
            possible_use: self.network.possible_use(link.index),
        }))
    }
}
