//! Journal of an attachment: written before the first step, removed after the last. It has all that is needed to undo the
//! attachment without the configuration, the namespace or the device.

mod port;
mod text;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vfleet_api::{Guid, PciAddress, VfRef};

use super::facts::{LinkState, Namespace, SwitchQuery, VfSettings};
use super::step::OriginalInterface;
use crate::prelude::*;

pub use port::{
    AcceleratedBridgeChanges, MirrorChanges, OvsChanges, OvsLink, RepresentorChanges, VdpaChanges,
};

/// Version of the format.
pub const JOURNAL_VERSION: u32 = 1;

/// Attachment on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// Version of the format.
    pub version: u32,
    /// Attachment.
    pub key: AttachmentKey,
    /// Name of the network.
    pub network: String,
    /// Namespace of the pod.
    pub namespace: Namespace,
    /// Boot of the machine in which the namespace exists; empty if unknown, for an attachment of a Go plugin.
    pub boot_id: String,
    /// Progress.
    pub phase: Phase,
    /// Pod, if the runtime named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodIdentity>,
    /// Network configuration, as the runtime gave it: for the plugins that it delegates to.
    pub config: Value,
    /// Search path of delegated plugins.
    pub cni_path: String,
    /// Changes that have to be undone.
    pub changes: DeviceChanges,
    /// Result of ADD, for CHECK.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
}

impl Journal {
    /// Returns whether the machine was booted since. Then neither the namespace nor any change of the device exists.
    pub fn is_of_earlier_boot(&self, boot_id: &str) -> bool {
        !self.boot_id.is_empty() && self.boot_id != boot_id
    }
}

/// Identity of an attachment on its node. The file of its journal is named after it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentKey {
    /// Plugin.
    pub plugin: Plugin,
    /// ID of the container.
    pub container_id: String,
    /// Name of the interface in the container.
    pub interface: String,
    /// Device; `None` for an attachment without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PciAddress>,
}

impl AttachmentKey {
    /// Returns what is attached, for messages: the device, or the interface of the container.
    pub fn subject(&self) -> String {
        match self.device {
            Some(device) => format!("device {device}"),
            None => format!("interface {} of container {}", self.interface, self.container_id),
        }
    }
}

/// Plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Plugin {
    /// VFs of Ethernet cards.
    #[serde(rename = "sriov")]
    Sriov,
    /// VFs of InfiniBand cards.
    #[serde(rename = "ib-sriov")]
    Infiniband,
    /// RDMA devices of VFs that another plugin has attached.
    #[serde(rename = "rdma")]
    Rdma,
    /// Ports of Open vSwitch.
    #[serde(rename = "ovs")]
    Ovs,
    /// VFs whose representors are ports of a Linux bridge.
    #[serde(rename = "accelerated-bridge")]
    AcceleratedBridge,
    /// Mirrors of Open vSwitch that have the port of another plugin as a source.
    #[serde(rename = "ovs-mirror-producer")]
    OvsMirrorProducer,
    /// Mirrors of Open vSwitch that have the port of another plugin as their output.
    #[serde(rename = "ovs-mirror-consumer")]
    OvsMirrorConsumer,
}

impl Plugin {
    /// All plugins.
    pub const ALL: [Self; 7] = [
        Self::Sriov,
        Self::Infiniband,
        Self::Rdma,
        Self::Ovs,
        Self::AcceleratedBridge,
        Self::OvsMirrorProducer,
        Self::OvsMirrorConsumer,
    ];

    /// Returns the plugin with this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }

    /// Returns whether the plugin can run the IPAM plugin of its network. It does not for every device:
    /// see [`DeviceChanges::runs_ipam`]. `rdma` and mirrors are chained after a plugin that runs it.
    pub const fn can_run_ipam(self) -> bool {
        match self {
            Self::Sriov | Self::Infiniband | Self::Ovs | Self::AcceleratedBridge => true,
            Self::Rdma | Self::OvsMirrorProducer | Self::OvsMirrorConsumer => false,
        }
    }

    /// Returns whether the plugin is useless without Open vSwitch.
    pub const fn needs_ovs(self) -> bool {
        matches!(self, Self::Ovs | Self::OvsMirrorProducer | Self::OvsMirrorConsumer)
    }

    /// Returns what the plugin is for, in one line.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Sriov => "VFs of Ethernet cards",
            Self::Infiniband => "VFs of InfiniBand cards",
            Self::Rdma => "RDMA devices of VFs that another plugin has attached",
            Self::Ovs => "ports of Open vSwitch: VFs with representors, vDPA devices, veth pairs",
            Self::AcceleratedBridge => "VFs whose representors are ports of a Linux bridge",
            Self::OvsMirrorProducer => "mirrors of Open vSwitch, with the port of the plugin ovs as a source",
            Self::OvsMirrorConsumer => "mirrors of Open vSwitch, with the port of the plugin ovs as their output",
        }
    }

    /// Returns the name in network configurations, which is the name of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sriov => "sriov",
            Self::Infiniband => "ib-sriov",
            Self::Rdma => "rdma",
            Self::Ovs => "ovs",
            Self::AcceleratedBridge => "accelerated-bridge",
            Self::OvsMirrorProducer => "ovs-mirror-producer",
            Self::OvsMirrorConsumer => "ovs-mirror-consumer",
        }
    }
}

/// Progress of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// ADD is running, or was interrupted.
    Attaching,
    /// ADD has succeeded.
    Attached,
    /// DEL or GC is running, was interrupted, or waits for the kernel to return the device. It has freed the addresses of the
    /// IPAM plugin before.
    Releasing,
    /// The device was released without the runtime, since the namespace is gone. Only the addresses of the IPAM plugin are
    /// left, for DEL or GC.
    Returned,
}

impl Phase {
    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attaching => "attaching",
            Self::Attached => "attached",
            Self::Releasing => "releasing",
            Self::Returned => "returned",
        }
    }
}

/// Pod of an attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodIdentity {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// Changes of an attachment, with the state before them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum DeviceChanges {
    /// Changes of the plugin `sriov`.
    Sriov(VfChanges),
    /// Changes of the plugin `ib-sriov`.
    Infiniband(InfinibandChanges),
    /// Changes of the plugin `rdma`.
    Rdma(RdmaChanges),
    /// Changes of the plugin `ovs`.
    Ovs(OvsChanges),
    /// Changes of the plugin `accelerated-bridge`.
    AcceleratedBridge(AcceleratedBridgeChanges),
    /// Changes of the plugins for mirrors.
    Mirror(MirrorChanges),
}

impl DeviceChanges {
    /// Returns whether ADD moves the interface of the device to the pod.
    pub const fn moves_interface(&self) -> bool {
        match self {
            Self::Sriov(changes) => changes.interface.is_some(),
            Self::Infiniband(changes) => changes.interface.is_some(),
            Self::Ovs(changes) => {
                matches!(&changes.link, OvsLink::Vf { vf, .. } if vf.interface.is_some())
            }
            Self::AcceleratedBridge(changes) => changes.vf.interface.is_some(),
            Self::Rdma(_) | Self::Mirror(_) => false,
        }
    }

    /// Returns whether the pod has an Ethernet interface whose addresses are announced.
    pub const fn has_ethernet_interface(&self) -> bool {
        match self {
            Self::Ovs(changes) if matches!(changes.link, OvsLink::Veth { .. }) => true,
            Self::Infiniband(_) => false,
            _ => self.moves_interface(),
        }
    }

    /// Returns the facts of the switch side that a CHECK or a release needs; `None` if there is none.
    pub fn switch_query(&self, key: &AttachmentKey) -> Option<SwitchQuery> {
        match self {
            Self::Sriov(_) | Self::Infiniband(_) | Self::Rdma(_) => None,
            Self::Ovs(changes) => Some(changes.switch_query(key.device)),
            Self::AcceleratedBridge(changes) => Some(changes.switch_query(key.device)),
            Self::Mirror(changes) => Some(changes.switch_query()),
        }
    }

    /// Returns whether ADD runs the IPAM plugin of the network, so that CHECK asks it and a release frees its addresses.
    /// An InfiniBand device without an interface has no addresses, and neither has a device for userspace that is a port of
    /// Open vSwitch.
    pub const fn runs_ipam(&self) -> bool {
        match self {
            Self::Sriov(_) => Plugin::Sriov.can_run_ipam(),
            Self::Infiniband(changes) => Plugin::Infiniband.can_run_ipam() && changes.interface.is_some(),
            Self::Rdma(_) => Plugin::Rdma.can_run_ipam(),
            Self::Ovs(changes) => match &changes.link {
                OvsLink::Veth { .. } => Plugin::Ovs.can_run_ipam(),
                OvsLink::Vf { vf, .. } => Plugin::Ovs.can_run_ipam() && vf.interface.is_some(),
                OvsLink::Vdpa { .. } => false,
            },
            Self::AcceleratedBridge(_) => Plugin::AcceleratedBridge.can_run_ipam(),
            Self::Mirror(_) => false,
        }
    }
}

/// Changes of an Ethernet VF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VfChanges {
    /// The VF.
    pub vf: VfRef,
    /// Settings that ADD changes.
    pub changed: VfSettings,
    /// All settings before ADD.
    pub original: VfSettings,
    /// Interface before ADD; `None` for a VF with a driver for userspace.
    pub interface: Option<OriginalInterface>,
}

/// Changes of an InfiniBand VF, or of a PF for userspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InfinibandChanges {
    /// The VF; `None` for a PF.
    pub vf: Option<VfRef>,
    /// GUID that ADD sets.
    pub guid: Option<Guid>,
    /// GUID to restore instead: that of the interface before ADD, or all ones, which the driver takes for none.
    pub original_guid: Option<Guid>,
    /// All settings before ADD.
    pub original: VfSettings,
    /// Link state that ADD sets.
    pub link_state: Option<LinkState>,
    /// Interface before ADD; `None` for a device with a driver for userspace.
    pub interface: Option<OriginalInterface>,
    /// RDMA device that ADD moves to the pod.
    pub rdma: Option<String>,
}

/// Changes of the RDMA device of a VF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RdmaChanges {
    /// RDMA device that ADD moves to the pod.
    pub rdma: String,
}
