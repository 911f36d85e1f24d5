use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfleet_api::PciAddress;

use super::kept::Kept;
use super::platform::Platform;

/// Where the host's file tree is mounted: `/`, or `/host` in a pod. All paths of the machine are made here.
#[derive(Clone, Debug)]
pub struct HostRoot {
    path: PathBuf,
    runs_programs: bool,
    platform: Platform,
    kept: Arc<Kept>,
}

impl Default for HostRoot {
    fn default() -> Self {
        Self::new("/")
    }
}

impl HostRoot {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let runs_programs = path == Path::new("/");
        Self { path, runs_programs, platform: Platform::default(), kept: Arc::default() }
    }

    /// The same tree, whose programs this process starts by itself and not through the host's systemd: for a tree
    /// that is not the one of a machine.
    #[must_use]
    pub fn with_direct_commands(self) -> Self {
        Self { runs_programs: true, ..self }
    }

    /// Whether this process starts the tree's programs by itself.
    pub(super) fn runs_programs(&self) -> bool {
        self.runs_programs
    }

    /// The same machine, on this platform.
    pub(super) fn on_platform(self, platform: Platform) -> Self {
        Self { platform, ..self }
    }

    /// What the machine runs on.
    pub(super) fn platform(&self) -> Platform {
        self.platform
    }

    /// What was read of the machine once.
    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Where `path`, as the host itself sees it, is for this process.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// A file of the kernel in `/proc`: the host's, or the one of this process where the tree has none.
    pub(super) fn proc(&self, path: &str) -> PathBuf {
        let proc = self.at("proc");
        if proc.join("cmdline").exists() { proc.join(path) } else { Path::new("/proc").join(path) }
    }

    /// The socket of the host's system bus.
    pub(super) fn system_bus(&self) -> PathBuf {
        self.at("run/dbus/system_bus_socket")
    }

    pub(super) fn pci(&self) -> PathBuf {
        self.at("sys/bus/pci")
    }

    pub(super) fn devices(&self) -> PathBuf {
        self.pci().join("devices")
    }

    pub(super) fn device(&self, address: PciAddress) -> PathBuf {
        self.devices().join(address.to_string())
    }

    /// The bus that vDPA devices are on.
    pub(super) fn vdpa(&self) -> PathBuf {
        self.at("sys/bus/vdpa")
    }

    /// There when the kernel knows RDMA.
    pub(super) fn rdma_class(&self) -> PathBuf {
        self.at("sys/class/infiniband")
    }

    pub(super) fn records(&self) -> PathBuf {
        self.at("etc/sriov-operator/vfleet/pci")
    }

    /// Where the Go daemon keeps its records.
    pub(super) fn go_records(&self) -> PathBuf {
        self.at("etc/sriov-operator/pci")
    }
}
