//! Attachments of the Go plugins: their cache files, converted to journals, so that DEL works for their pods.
//!
//! | plugin | file |
//! |---|---|
//! | `sriov` | `/var/lib/cni/sriov/CONTAINER-INTERFACE` |
//! | `ib-sriov` | `/var/lib/cni/ib-sriov/CONTAINER-INTERFACE` |
//! | `rdma` | `/var/lib/cni/rdma/NETWORK-CONTAINER-INTERFACE` |
//! | `ovs` | `/var/lib/cni/ovs-cni/cache/CONTAINER-INTERFACE`, earlier in `/tmp/ovscache` |
//! | `ovs-mirror-producer`, `ovs-mirror-consumer` | in the same directories, with `_prod` or `_cons` at the end |
//! | `accelerated-bridge` | `/var/lib/cni/accelerated-bridge/NETWORK-CONTAINER-INTERFACE` |
//!
//! The files name neither the namespace nor the boot, and the PF only by its name at that time. The caller adds what is
//! missing ([`GoAttachment`]).

mod accelerated_bridge;
mod infiniband;
mod mirror;
mod ovs;
mod rdma;
mod sriov;

use alloc::boxed::Box;

use serde_json::Value;
use thiserror::Error;
use vfleet_api::{PciAddress, VfRef};

use super::facts::{Namespace, OvsSocket, PeerFacts, UplinkVlans};
use super::journal::{
    AttachmentKey, DeviceChanges, InfinibandChanges, JOURNAL_VERSION, Journal, MirrorChanges, Phase, Plugin,
    RdmaChanges, VfChanges,
};
use super::protocol::json::{Json, KeyFault, Section};
use crate::prelude::*;

/// Ends of the names of the files of mirrors.
pub const PRODUCER_SUFFIX: &str = "_prod";
/// The same for consumers.
pub const CONSUMER_SUFFIX: &str = "_cons";

/// Cache file of a Go plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct GoCache {
    /// Plugin.
    pub plugin: Plugin,
    /// Device; `None` for a veth pair and for mirrors.
    pub device: Option<PciAddress>,
    /// Name of the network; `None` for `rdma`, which has it in the name of the file, and for mirrors.
    pub network: Option<String>,
    /// Name that the PF had, if it is recorded.
    pub pf: Option<String>,
    /// Index of the VF, if it is recorded.
    pub vf_index: Option<u16>,
    /// Network configuration, of whose `ipam` only the type is left; the whole file of `rdma` and of mirrors.
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
    /// Of `ovs`.
    Ovs(Box<ovs::Restored>),
    /// Of `accelerated-bridge`.
    AcceleratedBridge(Box<accelerated_bridge::Restored>),
    /// Of mirrors: names of the interfaces of which one is the port.
    Mirror(Vec<String>),
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
    /// Database of Open vSwitch, for mirrors, whose files do not have it.
    pub socket: OvsSocket,
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
        device: String,
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
    let mut object: Value = serde_json::from_slice(text).map_err(torn)?;
    let mut network = root.clone();
    if plugin == Plugin::Ovs {
        network = root.section("Netconf")?.ok_or_else(|| KeyFault::new("Netconf", "is missing"))?;
        object = object.get_mut("Netconf").map(Value::take).unwrap_or_default();
    }
    let device = read_device(plugin, &network)?;
    let changes = match plugin {
        Plugin::Sriov => GoChanges::Sriov(sriov::read(&root)?),
        Plugin::Infiniband => GoChanges::Infiniband(infiniband::read(&root)?),
        Plugin::Rdma => GoChanges::Rdma(rdma::read(&root)?),
        Plugin::Ovs => GoChanges::Ovs(Box::new(ovs::read(&root, &network, device)?)),
        Plugin::AcceleratedBridge => {
            GoChanges::AcceleratedBridge(Box::new(accelerated_bridge::read(&root)?))
        }
        Plugin::OvsMirrorProducer | Plugin::OvsMirrorConsumer => GoChanges::Mirror(mirror::read(&root)?),
    };
    let pf = if plugin == Plugin::AcceleratedBridge { "pf_name" } else { "Master" };
    Ok(GoCache {
        plugin,
        device,
        network: network.text("name")?.map(ToOwned::to_owned),
        pf: network.text(pf)?.map(ToOwned::to_owned),
        vf_index: network.integer("VFID", 0..=u16::MAX)?,
        object,
        changes,
    })
}

/// Reads the device, which only ports of Open vSwitch and mirrors may lack.
fn read_device(plugin: Plugin, network: &Section<'_>) -> Result<Option<PciAddress>, GoCacheError> {
    match network.text("deviceID")? {
        None if plugin.needs_ovs() => Ok(None),
        None => Err(KeyFault::new("deviceID", "is missing").into()),
        Some(text) => {
            let device = text.parse().map_err(|error: vfleet_api::ParseError| error.to_string());
            Ok(Some(device.map_err(|problem| KeyFault::new("deviceID", problem))?))
        }
    }
}

/// Returns the name of the cache file of an attachment. Those of `rdma` and `accelerated-bridge` have the name of the
/// network.
pub fn go_cache_name(plugin: Plugin, network: &str, container_id: &str, interface: &str) -> String {
    match plugin {
        Plugin::Sriov | Plugin::Infiniband | Plugin::Ovs => format!("{container_id}-{interface}"),
        Plugin::Rdma | Plugin::AcceleratedBridge => format!("{network}-{container_id}-{interface}"),
        Plugin::OvsMirrorProducer => format!("{container_id}-{interface}{PRODUCER_SUFFIX}"),
        Plugin::OvsMirrorConsumer => format!("{container_id}-{interface}{CONSUMER_SUFFIX}"),
    }
}

/// Returns container and interface in the name of a cache file of `network`. `None` if it may be a file of another network,
/// which is only in the name of files of `rdma`: `a-b-c1-net1` is of network `a-b`, although it begins with `a-`.
pub fn parse_go_cache_name<'a>(plugin: Plugin, network: &str, name: &'a str) -> Option<(&'a str, &'a str)> {
    match plugin {
        // Of `ovs` and mirrors the directory is the same, and so is the beginning of their names.
        Plugin::Sriov | Plugin::Infiniband | Plugin::Ovs => name.split_once('-'),
        Plugin::OvsMirrorProducer => name.strip_suffix(PRODUCER_SUFFIX)?.split_once('-'),
        Plugin::OvsMirrorConsumer => name.strip_suffix(CONSUMER_SUFFIX)?.split_once('-'),
        // The network is in the file as well.
        Plugin::AcceleratedBridge => name.strip_prefix(network)?.strip_prefix('-')?.split_once('-'),
        Plugin::Rdma => {
            let rest = name.strip_prefix(network)?.strip_prefix('-')?;
            rest.split_once('-').filter(|(_, interface)| !interface.contains('-'))
        }
    }
}

impl GoCache {
    /// Returns the journal that the same attachment has if it is ours.
    pub fn to_journal(&self, attachment: &GoAttachment<'_>) -> Result<Journal, GoCacheError> {
        let no_vf = || GoCacheError::NoVf {
            device: self.device.map_or_else(|| "none".to_owned(), |device| device.to_string()),
        };
        let changes = match &self.changes {
            GoChanges::Sriov(restored) => {
                let vf = attachment.vf.ok_or_else(no_vf)?;
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
            GoChanges::Ovs(restored) => {
                let path = &attachment.namespace.path;
                let changes = restored.to_changes(attachment.vf, path, attachment.interface);
                DeviceChanges::Ovs(changes.ok_or_else(no_vf)?)
            }
            GoChanges::AcceleratedBridge(restored) => {
                DeviceChanges::AcceleratedBridge(restored.to_changes(attachment.vf.ok_or_else(no_vf)?))
            }
            GoChanges::Mirror(ports) => DeviceChanges::Mirror(MirrorChanges {
                socket: attachment.socket.clone(),
                bridge: None,
                ports: ports.clone(),
                mirrors: None,
            }),
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

    /// Returns the attachment for others that share its uplink.
    pub fn to_peer(&self, container_id: &str, interface: &str) -> PeerFacts {
        let uplink: Option<&UplinkVlans> = match &self.changes {
            GoChanges::AcceleratedBridge(restored) => restored.uplink(),
            _ => None,
        };
        PeerFacts {
            container_id: container_id.to_owned(),
            interface: interface.to_owned(),
            namespace: String::new(),
            phase: Phase::Attached,
            uplink: uplink.cloned(),
        }
    }
}

#[cfg(test)]
mod tests;
