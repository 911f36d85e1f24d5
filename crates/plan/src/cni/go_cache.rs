//! Attachments of the Go plugins: their cache files, converted to journals, so that DEL works for their pods.
//!
//! | plugin | file |
//! |---|---|
//! | `sriov` | `/var/lib/cni/sriov/CONTAINER-INTERFACE` |
//! | `ib-sriov` | `/var/lib/cni/ib-sriov/CONTAINER-INTERFACE` |
//! | `rdma` | `/var/lib/cni/rdma/NETWORK-CONTAINER-INTERFACE` |
//!
//! The files name neither the namespace nor the boot, and the PF only by its name at that time. The caller adds what is
//! missing ([`GoAttachment`]).

mod infiniband;
mod rdma;
mod sriov;

use serde_json::Value;
use thiserror::Error;
use vfleet_api::{PciAddress, VfRef};

use super::facts::Namespace;
use super::journal::{
    AttachmentKey, DeviceChanges, InfinibandChanges, JOURNAL_VERSION, Journal, Phase, Plugin, RdmaChanges,
    VfChanges,
};
use super::protocol::json::{Json, KeyFault, Section};
use crate::prelude::*;

/// Cache file of a Go plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct GoCache {
    /// Plugin.
    pub plugin: Plugin,
    /// Device.
    pub device: PciAddress,
    /// Name of the network; `None` for `rdma`, which has it in the name of the file.
    pub network: Option<String>,
    /// Name that the PF had; `None` for `rdma`.
    pub pf: Option<String>,
    /// Index of the VF; `None` for `rdma`.
    pub vf_index: Option<u16>,
    /// Whole file: of `sriov` and `ib-sriov` it is a network configuration, of whose `ipam` only the type is left.
    pub object: Value,
    /// Changes of the plugin.
    changes: GoChanges,
}

/// Changes of a Go plugin, without the VF.
#[derive(Clone, Debug, PartialEq)]
enum GoChanges {
    /// Of `sriov`.
    Sriov(sriov::Restored),
    /// Of `ib-sriov`.
    Infiniband(infiniband::Restored),
    /// Of `rdma`: name of the RDMA device.
    Rdma(String),
}

/// Facts of an attachment that its cache file does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct GoAttachment<'a> {
    /// ID of the container.
    pub container_id: &'a str,
    /// Name of the interface in the container.
    pub interface: &'a str,
    /// Name of the network, for a file that does not have it.
    pub network: &'a str,
    /// Namespace of the container.
    pub namespace: Namespace,
    /// Boot of the machine in which the namespace exists.
    pub boot_id: &'a str,
    /// VF of the device; `None` if the device is no VF.
    pub vf: Option<VfRef>,
    /// Network configuration that the runtime gave; `None` without a runtime, then the cache counts.
    pub config: Option<&'a Value>,
    /// Search path of delegated plugins.
    pub cni_path: &'a str,
}

/// Error of a cache file of a Go plugin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GoCacheError {
    /// The file is incomplete or damaged: the plugin was interrupted while it wrote it.
    #[error("the file is not JSON: {reason}")]
    Torn {
        /// Reason.
        reason: String,
    },
    /// The file is not one of this plugin.
    #[error("the file is not a cache of the plugin: {key}: {problem}")]
    Foreign {
        /// Key.
        key: String,
        /// Problem of its value.
        problem: String,
    },
    /// The device is no VF any more.
    #[error("device {device} is not a VF")]
    NoVf {
        /// Device.
        device: PciAddress,
    },
}

impl From<KeyFault> for GoCacheError {
    fn from(KeyFault { key, problem }: KeyFault) -> Self {
        Self::Foreign { key, problem }
    }
}

/// Parses a cache file of the Go plugin.
pub fn parse_go_cache(plugin: Plugin, text: &[u8]) -> Result<GoCache, GoCacheError> {
    let torn = |error: serde_json::Error| GoCacheError::Torn { reason: error.to_string() };
    let document: Json = serde_json::from_slice(text).map_err(torn)?;
    let root = Section::new("", &document)
        .ok_or_else(|| GoCacheError::from(KeyFault::new("cache", "is not an object")))?;
    let device = root.text("deviceID")?.ok_or_else(|| KeyFault::new("deviceID", "is missing"))?;
    let device =
        device.parse::<PciAddress>().map_err(|error| KeyFault::new("deviceID", error.to_string()))?;
    let changes = match plugin {
        Plugin::Sriov => GoChanges::Sriov(sriov::read(&root)?),
        Plugin::Infiniband => GoChanges::Infiniband(infiniband::read(&root)?),
        Plugin::Rdma => GoChanges::Rdma(rdma::read(&root)?),
    };
    Ok(GoCache {
        plugin,
        device,
        network: root.text("name")?.map(ToOwned::to_owned),
        pf: root.text("Master")?.map(ToOwned::to_owned),
        vf_index: root.integer("VFID", 0..=u16::MAX)?,
        object: serde_json::from_slice(text).map_err(torn)?,
        changes,
    })
}

/// Returns the name of the cache file of an attachment. Only that of `rdma` has the name of the network.
pub fn go_cache_name(plugin: Plugin, network: &str, container_id: &str, interface: &str) -> String {
    match plugin {
        Plugin::Sriov | Plugin::Infiniband => format!("{container_id}-{interface}"),
        Plugin::Rdma => format!("{network}-{container_id}-{interface}"),
    }
}

/// Returns container and interface in the name of a cache file of `network`. `None` if it may be a file of another network,
/// which is only in the name of files of `rdma`: `a-b-c1-net1` is of network `a-b`, although it begins with `a-`.
pub fn parse_go_cache_name<'a>(plugin: Plugin, network: &str, name: &'a str) -> Option<(&'a str, &'a str)> {
    match plugin {
        Plugin::Sriov | Plugin::Infiniband => name.split_once('-'),
        Plugin::Rdma => {
            let rest = name.strip_prefix(network)?.strip_prefix('-')?;
            rest.split_once('-').filter(|(_, interface)| !interface.contains('-'))
        }
    }
}

impl GoCache {
    /// Returns the journal that the same attachment has if it is ours.
    pub fn to_journal(&self, attachment: &GoAttachment<'_>) -> Result<Journal, GoCacheError> {
        let changes = match &self.changes {
            GoChanges::Sriov(restored) => {
                let vf = attachment.vf.ok_or(GoCacheError::NoVf { device: self.device })?;
                DeviceChanges::Sriov(VfChanges {
                    vf,
                    changed: restored.changed,
                    original: restored.original,
                    interface: restored.interface.clone(),
                })
            }
            GoChanges::Infiniband(restored) => DeviceChanges::Infiniband(InfinibandChanges {
                vf: attachment.vf,
                guid: restored.guid,
                original: restored.original,
                original_guid: restored.original_guid,
                link_state: restored.link_state,
                interface: restored.interface.clone(),
                rdma: restored.rdma.clone(),
            }),
            GoChanges::Rdma(rdma) => DeviceChanges::Rdma(RdmaChanges { rdma: rdma.clone() }),
        };
        let key = AttachmentKey {
            plugin: self.plugin,
            container_id: attachment.container_id.to_owned(),
            interface: attachment.interface.to_owned(),
            device: self.device,
        };
        Ok(Journal {
            version: JOURNAL_VERSION,
            key,
            network: self.network.clone().unwrap_or_else(|| attachment.network.to_owned()),
            namespace: attachment.namespace.clone(),
            boot_id: attachment.boot_id.to_owned(),
            phase: Phase::Attached,
            pod: None,
            config: attachment.config.unwrap_or(&self.object).clone(),
            cni_path: attachment.cni_path.to_owned(),
            changes,
            result: None,
        })
    }
}

#[cfg(test)]
mod tests;
