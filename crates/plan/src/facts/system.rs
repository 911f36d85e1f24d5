use core::fmt;

use serde::{Deserialize, Serialize};
use vfleet_api::pool_config::RdmaMode;

use crate::prelude::*;

/// Facts of the kernel and its boot configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelFacts {
    /// Arguments of the running kernel (`/proc/cmdline`).
    pub command_line: String,
    /// Boot loader whose kernel arguments vfleet can change, if one was found.
    pub boot_loader: Option<BootLoader>,
    /// Boot ID: unique for each boot.
    pub boot_id: String,
    /// Reboots that vfleet requested and whose purpose is not reached yet.
    pub reboots: Option<Reboots>,
    /// Vendor of the processors.
    pub processor: Processor,
    /// An IOMMU is active (there are IOMMU groups).
    pub has_iommu: bool,
    /// Kernel lockdown is enabled: even root cannot change firmware settings.
    pub is_locked_down: bool,
    /// State of those of [`crate::modules::KNOWN_MODULES`] that exist.
    pub modules: BTreeMap<String, ModuleState>,
    /// RDMA mode: network namespaces share RDMA devices, or not; `None` without RDMA.
    pub rdma_mode: Option<RdmaMode>,
}

/// State of a kernel module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ModuleState {
    /// Loaded, or built into the kernel.
    Loaded,
    /// Installed, and not loaded.
    Loadable,
}

/// Vendor of the processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Processor {
    Intel,
    Amd,
    /// Vendor whose IOMMU needs no kernel arguments (ARM, s390x, ...).
    #[default]
    Other,
}

/// Boot loader, or the tool that changes its kernel arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BootLoader {
    /// `rpm-ostree kargs`.
    RpmOstree,
    /// `grubby`.
    Grubby,
    /// File in `/etc/default/grub.d`, and `update-grub`.
    GrubDropIn,
    /// `/etc/kernel/cmdline`, and the entries of systemd-boot.
    SystemdBoot,
}

impl BootLoader {
    /// Returns the name for messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RpmOstree => "rpm-ostree",
            Self::Grubby => "grubby",
            Self::GrubDropIn => "a GRUB drop-in",
            Self::SystemdBoot => "systemd-boot",
        }
    }
}

/// Reboots that vfleet requested. Stored on disk, so that they are limited across boots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reboots {
    /// Reboots by need. A need that ended is removed.
    pub needs: BTreeMap<String, RebootCount>,
}

/// Reboots for one need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RebootCount {
    /// Number of reboots.
    pub count: u32,
    /// Boot ID at the last request.
    pub boot_id: String,
}

impl Reboots {
    /// Returns reboots for a single need.
    pub fn for_need(need: &str, count: u32, boot_id: &str) -> Self {
        let reboots = RebootCount { count, boot_id: boot_id.to_owned() };
        Self { needs: BTreeMap::from([(need.to_owned(), reboots)]) }
    }
}

impl fmt::Display for Reboots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> =
            self.needs.iter().map(|(need, reboots)| format!("{} for {need}", reboots.count)).collect();
        f.write_str(&counts.join(", "))
    }
}
