//! The only code that touches a machine: its facts, and the steps that change it.
//!
//! - [`LinuxHost`]: the machine that this runs on, through sysfs and netlink
//! - `SimHost` (feature `sim`): a model of such a machine in memory, held to the same contract (`tests/src/contract`)
//!
//! Blocking, and free of decisions: what to do is the planner's business.

mod error;
mod linux;
#[cfg(feature = "sim")]
pub mod sim;
mod supervisor;
mod watch;

#[doc(hidden)]
pub use linux::fuzzing;

pub use error::{HostError, with_causes};
pub use linux::{HostRoot, LinuxHost, LockError, MachineLock, Platform};
#[cfg(feature = "sim")]
pub use sim::SimHost;
pub use supervisor::Running;
pub use watch::{Wake, Watch};

use std::net::IpAddr;

use vfleet_plan::{HostFacts, Step};

/// A machine.
pub trait Host: Send + Sync {
    /// What the machine is like now. Complete or an error: what cannot be read is never reported as absent, and
    /// what changes while it is read is read again. PFs and records are sorted by PCI address.
    fn facts(&self) -> Result<HostFacts, HostError>;

    /// Starts to execute `step` in the background. The result is `Ok` when its effect was verified. Executing it again is
    /// harmless. Fails with [`HostError::StillRunning`] while the machine still executes an earlier step that this one
    /// has to wait for.
    fn start(&self, step: &Step) -> Result<Running<()>, HostError>;

    /// Executes `step` and waits for its end, or for its deadline: a kernel that does not answer is
    /// [`HostError::Deadline`].
    fn execute(&self, step: &Step) -> Result<(), HostError> {
        self.start(step)?.wait()
    }

    /// Calls `wake` whenever the machine may have changed, until the [`Watch`] is dropped. Changes are neither
    /// counted nor described: who is woken reads the facts. Changes after the return of this call are not missed.
    /// Files that people write count as well: the one of GUIDs, the lists of modules, tools for firmware. The kernel says
    /// nothing when `sriov_drivers_autoprobe` or the address of a VF whose PF is down changes, so neither does this; nor
    /// when a record does.
    fn on_change(&self, wake: Wake) -> Result<Watch, HostError>;

    /// Tells the host what the cluster says about its node. Later facts go by it. A simulated machine says all that by
    /// itself.
    fn set_node(&self, _node: &NodeContext) {}
}

/// Facts about a node that only the cluster knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeContext {
    /// What the node runs on.
    pub platform: Platform,
    /// Addresses by which the cluster reaches it: the cards that carry them are in use by the node itself.
    pub addresses: Vec<IpAddr>,
}
