use thiserror::Error;

use crate::bridge_port::PortSettingFault;
use crate::facts::{BridgeKind, ProtectingUse};
use crate::files::MANAGED_OVS_BRIDGES;
use crate::prelude::*;

/// Cause that prevents the desired state of a software bridge. The text includes the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BridgeFault {
    #[error("bridge name {bridge:?} is not a valid interface name: correct the node state")]
    InvalidName { bridge: String },
    #[error("bridge {bridge} has {count} uplinks, and exactly one is supported: correct the node state")]
    UplinkCount { bridge: String, count: usize },
    #[error("bridge {bridge}: {fault}")]
    PortSetting { bridge: String, fault: PortSettingFault },
    #[error(
        "bridge {bridge}: mtuRequest {requested} of the uplink is not supported, the PF accepts 1 to {max}: correct mtuRequest in the policy, or remove it"
    )]
    MtuRequest { bridge: String, requested: i64, max: u32 },
    #[error(
        "bridge {bridge} is not created, since its uplink has no network interface: check that the driver of the PF is loaded"
    )]
    NoUplink { bridge: String },
    #[error("bridge {bridge} is not changed until udev has named its uplink, which is {interface} now")]
    UplinkNotNamed { bridge: String, interface: String },
    #[error(
        "the PF is not attached to bridge {bridge}, since the node uses it for {in_use}: move {} to another interface, remove bridge from the policy, or set overrideHostProtection",
        in_use.host_use.as_str()
    )]
    UplinkInUse { bridge: String, in_use: ProtectingUse },
    #[error(
        "bridge {bridge} is not removed, since the node uses it or its uplink for {in_use}: move {} to another interface",
        in_use.host_use.as_str()
    )]
    BridgeUsedByNode { bridge: String, in_use: ProtectingUse },
    #[error(
        "the PF is not attached to bridge {bridge}, since it is a member of {master}: remove it from {master}, or remove bridge from the policy"
    )]
    HasMaster { bridge: String, master: String },
    #[error(
        "the PF is not attached to bridge {bridge}, since it is still a port of datapath {datapath} of Open vSwitch, although no bridge in the database has it: check that ovs-vswitchd is running on the node, and remove the port with `ovs-dpctl del-if {datapath} {port}`"
    )]
    StaleDatapath { bridge: String, datapath: String, port: String },
    #[error(
        "the PF is not attached to bridge {bridge}, since it is a port of Open vSwitch bridge {other}, which vfleet did not create: remove it with `ovs-vsctl del-port {other} {port}`, or remove bridge from the policy"
    )]
    PortOfOther { bridge: String, other: String, port: String },
    #[error(
        "{} {bridge} exists and was not created by vfleet: rename or remove it, or remove bridge from the policy",
        kind.as_str()
    )]
    NameTaken { bridge: String, kind: BridgeKind },
    #[error(
        "Open vSwitch bridge {bridge} is not changed, since it is unknown whether the Go operator created it: {MANAGED_OVS_BRIDGES} is not valid ({error}); correct or remove the file on the node"
    )]
    GoListInvalid { bridge: String, error: String },
    #[error(
        "{} {bridge} has to be removed, but port {port} is still attached to it: the uplink was removed from the bridge, and the bridge is removed once the port is; delete the pod or the port",
        kind.as_str()
    )]
    StillUsed { bridge: String, kind: BridgeKind, port: String },
    #[error("Open vSwitch was not read yet, so bridge {bridge} is not changed: vfleet tries again")]
    OvsNotRead { bridge: String },
    #[error(
        "Open vSwitch bridge {bridge} cannot be configured, since Open vSwitch is not running (nobody listens on socket {socket}): install and start Open vSwitch on the node, or set the path of its database socket"
    )]
    OvsNotRunning { bridge: String, socket: String },
    #[error("Open vSwitch bridge {bridge} is not changed until Open vSwitch can be read: {error}")]
    OvsUnreadable { bridge: String, error: String, reason: &'static str },
    #[error(
        "Open vSwitch bridge {bridge} was changed in the database, but ovs-vswitchd does not apply the change: check that ovs-vswitchd is running on the node (`systemctl status ovs-vswitchd`) and its log"
    )]
    OvsBehind { bridge: String },
    #[error(
        "ovs-vswitchd did not create Open vSwitch bridge {bridge} with datapath type {datapath_type}: correct datapathType of the policy, or check on the node that ovs-vswitchd is running, its log, and for type system that the kernel module openvswitch is loaded"
    )]
    NoDatapath { bridge: String, datapath_type: String },
    #[error(
        "Open vSwitch cannot use the PF as uplink of bridge {bridge}: {error}; correct bridge.ovs.uplink of the policy, or check the log of ovs-vswitchd"
    )]
    UplinkError { bridge: String, error: String },
    #[error(
        "MTU {requested} is requested, but Open vSwitch bridge {bridge} keeps the PF at {held}: run `ovs-vsctl set Interface {interface} mtu_request={requested}` on the node, or lower mtu"
    )]
    MtuHeld { bridge: String, interface: String, requested: u32, held: i64 },
    #[error(
        "bridge {bridge} is not ready, but the device plugin offers VFs of the PF, since it does not know bridges: pods that start now may not be attached"
    )]
    OfferedAnyway { bridge: String },
}

impl BridgeFault {
    /// Returns the reason for conditions, Events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::InvalidName { .. }
            | Self::UplinkCount { .. }
            | Self::PortSetting { .. }
            | Self::MtuRequest { .. } => "InvalidSpec",
            Self::NoUplink { .. } | Self::UplinkNotNamed { .. } => "NoInterface",
            Self::UplinkInUse { .. } | Self::BridgeUsedByNode { .. } => "PfInUse",
            Self::HasMaster { .. } | Self::StaleDatapath { .. } | Self::PortOfOther { .. } => {
                "UplinkOfOtherBridge"
            }
            Self::NameTaken { .. } => "BridgeNotOurs",
            Self::GoListInvalid { .. } => "BridgeListInvalid",
            Self::StillUsed { .. } => "BridgeInUse",
            Self::OvsNotRead { .. } => "OvsNotRead",
            Self::OvsNotRunning { .. } => "OvsNotRunning",
            Self::OvsUnreadable { reason, .. } => reason,
            Self::OvsBehind { .. } => "OvsNotFollowing",
            Self::NoDatapath { .. } => "DatapathFailed",
            Self::UplinkError { .. } => "UplinkFailed",
            Self::MtuHeld { .. } => "MtuHeldByBridge",
            Self::OfferedAnyway { .. } => "BridgeNotReady",
        }
    }

    /// Returns whether the database of Open vSwitch has the desired bridge, and only its effect is missing.
    pub(super) const fn is_after_change(&self) -> bool {
        matches!(self, Self::OvsBehind { .. } | Self::NoDatapath { .. } | Self::UplinkError { .. })
    }

    /// Returns whether the node uses the bridge or the PF.
    pub(super) const fn is_of_use(&self) -> bool {
        matches!(self, Self::UplinkInUse { .. } | Self::BridgeUsedByNode { .. })
    }

    /// Returns whether somebody else has a bridge of the name.
    pub(crate) const fn is_foreign_bridge(&self) -> bool {
        matches!(self, Self::NameTaken { .. })
    }

    /// Returns whether only another spec solves the problem.
    pub(crate) const fn is_invalid_spec(&self) -> bool {
        matches!(
            self,
            Self::InvalidName { .. }
                | Self::UplinkCount { .. }
                | Self::PortSetting { .. }
                | Self::MtuRequest { .. }
        )
    }

    /// Returns whether a retry can help although nothing changed.
    pub(crate) const fn is_retryable(&self) -> bool {
        matches!(self, Self::OvsUnreadable { .. } | Self::OvsNotRead { .. } | Self::UplinkNotNamed { .. })
    }
}
