//! What a process can ask of the kernel, and what the kernel answers.
//!
//! Seen on Linux 6.12 with igb and igbvf; the contract suite holds both to it.

use std::io;

use thiserror::Error;
use vfleet_api::{MacAddr, PciAddress, VfRef};
use vfleet_plan::{LinkKind, is_userspace_driver};

use super::kernel::{Kernel, Link, Pf, Vf};
use super::random;

const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
const LOWEST_MTU: u32 = 68;
const VF_MTU: u32 = 1500;

/// The kernel says no.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", io::Error::from_raw_os_error(*errno))]
pub struct Refusal {
    /// Its number for that.
    pub errno: i32,
    /// Its words for that.
    pub message: Option<&'static str>,
}

const fn refuse(errno: i32) -> Refusal {
    Refusal { errno, message: None }
}

impl Kernel {
    /// Write to `sriov_numvfs`.
    pub fn set_num_vfs(&mut self, pf: PciAddress, count: u16) -> Result<(), Refusal> {
        let count = usize::from(count);
        let found = self.expect_pf(pf)?;
        if count > found.vf_addresses.len() {
            return Err(refuse(ERANGE));
        }
        if count == found.vfs.len() {
            return Ok(());
        }
        if found.driver.is_none() {
            return Err(refuse(ENOENT));
        }
        if count > 0 && !found.vfs.is_empty() {
            return Err(refuse(EBUSY));
        }
        found.vfs = found.vf_addresses.iter().take(count).map(|address| new_vf(*address)).collect();
        self.announced += 1;
        (0..).take(count).try_for_each(|index| self.probe(VfRef { pf, index }))
    }

    /// Write to `sriov_drivers_autoprobe`. Nothing is announced.
    pub fn set_autoprobe(&mut self, pf: PciAddress, on: bool) -> Result<(), Refusal> {
        self.expect_pf(pf)?.autoprobe = on;
        Ok(())
    }

    /// Write to `driver_override`. Nothing is announced, and nothing happens until the next probe.
    pub fn set_override(&mut self, vf: VfRef, driver: Option<&str>) -> Result<(), Refusal> {
        self.expect_vf(vf)?.driver_override = driver.map(str::to_owned);
        Ok(())
    }

    /// Write to a driver's `unbind`. The PF keeps the VF's address.
    pub fn unbind(&mut self, vf: VfRef) -> Result<(), Refusal> {
        let found = self.expect_vf(vf)?;
        found.driver.take().ok_or(refuse(ENODEV))?;
        found.link = None;
        found.is_held_elsewhere = false;
        self.announced += 1;
        Ok(())
    }

    /// Write to `drivers_probe`. Succeeds also when no driver takes the VF: so it is while autoprobe is off, unless
    /// an override names the driver, and with an override that names a driver that is not there or wants no VFs.
    pub fn probe(&mut self, vf: VfRef) -> Result<(), Refusal> {
        let autoprobe = self.expect_pf(vf.pf)?.autoprobe;
        let of_the_card = self.expect_pf(vf.pf)?.vf_driver.clone();
        let found = self.expect_vf(vf)?;
        if found.driver.is_some() {
            return Ok(());
        }
        let driver = found.driver_override.clone().or(Some(of_the_card.clone()).filter(|_| autoprobe));
        match driver {
            Some(driver) if driver == of_the_card || self.userspace_drivers.contains(&driver) => {
                self.bind(vf, driver)
            }
            _ => Ok(()),
        }
    }

    /// Whether a driver of this name is loaded.
    pub fn has_driver(&self, name: &str) -> bool {
        let of_a_card = |pf: &Pf| pf.vf_driver == name || pf.driver.as_deref() == Some(name);
        self.userspace_drivers.contains(name) || self.pfs.iter().any(of_a_card)
    }

    /// A driver of the network stack takes up the address that the PF keeps; it makes one up when there is none, or
    /// when it cannot ask the PF because that is down. When it can, it tells the PF of it. What it makes up udev
    /// replaces by an address that is always the same for the same VF.
    fn bind(&mut self, vf: VfRef, driver: String) -> Result<(), Refusal> {
        let made_up = random::mac(&format!("{} {vf}", self.seed));
        let pf_link = self.expect_pf(vf.pf)?.link.clone();
        let pf_is_up = pf_link.as_ref().is_some_and(|link| link.up);
        let found = self.expect_vf(vf)?;
        if let Some(pf_link) = pf_link.filter(|_| !is_userspace_driver(&driver)) {
            let mac = Some(found.admin_mac).filter(|_| pf_is_up && found.admin_mac_is_set).unwrap_or(made_up);
            if pf_is_up {
                found.admin_mac = mac;
            }
            found.link = Some(vf_link(&pf_link, vf.index, mac));
        }
        found.driver = Some(driver);
        self.announced += 1;
        Ok(())
    }

    /// Set the address that a PF keeps for a VF. An interface that the VF has keeps its own until the next bind.
    /// Zero makes the PF forget. Announced only while the PF is up.
    pub fn set_vf_mac(&mut self, vf: VfRef, mac: MacAddr) -> Result<(), Refusal> {
        let pf_is_up = self.expect_pf(vf.pf)?.link.as_ref().ok_or(refuse(ENODEV))?.up;
        let found = self.expect_vf(vf).map_err(|_| refuse(EINVAL))?;
        if mac != MacAddr::ZERO && !mac.is_usable() {
            return Err(refuse(EINVAL));
        }
        found.admin_mac = mac;
        found.admin_mac_is_set = mac != MacAddr::ZERO;
        self.announced += u64::from(pf_is_up);
        Ok(())
    }

    /// Set the interface of a PF up or down. VFs keep what they have.
    pub fn set_up(&mut self, pf: PciAddress, up: bool) -> Result<(), Refusal> {
        self.expect_pf(pf)?.link.as_mut().ok_or(refuse(ENODEV))?.up = up;
        self.announced += 1;
        Ok(())
    }

    /// Set the MTU of a PF's interface. Those of its VFs stay.
    pub fn set_pf_mtu(&mut self, pf: PciAddress, mtu: u32) -> Result<(), Refusal> {
        set_mtu(self.expect_pf(pf)?.link.as_mut(), mtu)?;
        self.announced += 1;
        Ok(())
    }

    /// Set the MTU of a VF's interface.
    pub fn set_vf_mtu(&mut self, vf: VfRef, mtu: u32) -> Result<(), Refusal> {
        let found = self.expect_vf(vf)?;
        set_mtu(found.link.as_mut().filter(|_| !found.is_held_elsewhere), mtu)?;
        self.announced += 1;
        Ok(())
    }

    /// Move the interface of a VF into another network namespace, or back.
    pub fn hold_elsewhere(&mut self, vf: VfRef, elsewhere: bool) -> Result<(), Refusal> {
        let found = self.expect_vf(vf)?;
        if found.link.is_none() {
            return Err(refuse(ENODEV));
        }
        found.is_held_elsewhere = elsewhere;
        self.announced += 1;
        Ok(())
    }

    fn expect_pf(&mut self, pf: PciAddress) -> Result<&mut Pf, Refusal> {
        self.pf_mut(pf).ok_or(refuse(ENOENT))
    }

    fn expect_vf(&mut self, vf: VfRef) -> Result<&mut Vf, Refusal> {
        self.expect_pf(vf.pf)?.vfs.get_mut(usize::from(vf.index)).ok_or(refuse(ENOENT))
    }
}

fn new_vf(address: PciAddress) -> Vf {
    Vf {
        address,
        driver: None,
        driver_override: None,
        admin_mac: MacAddr::ZERO,
        admin_mac_is_set: false,
        link: None,
        is_held_elsewhere: false,
    }
}

fn vf_link(pf: &Link, index: u16, mac: MacAddr) -> Link {
    Link {
        name: format!("{}v{index}", pf.name),
        alt_names: Vec::new(),
        kind: LinkKind::Ethernet,
        mac,
        mtu: VF_MTU,
        max_mtu: pf.max_mtu,
        up: false,
        speed: None,
    }
}

fn set_mtu(link: Option<&mut Link>, mtu: u32) -> Result<(), Refusal> {
    let link = link.ok_or(refuse(ENODEV))?;
    let message = if mtu < LOWEST_MTU {
        "mtu less than device minimum"
    } else if link.max_mtu.is_some_and(|max| mtu > max) {
        "mtu greater than device maximum"
    } else {
        link.mtu = mtu;
        return Ok(());
    };
    Err(Refusal { errno: EINVAL, message: Some(message) })
}
