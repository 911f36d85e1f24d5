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
mod steps;
mod sysfs;
mod system;
mod systemd;
#[cfg(test)]
mod tree;
mod udev;
mod uevent;
mod vdpa;

pub use lock::{LockError, MachineLock};
pub use platform::Platform;
pub use root::HostRoot;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use vfleet_plan::{HostFacts, Step};

use self::network::NodeAddresses;
use crate::supervisor::{Running, Supervisor};
use crate::{Host, HostError, Wake, Watch};

/// How long a card may take to say what it is like. A driver that is not stuck does so in milliseconds.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// The machine that this runs on.
#[derive(Debug)]
pub struct LinuxHost {
    machine: Arc<Machine>,
    supervisor: Supervisor,
    /// Nothing may take longer, whatever it is.
    longest: Duration,
}

/// What is known about the machine beforehand.
#[derive(Clone, Debug)]
struct Machine {
    root: HostRoot,
    has_lone_vfs: bool,
    node_addresses: NodeAddresses,
}

impl LinuxHost {
    /// The machine whose file tree is at `root`. Reads nothing yet.
    pub fn new(root: HostRoot) -> Self {
        let machine = Machine { root, has_lone_vfs: false, node_addresses: NodeAddresses::Known(Vec::new()) };
        Self { machine: Arc::new(machine), supervisor: Supervisor::default(), longest: Duration::MAX }
    }

    /// The same with another limit to how long a step or a look at the machine may take.
    #[must_use]
    pub fn with_deadline(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// The same machine, known by these addresses: the cards that carry them are in use by the node itself.
    #[must_use]
    pub fn with_node_addresses(mut self, node_addresses: Vec<IpAddr>) -> Self {
        Arc::make_mut(&mut self.machine).node_addresses = NodeAddresses::Known(node_addresses);
        self
    }

    /// The same machine, known by nobody knows which addresses: each card with a global address is in use by the node.
    #[must_use]
    pub fn with_any_node_address(mut self) -> Self {
        Arc::make_mut(&mut self.machine).node_addresses = NodeAddresses::AnyGlobal;
        self
    }

    /// The same machine; network cards that can have no VFs are VFs of a PF that is not on this machine, or not.
    #[must_use]
    pub fn with_lone_vfs(mut self, has_lone_vfs: bool) -> Self {
        Arc::make_mut(&mut self.machine).has_lone_vfs = has_lone_vfs;
        self
    }

    /// The same on a cloud's virtual machine: its cards are on the networks that the cloud tells of.
    #[must_use]
    pub fn with_platform(mut self, platform: Platform) -> Self {
        let machine = Arc::make_mut(&mut self.machine);
        machine.root = machine.root.clone().on_platform(platform);
        self
    }
}

impl Host for LinuxHost {
    fn facts(&self) -> Result<HostFacts, HostError> {
        facts::read(&self.machine, &self.supervisor, READ_DEADLINE.min(self.longest))
    }

    fn start(&self, step: &Step) -> Result<Running<()>, HostError> {
        let (machine, owned) = (Arc::clone(&self.machine), step.clone());
        let limit = steps::deadline(step).min(self.longest);
        self.supervisor.start_step(step, limit, move || steps::execute(&machine.root, &owned))
    }

    fn on_change(&self, wake: Wake) -> Result<Watch, HostError> {
        events::watch(&self.machine.node_addresses, wake)
    }
}
