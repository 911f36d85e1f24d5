//! Program `crashing_cni`: `vfleet-cni` that kills itself at one moment. The environment variable `CRASH` names the moment:
//! `before` or `after`, and a kind of step or another effect on the machine, for example `after MoveToPod` or
//! `before WriteJournal:attached`.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vfleet_api::PciAddress;
use vfleet_host::attachment::{
    AttachmentHost, AttachmentQuery, DelegateCall, DelegateOutput, DeviceLock, DeviceLockError, LockSubject,
};
use vfleet_host::{HostError, HostRoot, LinuxHost};
use vfleet_plan::cni::facts::{AttachmentFacts, DevicePart, FileFacts, HolderNamespace, SwitchFacts, SwitchQuery};
use vfleet_plan::cni::journal::{AttachmentKey, Journal, Plugin};
use vfleet_plan::cni::step::CniStep;

/// Machine on which the process is killed at one moment.
struct CrashingAttachmentHost {
    host: LinuxHost,
    moment: String,
}

impl CrashingAttachmentHost {
    /// Performs an effect, and kills the process before or after it if this is the moment.
    fn crash_at<T>(&self, effect: &str, perform: impl FnOnce() -> T) -> T {
        self.crash_if(&format!("before {effect}"));
        let result = perform();
        self.crash_if(&format!("after {effect}"));
        result
    }

    fn crash_if(&self, moment: &str) {
        if moment == self.moment {
            let _ = kill(Pid::this(), Signal::SIGKILL);
            // The signal takes a moment to arrive.
            process::abort();
        }
    }
}

impl AttachmentHost for CrashingAttachmentHost {
    fn boot_id(&self) -> Result<String, HostError> {
        self.host.boot_id()
    }

    fn attachment_facts(&self, query: &AttachmentQuery<'_>) -> Result<AttachmentFacts, HostError> {
        self.host.attachment_facts(query)
    }

    fn switch_facts(&self, query: &SwitchQuery) -> Result<SwitchFacts, HostError> {
        self.host.switch_facts(query)
    }

    fn namespace_state(&self, journal: &Journal) -> Result<HolderNamespace, HostError> {
        self.host.namespace_state(journal)
    }

    fn execute_cni(&self, step: &CniStep) -> Result<(), HostError> {
        self.crash_at(step.kind(), || self.host.execute_cni(step))
    }

    fn has_exclusive_rdma(&self) -> Result<bool, HostError> {
        self.host.has_exclusive_rdma()
    }

    fn check_storage(&self) -> Result<(), HostError> {
        self.host.check_storage()
    }

    fn attachment_keys(&self) -> Result<Vec<AttachmentKey>, HostError> {
        self.host.attachment_keys()
    }

    fn read_journal(&self, key: &AttachmentKey) -> Result<Option<Journal>, HostError> {
        self.host.read_journal(key)
    }

    fn write_journal(&self, journal: &Journal) -> Result<(), HostError> {
        let effect = format!("WriteJournal:{}", journal.phase.as_str());
        self.crash_at(&effect, || self.host.write_journal(journal))
    }

    fn remove_journal(&self, key: &AttachmentKey) -> Result<(), HostError> {
        self.crash_at("RemoveJournal", || self.host.remove_journal(key))
    }

    fn go_caches(&self, plugin: Plugin) -> Result<Vec<String>, HostError> {
        self.host.go_caches(plugin)
    }

    fn read_go_cache(&self, plugin: Plugin, name: &str) -> Result<Option<Vec<u8>>, HostError> {
        self.host.read_go_cache(plugin, name)
    }

    fn remove_go_cache(&self, plugin: Plugin, name: &str) -> Result<(), HostError> {
        self.host.remove_go_cache(plugin, name)
    }

    fn read_file(&self, path: &str) -> FileFacts {
        self.host.read_file(path)
    }

    fn lock(
        &self,
        subject: &LockSubject,
        holder: &str,
        limit: Duration,
    ) -> Result<DeviceLock, DeviceLockError> {
        self.host.lock(subject, holder, limit)
    }

    fn wait_for_device(
        &self,
        device: PciAddress,
        parts: &BTreeSet<DevicePart>,
        limit: Duration,
    ) -> Result<bool, HostError> {
        self.host.wait_for_device(device, parts, limit)
    }

    fn find_plugin(&self, plugin: &str, search_path: &[String]) -> Result<Option<PathBuf>, HostError> {
        self.host.find_plugin(plugin, search_path)
    }

    fn delegate(&self, call: &DelegateCall<'_>) -> Result<DelegateOutput, HostError> {
        self.crash_at("Delegate", || self.host.delegate(call))
    }
}

fn main() -> ExitCode {
    let host = LinuxHost::new(HostRoot::default());
    let moment = env::var("CRASH").unwrap_or_default();
    vfleet_cni::program::run(&CrashingAttachmentHost { host, moment })
}
