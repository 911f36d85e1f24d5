//! Access to a machine: reads its facts and executes the steps that change it. No other crate touches a machine.
//!
//! - [`LinuxHost`]: the machine that this process runs on, through sysfs and netlink
//! - `SimHost` (feature `sim`): a simulated machine in memory that passes the same contract suite (`tests/src/contract`)
//!
//! Attachments of pods to devices have a trait of their own, [`attachment::AttachmentHost`].
//!
//! All calls block. This crate decides nothing: the planner (`vfleet-plan`) does.

pub mod attachment;
mod error;
mod linux;
#[cfg(feature = "sim")]
pub mod sim;
mod supervisor;
mod watch;

#[doc(hidden)]
pub use linux::fuzzing;

pub use error::{HostError, format_error_chain};
pub use linux::{
    CniDirectory, HostRoot, LinuxHost, LockError, MachineLock, ProgramChange, ProgramOutcome, ProgramRemoval,
};
#[cfg(feature = "sim")]
pub use sim::SimHost;
pub use supervisor::TaskHandle;
pub use watch::{ChangeCallback, WatchGuard};

use std::net::IpAddr;

use vfleet_plan::cni::programs::InstalledProgram;
use vfleet_plan::{HostFacts, Platform, Step};

/// Machine that can be read and configured.
pub trait Host: Send + Sync {
    /// Reads the facts of the machine. The facts are complete, or an error is returned: a value that cannot be read is
    /// never reported as absent, and a value that changes during the read is read again. PFs and records are sorted by
    /// PCI address.
    fn facts(&self) -> Result<HostFacts, HostError>;

    /// Starts to execute `step` in the background. The result is `Ok` when the effect of the step was verified. Steps
    /// are idempotent. Fails with [`HostError::StillRunning`] while the machine executes an earlier step that `step`
    /// has to wait for.
    fn start(&self, step: &Step) -> Result<TaskHandle<()>, HostError>;

    /// Executes `step` and waits for its end. Fails with [`HostError::DeadlineExceeded`] if the kernel does not answer
    /// in time.
    fn execute(&self, step: &Step) -> Result<(), HostError> {
        self.start(step)?.wait()
    }

    /// Calls `callback` whenever the machine may have changed, until the [`WatchGuard`] is dropped. Changes are neither
    /// counted nor described: the receiver reads the facts. No change after the return of this call is missed.
    ///
    /// Files that administrators write are watched too: the GUID file, the lists of kernel modules, firmware tools; and the
    /// files by which CNI plugins know attachments. Not reported, because the kernel does not announce them: changes of `sriov_drivers_autoprobe`, and of the MAC
    /// address of a VF whose PF is down. Changes of records are not reported either.
    fn on_change(&self, callback: ChangeCallback) -> Result<WatchGuard, HostError>;

    /// Reads the programs that have the names of our CNI plugins. A simulated machine has none.
    fn cni_programs(&self) -> Result<Vec<InstalledProgram>, HostError> {
        Ok(Vec::new())
    }

    /// Calls `callback` whenever the network namespace of a pod may have been deleted, until the [`WatchGuard`] is dropped.
    /// A VF with a userspace driver has no interface whose return [`Host::on_change`] could report. The default is for
    /// machines that report it there.
    fn on_namespace_end(&self, _callback: ChangeCallback) -> Result<WatchGuard, HostError> {
        Ok(WatchGuard::new(()))
    }

    /// Sets the facts that only the cluster knows. Later reads use them. A simulated machine ignores them: its
    /// description contains them.
    fn set_node_context(&self, _node: &NodeContext) {}
}

/// Facts of a node that only the cluster knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeContext {
    /// Platform of the node.
    pub platform: Platform,
    /// IP addresses of the node. Cards that carry them are protected.
    pub addresses: Vec<IpAddr>,
    /// Plans depend on the content of the Open vSwitch database.
    pub reads_ovs: bool,
}
