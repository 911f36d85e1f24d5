//! Devices of a running simulated machine. Tests may read and change the fields directly.

use vfleet_api::{Guid, MacAddr, PciAddress};
use vfleet_plan::cni::facts::{LinkState, VfVlan};
use vfleet_plan::{EswitchMode, FirmwareFacts, HostUse, LinkKind, Master, VdpaKind};

use super::machine::MachinePf;
use super::random;

/// PF or lone VF.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "they are the switches of a card")]
pub struct SimPf {
    /// PCI address.
    pub address: PciAddress,
    /// PCI vendor ID.
    pub vendor: u16,
    /// PCI device ID.
    pub device: u16,
    /// PCI device ID of its VFs.
    pub vf_device: u16,
    /// Driver of the PF; `None` for a lone VF, whose driver is that of its only VF.
    pub driver: Option<String>,
    /// Driver that the kernel chooses for its VFs.
    pub vf_driver: String,
    /// NUMA node.
    pub numa_node: Option<u16>,
    /// Addresses of its VFs, as many as it supports now.
    pub vf_addresses: Vec<PciAddress>,
    /// `sriov_drivers_autoprobe`.
    pub autoprobe: bool,
    /// eswitch mode; `None` without an eswitch.
    pub eswitch: Option<EswitchMode>,
    /// `hw-tc-offload`; `None` if it cannot be switched.
    pub tc_offload: Option<bool>,
    /// Software steering is on.
    pub software_steering: bool,
    /// RDMA device. If the PF has one, its VFs have one too.
    pub rdma: Option<SimRdmaDevice>,
    /// Firmware settings.
    pub firmware: Option<FirmwareFacts>,
    /// The card is a lone VF, which is its own and only VF.
    pub is_lone_vf: bool,
    /// Network in a cloud, in the format of `netFilter`.
    pub net_filter: Option<String>,
    /// Interface; `None` for a lone VF, whose interface is that of its only VF.
    pub link: Option<SimLink>,
    /// VFs by index.
    pub vfs: Vec<SimVf>,
    /// The driver hangs: the card can be neither read nor changed.
    pub is_hanging: bool,
}

/// VF of a simulated machine.
#[derive(Clone, Debug, PartialEq)]
pub struct SimVf {
    /// PCI address.
    pub address: PciAddress,
    /// Driver of the VF.
    pub driver: Option<String>,
    /// `driver_override`.
    pub driver_override: Option<String>,
    /// MAC address of the VF that the PF stores.
    pub admin_mac: MacAddr,
    /// `admin_mac` was set through the PF, not chosen by the VF.
    pub admin_mac_is_set: bool,
    /// GUID of the VF that an InfiniBand PF stores.
    pub admin_guid: Guid,
    /// Other settings of the VF that the PF stores.
    pub settings: SimVfSettings,
    /// RDMA device.
    pub rdma: Option<SimRdmaDevice>,
    /// Inode of the network namespace of the RDMA device; `None` is the host's.
    pub rdma_namespace: Option<u64>,
    /// Kind of its vDPA device.
    pub vdpa: Option<VdpaKind>,
    /// MAC address of its vDPA device, if somebody set it.
    pub vdpa_mac: Option<MacAddr>,
    /// Name of its representor.
    pub representor: Option<String>,
    /// Interface of its representor.
    pub representor_link: SimPortLink,
    /// Interface.
    pub link: Option<SimLink>,
    /// Inode of the network namespace of the interface, as that of a VF in a pod; `None` is the host's.
    pub namespace: Option<u64>,
}

/// Interface of a representor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimPortLink {
    /// MTU.
    pub mtu: u32,
    /// Administrative state.
    pub up: bool,
}

impl Default for SimPortLink {
    fn default() -> Self {
        Self { mtu: 1500, up: false }
    }
}

/// Settings of a VF that its PF stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimVfSettings {
    /// VLAN.
    pub vlan: VfVlan,
    /// Spoof checking.
    pub spoof_check: bool,
    /// Trust.
    pub trust: bool,
    /// Minimum rate in Mbit/s; 0 for none.
    pub min_tx_rate: u32,
    /// Maximum rate in Mbit/s; 0 for none.
    pub max_tx_rate: u32,
    /// Link state.
    pub link_state: LinkState,
}

/// RDMA device of a simulated machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimRdmaDevice {
    /// Name.
    pub device: String,
    /// Node GUID.
    pub node_guid: Guid,
    /// GUID of the port.
    pub port_guid: Guid,
}

/// Interface of a simulated machine.
#[derive(Clone, Debug, PartialEq)]
pub struct SimLink {
    /// Name.
    pub name: String,
    /// Alternative names.
    pub alt_names: Vec<String>,
    /// udev has named the interface.
    pub is_named: bool,
    /// Link type.
    pub kind: LinkKind,
    /// MAC address.
    pub mac: MacAddr,
    /// MAC address of the hardware.
    pub permanent_mac: Option<MacAddr>,
    /// MTU.
    pub mtu: u32,
    /// Maximum MTU.
    pub max_mtu: Option<u32>,
    /// Administrative state.
    pub up: bool,
    /// Speed in Mbit/s while the interface is up.
    pub speed: Option<u32>,
    /// IP addresses with the length of their prefix, which the interface has in the namespace of a pod.
    pub ips: Vec<String>,
    /// Use by the node.
    pub host_use: Option<HostUse>,
    /// Bond or other interface that this one is a member of; for bridges see [`Kernel::bridges`](super::Kernel::bridges)
    /// and [`Kernel::ovs`](super::Kernel::ovs).
    pub master: Option<Master>,
}

impl SimPf {
    /// Returns a card right after a boot, without VFs.
    pub(super) fn at_boot(card: &MachinePf, seed: &str) -> Self {
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
            rdma: (card.has_rdma() && is_bound).then(|| rdma_device(card, seed)),
            firmware,
            is_lone_vf: card.lone_vf,
            net_filter: card.net_filter.clone(),
            link: is_bound.then(|| SimLink::from_machine_pf(card, seed)),
            vfs: Vec::new(),
            is_hanging: false,
        };
        pf.set_supported_vfs(card);
        if card.lone_vf {
            pf.vfs = vec![SimVf::new(card.address)];
        }
        pf
    }

    /// Sets the number of supported VFs: that of the firmware settings, else that of the card.
    pub(super) fn set_supported_vfs(&mut self, card: &MachinePf) {
        let settings = self.firmware.as_ref().map(|firmware| &firmware.current);
        let total = match settings {
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

    /// Returns the link type of the PF and its VFs.
    pub(super) fn link_kind(&self) -> LinkKind {
        self.link.as_ref().map_or(LinkKind::Ethernet, |link| link.kind)
    }
}

impl SimVf {
    /// Returns a new VF.
    pub(super) fn new(address: PciAddress) -> Self {
        Self {
            address,
            driver: None,
            driver_override: None,
            admin_mac: MacAddr::ZERO,
            admin_mac_is_set: false,
            admin_guid: Guid([0; 8]),
            settings: SimVfSettings::default(),
            rdma: None,
            rdma_namespace: None,
            vdpa: None,
            vdpa_mac: None,
            representor: None,
            representor_link: SimPortLink::default(),
            link: None,
            namespace: None,
        }
    }
}

impl Default for SimVfSettings {
    fn default() -> Self {
        Self {
            vlan: VfVlan::default(),
            spoof_check: true,
            trust: false,
            min_tx_rate: 0,
            max_tx_rate: 0,
            link_state: LinkState::Auto,
        }
    }
}

impl SimVf {
    /// Returns the names of its representor and of its interface.
    pub(super) fn interface_names(&self) -> Vec<String> {
        let link = self.link.as_ref().map(|link| link.name.clone());
        self.representor.iter().cloned().chain(link).collect()
    }
}

impl SimLink {
    /// Returns the interface of a card right after a boot.
    pub(super) fn from_machine_pf(card: &MachinePf, seed: &str) -> Self {
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
            ips: Vec::new(),
            host_use: card.host_use,
            master: None,
        }
    }
}

fn rdma_device(card: &MachinePf, seed: &str) -> SimRdmaDevice {
    let generated = || random::guid(&format!("{seed} {}", card.address));
    let node_guid = card.node_guid.unwrap_or_else(generated);
    let port_guid = card.port_guid.unwrap_or(node_guid);
    SimRdmaDevice { device: format!("rdma-{}", card.name), node_guid, port_guid }
}
