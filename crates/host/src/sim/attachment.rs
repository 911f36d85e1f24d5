//! Attachments of pods to devices of a simulated machine: the machine as CNI plugins see it.
//!
//! Each process of a plugin is a [`SimHost`] of its own ([`SimHost::new_process`]). Every request that changes the machine is
//! an effect: one netlink request, one file that is written or removed, one run of another plugin. A step may have several. A
//! process can be made to fail or to die before or after each effect.

mod effects;
mod facts;
mod files;
mod locks;
mod plugins;
mod steps;
mod switch;
#[cfg(test)]
mod tests;

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

pub(super) use effects::AttachmentEffects;
pub use effects::EffectFault;
pub use files::SimCniFiles;
pub(super) use locks::DeviceLocks;
pub use plugins::DelegateRecord;
pub(super) use plugins::SimPlugins;

use super::host::{SimHost, lock};
use crate::HostError;
use crate::attachment::{
    AttachmentHost, AttachmentQuery, DelegateCall, DelegateOutput, DeviceLock, DeviceLockError, LockSubject,
};

impl AttachmentHost for SimHost {
    fn boot_id(&self) -> Result<String, HostError> {
        self.read_machine("read the boot ID", |kernel| Ok(kernel.boot_id()))
    }

    fn attachment_facts(&self, query: &AttachmentQuery<'_>) -> Result<AttachmentFacts, HostError> {
        self.read_machine("read the device", |kernel| facts::read(kernel, query))
    }

    fn switch_facts(&self, query: &SwitchQuery) -> Result<SwitchFacts, HostError> {
        self.read_machine("read the switch", |kernel| switch::read(kernel, query))
    }

    fn namespace_state(&self, journal: &Journal) -> Result<HolderNamespace, HostError> {
        self.read_machine("read the namespace", |kernel| Ok(facts::namespace_state(kernel, journal)))
    }

    fn execute_cni(&self, step: &CniStep) -> Result<(), HostError> {
        steps::execute(self, step)
    }

    fn has_exclusive_rdma(&self) -> Result<bool, HostError> {
        self.read_machine("read the RDMA mode", |kernel| Ok(kernel.rdma_mode == Some(RdmaMode::Exclusive)))
    }

    fn check_storage(&self) -> Result<(), HostError> {
        self.read_machine("check the directory of journals", |kernel| kernel.cni.check_storage())
    }

    fn attachment_keys(&self) -> Result<Vec<AttachmentKey>, HostError> {
        self.read_machine("list journals", |kernel| Ok(kernel.cni.journals.keys().cloned().collect()))
    }

    fn read_journal(&self, key: &AttachmentKey) -> Result<Option<Journal>, HostError> {
        self.read_machine("read a journal", |kernel| kernel.cni.journal(key))
    }

    fn write_journal(&self, journal: &Journal) -> Result<(), HostError> {
        let attempt = format!("write the journal of {} ({:?})", journal.key.container_id, journal.phase);
        self.effect(&attempt, |kernel| kernel.cni.write_journal(journal))
    }

    fn remove_journal(&self, key: &AttachmentKey) -> Result<(), HostError> {
        self.effect(&format!("remove the journal of {}", key.container_id), |kernel| {
            kernel.cni.journals.remove(key);
            Ok(())
        })
    }

    fn go_caches(&self, plugin: Plugin) -> Result<Vec<String>, HostError> {
        self.read_machine("list caches", |kernel| {
            let of_plugin = kernel.cni.go_caches.keys().filter(|(of, _)| *of == plugin);
            Ok(of_plugin.map(|(_, name)| name.clone()).collect())
        })
    }

    fn read_go_cache(&self, plugin: Plugin, name: &str) -> Result<Option<Vec<u8>>, HostError> {
        self.read_machine("read a cache", |kernel| {
            Ok(kernel.cni.go_caches.get(&(plugin, name.to_owned())).cloned())
        })
    }

    fn remove_go_cache(&self, plugin: Plugin, name: &str) -> Result<(), HostError> {
        self.effect(&format!("remove the cache {name}"), |kernel| {
            kernel.cni.go_caches.remove(&(plugin, name.to_owned()));
            Ok(())
        })
    }

    fn read_file(&self, path: &str) -> FileFacts {
        let read = self.read_machine("read a file", |kernel| Ok(switch::read_file(kernel, path)));
        read.unwrap_or_else(|error| FileFacts::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        })
    }

    fn lock(
        &self,
        subject: &LockSubject,
        holder: &str,
        limit: Duration,
    ) -> Result<DeviceLock, DeviceLockError> {
        self.lock_within(subject, holder, limit)
    }

    /// Does not wait: unless [`SimNamespaces::returns_late`](super::SimNamespaces::returns_late) is set, the kernel
    /// returns what deleted namespaces had now.
    fn wait_for_device(
        &self,
        device: PciAddress,
        parts: &BTreeSet<DevicePart>,
        _limit: Duration,
    ) -> Result<bool, HostError> {
        self.read_machine("wait for the device", |_| Ok(()))?;
        Ok(self.machine.request(|kernel| {
            if !kernel.namespaces.returns_late {
                kernel.return_devices();
            }
            facts::has_parts(kernel, device, parts)
        }))
    }

    fn find_plugin(&self, plugin: &str, search_path: &[String]) -> Result<Option<PathBuf>, HostError> {
        self.read_machine("find a plugin", |_| Ok(self.machine.plugins.find(plugin, search_path)))
    }

    fn delegate(&self, call: &DelegateCall<'_>) -> Result<DelegateOutput, HostError> {
        let command = call.environment.get("CNI_COMMAND").map_or("", String::as_str);
        self.effect_outside(&format!("run {} for {command}", call.plugin), || self.machine.plugins.run(call))
    }
}

impl SimHost {
    /// Reads the machine without changing it. Fails if the process is dead.
    fn read_machine<T>(
        &self,
        attempt: &str,
        read: impl FnOnce(&super::Kernel) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let kernel = lock(&self.machine.kernel);
        lock(&self.process).check_alive(attempt, kernel.boots)?;
        read(&kernel)
    }
}
