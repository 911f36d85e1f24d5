//! Policies that cannot be followed.

use thiserror::Error;
use vfleet_api::node_policy::{DeviceType, EswitchMode};
use vfleet_api::{Invalid, SriovNetworkNodePolicySpec, VfRange};

use crate::mtu::{HIGHEST_MTU, read_mtu};
use crate::prelude::*;

/// Why a policy cannot be followed on a PF. The text says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyFault {
    #[error("nicSelector.{field}: {invalid}")]
    Invalid { field: &'static str, invalid: Invalid },
    #[error("VFs {range} are wanted, but numVfs is {count}: raise numVfs or lower the range")]
    RangeBeyondCount { range: VfRange, count: u16 },
    #[error("numVfs is {asked}, but no card has more than 65535 VFs: lower numVfs")]
    TooManyVfs { asked: i64 },
    #[error("numVfs is {asked}: give 0 or more")]
    NegativeVfs { asked: i64 },
    #[error("mtu is {asked}, but the kernel takes 1 to {HIGHEST_MTU}: {}", if *asked < 0 { "raise mtu" } else { "lower mtu" })]
    MtuNotPossible { asked: i64 },
    #[error("bridge.ovs and bridge.linux are both given, but a PF is the uplink of one bridge: remove one")]
    TwoBridges,
    #[error("a software bridge connects the representors of VFs: set eSwitchMode to switchdev")]
    BridgeWithoutSwitchdev,
    #[error(
        "a PF that is managed outside cannot be given a software bridge: remove bridge or externallyManaged"
    )]
    BridgeManagedOutside,
    #[error(
        "a software bridge is wanted, but the feature gate manageSoftwareBridges is off: switch it on in the operator config, or remove bridge"
    )]
    FeatureGateOff,
    #[error("switchdev mode is for Ethernet only: remove linkType, or set it to eth")]
    SwitchdevNotEthernet,
    #[error("isRdma needs VFs with the kernel's own driver: set deviceType to netdevice, or isRdma to false")]
    RdmaWithoutKernelDriver,
    #[error(
        "a VF is a vDPA device or goes along with its RDMA device, and the device plugin stops at both: set isRdma to false, or remove vdpaType"
    )]
    RdmaWithVdpa,
    #[error("vdpaType needs eSwitchMode switchdev and deviceType netdevice")]
    VdpaNotPossible,
    #[error(
        "the PF stays as it is while policy {policy}, which has VFs on it, cannot be followed: correct that one"
    )]
    HeldBack { policy: String },
}

impl PolicyFault {
    /// In one word, for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "InvalidSelector",
            Self::RangeBeyondCount { .. } => "VfRangeNotPossible",
            Self::TooManyVfs { .. } => "TooManyVfs",
            Self::NegativeVfs { .. } => "InvalidSpec",
            Self::MtuNotPossible { .. } => "MtuNotPossible",
            Self::TwoBridges | Self::BridgeWithoutSwitchdev | Self::BridgeManagedOutside => "InvalidBridge",
            Self::FeatureGateOff => "FeatureGateOff",
            Self::SwitchdevNotEthernet => "LinkTypeNotPossible",
            Self::RdmaWithoutKernelDriver | Self::RdmaWithVdpa => "RdmaNotPossible",
            Self::VdpaNotPossible => "VdpaNotPossible",
            Self::HeldBack { .. } => "OtherPolicyAtFault",
        }
    }
}

/// Whether the policy wants a software bridge of either kind.
pub fn wants_bridge(spec: &SriovNetworkNodePolicySpec) -> bool {
    spec.bridge.as_ref().is_some_and(|bridge| bridge.ovs.is_some() || bridge.linux.is_some())
}

/// All that is not possible or does not go together in what the policy wants of any PF, each with its field.
pub(super) fn faults(
    spec: &SriovNetworkNodePolicySpec,
    manage_software_bridges: bool,
) -> impl Iterator<Item = (&'static str, PolicyFault)> {
    let switchdev = spec.e_switch_mode == Some(EswitchMode::Switchdev);
    let kernel_driver = spec.device_type.unwrap_or_default() == DeviceType::Netdevice;
    let rdma = spec.is_rdma == Some(true);
    let wants_bridge = wants_bridge(spec);
    let two_bridges =
        spec.bridge.as_ref().is_some_and(|bridge| bridge.ovs.is_some() && bridge.linux.is_some());
    let outside = spec.externally_managed == Some(true);
    let other_link = spec.link_type.is_some_and(|kind| kind.upper() != "ETH");
    let mtu = read_mtu(spec.mtu).err().map(|asked| ("mtu", PolicyFault::MtuNotPossible { asked }));
    let together = [
        (two_bridges, "bridge", PolicyFault::TwoBridges),
        (wants_bridge && !switchdev, "bridge", PolicyFault::BridgeWithoutSwitchdev),
        (wants_bridge && outside, "bridge", PolicyFault::BridgeManagedOutside),
        (wants_bridge && !manage_software_bridges, "bridge", PolicyFault::FeatureGateOff),
        (switchdev && other_link, "linkType", PolicyFault::SwitchdevNotEthernet),
        (rdma && !kernel_driver, "isRdma", PolicyFault::RdmaWithoutKernelDriver),
        (rdma && spec.vdpa_type.is_some(), "isRdma", PolicyFault::RdmaWithVdpa),
        (spec.vdpa_type.is_some() && !(switchdev && kernel_driver), "vdpaType", PolicyFault::VdpaNotPossible),
    ];
    let together = together.into_iter().filter_map(|(is_so, field, fault)| is_so.then_some((field, fault)));
    mtu.into_iter().chain(together)
}

/// Whether what the policy wants of any PF goes together.
pub(super) fn check(
    spec: &SriovNetworkNodePolicySpec,
    manage_software_bridges: bool,
) -> Result<(), PolicyFault> {
    faults(spec, manage_software_bridges).next().map_or(Ok(()), |(_, fault)| Err(fault))
}
