use std::path::{Path, PathBuf};

use vfleet_api::PciAddress;

/// Where the host's file tree is mounted: `/`, or `/host` in a pod. All paths of the machine are made here.
#[derive(Clone, Debug)]
pub struct HostRoot(PathBuf);

impl Default for HostRoot {
    fn default() -> Self {
        Self::new("/")
    }
}

impl HostRoot {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(super) fn pci(&self) -> PathBuf {
        self.0.join("sys/bus/pci")
    }

    pub(super) fn devices(&self) -> PathBuf {
        self.pci().join("devices")
    }

    pub(super) fn device(&self, address: PciAddress) -> PathBuf {
        self.devices().join(address.to_string())
    }

    /// The bus that vDPA devices are on.
    pub(super) fn vdpa(&self) -> PathBuf {
        self.0.join("sys/bus/vdpa")
    }

    /// There when the kernel knows RDMA.
    pub(super) fn rdma_class(&self) -> PathBuf {
        self.0.join("sys/class/infiniband")
    }

    pub(super) fn records(&self) -> PathBuf {
        self.0.join(Path::new("etc/sriov-operator/vfleet/pci"))
    }
}
