use vfleet_api::{Guid, MacAddr, PciAddress, VfRef};
use vfleet_plan::{HostUse, LinkKind};

use super::{EINVAL, ENODEV, EOPNOTSUPP, Refusal, refuse};
use crate::sim::kernel::Kernel;
use crate::sim::parts::Link;

const LOWEST_MTU: u32 = 68;

impl Kernel {
    /// Set the address that a PF keeps for a VF. An interface that the VF has keeps its own until the next bind.
    /// Zero makes the PF forget. Announced only while the PF is up.
    pub fn set_vf_mac(&mut self, vf: VfRef, mac: MacAddr) -> Result<(), Refusal> {
        let link = self.expect_pf(vf.pf)?.link.as_ref().ok_or(refuse(ENODEV))?;
        let (pf_is_up, kind) = (link.up, link.kind);
        if kind != LinkKind::Ethernet {
            return Err(refuse(EOPNOTSUPP));
        }
        let found = self.expect_vf(vf).map_err(|_| refuse(EINVAL))?;
        if mac != MacAddr::ZERO && !mac.is_usable() {
            return Err(refuse(EINVAL));
        }
        found.admin_mac = mac;
        found.admin_mac_is_set = mac != MacAddr::ZERO;
        self.announced += u64::from(pf_is_up);
        Ok(())
    }

    /// Set the node and port GUID that a PF keeps for a VF, which takes them up at the next bind.
    pub fn set_vf_guid(&mut self, vf: VfRef, guid: Guid) -> Result<(), Refusal> {
        let link = self.expect_pf(vf.pf)?.link.as_ref().ok_or(refuse(ENODEV))?;
        if link.kind != LinkKind::Infiniband {
            return Err(refuse(EOPNOTSUPP));
        }
        self.expect_vf(vf).map_err(|_| refuse(EINVAL))?.admin_guid = guid;
        self.announced += 1;
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

    /// Have the node itself use the interface of a PF, or stop it.
    pub fn use_pf(&mut self, pf: PciAddress, host_use: Option<HostUse>) -> Result<(), Refusal> {
        self.expect_pf(pf)?.link.as_mut().ok_or(refuse(ENODEV))?.host_use = host_use;
        self.announced += 1;
        Ok(())
    }

    /// Have the node itself use the interface of a VF, or stop it.
    pub fn use_vf(&mut self, vf: VfRef, host_use: Option<HostUse>) -> Result<(), Refusal> {
        self.expect_vf(vf)?.link.as_mut().ok_or(refuse(ENODEV))?.host_use = host_use;
        self.announced += 1;
        Ok(())
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
