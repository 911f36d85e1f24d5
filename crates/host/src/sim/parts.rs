//! What a machine has while it runs. Plain data, to be looked at and changed at will.

use vfleet_api::{Guid, MacAddr, PciAddress};
use vfleet_plan::{EswitchMode, FirmwareFacts, HostUse, LinkKind, VdpaKind};

use super::machine::MachinePf;
use super::random;

/// A PF, or a VF that a hypervisor gave.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "they are the switches of a card")]
pub struct Pf {
    /// PCI address.
    pub address: PciAddress,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// PCI device id of its VFs.
    pub vf_device: u16,
    /// Driver that it is bound to; none for a lone VF, whose own is that of its only VF.
    pub driver: Option<String>,
    /// Driver that the kernel chooses for its VFs.
    pub vf_driver: String,
    /// The NUMA node that it is near to.
    pub numa_node: Option<u16>,
    /// Where its VFs would be; as many as it can have now.
    pub vf_addresses: Vec<PciAddress>,
    /// `sriov_drivers_autoprobe`.
    pub autoprobe: bool,
    /// Mode of its embedded switch, if it has one.
    pub eswitch: Option<EswitchMode>,
    /// `hw-tc-offload`, if it can be switched.
    pub tc_offload: Option<bool>,
    /// Whether software steers its flows.
    pub software_steering: bool,
    /// Its RDMA device; its VFs get some too, then.
    pub rdma: Option<Rdma>,
    /// Settings of its firmware.
    pub firmware: Option<FirmwareFacts>,
    /// Whether it is a VF without its PF. It is its own and only VF then.
    pub is_lone_vf: bool,
    /// The network that a cloud says that it is on.
    pub net_filter: Option<String>,
    /// Its interface; that of a lone VF is its VF's.
    pub link: Option<Link>,
    /// Its VFs.
    pub vfs: Vec<Vf>,
    /// Whether its driver hangs: it can neither be read nor changed.
    pub hangs: bool,
}

/// A VF.
#[derive(Clone, Debug, PartialEq)]
pub struct Vf {
    /// PCI address.
    pub address: PciAddress,
    /// Driver that it is bound to.
    pub driver: Option<String>,
    /// `driver_override`.
    pub driver_override: Option<String>,
    /// The address that the PF keeps for it.
    pub admin_mac: MacAddr,
    /// Whether that was set through the PF; else the VF chose it.
    pub admin_mac_is_set: bool,
    /// The GUID that the PF keeps for it, on InfiniBand.
    pub admin_guid: Guid,
    /// Its RDMA device.
    pub rdma: Option<Rdma>,
    /// The vDPA device made of it.
    pub vdpa: Option<VdpaKind>,
    /// The interface that stands for it on the embedded switch.
    pub representor: Option<String>,
    /// Its interface.
    pub link: Option<Link>,
    /// Whether the interface is in another network namespace, as one that a pod holds.
    pub is_held_elsewhere: bool,
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rdma {
    /// Name.
    pub device: String,
    /// Node GUID.
    pub node_guid: Guid,
    /// GUID of its port.
    pub port_guid: Guid,
}

/// An interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name.
    pub name: String,
    /// Other names.
    pub alt_names: Vec<String>,
    /// Whether udev has given it its names.
    pub is_named: bool,
    /// What it speaks.
    pub kind: LinkKind,
    /// Address.
    pub mac: MacAddr,
    /// The address that the hardware gave, if it did.
    pub permanent_mac: Option<MacAddr>,
    /// MTU.
    pub mtu: u32,
    /// Highest MTU.
    pub max_mtu: Option<u32>,
    /// Whether it is set up.
    pub up: bool,
    /// Speed in Mbit/s while it is up.
    pub speed: Option<u32>,
    /// What the node itself uses it for.
    pub host_use: Option<HostUse>,
}

impl Pf {
    /// A card as it is right after the start of the machine, without VFs.
    pub(super) fn plugged_in(card: &MachinePf, seed: &str) -> Self {
        let is_bound = card.driver.is_some() && !card.lone_vf;
        let firmware = card
            .firmware
            .as_ref()
            .map(|settings| FirmwareFacts { current: settings.into(), next_boot: settings.into() });
        let mut pf = Self {
            address: card.address,
            vendor: card.vendor.0,
            device: card.device.0,
            vf_device: if card.lone_vf { card.device.0 } else { card.vf_device.0 },
            driver: card.driver.clone().filter(|_| is_bound),
            vf_driver: card.vf_driver.clone(),
            numa_node: card.numa_node,
            vf_addresses: Vec::new(),
            autoprobe: card.autoprobe || card.lone_vf,
            eswitch: card.eswitch.filter(|_| is_bound),
            tc_offload: card.tc_offload.filter(|_| is_bound),
            software_steering: false,
            rdma: (card.has_rdma() && is_bound).then(|| rdma(card, seed)),
            firmware,
            is_lone_vf: card.lone_vf,
            net_filter: card.net_filter.clone(),
            link: is_bound.then(|| Link::of_card(card, seed)),
            vfs: Vec::new(),
            hangs: false,
        };
        pf.show_vfs(card);
        if card.lone_vf {
            pf.vfs = vec![Vf::new(card.address)];
        }
        pf
    }

    /// Shows as many VFs as the firmware was told to; without one, as many as there are.
    pub(super) fn show_vfs(&mut self, card: &MachinePf) {
        let told = self.firmware.as_ref().map(|firmware| &firmware.current);
        let total = match told {
            Some(settings) if settings.sriov == Some(false) => 0,
            Some(settings) => settings.num_vfs.unwrap_or(card.total_vfs).min(card.total_vfs),
            None => card.total_vfs,
        };
        self.vf_addresses = if card.lone_vf {
            vec![card.address]
        } else {
            (0..total).map_while(|index| card.vf_address(index)).collect()
        };
    }

    /// What it and its VFs speak.
    pub(super) fn kind(&self) -> LinkKind {
        self.link.as_ref().map_or(LinkKind::Ethernet, |link| link.kind)
    }
}

impl Vf {
    /// A VF that was just made.
    pub(super) fn new(address: PciAddress) -> Self {
        Self {
            address,
            driver: None,
            driver_override: None,
            admin_mac: MacAddr::ZERO,
            admin_mac_is_set: false,
            admin_guid: Guid([0; 8]),
            rdma: None,
            vdpa: None,
            representor: None,
            link: None,
            is_held_elsewhere: false,
        }
    }
}

impl Link {
    /// The interface of a card as it is right after the start of the machine.
    pub(super) fn of_card(card: &MachinePf, seed: &str) -> Self {
        let mac = card.mac.unwrap_or_else(|| random::mac(&format!("{seed} {}", card.address)));
        Self {
            name: card.name.clone(),
            alt_names: card.alt_names.clone(),
            is_named: true,
            kind: card.link_kind.into(),
            mac,
            permanent_mac: Some(card.permanent_mac.unwrap_or(mac)),
            mtu: card.mtu,
            max_mtu: card.max_mtu,
            up: card.up,
            speed: card.speed,
            host_use: card.host_use,
        }
    }
}

fn rdma(card: &MachinePf, seed: &str) -> Rdma {
    let made_up = || random::guid(&format!("{seed} {}", card.address));
    let node_guid = card.node_guid.unwrap_or_else(made_up);
    let port_guid = card.port_guid.unwrap_or(node_guid);
    Rdma { device: format!("rdma-{}", card.name), node_guid, port_guid }
}
