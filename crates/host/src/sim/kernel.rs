use std::collections::{BTreeMap, BTreeSet};

use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::{LinkKind, Record};

use super::machine::{Machine, MachineError, MachinePf};
use super::random;

/// A machine while it runs. Plain data, to be looked at and changed at will; its methods (in `requests`) are
/// what any process can ask of a kernel, and obey its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// By address.
    pub pfs: Vec<Pf>,
    /// Drivers for VFs in programs.
    pub userspace_drivers: BTreeSet<String>,
    /// Files of records.
    pub records: BTreeMap<PciAddress, Record>,
    /// How many events were announced.
    pub(super) announced: u64,
    /// Decides over addresses that nobody chose.
    pub(super) seed: String,
}

/// A PF.
#[derive(Clone, Debug, PartialEq)]
pub struct Pf {
    /// PCI address.
    pub address: PciAddress,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// PCI device id of its VFs.
    pub vf_device: u16,
    /// Driver that it is bound to.
    pub driver: Option<String>,
    /// Driver that the kernel chooses for its VFs.
    pub vf_driver: String,
    /// Where its VFs would be; as many as it can have.
    pub vf_addresses: Vec<PciAddress>,
    /// `sriov_drivers_autoprobe`.
    pub autoprobe: bool,
    /// Its interface.
    pub link: Option<Link>,
    /// Its VFs.
    pub vfs: Vec<Vf>,
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
    /// Its interface.
    pub link: Option<Link>,
    /// Whether the interface is in another network namespace, as one that a pod holds.
    pub is_held_elsewhere: bool,
}

/// An interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name.
    pub name: String,
    /// Other names.
    pub alt_names: Vec<String>,
    /// What it speaks.
    pub kind: LinkKind,
    /// Address.
    pub mac: MacAddr,
    /// MTU.
    pub mtu: u32,
    /// Highest MTU.
    pub max_mtu: Option<u32>,
    /// Whether it is set up.
    pub up: bool,
    /// Speed in Mbit/s while it is up.
    pub speed: Option<u32>,
}

impl Kernel {
    /// Boots `machine`. The seed decides over the addresses that it does not name.
    pub(super) fn boot(machine: &Machine, seed: &str) -> Result<Self, MachineError> {
        machine.check()?;
        let mut kernel = Self {
            pfs: machine.pfs.iter().map(|pf| plug_in(pf, seed)).collect(),
            userspace_drivers: machine.userspace_drivers.iter().cloned().collect(),
            records: machine.records.iter().map(|record| (record.pf, record.clone())).collect(),
            announced: 0,
            seed: seed.to_owned(),
        };
        kernel.pfs.sort_by_key(|pf| pf.address);
        for pf in machine.pfs.iter().filter(|pf| pf.num_vfs > 0) {
            kernel.set_num_vfs(pf.address, pf.num_vfs).map_err(|refusal| MachineError::Impossible {
                pf: pf.address,
                what: format!("it cannot have {} VFs: {refusal}", pf.num_vfs),
            })?;
        }
        Ok(kernel)
    }

    /// The PF at `address`.
    pub fn pf(&self, address: PciAddress) -> Option<&Pf> {
        self.pfs.iter().find(|pf| pf.address == address)
    }

    /// The PF at `address`, to change it as no kernel would.
    pub fn pf_mut(&mut self, address: PciAddress) -> Option<&mut Pf> {
        self.pfs.iter_mut().find(|pf| pf.address == address)
    }
}

fn plug_in(pf: &MachinePf, seed: &str) -> Pf {
    let mac = pf.mac.unwrap_or_else(|| random::mac(&format!("{seed} {}", pf.address)));
    let link = Link {
        name: pf.name.clone(),
        alt_names: pf.alt_names.clone(),
        kind: LinkKind::Ethernet,
        mac,
        mtu: pf.mtu,
        max_mtu: pf.max_mtu,
        up: pf.up,
        speed: pf.speed,
    };
    Pf {
        address: pf.address,
        vendor: pf.vendor.0,
        device: pf.device.0,
        vf_device: pf.vf_device.0,
        driver: pf.driver.clone(),
        vf_driver: pf.vf_driver.clone(),
        vf_addresses: (0..pf.total_vfs).map_while(|index| pf.vf_address(index)).collect(),
        autoprobe: pf.autoprobe,
        link: pf.driver.is_some().then_some(link),
        vfs: Vec::new(),
    }
}
