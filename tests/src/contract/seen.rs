//! A card as a witness sees it, and as facts tell it, in one form.

use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::{LinkFacts, LinkKind, PfFacts};

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
