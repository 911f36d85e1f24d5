//! Interfaces of a simulated machine that belong to no card: veth pairs.

use vfleet_api::MacAddr;

use super::kernel::Kernel;
use super::namespaces::SimVirtualLink;

/// End of a veth pair in the namespace of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimVeth {
    /// Index.
    pub index: u32,
    /// MAC address.
    pub mac: MacAddr,
    /// MTU.
    pub mtu: u32,
    /// Administrative state.
    pub up: bool,
    /// Inode of the namespace of the other end.
    pub namespace: u64,
    /// Name of the other end.
    pub peer: String,
}

impl Kernel {
    /// Returns the virtual interface with this name in a namespace.
    pub fn virtual_link(&self, namespace: u64, name: &str) -> Option<&SimVirtualLink> {
        self.namespaces.by_inode.get(&namespace)?.links.get(name)
    }

    /// Returns the virtual interface with this name in a namespace, to change it without the rules of a kernel.
    pub fn virtual_link_mut(&mut self, namespace: u64, name: &str) -> Option<&mut SimVirtualLink> {
        self.namespaces.by_inode.get_mut(&namespace)?.links.get_mut(name)
    }

    /// Returns whether both ends of the veth pair with this name on the host are up.
    pub(super) fn has_veth_carrier(&self, veth: &SimVeth) -> bool {
        veth.up && self.virtual_link(veth.namespace, &veth.peer).is_some_and(|link| link.is_up)
    }

    /// Removes the veth pairs whose other end was in a namespace that is gone.
    pub(super) fn remove_orphaned_veths(&mut self) {
        let is_orphan = |veth: &SimVeth| !self.namespaces.by_inode.contains_key(&veth.namespace);
        let orphans = self.veths.iter().filter(|(_, veth)| is_orphan(veth));
        let names: Vec<String> = orphans.map(|(name, _)| name.clone()).collect();
        self.veths.retain(|name, _| !names.contains(name));
        self.remove_bridge_ports(&names);
    }
}
