//! Attachments of pods to devices: what the CNI plugins need from a machine.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use vfleet_api::PciAddress;
use vfleet_plan::cni::facts::{
    AttachmentFacts, DevicePart, FileFacts, HolderNamespace, Namespace, SwitchFacts, SwitchQuery,
};
use vfleet_plan::cni::journal::{AttachmentKey, Journal, Plugin};
use vfleet_plan::cni::step::CniStep;

use crate::HostError;

/// Machine on which pods are attached to devices. All calls block, and every wait has a limit.
pub trait AttachmentHost: Send + Sync {
    /// Reads the ID of the current boot.
    fn boot_id(&self) -> Result<String, HostError>;

    /// Reads the facts of one device, of one namespace, and of the other attachments of the device. Reads nothing else:
    /// a runtime waits for each attachment. A journal of the device that cannot be read is an error.
    fn attachment_facts(&self, query: &AttachmentQuery<'_>) -> Result<AttachmentFacts, HostError>;

    /// Reads the facts of the switch side of an attachment. Reads nothing that the query does not ask for.
    fn switch_facts(&self, query: &SwitchQuery) -> Result<SwitchFacts, HostError>;

    /// Reads the state of the namespace of an attachment, and nothing else. After a boot of the machine it is gone.
    fn namespace_state(&self, journal: &Journal) -> Result<HolderNamespace, HostError>;

    /// Executes a step and verifies its effect. Steps are idempotent.
    fn execute_cni(&self, step: &CniStep) -> Result<(), HostError>;

    /// Reads whether RDMA devices belong to single namespaces. False without RDMA.
    fn has_exclusive_rdma(&self) -> Result<bool, HostError>;

    /// Checks that journals can be written.
    fn check_storage(&self) -> Result<(), HostError>;

    /// Lists the attachments that have a journal, sorted. Only names of files are read.
    fn attachment_keys(&self) -> Result<Vec<AttachmentKey>, HostError>;

    /// Reads a journal; `None` if there is none.
    fn read_journal(&self, key: &AttachmentKey) -> Result<Option<Journal>, HostError>;

    /// Writes a journal. After the return it survives a crash of the machine.
    fn write_journal(&self, journal: &Journal) -> Result<(), HostError>;

    /// Removes a journal, if there is one.
    fn remove_journal(&self, key: &AttachmentKey) -> Result<(), HostError>;

    /// Lists the names of the caches of a Go plugin, sorted. See [`vfleet_plan::cni::go_cache::go_cache_name`].
    fn go_caches(&self, plugin: Plugin) -> Result<Vec<String>, HostError>;

    /// Reads the cache of a Go plugin with this name; `None` if there is none.
    fn read_go_cache(&self, plugin: Plugin, name: &str) -> Result<Option<Vec<u8>>, HostError>;

    /// Removes the cache of a Go plugin with this name, if there is one.
    fn remove_go_cache(&self, plugin: Plugin, name: &str) -> Result<(), HostError>;

    /// Reads a small file of the node.
    fn read_file(&self, path: &str) -> FileFacts;

    /// Locks a subject for `holder`, the text that other programs report. Waits for another holder, also a Go plugin, for at
    /// most `limit`.
    fn lock(
        &self,
        subject: &LockSubject,
        holder: &str,
        limit: Duration,
    ) -> Result<DeviceLock, DeviceLockError>;

    /// Waits until these parts of a device are in the namespace of the host, for at most `limit`. Returns whether all are.
    fn wait_for_device(
        &self,
        device: PciAddress,
        parts: &BTreeSet<DevicePart>,
        limit: Duration,
    ) -> Result<bool, HostError>;

    /// Returns the path of a plugin in the first directory of `search_path` that has it.
    fn find_plugin(&self, plugin: &str, search_path: &[String]) -> Result<Option<PathBuf>, HostError>;

    /// Runs another plugin until it ends. A plugin that fails is no error: its output says why.
    fn delegate(&self, call: &DelegateCall<'_>) -> Result<DelegateOutput, HostError>;
}

/// Subject of a read of [`AttachmentFacts`].
#[derive(Clone, Copy, Debug)]
pub struct AttachmentQuery<'a> {
    /// Device, if the attachment has one.
    pub device: Option<PciAddress>,
    /// Namespace of the pod.
    pub namespace: NamespaceQuery<'a>,
    /// Attachment itself, whose journal is no other holder of the device.
    pub key: Option<&'a AttachmentKey>,
    /// Reads the IP addresses of the interfaces in the namespace.
    pub with_addresses: bool,
}

/// Namespace to be read.
#[derive(Clone, Copy, Debug)]
pub enum NamespaceQuery<'a> {
    /// None.
    NotGiven,
    /// The namespace at a path.
    Path(&'a str),
    /// Namespace of an attachment. Another one at the same path is not the same.
    Recorded {
        /// The namespace.
        namespace: &'a Namespace,
        /// Boot in which it existed.
        boot_id: &'a str,
    },
}

impl<'a> NamespaceQuery<'a> {
    /// Returns the query for the namespace that a runtime has named, if it has.
    pub fn of_path(path: Option<&'a str>) -> Self {
        path.map_or(Self::NotGiven, Self::Path)
    }

    /// Returns the path of the namespace.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::NotGiven => None,
            Self::Path(path) => Some(path),
            Self::Recorded { namespace, .. } => Some(&namespace.path),
        }
    }
}

/// Start of another plugin. It is started directly, never by a shell.
#[derive(Clone, Copy, Debug)]
pub struct DelegateCall<'a> {
    /// Name of the plugin: the type in its configuration.
    pub plugin: &'a str,
    /// Directories that are searched for it (`CNI_PATH`).
    pub search_path: &'a [String],
    /// Its variables `CNI_*`. It also gets `PATH` of this process, and nothing else.
    pub environment: &'a BTreeMap<String, String>,
    /// Network configuration.
    pub stdin: &'a [u8],
    /// Limit, after which it and its children are killed.
    pub limit: Duration,
}

/// Output of another plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegateOutput {
    /// The plugin ended with exit status 0.
    pub is_success: bool,
    /// Exit status or signal as text, for errors.
    pub outcome: String,
    /// Standard output: a result, or an error.
    pub stdout: Vec<u8>,
    /// End of the standard error, in one line.
    pub stderr: String,
}

/// Subject of a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockSubject {
    /// A device. The Go plugin `sriov` locks the same file.
    Device(PciAddress),
    /// An attachment without a device.
    Attachment(AttachmentKey),
    /// The VLANs of all uplinks of Linux bridges. The Go plugin `accelerated-bridge` locks the same file.
    UplinkVlans,
}

impl LockSubject {
    /// Returns the subject of everything that happens to an attachment: its device, if it has one.
    pub fn of(key: &AttachmentKey) -> Self {
        key.device.map_or_else(|| Self::Attachment(key.clone()), Self::Device)
    }
}

impl fmt::Display for LockSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => device.fmt(f),
            Self::Attachment(key) => f.write_str(&key.subject()),
            Self::UplinkVlans => f.write_str("VLANs of uplinks"),
        }
    }
}

/// Lock, held until it is dropped.
#[must_use = "dropping the lock unlocks the device"]
pub struct DeviceLock {
    _unlocks_when_dropped: Box<dyn Any + Send>,
}

impl DeviceLock {
    /// Returns a lock that drops `guard` when it is dropped.
    pub(crate) fn new(guard: impl Any + Send) -> Self {
        Self { _unlocks_when_dropped: Box::new(guard) }
    }
}

impl fmt::Debug for DeviceLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceLock")
    }
}

/// Error of a subject that could not be locked.
#[derive(Debug, Error)]
pub enum DeviceLockError {
    #[error("{subject} was locked by {holder} for {after:?}: try again later")]
    Busy { subject: LockSubject, holder: String, after: Duration },
    #[error("cannot lock {}", path.display())]
    Failed { path: PathBuf, source: io::Error },
}
