//! Requests that configure interfaces.

use vfleet_api::{Guid, MacAddr, PciAddress, VfRef};
use vfleet_plan::{HostUse, LinkKind};

use super::{EINVAL, ENODEV, EOPNOTSUPP, Refusal, refuse};
use crate::sim::devices::SimLink;
use crate::sim::kernel::Kernel;
use crate::sim::namespaces::OTHER_NAMESPACE;

const MIN_MTU: u32 = 68;

impl Kernel {
    /// Sets the MAC address of a VF that the PF stores; zero removes it. The interface of the VF keeps its address
    /// until the next bind. Causes an event only while the PF is up.
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
        self.event_count += u64::from(pf_is_up);
        Ok(())
    }

    /// Sets the node GUID and the port GUID of a VF that the PF stores. The VF applies them at the next bind.
    pub fn set_vf_guid(&mut self, vf: VfRef, guid: Guid) -> Result<(), Refusal> {
        let link = self.expect_pf(vf.pf)?.link.as_ref().ok_or(refuse(ENODEV))?;
        if link.kind != LinkKind::Infiniband {
            return Err(refuse(EOPNOTSUPP));
        }
        self.expect_vf(vf).map_err(|_| refuse(EINVAL))?.admin_guid = guid;
        self.event_count += 1;
        Ok(())
    }

    /// Sets the interface of a PF up or down. VFs are not affected.
    pub fn set_link_up(&mut self, pf: PciAddress, up: bool) -> Result<(), Refusal> {
        let link = self.expect_pf(pf)?.link.as_mut().ok_or(refuse(ENODEV))?;
        if link.up != up {
            link.up = up;
            let name = link.name.clone();
            self.update_port_states(&name);
        }
        self.event_count += 1;
        Ok(())
    }

    /// Sets the MTU of the interface of a PF. VFs are not affected.
    pub fn set_pf_mtu(&mut self, pf: PciAddress, mtu: u32) -> Result<(), Refusal> {
        set_mtu(self.expect_pf(pf)?.link.as_mut(), mtu)?;
        self.update_bridge_mtus();
        self.event_count += 1;
        Ok(())
    }

    /// Sets the MTU of the interface of a VF.
    pub fn set_vf_mtu(&mut self, vf: VfRef, mtu: u32) -> Result<(), Refusal> {
        let found = self.expect_vf(vf)?;
        set_mtu(found.link.as_mut().filter(|_| found.namespace.is_none()), mtu)?;
        self.event_count += 1;
        Ok(())
    }

    /// Moves the interface of a VF into a network namespace of another program, or back.
    pub fn set_in_other_namespace(&mut self, vf: VfRef, in_other: bool) -> Result<(), Refusal> {
        let found = self.expect_vf(vf)?;
        if found.link.is_none() {
            return Err(refuse(ENODEV));
        }
        let device = found.address;
        if in_other {
            self.namespaces.by_inode.entry(OTHER_NAMESPACE).or_default();
        }
        self.move_link(device, in_other.then_some(OTHER_NAMESPACE), None)
    }

    /// Sets the use of the interface of a PF by the node.
    pub fn set_pf_host_use(&mut self, pf: PciAddress, host_use: Option<HostUse>) -> Result<(), Refusal> {
        self.expect_pf(pf)?.link.as_mut().ok_or(refuse(ENODEV))?.host_use = host_use;
        self.event_count += 1;
        Ok(())
    }

    /// Sets the use of the interface of a VF by the node.
    pub fn set_vf_host_use(&mut self, vf: VfRef, host_use: Option<HostUse>) -> Result<(), Refusal> {
        self.expect_vf(vf)?.link.as_mut().ok_or(refuse(ENODEV))?.host_use = host_use;
        self.event_count += 1;
        Ok(())
    }
}

pub(super) fn set_mtu(link: Option<&mut SimLink>, mtu: u32) -> Result<(), Refusal> {
    let link = link.ok_or(refuse(ENODEV))?;
    let message = if mtu < MIN_MTU {
        "mtu less than device minimum"
    } else if link.max_mtu.is_some_and(|max| mtu > max) {
        "mtu greater than device maximum"
    } else {
        link.mtu = mtu;
        return Ok(());
    };
    Err(Refusal { errno: EINVAL, message: Some(message) })
}
