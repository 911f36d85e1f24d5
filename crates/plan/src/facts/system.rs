use core::fmt;

use serde::{Deserialize, Serialize};
use vfleet_api::pool_config::RdmaMode;

use crate::prelude::*;

/// The kernel, and how it is started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelFacts {
    /// The arguments that it was started with (`/proc/cmdline`).
    pub command_line: String,
    /// What changes the arguments of the next start, where something was found.
    pub boot_loader: Option<BootLoader>,
    /// Another text for each boot.
    pub boot_id: String,
    /// Restarts that vfleet asked for, and that have not led to what they were for yet.
    pub reboots: Option<Reboots>,
    /// Who made the processors.
    pub processor: Processor,
    /// Whether an IOMMU is at work (there are IOMMU groups).
    pub has_iommu: bool,
    /// Whether root itself may not reach into the kernel and the hardware (lockdown).
    pub is_locked_down: bool,
    /// Those of [`crate::modules::KNOWN`] that are there.
    pub modules: BTreeMap<String, ModuleState>,
    /// Whether network namespaces share the RDMA devices; `None` without RDMA.
    pub rdma_mode: Option<RdmaMode>,
}

/// A module of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ModuleState {
    /// It is at work, or a part of the kernel.
    Loaded,
    /// It is on the disk.
    Loadable,
}

/// Who made the processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Processor {
    Intel,
    Amd,
    /// One whose IOMMU needs no arguments (ARM, s390x...).
    #[default]
    Other,
}

/// What changes the kernel's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BootLoader {
    /// `rpm-ostree kargs`.
    RpmOstree,
    /// `grubby`.
    Grubby,
    /// A file in `/etc/default/grub.d`, and `update-grub`.
    GrubDropIn,
    /// `/etc/kernel/cmdline`, and the entries of systemd-boot.
    SystemdBoot,
}

impl BootLoader {
    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RpmOstree => "rpm-ostree",
            Self::Grubby => "grubby",
            Self::GrubDropIn => "a GRUB drop-in",
            Self::SystemdBoot => "systemd-boot",
        }
    }
}

/// Restarts of the machine that vfleet asked for. Kept on the disk, so that they have an end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reboots {
    /// Those for each need. One that is gone is forgotten.
    pub needs: BTreeMap<String, Tries>,
}

/// Restarts for one need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tries {
    /// How many.
    pub count: u32,
    /// The boot in which the last one was asked for.
    pub boot_id: String,
}

impl Reboots {
    /// Restarts for one need alone.
    pub fn for_one(need: &str, count: u32, boot_id: &str) -> Self {
        let tries = Tries { count, boot_id: boot_id.to_owned() };
        Self { needs: BTreeMap::from([(need.to_owned(), tries)]) }
    }
}

impl fmt::Display for Reboots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tries: Vec<String> =
            self.needs.iter().map(|(need, tries)| format!("{} for {need}", tries.count)).collect();
        f.write_str(&tries.join(", "))
    }
}
