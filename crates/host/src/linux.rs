//! The machine that this runs on, through sysfs and netlink.

mod boot_loader;
mod command;
mod dbus;
mod deadline;
mod durable;
mod events;
mod facts;
mod files;
mod firmware;
mod kept;
mod modules;
mod netdev;
mod parse;
mod pci;
mod platform;
mod records;
mod root;
mod rtnl;
mod steps;
mod sysfs;
mod system;
#[cfg(test)]
mod tree;
mod udev;
mod uevent;

pub use platform::Platform;
pub use root::HostRoot;

use std::sync::Arc;
use std::time::Duration;

use vfleet_plan::{HostFacts, Step};

use self::deadline::Workers;
use crate::{Host, HostError, Wake, Watch};

/// How long the kernel may take for a step: making a hundred VFs takes some cards a minute.
const DEADLINE: Duration = Duration::from_mins(2);

/// The machine that this runs on.
#[derive(Debug)]
pub struct LinuxHost {
    root: Arc<HostRoot>,
    workers: Workers,
    deadline: Duration,
}

impl LinuxHost {
    /// The machine whose file tree is at `root`. Reads nothing yet.
    pub fn new(root: HostRoot) -> Self {
        Self { root: Arc::new(root), workers: Workers::default(), deadline: DEADLINE }
    }

    /// The same with another limit to how long a step or a look at the machine may take.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The same on a cloud's virtual machine: its cards are on the networks that the cloud tells of.
    #[must_use]
    pub fn with_platform(self, platform: Platform) -> Self {
        Self { root: Arc::new(HostRoot::clone(&self.root).on_platform(platform)), ..self }
    }
}

impl Host for LinuxHost {
    fn facts(&self) -> Result<HostFacts, HostError> {
        let root = Arc::clone(&self.root);
        self.workers.look(self.deadline, move || facts::read(&root))
    }

    fn execute(&self, step: &Step) -> Result<(), HostError> {
        let (root, step) = (Arc::clone(&self.root), step.clone());
        let (pf, attempt) = (step.pf(), step.to_string());
        self.workers.change(pf, &attempt, self.deadline, move || steps::execute(&root, &step))
    }

    fn on_change(&self, wake: Wake) -> Result<Watch, HostError> {
        events::watch(wake)
    }
}
