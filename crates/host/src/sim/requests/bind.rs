//! Requests that bind VFs to drivers.

use vfleet_api::{Guid, MacAddr, PciAddress, VfRef};
use vfleet_plan::{LinkKind, is_userspace_driver};

use super::namespaces::vf_name;
use super::{ENODEV, Refusal, refuse};
use crate::sim::devices::{SimLink, SimPf, SimRdmaDevice, SimVf};
use crate::sim::kernel::Kernel;
use crate::sim::random;

const VF_MTU: u32 = 1500;
const INFINIBAND_VF_MTU: u32 = 2044;

impl Kernel {
    /// Writes to `driver_override`. Causes no event and takes effect at the next probe.
    pub fn set_override(&mut self, vf: VfRef, driver: Option<&str>) -> Result<(), Refusal> {
        self.expect_vf(vf)?.driver_override = driver.map(str::to_owned);
        Ok(())
    }

    /// Writes to `unbind` of the driver. The PF keeps the address of the VF.
    pub fn unbind(&mut self, vf: VfRef) -> Result<(), Refusal> {
        let found = self.expect_vf(vf)?;
        found.driver.take().ok_or(refuse(ENODEV))?;
        found.link = None;
        found.rdma = None;
        found.vdpa = None;
        (found.namespace, found.rdma_namespace) = (None, None);
        self.event_count += 1;
        Ok(())
    }

    /// Writes to `drivers_probe`. Succeeds also if no driver binds the VF: if autoprobe is off and there is no
    /// override, and if the override names a driver that is not loaded or rejects the VF.
    pub fn probe(&mut self, vf: VfRef) -> Result<(), Refusal> {
        let autoprobe = self.expect_pf(vf.pf)?.autoprobe;
        let default_driver = self.expect_pf(vf.pf)?.vf_driver.clone();
        let found = self.expect_vf(vf)?;
        if found.driver.is_some() {
            return Ok(());
        }
        let driver = found.driver_override.clone().or(Some(default_driver.clone()).filter(|_| autoprobe));
        match driver {
            Some(driver) if driver == default_driver => self.bind_network_driver(vf, driver),
            Some(driver) if self.userspace_drivers.contains(&driver) && self.allows_driver(&driver) => {
                self.expect_vf(vf)?.driver = Some(driver);
                self.event_count += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a driver with this name is loaded.
    pub fn has_driver(&self, name: &str) -> bool {
        let of_a_card = |pf: &SimPf| pf.vf_driver == name || pf.driver.as_deref() == Some(name);
        self.userspace_drivers.contains(name) || self.pfs.iter().any(of_a_card)
    }

    /// Returns whether a driver may be bound: vfio-pci needs an IOMMU, unless it was configured otherwise.
    fn allows_driver(&self, driver: &str) -> bool {
        driver != "vfio-pci" || self.has_iommu || self.vfio_without_iommu
    }

    /// Binds a VF to a network driver, which applies the MAC address that the PF stores. If there is none, or the PF is
    /// down, the driver generates an address, and reports it to the PF if that is up. udev replaces a generated address
    /// by one that is always the same for the same VF.
    fn bind_network_driver(&mut self, vf: VfRef, driver: String) -> Result<(), Refusal> {
        debug_assert!(!is_userspace_driver(&driver), "{driver} creates no interface");
        let generated = random::mac(&format!("{} {vf}", self.seed));
        let lone = self
            .card(vf.pf)
            .filter(|card| card.lone_vf)
            .map(|card| SimLink::from_machine_pf(card, &self.seed));
        let rdma_name = self.new_rdma_name(vf);
        let pf = self.expect_pf(vf.pf)?;
        let (pf_link, has_rdma) = (pf.link.clone(), pf.rdma.is_some());
        let pf_is_up = pf_link.as_ref().is_some_and(|link| link.up);
        let found = self.expect_vf(vf)?;
        if let Some(pf_link) = pf_link {
            let stored = Some(found.admin_mac).filter(|_| pf_is_up && found.admin_mac_is_set);
            found.rdma = has_rdma.then(|| vf_rdma(rdma_name, &pf_link, found));
            if pf_is_up {
                found.admin_mac = stored.unwrap_or(generated);
            }
            found.link = Some(vf_link(&pf_link, vf.index, stored, generated));
        } else {
            found.link = lone;
        }
        found.driver = Some(driver);
        let address = found.address;
        self.assign_index(address);
        self.event_count += 1;
        Ok(())
    }

    /// Creates the IPoIB interface of an InfiniBand VF again, in the host's namespace, as after its RDMA device was moved.
    pub(super) fn recreate_link(&mut self, device: PciAddress) {
        let Some(vf) = self.vf_at(device) else { return };
        let Some(pf_link) = self.pf(vf.pf).and_then(|pf| pf.link.clone()) else { return };
        if let Some(found) = self.device_vf_mut(device) {
            let mac = found.link.as_ref().map_or(found.admin_mac, |link| link.mac);
            found.link = Some(vf_link(&pf_link, vf.index, None, mac));
            found.namespace = None;
        }
        self.assign_index(device);
        self.count_event();
    }

    /// Returns the name of a new RDMA device of a VF.
    fn new_rdma_name(&self, vf: VfRef) -> String {
        if !self.card(vf.pf).is_some_and(|card| card.numbers_rdma) {
            let name = self.pf(vf.pf).and_then(|pf| Some(pf.link.as_ref()?.name.as_str()));
            return format!("rdma-{}v{}", name.unwrap_or_default(), vf.index);
        }
        let names: Vec<&str> = self
            .pfs
            .iter()
            .flat_map(|pf| &pf.vfs)
            .filter_map(|vf| Some(vf.rdma.as_ref()?.device.as_str()))
            .collect();
        let mut numbered = (0..).map(|number| format!("mlx5_{number}"));
        numbered.find(|name| !names.contains(&name.as_str())).unwrap_or_default()
    }
}

fn vf_link(pf: &SimLink, index: u16, stored: Option<MacAddr>, generated: MacAddr) -> SimLink {
    SimLink {
        name: vf_name(&pf.name, index),
        alt_names: Vec::new(),
        is_named: true,
        kind: pf.kind,
        mac: stored.unwrap_or(generated),
        permanent_mac: stored,
        mtu: if pf.kind == LinkKind::Infiniband { INFINIBAND_VF_MTU } else { VF_MTU },
        max_mtu: pf.max_mtu,
        up: false,
        speed: None,
        ips: Vec::new(),
        host_use: None,
        master: None,
    }
}

/// Returns the RDMA device of a VF. On InfiniBand its GUID is the one that the PF stores; on Ethernet it is derived
/// from the MAC address that the PF stores. The GUID is zero if the PF stores none.
fn vf_rdma(device: String, pf: &SimLink, vf: &SimVf) -> SimRdmaDevice {
    let [first, second, third, rest @ ..] = vf.admin_mac.0;
    let node_guid = match pf.kind {
        LinkKind::Infiniband => vf.admin_guid,
        _ if vf.admin_mac == MacAddr::ZERO => Guid([0; 8]),
        _ => Guid([first ^ 2, second, third, 0xff, 0xfe, rest[0], rest[1], rest[2]]),
    };
    SimRdmaDevice { device, node_guid, port_guid: node_guid }
}
