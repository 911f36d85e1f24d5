//! Requests that move interfaces and RDMA devices between network namespaces.

use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::LinkKind;

use super::{EEXIST, EINVAL, ENODEV, EOPNOTSUPP, Refusal, refuse};
use crate::sim::devices::{SimLink, SimVf};
use crate::sim::kernel::Kernel;

impl Kernel {
    /// Moves the interface of a VF to another namespace, `None` for the host's, and then renames it if there is a `name`.
    /// The name is also used for the move if the present one is not free. A refused name that was not needed for the move
    /// leaves the interface moved.
    ///
    /// The interface goes down and loses its IP addresses. It keeps its index if that is free.
    pub fn move_link(
        &mut self,
        device: PciAddress,
        to: Option<u64>,
        name: Option<&str>,
    ) -> Result<(), Refusal> {
        if to.is_some_and(|inode| !self.namespaces.by_inode.contains_key(&inode)) {
            return Err(refuse(EINVAL));
        }
        let from = self.device_vf(device).ok_or(refuse(EINVAL))?.namespace;
        let link = self.device_link(device).ok_or(refuse(ENODEV))?;
        if from != to {
            let (present, alt_names) = (link.name.clone(), link.alt_names.clone());
            let is_free = |name: &str| !self.is_name_used(to, name);
            let mut names = std::iter::once(present.as_str()).chain(name);
            let new_name = names.find(|name| is_free(name)).ok_or(refuse(EEXIST))?.to_owned();
            if !alt_names.iter().all(|name| is_free(name)) {
                return Err(refuse(EEXIST));
            }
            self.change_namespace(device, to, &new_name);
        }
        let renamed = name.map_or(Ok(()), |name| self.rename_link(device, name));
        if to.is_none() && from.is_some() {
            self.add_path_name(device);
        }
        renamed
    }

    /// Changes the namespace of an interface, where it gets `name`.
    fn change_namespace(&mut self, device: PciAddress, to: Option<u64>, name: &str) {
        let index = self.index_of(device);
        let index = if self.is_index_free(to, index) { index } else { self.free_index(to) };
        let Some(before) = self.device_link(device).map(|link| link.name.clone()) else { return };
        if self.device_vf(device).is_some_and(|vf| vf.namespace.is_none()) {
            self.remove_bridge_ports(&[before]);
        }
        if let Some(vf) = self.device_vf_mut(device) {
            vf.namespace = to;
            if let Some(link) = &mut vf.link {
                name.clone_into(&mut link.name);
                (link.up, link.master) = (false, None);
                link.ips.clear();
            }
        }
        self.namespaces.indexes.insert(device, index);
        self.count_event();
    }

    /// Renames the interface of a VF in its namespace. Its own alternative names are names that exist.
    pub fn rename_link(&mut self, device: PciAddress, name: &str) -> Result<(), Refusal> {
        let namespace = self.device_vf(device).ok_or(refuse(EINVAL))?.namespace;
        let before = self.device_link(device).ok_or(refuse(ENODEV))?.name.clone();
        if before == name {
            return Ok(());
        }
        if self.is_name_used(namespace, name) {
            return Err(refuse(EEXIST));
        }
        if let Some(link) = self.device_link_mut(device) {
            name.clone_into(&mut link.name);
        }
        if namespace.is_none() {
            self.rename_bridge_port(&before, Some(name));
        }
        self.count_event();
        Ok(())
    }

    /// Adds an alternative name to the interface of a VF.
    pub fn add_alt_name(&mut self, device: PciAddress, name: &str) -> Result<(), Refusal> {
        let namespace = self.device_vf(device).ok_or(refuse(EINVAL))?.namespace;
        if self.is_name_used(namespace, name) {
            return Err(refuse(EEXIST));
        }
        self.device_link_mut(device).ok_or(refuse(ENODEV))?.alt_names.push(name.to_owned());
        self.count_event();
        Ok(())
    }

    /// Removes an alternative name of the interface of a VF.
    pub fn remove_alt_name(&mut self, device: PciAddress, name: &str) -> Result<(), Refusal> {
        let alt_names = &mut self.device_link_mut(device).ok_or(refuse(ENODEV))?.alt_names;
        let position = alt_names.iter().position(|alt_name| alt_name == name).ok_or(refuse(EINVAL))?;
        alt_names.remove(position);
        self.count_event();
        Ok(())
    }

    /// Makes udev give an interface that arrived in the host's namespace under another name its name by path as an
    /// alternative name.
    fn add_path_name(&mut self, device: PciAddress) {
        let path_name = self.vf_at(device).and_then(|vf| Some(vf_name(&self.card(vf.pf)?.name, vf.index)));
        if let Some(name) = path_name {
            // Another interface may have the name.
            let _ = self.add_alt_name(device, &name);
        }
    }

    /// Returns the interfaces and RDMA devices of deleted namespaces to the host's: interfaces under their names, or as
    /// `dev<index>` if that name is used. Alternative names that are used are lost.
    pub fn return_devices(&mut self) {
        let deleted = |kernel: &Self| {
            let found = kernel.namespaces.by_inode.iter().find(|(_, namespace)| namespace.is_deleted);
            found.map(|(inode, _)| *inode)
        };
        while let Some(inode) = deleted(self) {
            let rdma: Vec<PciAddress> =
                self.vfs().filter(|vf| vf.rdma_namespace == Some(inode)).map(|vf| vf.address).collect();
            for device in rdma {
                // Cannot fail: the devices exist.
                let _ = self.move_rdma(device, None);
            }
            let mut devices: Vec<PciAddress> = self.links_in(Some(inode)).collect();
            devices.sort_by_key(|device| self.index_of(*device));
            for device in devices {
                self.return_link(device);
            }
            self.namespaces.by_inode.remove(&inode);
            self.remove_orphaned_veths();
            self.count_event();
        }
    }

    fn return_link(&mut self, device: PciAddress) {
        let Some(link) = self.device_link(device).cloned() else { return };
        let lost = link.alt_names.iter().filter(|name| self.is_name_used(None, name));
        for name in lost.cloned().collect::<Vec<_>>() {
            let _ = self.remove_alt_name(device, &name);
        }
        let fallback = format!("dev{}", self.index_of(device));
        let mut numbered = (0..).map(|number| format!("dev{number}"));
        let names = [link.name, fallback];
        let free = names.into_iter().find(|name| !self.is_name_used(None, name));
        if let Some(name) = free.or_else(|| numbered.find(|name| !self.is_name_used(None, name))) {
            self.change_namespace(device, None, &name);
            self.add_path_name(device);
        }
    }

    /// Moves the RDMA device of a VF to another namespace, `None` for the host's. The IPoIB interface of an InfiniBand VF is
    /// created again, in the host's namespace or in the other one.
    pub fn move_rdma(&mut self, device: PciAddress, to: Option<u64>) -> Result<(), Refusal> {
        if to.is_some_and(|inode| !self.namespaces.by_inode.contains_key(&inode)) {
            return Err(refuse(EINVAL));
        }
        if self.rdma_mode != Some(RdmaMode::Exclusive) {
            return Err(refuse(EOPNOTSUPP));
        }
        let vf = self.device_vf_mut(device).ok_or(refuse(EINVAL))?;
        vf.rdma.as_ref().ok_or(refuse(ENODEV))?;
        if vf.rdma_namespace == to {
            return Ok(());
        }
        vf.rdma_namespace = to;
        self.count_event();
        if self.device_link(device).is_some_and(|link| link.kind == LinkKind::Infiniband) {
            self.recreate_link(device);
            let namespace = to.filter(|_| self.namespaces.interface_follows_rdma);
            if let Some(vf) = self.device_vf_mut(device) {
                vf.namespace = namespace;
            }
        }
        Ok(())
    }

    /// Renames the RDMA device of a VF. Names are the same in all namespaces.
    pub fn rename_rdma(&mut self, device: PciAddress, name: &str) -> Result<(), Refusal> {
        let has_name = |vf: &SimVf| vf.rdma.as_ref().is_some_and(|rdma| rdma.device == name);
        if self.vfs().any(|vf| vf.address != device && has_name(vf)) {
            return Err(refuse(EEXIST));
        }
        let vf = self.device_vf_mut(device).ok_or(refuse(EINVAL))?;
        name.clone_into(&mut vf.rdma.as_mut().ok_or(refuse(ENODEV))?.device);
        self.count_event();
        Ok(())
    }

    /// Returns the PF and index of the VF at `device`.
    pub fn vf_at(&self, device: PciAddress) -> Option<VfRef> {
        self.pfs.iter().filter(|pf| !pf.is_lone_vf).find_map(|pf| {
            let position = pf.vfs.iter().position(|vf| vf.address == device)?;
            Some(VfRef { pf: pf.address, index: u16::try_from(position).ok()? })
        })
    }

    /// Returns the VF, also a lone one, at `device`.
    pub fn device_vf(&self, device: PciAddress) -> Option<&SimVf> {
        self.vfs().find(|vf| vf.address == device)
    }

    /// Returns the VF, also a lone one, at `device`, to change it without the rules of a kernel.
    pub fn device_vf_mut(&mut self, device: PciAddress) -> Option<&mut SimVf> {
        self.pfs.iter_mut().flat_map(|pf| &mut pf.vfs).find(|vf| vf.address == device)
    }

    /// Returns the interface of the PF or VF at `device`, in whatever namespace it is.
    pub fn device_link(&self, device: PciAddress) -> Option<&SimLink> {
        match self.device_vf(device) {
            Some(vf) => vf.link.as_ref(),
            None => self.pf(device)?.link.as_ref(),
        }
    }

    /// Returns the interface of the VF at `device`, in whatever namespace it is, to change it without the rules of a kernel.
    pub fn device_link_mut(&mut self, device: PciAddress) -> Option<&mut SimLink> {
        self.device_vf_mut(device)?.link.as_mut()
    }

    fn vfs(&self) -> impl Iterator<Item = &SimVf> {
        self.pfs.iter().flat_map(|pf| &pf.vfs)
    }
}

/// Returns the name of the interface of a VF by its path.
pub(super) fn vf_name(pf: &str, index: u16) -> String {
    format!("{pf}v{index}")
}
