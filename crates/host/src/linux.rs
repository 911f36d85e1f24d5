//! Linux machine that this process runs on, through sysfs, netlink and systemd.

mod atomic_file;
mod attached;
mod attachment;
mod boot_loader;
mod bridge;
mod bridge_events;
#[cfg(test)]
mod bridge_tests;
mod cache;
mod card;
mod cni_programs;
mod command;
mod devlink;
mod driver;
mod ethtool;
mod events;
mod facts;
mod file_watch;
mod files;
mod firmware;
pub mod fuzzing;
mod host_use;
#[cfg(test)]
mod kernel_tests;
mod lock;
mod modules;
mod namespace_watch;
mod netdev;
mod netlink;
mod network;
mod ovs;
mod ovsdb;
mod parse;
mod pci;
mod platform;
mod rdma;
mod records;
mod representor;
mod root;
mod stable_read;
mod steps;
mod storage;
mod sysfs;
mod system;
mod systemd;
#[cfg(test)]
mod systemd_tests;
#[cfg(test)]
mod test_namespace;
#[cfg(test)]
mod test_tree;
mod udev;
mod uevent;
mod vdpa;

pub use cni_programs::{CniDirectory, ProgramChange, ProgramOutcome, ProgramRemoval};
pub use lock::{LockError, MachineLock};
pub use root::HostRoot;

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use vfleet_plan::cni::programs::InstalledProgram;
use vfleet_plan::{DEFAULT_PROTECTION_TIME, HostFacts, Platform, Step};

use crate::supervisor::{Supervisor, TaskHandle};
use crate::{ChangeCallback, Host, HostError, NodeContext, WatchGuard};

/// Limit for reading a card. A working driver answers in milliseconds.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// Machine that this process runs on.
#[derive(Debug)]
pub struct LinuxHost {
    /// Replaced as a whole when settings change; running tasks keep the previous value.
    settings: RwLock<Arc<HostSettings>>,
    supervisor: Supervisor,
    /// Upper limit for every step and read.
    max_deadline: Duration,
}

/// Settings of the machine that are not read from it.
#[derive(Clone, Debug)]
struct HostSettings {
    root: HostRoot,
    has_lone_vfs: bool,
    node_addresses: Vec<IpAddr>,
    protection: Duration,
    /// The Open vSwitch database is read.
    reads_ovs: bool,
    /// Directory of CNI plugins, and names in it that other programs provide; `None` if it is not read.
    cni_directory: Option<(String, Vec<String>)>,
}

impl LinuxHost {
    /// Returns the machine whose file tree is at `root`. Reads nothing yet.
    pub fn new(root: HostRoot) -> Self {
        let settings = HostSettings {
            root,
            has_lone_vfs: false,
            node_addresses: Vec::new(),
            protection: DEFAULT_PROTECTION_TIME,
            reads_ovs: false,
            cni_directory: None,
        };
        Self {
            settings: RwLock::new(Arc::new(settings)),
            supervisor: Supervisor::default(),
            max_deadline: Duration::MAX,
        }
    }

    /// Returns the same machine with an upper limit for every step and read.
    #[must_use]
    pub fn with_deadline(self, max_deadline: Duration) -> Self {
        Self { max_deadline, ..self }
    }

    /// Returns the same machine with the IP addresses of its node. Interfaces with these addresses are reported as
    /// [`HostUse::NodeAddress`](vfleet_plan::HostUse::NodeAddress).
    #[must_use]
    pub fn with_node_addresses(self, node_addresses: Vec<IpAddr>) -> Self {
        self.update(|settings| settings.node_addresses = node_addresses);
        self
    }

    /// Returns the same machine with the time for which a card stays protected after its last use.
    #[must_use]
    pub fn with_protection(self, protection: Duration) -> Self {
        self.update(|settings| settings.protection = protection);
        self
    }

    /// Returns the same machine; if `has_lone_vfs`, network cards without VF support count as lone VFs.
    #[must_use]
    pub fn with_lone_vfs(self, has_lone_vfs: bool) -> Self {
        self.update(|settings| settings.has_lone_vfs = has_lone_vfs);
        self
    }

    /// Returns the same machine on `platform`, whose metadata names the networks of the cards.
    #[must_use]
    pub fn with_platform(self, platform: Platform) -> Self {
        self.update(|settings| settings.root = settings.root.clone().with_platform(platform));
        self
    }

    /// Returns the same machine with the socket of its Open vSwitch database: `PATH`, `unix:PATH` or `unix:///PATH`.
    #[must_use]
    pub fn with_ovsdb_socket(self, ovsdb_socket: String) -> Self {
        self.update(|settings| settings.root = settings.root.clone().with_ovsdb_socket(ovsdb_socket));
        self
    }

    /// Returns the same machine; if `reads_ovs`, its Open vSwitch database is read.
    #[must_use]
    pub fn with_ovs(self, reads_ovs: bool) -> Self {
        self.update(|settings| settings.reads_ovs = reads_ovs);
        self
    }

    /// Returns the same machine with the directory of its CNI plugins. They are reported, except for those of `others`,
    /// which other programs provide.
    #[must_use]
    pub fn with_cni_directory(self, path: String, others: Vec<String>) -> Self {
        self.update(|settings| settings.cni_directory = Some((path, others)));
        self
    }

    fn update(&self, update: impl FnOnce(&mut HostSettings)) {
        update(Arc::make_mut(&mut self.settings.write().unwrap_or_else(PoisonError::into_inner)));
    }

    fn settings(&self) -> Arc<HostSettings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Host for LinuxHost {
    fn facts(&self) -> Result<HostFacts, HostError> {
        facts::read(&self.settings(), &self.supervisor, READ_DEADLINE.min(self.max_deadline))
    }

    fn start(&self, step: &Step) -> Result<TaskHandle<()>, HostError> {
        let (settings, owned) = (self.settings(), step.clone());
        let limit = steps::deadline(step).min(self.max_deadline);
        self.supervisor.start_step(step, limit, move || steps::execute(&settings.root, &owned))
    }

    fn on_change(&self, callback: ChangeCallback) -> Result<WatchGuard, HostError> {
        let settings = self.settings();
        events::watch(&settings.root, &settings.node_addresses, callback)
    }

    fn cni_programs(&self) -> Result<Vec<InstalledProgram>, HostError> {
        let settings = self.settings();
        let Some((path, others)) = &settings.cni_directory else { return Ok(Vec::new()) };
        CniDirectory::new(settings.root.clone(), path).read(others)
    }

    fn on_namespace_end(&self, callback: ChangeCallback) -> Result<WatchGuard, HostError> {
        namespace_watch::watch(&self.settings().root, callback)
    }

    fn set_node_context(&self, node: &NodeContext) {
        self.update(|settings| {
            settings.root = settings.root.clone().with_platform(node.platform);
            settings.has_lone_vfs = node.platform.has_lone_vfs();
            settings.node_addresses.clone_from(&node.addresses);
            settings.reads_ovs = node.reads_ovs;
        });
    }
}
