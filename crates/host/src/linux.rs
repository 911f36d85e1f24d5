//! The machine that this runs on, through sysfs and netlink.

mod boot_loader;
mod card;
mod command;
mod devlink;
mod driver;
mod durable;
mod ethtool;
mod events;
mod facts;
mod file_watch;
mod files;
mod firmware;
pub mod fuzzing;
mod kept;
mod lock;
mod modules;
mod netdev;
mod netlink;
mod network;
#[cfg(test)]
mod on_kernel;
#[cfg(test)]
mod on_systemd;
mod parse;
mod pci;
mod platform;
mod rdma;
mod records;
mod representor;
mod root;
mod settle;
mod steps;
mod storage;
mod sysfs;
mod system;
mod systemd;
#[cfg(test)]
mod tree;
mod udev;
mod uevent;
mod uses;
mod vdpa;

pub use lock::{LockError, MachineLock};
pub use platform::Platform;
pub use root::HostRoot;

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use vfleet_plan::{HostFacts, PROTECTION, Step};

use crate::supervisor::{Running, Supervisor};
use crate::{Host, HostError, NodeContext, Wake, Watch};

/// How long a card may take to say what it is like. A driver that is not stuck does so in milliseconds.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// The machine that this runs on.
#[derive(Debug)]
pub struct LinuxHost {
    /// Replaced when more is known about the machine; who uses it has the old one until then.
    machine: RwLock<Arc<Machine>>,
    supervisor: Supervisor,
    /// Nothing may take longer, whatever it is.
    longest: Duration,
}

/// What is known about the machine beforehand.
#[derive(Clone, Debug)]
struct Machine {
    root: HostRoot,
    has_lone_vfs: bool,
    node_addresses: Vec<IpAddr>,
    protection: Duration,
}

impl LinuxHost {
    /// The machine whose file tree is at `root`. Reads nothing yet.
    pub fn new(root: HostRoot) -> Self {
        let machine =
            Machine { root, has_lone_vfs: false, node_addresses: Vec::new(), protection: PROTECTION };
        Self {
            machine: RwLock::new(Arc::new(machine)),
            supervisor: Supervisor::default(),
            longest: Duration::MAX,
        }
    }

    /// The same with another limit to how long a step or a look at the machine may take.
    #[must_use]
    pub fn with_deadline(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// Returns the same machine, known by these addresses. They are told from others; any address is in use by the node
    /// itself.
    #[must_use]
    pub fn with_node_addresses(self, node_addresses: Vec<IpAddr>) -> Self {
        self.change(|machine| machine.node_addresses = node_addresses);
        self
    }

    /// Returns the same machine, whose use of a card protects it for so long after it was last seen.
    #[must_use]
    pub fn with_protection(self, protection: Duration) -> Self {
        self.change(|machine| machine.protection = protection);
        self
    }

    /// Returns the same machine; network cards that can have no VFs are VFs of a PF that is not on this machine, or not.
    #[must_use]
    pub fn with_lone_vfs(self, has_lone_vfs: bool) -> Self {
        self.change(|machine| machine.has_lone_vfs = has_lone_vfs);
        self
    }

    /// Returns the same machine on a cloud: its cards are on the networks that the cloud tells of.
    #[must_use]
    pub fn with_platform(self, platform: Platform) -> Self {
        self.change(|machine| machine.root = machine.root.clone().on_platform(platform));
        self
    }

    fn change(&self, change: impl FnOnce(&mut Machine)) {
        change(Arc::make_mut(&mut self.machine.write().unwrap_or_else(PoisonError::into_inner)));
    }

    fn machine(&self) -> Arc<Machine> {
        Arc::clone(&self.machine.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Host for LinuxHost {
    fn facts(&self) -> Result<HostFacts, HostError> {
        facts::read(&self.machine(), &self.supervisor, READ_DEADLINE.min(self.longest))
    }

    fn start(&self, step: &Step) -> Result<Running<()>, HostError> {
        let (machine, owned) = (self.machine(), step.clone());
        let limit = steps::deadline(step).min(self.longest);
        self.supervisor.start_step(step, limit, move || steps::execute(&machine.root, &owned))
    }

    fn on_change(&self, wake: Wake) -> Result<Watch, HostError> {
        let machine = self.machine();
        events::watch(&machine.root, &machine.node_addresses, wake)
    }

    fn set_node(&self, node: &NodeContext) {
        self.change(|machine| {
            machine.root = machine.root.clone().on_platform(node.platform);
            machine.has_lone_vfs = node.platform.has_lone_vfs();
            machine.node_addresses.clone_from(&node.addresses);
        });
    }
}
