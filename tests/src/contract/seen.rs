//! A card as a witness sees it, and as facts tell it, in one form.

use vfleet_api::{Guid, MacAddr, PciAddress};
use vfleet_plan::{EswitchMode, Fact, LinkFacts, LinkKind, PfFacts};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenPf {
    pub address: PciAddress,
    pub vendor: u16,
    pub device: u16,
    pub driver: Option<String>,
    pub total_vfs: u16,
    pub autoprobe: bool,
    pub link: Option<SeenLink>,
    pub vfs: Vec<SeenVf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenVf {
    pub address: PciAddress,
    pub vendor: u16,
    pub device: u16,
    pub driver: Option<String>,
    /// Not among the facts.
    pub driver_override: Option<String>,
    pub admin_mac: Option<MacAddr>,
    pub link: Option<SeenLink>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenLink {
    pub name: String,
    pub alt_names: Vec<String>,
    pub is_ethernet: bool,
    pub mac: Option<MacAddr>,
    pub mtu: u32,
    pub max_mtu: Option<u32>,
    pub up: bool,
}

/// The embedded switch of a card, and what belongs to it. All is missing where there is no switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSwitch {
    pub mode: Fact<EswitchMode>,
    /// Which switch the card's own interface is a port of, and which port.
    pub port: Option<(String, String)>,
    /// `hw-tc-offload`, where it can be switched.
    pub tc_offload: Option<bool>,
    /// Whether software steers flows, where that can be chosen. Not among the facts.
    pub software_steering: Option<bool>,
    /// The interfaces that stand for VFs, by index.
    pub representors: Vec<Option<String>>,
}

impl SeenSwitch {
    /// The switch as a host's facts have it.
    pub fn told(facts: &PfFacts) -> Self {
        Self {
            mode: facts.eswitch,
            port: facts.link.as_ref().and_then(|link| link.switch_port.clone()),
            tc_offload: facts.tc_offload,
            software_steering: None,
            representors: facts.vfs.iter().map(|vf| vf.representor.clone()).collect(),
        }
    }

    /// The switch without what facts do not tell.
    #[must_use]
    pub fn as_told(mut self) -> Self {
        self.software_steering = None;
        self
    }
}

/// The GUIDs of a card and its VFs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenGuids {
    /// Of the card's own RDMA device.
    pub of_pf: Option<Guid>,
    /// Of the RDMA devices of VFs, by index.
    pub of_vfs: Vec<Option<Guid>>,
    /// That the card keeps for its VFs, by index, on InfiniBand.
    pub kept: Vec<Option<Guid>>,
}

impl SeenGuids {
    /// The GUIDs as a host's facts have them.
    pub fn told(facts: &PfFacts) -> Self {
        Self {
            of_pf: facts.rdma.as_ref().map(|rdma| rdma.node_guid),
            of_vfs: facts.vfs.iter().map(|vf| vf.rdma.as_ref().map(|rdma| rdma.node_guid)).collect(),
            kept: facts.vfs.iter().map(|vf| vf.admin_guid).collect(),
        }
    }
}

impl SeenPf {
    /// The card as a host's facts have it.
    pub fn told(facts: &PfFacts) -> Self {
        Self {
            address: facts.address,
            vendor: facts.vendor,
            device: facts.device,
            driver: facts.driver.clone(),
            total_vfs: facts.total_vfs,
            autoprobe: facts.drivers_autoprobe,
            link: facts.link.as_ref().map(told_link),
            vfs: facts
                .vfs
                .iter()
                .map(|vf| SeenVf {
                    address: vf.address,
                    vendor: vf.vendor,
                    device: vf.device,
                    driver: vf.driver.clone(),
                    driver_override: None,
                    admin_mac: vf.admin_mac,
                    link: vf.link.as_ref().map(told_link),
                })
                .collect(),
        }
    }

    /// The card without what facts do not tell.
    #[must_use]
    pub fn as_told(mut self) -> Self {
        for vf in &mut self.vfs {
            vf.driver_override = None;
        }
        self
    }
}

fn told_link(link: &LinkFacts) -> SeenLink {
    SeenLink {
        name: link.name.clone(),
        alt_names: link.alt_names.clone(),
        is_ethernet: link.kind == LinkKind::Ethernet,
        mac: link.mac,
        mtu: link.mtu,
        max_mtu: link.max_mtu,
        up: link.admin_up,
    }
}
