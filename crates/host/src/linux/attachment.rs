//! Attachments of pods to devices: facts of one device and one namespace, steps, and files.
//!
//! - [`facts`], [`device`], [`namespace`], [`holders`], [`switch`]: what a plan is made from
//! - [`steps`]: changes of the device and in the namespace of the pod
//! - [`journals`], [`go_files`]: files on the node
//! - [`lock`], [`delegate`]: locks of devices, other plugins

mod delegate;
mod device;
mod facts;
mod go_files;
mod holders;
mod journals;
mod lock;
pub(super) mod namespace;
mod settle;
mod steps;
mod switch;
#[cfg(test)]
mod test_pod;

pub(super) use journals::{file_name, parse_file_name, parse_journal};

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use vfleet_api::PciAddress;
use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::cni::facts::{
    AttachmentFacts, DevicePart, FileFacts, HolderNamespace, SwitchFacts, SwitchQuery,
};
use vfleet_plan::cni::journal::{AttachmentKey, Journal, Plugin};
use vfleet_plan::cni::step::CniStep;

use super::stable_read::read_stable;
use super::{LinuxHost, events, rdma, system};
use crate::HostError;
use crate::attachment::{
    AttachmentHost, AttachmentQuery, DelegateCall, DelegateOutput, DeviceLock, DeviceLockError, LockSubject,
};

impl AttachmentHost for LinuxHost {
    fn boot_id(&self) -> Result<String, HostError> {
        system::read_boot_id(&self.settings().root)
    }

    fn attachment_facts(&self, query: &AttachmentQuery<'_>) -> Result<AttachmentFacts, HostError> {
        facts::read(&self.settings().root, query)
    }

    fn switch_facts(&self, query: &SwitchQuery) -> Result<SwitchFacts, HostError> {
        switch::read(&self.settings().root, query)
    }

    fn namespace_state(&self, journal: &Journal) -> Result<HolderNamespace, HostError> {
        let root = &self.settings().root;
        Ok(namespace::state_of(root, journal, &system::read_boot_id(root)?))
    }

    fn execute_cni(&self, step: &CniStep) -> Result<(), HostError> {
        steps::execute(&self.settings().root, step)
    }

    fn has_exclusive_rdma(&self) -> Result<bool, HostError> {
        Ok(rdma::read_mode(&self.settings().root)? == Some(RdmaMode::Exclusive))
    }

    fn check_storage(&self) -> Result<(), HostError> {
        journals::check_storage(&self.settings().root)
    }

    fn attachment_keys(&self) -> Result<Vec<AttachmentKey>, HostError> {
        journals::list(&self.settings().root)
    }

    fn read_journal(&self, key: &AttachmentKey) -> Result<Option<Journal>, HostError> {
        journals::read(&self.settings().root, key)
    }

    fn write_journal(&self, journal: &Journal) -> Result<(), HostError> {
        journals::write(&self.settings().root, journal)
    }

    fn remove_journal(&self, key: &AttachmentKey) -> Result<(), HostError> {
        journals::remove(&self.settings().root, key)
    }

    fn go_caches(&self, plugin: Plugin) -> Result<Vec<String>, HostError> {
        go_files::list_caches(&self.settings().root, plugin)
    }

    fn read_go_cache(&self, plugin: Plugin, name: &str) -> Result<Option<Vec<u8>>, HostError> {
        go_files::read_cache(&self.settings().root, plugin, name)
    }

    fn remove_go_cache(&self, plugin: Plugin, name: &str) -> Result<(), HostError> {
        go_files::remove_cache(&self.settings().root, plugin, name)
    }

    fn read_file(&self, path: &str) -> FileFacts {
        switch::read_file(&self.settings().root, path)
    }

    fn lock(
        &self,
        subject: &LockSubject,
        holder: &str,
        limit: Duration,
    ) -> Result<DeviceLock, DeviceLockError> {
        lock::lock(&self.settings().root, subject, holder, limit)
    }

    fn wait_for_device(
        &self,
        device: PciAddress,
        parts: &BTreeSet<DevicePart>,
        limit: Duration,
    ) -> Result<bool, HostError> {
        let path = self.settings().root.device(device);
        let has_all = || Ok(device::has_parts(&path, parts)?.then_some(()));
        Ok(events::wait_for(limit, || read_stable(has_all))?.is_some())
    }

    fn find_plugin(&self, plugin: &str, search_path: &[String]) -> Result<Option<PathBuf>, HostError> {
        Ok(delegate::find(&self.settings().root, plugin, search_path))
    }

    fn delegate(&self, call: &DelegateCall<'_>) -> Result<DelegateOutput, HostError> {
        delegate::run(&self.settings().root, call)
    }
}
