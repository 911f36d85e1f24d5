use vfleet_api::{Guid, MacAddr, VfRef};
use vfleet_plan::{LinkKind, is_userspace_driver};

use super::{ENODEV, Refusal, refuse};
use crate::sim::kernel::Kernel;
use crate::sim::parts::{Link, Pf, Rdma, Vf};
use crate::sim::random;

const VF_MTU: u32 = 1500;
const INFINIBAND_VF_MTU: u32 = 2044;

impl Kernel {
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
        found.rdma = None;
        found.vdpa = None;
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
            Some(driver) if driver == of_the_card => self.bind_to_kernel(vf, driver),
            Some(driver) if self.userspace_drivers.contains(&driver) && self.is_safe_with(&driver) => {
                self.expect_vf(vf)?.driver = Some(driver);
                self.announced += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether a driver of this name is loaded.
    pub fn has_driver(&self, name: &str) -> bool {
        let of_a_card = |pf: &Pf| pf.vf_driver == name || pf.driver.as_deref() == Some(name);
        self.userspace_drivers.contains(name) || self.pfs.iter().any(of_a_card)
    }

    /// vfio takes no device that no IOMMU fences in, unless it was told to.
    fn is_safe_with(&self, driver: &str) -> bool {
        driver != "vfio-pci" || self.has_iommu || self.vfio_without_iommu
    }

    /// A driver of the network stack takes up the address that the PF keeps; it makes one up when there is none, or
    /// when it cannot ask the PF because that is down. When it can, it tells the PF of it. What it makes up udev
    /// replaces by an address that is always the same for the same VF.
    fn bind_to_kernel(&mut self, vf: VfRef, driver: String) -> Result<(), Refusal> {
        debug_assert!(!is_userspace_driver(&driver), "{driver} makes no interface");
        let made_up = random::mac(&format!("{} {vf}", self.seed));
        let lone = self.card(vf.pf).filter(|card| card.lone_vf).map(|card| Link::of_card(card, &self.seed));
        let pf = self.expect_pf(vf.pf)?;
        let (pf_link, has_rdma) = (pf.link.clone(), pf.rdma.is_some());
        let pf_is_up = pf_link.as_ref().is_some_and(|link| link.up);
        let found = self.expect_vf(vf)?;
        if let Some(pf_link) = pf_link {
            let kept = Some(found.admin_mac).filter(|_| pf_is_up && found.admin_mac_is_set);
            found.rdma = has_rdma.then(|| vf_rdma(&pf_link, vf.index, found));
            if pf_is_up {
                found.admin_mac = kept.unwrap_or(made_up);
            }
            found.link = Some(vf_link(&pf_link, vf.index, kept, made_up));
        } else {
            found.link = lone;
        }
        found.driver = Some(driver);
        self.announced += 1;
        Ok(())
    }
}

fn vf_link(pf: &Link, index: u16, kept: Option<MacAddr>, made_up: MacAddr) -> Link {
    Link {
        name: format!("{}v{index}", pf.name),
        alt_names: Vec::new(),
        is_named: true,
        kind: pf.kind,
        mac: kept.unwrap_or(made_up),
        permanent_mac: kept,
        mtu: if pf.kind == LinkKind::Infiniband { INFINIBAND_VF_MTU } else { VF_MTU },
        max_mtu: pf.max_mtu,
        up: false,
        speed: None,
        host_use: None,
    }
}

/// On InfiniBand the VF has the GUID that the PF keeps; on Ethernet one made of the address that the PF keeps. In both
/// cases none while the PF keeps none.
fn vf_rdma(pf: &Link, index: u16, vf: &Vf) -> Rdma {
    let [first, second, third, rest @ ..] = vf.admin_mac.0;
    let node_guid = match pf.kind {
        LinkKind::Infiniband => vf.admin_guid,
        _ if vf.admin_mac == MacAddr::ZERO => Guid([0; 8]),
        _ => Guid([first ^ 2, second, third, 0xff, 0xfe, rest[0], rest[1], rest[2]]),
    };
    Rdma { device: format!("rdma-{}v{index}", pf.name), node_guid, port_guid: node_guid }
}
