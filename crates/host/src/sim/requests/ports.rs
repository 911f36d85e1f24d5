//! Requests for interfaces that are ports of software bridges: veth pairs, representors, and VLANs of ports.

use vfleet_api::{MacAddr, VfRef};
use vfleet_plan::cni::facts::BridgeVlan;

use super::{EEXIST, EINVAL, ENODEV, EOPNOTSUPP, Refusal, refuse};
use crate::sim::devices::SimPortLink;
use crate::sim::kernel::Kernel;
use crate::sim::namespaces::SimVirtualLink;
use crate::sim::virtual_links::SimVeth;

/// Largest number of a VLAN.
const MAX_VLAN: u16 = 4094;
const MIN_MTU: u32 = 68;
const MAX_MTU: u32 = 65_535;

impl Kernel {
    /// Creates a veth pair: `host_name` on the host, `name` in a namespace, both down.
    pub fn create_veth(
        &mut self,
        host: (&str, MacAddr),
        namespace: u64,
        pod: (&str, MacAddr),
        mtu: u32,
    ) -> Result<(), Refusal> {
        let ((host_name, host_mac), (name, mac)) = (host, pod);
        if !self.namespaces.by_inode.contains_key(&namespace) || !(MIN_MTU..=MAX_MTU).contains(&mtu) {
            return Err(refuse(EINVAL));
        }
        if self.is_name_used(None, host_name) || self.is_name_used(Some(namespace), name) {
            return Err(refuse(EEXIST));
        }
        let (on_host, in_pod) = (self.free_index(None), self.free_index(Some(namespace)));
        let peer = Some(host_name.to_owned());
        let link = SimVirtualLink { mac, mtu, is_up: false, peer, ..SimVirtualLink::new(in_pod) };
        if let Some(found) = self.namespaces.by_inode.get_mut(&namespace) {
            found.links.insert(name.to_owned(), link);
        }
        let peer = name.to_owned();
        let veth = SimVeth { index: on_host, mac: host_mac, mtu, up: false, namespace, peer };
        self.veths.insert(host_name.to_owned(), veth);
        self.count_event();
        Ok(())
    }

    /// Deletes a veth pair by the name of its end on the host.
    pub fn delete_veth(&mut self, host_name: &str) -> Result<(), Refusal> {
        let veth = self.veths.remove(host_name).ok_or(refuse(ENODEV))?;
        if let Some(namespace) = self.namespaces.by_inode.get_mut(&veth.namespace) {
            namespace.links.remove(&veth.peer);
        }
        self.remove_bridge_ports(&[host_name.to_owned()]);
        self.count_event();
        Ok(())
    }

    /// Sets the end of a veth pair on the host up.
    pub fn set_veth_up(&mut self, host_name: &str) -> Result<(), Refusal> {
        self.veths.get_mut(host_name).ok_or(refuse(ENODEV))?.up = true;
        self.count_event();
        Ok(())
    }

    /// Changes a virtual interface in a namespace.
    pub fn change_virtual_link(
        &mut self,
        namespace: u64,
        name: &str,
        change: impl FnOnce(&mut SimVirtualLink),
    ) -> Result<(), Refusal> {
        change(self.virtual_link_mut(namespace, name).ok_or(refuse(ENODEV))?);
        self.count_event();
        Ok(())
    }

    /// Changes the representor of a VF.
    pub fn change_representor(
        &mut self,
        vf: VfRef,
        change: impl FnOnce(&mut SimPortLink),
    ) -> Result<(), Refusal> {
        let found = self.expect_vf(vf)?;
        if found.representor.is_none() {
            return Err(refuse(ENODEV));
        }
        let mut link = found.representor_link;
        change(&mut link);
        if !(MIN_MTU..=MAX_MTU).contains(&link.mtu) {
            return Err(refuse(EINVAL));
        }
        found.representor_link = link;
        self.count_event();
        Ok(())
    }

    /// Adds VLANs to a port of a Linux bridge, or changes their form. A port has at most one native VLAN.
    pub fn add_port_vlans(&mut self, interface: &str, vlans: &[BridgeVlan]) -> Result<(), Refusal> {
        let found = self.port_vlans_mut(interface)?;
        for vlan in vlans {
            if !(1..=MAX_VLAN).contains(&vlan.id) {
                return Err(refuse(EINVAL));
            }
            if vlan.is_native {
                found.values_mut().for_each(|other| other.is_native = false);
            }
            found.insert(vlan.id, *vlan);
        }
        self.count_event();
        Ok(())
    }

    /// Removes VLANs from a port of a Linux bridge.
    pub fn remove_port_vlans(&mut self, interface: &str, vlans: &[u16]) -> Result<(), Refusal> {
        let found = self.port_vlans_mut(interface)?;
        found.retain(|id, _| !vlans.contains(id));
        self.count_event();
        Ok(())
    }

    fn port_vlans_mut(
        &mut self,
        interface: &str,
    ) -> Result<&mut std::collections::BTreeMap<u16, BridgeVlan>, Refusal> {
        let mut bridges = self.bridges.iter_mut();
        bridges.find_map(|bridge| bridge.vlans.get_mut(interface)).ok_or(refuse(EOPNOTSUPP))
    }

    /// Sets the MAC address of the vDPA device of a VF.
    pub fn set_vdpa_mac(&mut self, vf: VfRef, mac: MacAddr) -> Result<(), Refusal> {
        let found = self.expect_vf(vf)?;
        found.vdpa.ok_or(refuse(ENODEV))?;
        found.vdpa_mac = Some(mac);
        self.count_event();
        Ok(())
    }
}
