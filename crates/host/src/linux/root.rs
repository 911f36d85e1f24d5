//! Paths of a machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfleet_api::PciAddress;
use vfleet_plan::Platform;
use vfleet_plan::files::OVSDB_SOCKET;

use super::cache::HostCache;
use super::ovsdb::OvsLimits;

/// File tree of a host, mounted at `/`, or at `/host` in a pod. Builds all paths of the machine.
#[derive(Clone, Debug)]
pub struct HostRoot {
    path: PathBuf,
    runs_programs: bool,
    platform: Platform,
    ovsdb_socket: String,
    ovs_limits: OvsLimits,
    keeps_connections: bool,
    cache: Arc<HostCache>,
}

impl Default for HostRoot {
    fn default() -> Self {
        Self::new("/")
    }
}

impl HostRoot {
    /// Returns the host whose file tree is mounted at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let runs_programs = path == Path::new("/");
        let (platform, ovsdb_socket) = (Platform::default(), OVSDB_SOCKET.to_owned());
        let ovs_limits = OvsLimits::default();
        let (keeps_connections, cache) = (false, Arc::default());
        Self { path, runs_programs, platform, ovsdb_socket, ovs_limits, keeps_connections, cache }
    }

    /// Returns the same tree for a program that works for one attachment and ends: connections to Open vSwitch are kept
    /// for its next operation.
    #[must_use]
    pub fn with_kept_connections(self) -> Self {
        Self { keeps_connections: true, ..self }
    }

    /// Returns whether connections to Open vSwitch are kept.
    pub(super) fn keeps_connections(&self) -> bool {
        self.keeps_connections
    }

    /// Returns the same tree with programs started directly by this process instead of systemd of the host. For trees
    /// in tests.
    #[must_use]
    pub fn with_direct_commands(self) -> Self {
        Self { runs_programs: true, ..self }
    }

    /// Returns whether this process starts programs of the tree directly.
    pub(super) fn runs_programs(&self) -> bool {
        self.runs_programs
    }

    /// Returns the same tree on `platform`.
    pub(super) fn with_platform(self, platform: Platform) -> Self {
        Self { platform, ..self }
    }

    /// Returns the platform of the machine.
    pub(super) fn platform(&self) -> Platform {
        self.platform
    }

    /// Returns the same tree with another socket of ovsdb-server: `PATH`, `unix:PATH` or `unix:///PATH`.
    pub(super) fn with_ovsdb_socket(self, ovsdb_socket: String) -> Self {
        Self { ovsdb_socket, ..self }
    }

    /// Returns the socket of ovsdb-server, as it was configured.
    pub(super) fn ovsdb_socket(&self) -> &str {
        &self.ovsdb_socket
    }

    /// Returns the same tree with other limits for waiting for Open vSwitch.
    #[cfg(test)]
    pub(super) fn with_ovs_limits(self, ovs_limits: OvsLimits) -> Self {
        Self { ovs_limits, ..self }
    }

    /// Returns the limits for waiting for Open vSwitch.
    pub(super) fn ovs_limits(&self) -> OvsLimits {
        self.ovs_limits
    }

    /// Returns the cached facts of the machine.
    pub(super) fn cache(&self) -> &HostCache {
        &self.cache
    }

    /// Returns where this process finds `path`, an absolute path of the host.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// Returns the path of a file in `/proc`: in the tree of the host, or in our own if that tree has no `/proc`.
    pub(super) fn proc(&self, path: &str) -> PathBuf {
        let proc = self.at("proc");
        if proc.join("cmdline").exists() { proc.join(path) } else { Path::new("/proc").join(path) }
    }

    /// Returns where this process finds the network namespace at `path`, as the container runtime gave it. `/var/run` is
    /// an absolute link to `/run`, which would lead out of a mounted tree.
    pub(super) fn namespace(&self, path: &str) -> PathBuf {
        match path.strip_prefix("/var/run/") {
            Some(rest) if self.path != Path::new("/") => self.at(&format!("/run/{rest}")),
            _ => self.at(path),
        }
    }

    /// Returns the directory of the journals of attachments.
    pub(super) fn journals(&self) -> PathBuf {
        self.at("var/lib/cni/vfleet")
    }

    /// Returns the directory of the state of a Go CNI plugin.
    pub(super) fn go_cni(&self, plugin: &str) -> PathBuf {
        self.at("var/lib/cni").join(plugin)
    }

    /// Returns the socket of the D-Bus system bus of the host.
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

    /// Returns the directory of the bus of vDPA devices.
    pub(super) fn vdpa(&self) -> PathBuf {
        self.at("sys/bus/vdpa")
    }

    /// Returns the directory that exists if the kernel supports RDMA.
    pub(super) fn rdma_class(&self) -> PathBuf {
        self.at("sys/class/infiniband")
    }

    pub(super) fn records(&self) -> PathBuf {
        self.at("etc/sriov-operator/vfleet/pci")
    }

    /// Returns the directory of the records of the Go daemon.
    pub(super) fn go_records(&self) -> PathBuf {
        self.at("etc/sriov-operator/pci")
    }
}
