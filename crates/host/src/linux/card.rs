//! Everything about one card.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfleet_api::PciAddress;
use vfleet_plan::{Fact, LinkFacts, LinkKind, PfFacts, Question, Unanswered, VfFacts};

use super::devlink::{self, Handle};
use super::netdev::{self, Netdev, Netdevs};
use super::netlink::rtnl::{Link, Rtnl};
use super::network::Network;
use super::pci::{self, Card};
use super::representor::{self, Pf};
use super::root::HostRoot;
use super::settle::settled;
use super::{ethtool, firmware, parse, platform, rdma, sysfs, udev, vdpa};
use crate::{HostError, with_causes};

/// A card, and what others than the kernel could not say about it.
pub(super) type SeenCard = (PfFacts, Vec<Unanswered>);

/// The facts of a card; `None` when it is gone. What vanishes while it is read makes all of it be read again, so that
/// the facts fit together.
pub(super) fn read(
    root: &HostRoot,
    address: PciAddress,
    card: Card,
    network: &Network,
) -> Result<Option<SeenCard>, HostError> {
    let mut reader = Reader { root, network, rtnl: Rtnl::open()? };
    settled(|| match reader.card(address, card) {
        Err(_) if !root.device(address).exists() => Ok(None),
        read => read.map(Some),
    })
}

/// What others than the kernel say. Who gives no answer does not stand in the way of a card.
struct Told<'a> {
    pf: PciAddress,
    unanswered: &'a mut Vec<Unanswered>,
}

impl Told<'_> {
    /// Returns the answer, or what counts without one.
    fn or_default<T: Default>(&mut self, question: Question, answer: Result<T, Arc<HostError>>) -> T {
        answer.unwrap_or_else(|error| {
            let (error, reason) = (with_causes(&error), error.reason());
            self.unanswered.push(Unanswered { pf: self.pf, question, error, reason });
            T::default()
        })
    }
}

struct Reader<'a> {
    root: &'a HostRoot,
    network: &'a Network,
    rtnl: Rtnl,
}

/// What a PF knows about its VFs.
struct Keeper<'a> {
    link: Option<&'a Link>,
    representors: BTreeMap<u16, String>,
}

impl Reader<'_> {
    fn card(&mut self, address: PciAddress, card: Card) -> Result<SeenCard, HostError> {
        let device = self.root.device(address);
        let vfs = match card {
            Card::Pf { .. } => pci::vf_addresses(self.root, address)?,
            Card::LoneVf => vec![address],
        };
        let netdevs = netdev::all(&device)?;
        // Before the names are read: those that are read after udev is done are the right ones.
        let is_named = netdevs.own.as_ref().is_none_or(|netdev| udev::has_named(self.root, netdev.index));
        // Fresh, with what it keeps for its VFs.
        let link = netdevs.own.as_ref().map(|netdev| self.rtnl.link(netdev.index)).transpose()?;
        let keeper =
            Keeper { link: link.as_ref(), representors: self.representors(address, link.as_ref(), &netdevs) };
        let is_pf = card != Card::LoneVf;
        let mac = link.as_ref().and_then(|link| link.permanent_mac.or(link.mac));
        let (vendor, id) = self.ids(address)?;
        let mut unanswered = Vec::new();
        let mut told = Told { pf: address, unanswered: &mut unanswered };
        let firmware = told.or_default(Question::Firmware, firmware::of_card(self.root, vendor, address));
        let net_filter = told.or_default(Question::Network, platform::network(self.root, address, mac));
        let facts = PfFacts {
            address,
            vendor,
            device: id,
            driver: pci::device(self.root, address).driver()?,
            numa_node: self.numa_node(address)?,
            total_vfs: match card {
                Card::Pf { total_vfs } => total_vfs,
                Card::LoneVf => 1,
            },
            drivers_autoprobe: pci::drivers_autoprobe(self.root, address)?,
            eswitch: if is_pf { devlink::eswitch(&Handle::pci(address))? } else { Fact::None },
            tc_offload: match &link {
                Some(link) if is_pf && link.kind == LinkKind::Ethernet => ethtool::tc_offload(link.index)?,
                _ => None,
            },
            rdma: rdma::of_device(&device)?,
            firmware,
            is_lone_vf: !is_pf,
            net_filter,
            vfs: (0..).zip(vfs).map(|(index, vf)| self.vf(index, vf, &keeper)).collect::<Result<_, _>>()?,
            link: self
                .link_facts(link.as_ref(), netdevs.own.as_ref())?
                .map(|link| LinkFacts { is_named, ..link }),
        };
        Ok((facts, unanswered))
    }

    fn vf(&mut self, index: u16, address: PciAddress, pf: &Keeper<'_>) -> Result<VfFacts, HostError> {
        let device = self.root.device(address);
        let netdev = netdev::of_device(&device)?;
        let link = netdev.as_ref().map(|netdev| self.link(netdev.index)).transpose()?;
        // On InfiniBand a PF keeps GUIDs, and what stands in the field for a MAC means nothing.
        let keeps = |kind| pf.link.filter(|link| link.kind == kind);
        let (vendor, id) = self.ids(address)?;
        Ok(VfFacts {
            index,
            address,
            vendor,
            device: id,
            driver: pci::device(self.root, address).driver()?,
            admin_mac: keeps(LinkKind::Ethernet).and_then(|pf| pf.vf_macs.get(&index.into()).copied()),
            admin_guid: keeps(LinkKind::Infiniband).and_then(|pf| pf.vf_guids.get(&index.into()).copied()),
            rdma: rdma::of_device(&device)?,
            vdpa: vdpa::kind(self.root, address)?,
            representor: pf.representors.get(&index).cloned(),
            link: self.link_facts(link.as_ref(), netdev.as_ref())?,
        })
    }

    fn ids(&self, address: PciAddress) -> Result<(u16, u16), HostError> {
        let device = self.root.device(address);
        Ok((
            pci::vendor(self.root, address)?,
            sysfs::read_as(&device.join("device"), "a PCI device id", parse::id)?,
        ))
    }

    fn numa_node(&self, address: PciAddress) -> Result<Option<u16>, HostError> {
        let path = self.root.device(address).join("numa_node");
        let node = sysfs::read_if_there(&path, "a NUMA node", parse::numa_node)?;
        Ok(node.and_then(|node| u16::try_from(node).ok()))
    }

    /// As it was when all were listed; one that came since then is asked for.
    fn link(&mut self, index: u32) -> Result<Link, HostError> {
        match self.network.link(index) {
            Some(link) => Ok(link.clone()),
            None => self.rtnl.link(index),
        }
    }

    fn representors(
        &self,
        address: PciAddress,
        link: Option<&Link>,
        netdevs: &Netdevs,
    ) -> BTreeMap<u16, String> {
        let Some(link) = link.filter(|link| link.switch_port.is_some()) else { return BTreeMap::new() };
        let pf = Pf { link, function: address.function().into(), own: &netdevs.indices };
        representor::of_vfs(&pf, self.network.links())
    }

    fn link_facts(
        &self,
        link: Option<&Link>,
        netdev: Option<&Netdev>,
    ) -> Result<Option<LinkFacts>, HostError> {
        let Some((link, netdev)) = link.zip(netdev) else { return Ok(None) };
        Ok(Some(LinkFacts {
            name: link.name.clone(),
            alt_names: link.alt_names.clone(),
            // Nobody asks for a VF by its names.
            is_named: true,
            kind: link.kind,
            mac: link.mac,
            permanent_mac: link.permanent_mac,
            mtu: link.mtu,
            max_mtu: link.max_mtu,
            admin_up: link.is_up,
            speed: netdev.speed()?,
            switch_port: link.switch_port.clone(),
            host_use: self.network.host_use(link.index),
        }))
    }
}
