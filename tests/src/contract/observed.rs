//! Observed state of a card, in one form for the observer and for the facts of a host.

use vfleet_api::{Guid, MacAddr, PciAddress};
use vfleet_plan::{EswitchMode, Fact, LinkFacts, LinkKind, PfFacts};

/// PF with its VFs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedPf {
    pub address: PciAddress,
    pub vendor: u16,
    pub device: u16,
    pub driver: Option<String>,
    pub total_vfs: u16,
    pub autoprobe: bool,
    pub link: Option<ObservedLink>,
    pub vfs: Vec<ObservedVf>,
}

/// VF of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedVf {
    pub address: PciAddress,
    pub vendor: u16,
    pub device: u16,
    pub driver: Option<String>,
    /// Not part of the facts.
    pub driver_override: Option<String>,
    /// MAC that the PF assigns to the VF.
    pub admin_mac: Option<MacAddr>,
    pub link: Option<ObservedLink>,
}

/// Interface of a PF or VF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLink {
    pub name: String,
    pub alt_names: Vec<String>,
    pub is_ethernet: bool,
    pub mac: Option<MacAddr>,
    pub mtu: u32,
    pub max_mtu: Option<u32>,
    pub up: bool,
}

/// Embedded switch of a card with its ports. All fields are empty on a card without a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedEswitch {
    pub mode: Fact<EswitchMode>,
    /// Switch ID and port name of the interface of the PF.
    pub port: Option<(String, String)>,
    /// `hw-tc-offload`, if the card can switch it.
    pub tc_offload: Option<bool>,
    /// True if software steers flows; `None` if the card has no such setting. Not part of the facts.
    pub software_steering: Option<bool>,
    /// Representors of VFs, by index.
    pub representors: Vec<Option<String>>,
}

impl ObservedEswitch {
    /// Converts the facts of a host.
    pub fn from_facts(facts: &PfFacts) -> Self {
        Self {
            mode: facts.eswitch,
            port: facts.link.as_ref().and_then(|link| link.switch_port.clone()),
            tc_offload: facts.tc_offload,
            software_steering: None,
            representors: facts.vfs.iter().map(|vf| vf.representor.clone()).collect(),
        }
    }

    /// Clears the fields that are not part of the facts.
    #[must_use]
    pub fn as_in_facts(mut self) -> Self {
        self.software_steering = None;
        self
    }
}

/// GUIDs of a card and its VFs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedGuids {
    /// GUID of the RDMA device of the PF.
    pub pf_device: Option<Guid>,
    /// GUIDs of the RDMA devices of VFs, by index.
    pub vf_devices: Vec<Option<Guid>>,
    /// GUIDs that the PF assigns to its VFs, by index. InfiniBand only.
    pub admin_guids: Vec<Option<Guid>>,
}

impl ObservedGuids {
    /// Converts the facts of a host.
    pub fn from_facts(facts: &PfFacts) -> Self {
        Self {
            pf_device: facts.rdma.as_ref().map(|rdma| rdma.node_guid),
            vf_devices: facts.vfs.iter().map(|vf| vf.rdma.as_ref().map(|rdma| rdma.node_guid)).collect(),
            admin_guids: facts.vfs.iter().map(|vf| vf.admin_guid).collect(),
        }
    }
}

impl ObservedPf {
    /// Converts the facts of a host.
    pub fn from_facts(facts: &PfFacts) -> Self {
        Self {
            address: facts.address,
            vendor: facts.vendor,
            device: facts.device,
            driver: facts.driver.clone(),
            total_vfs: facts.total_vfs,
            autoprobe: facts.drivers_autoprobe,
            link: facts.link.as_ref().map(link_from_facts),
            vfs: facts
                .vfs
                .iter()
                .map(|vf| ObservedVf {
                    address: vf.address,
                    vendor: vf.vendor,
                    device: vf.device,
                    driver: vf.driver.clone(),
                    driver_override: None,
                    admin_mac: vf.admin_mac,
                    link: vf.link.as_ref().map(link_from_facts),
                })
                .collect(),
        }
    }

    /// Clears the fields that are not part of the facts.
    #[must_use]
    pub fn as_in_facts(mut self) -> Self {
        for vf in &mut self.vfs {
            vf.driver_override = None;
        }
        self
    }
}

fn link_from_facts(link: &LinkFacts) -> ObservedLink {
    ObservedLink {
        name: link.name.clone(),
        alt_names: link.alt_names.clone(),
        is_ethernet: link.kind == LinkKind::Ethernet,
        mac: link.mac,
        mtu: link.mtu,
        max_mtu: link.max_mtu,
        up: link.admin_up,
    }
}
