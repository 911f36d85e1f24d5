//! Faults of policies.

use thiserror::Error;
use vfleet_api::node_policy::{DeviceType, EswitchMode};
use vfleet_api::{ParseError, SriovNetworkNodePolicySpec, VfRange};

use crate::bridge_port::{self, PortSettingFault};
use crate::mtu::{MAX_MTU, read_mtu};
use crate::prelude::*;

/// Reason why a policy cannot be followed on a PF. The message contains the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyFault {
    #[error("nicSelector.{field}: {invalid}")]
    Invalid { field: &'static str, invalid: ParseError },
    #[error("VF range {range} exceeds numVfs {count}: raise numVfs, or lower the range")]
    RangeBeyondCount { range: VfRange, count: u16 },
    #[error("numVfs is {requested}, but no card supports more than 65535 VFs: lower numVfs")]
    TooManyVfs { requested: i64 },
    #[error("numVfs is {requested}: set it to 0 or more")]
    NegativeVfs { requested: i64 },
    #[error("mtu is {requested}, but the kernel accepts 1 to {MAX_MTU}: {}", if *requested < 0 { "raise mtu" } else { "lower mtu" })]
    MtuNotSupported { requested: i64 },
    #[error(
        "bridge.ovs and bridge.linux are both set, but a PF can be the uplink of one bridge only: remove one of them"
    )]
    TwoBridges,
    #[error(
        "a software bridge connects VF representors, which exist only in switchdev mode: set eSwitchMode to switchdev"
    )]
    BridgeWithoutSwitchdev,
    #[error(
        "an externally managed PF cannot be the uplink of a software bridge: remove bridge or externallyManaged"
    )]
    BridgeExternallyManaged,
    #[error(
        "the policy requests a software bridge, but feature gate manageSoftwareBridges is disabled: VFs that the policy has stay, without a bridge; enable the gate in the operator config, or remove bridge"
    )]
    FeatureGateOff,
    #[error("{0}")]
    InvalidPortSetting(PortSettingFault),
    #[error(
        "mtuRequest is {requested}, but the kernel accepts 1 to {MAX_MTU}: correct mtuRequest, or remove it"
    )]
    InvalidMtuRequest { requested: i64 },
    #[error("switchdev mode supports Ethernet only: remove linkType, or set it to eth")]
    SwitchdevNotEthernet,
    #[error("isRdma needs VFs with a kernel driver: set deviceType to netdevice, or isRdma to false")]
    RdmaWithoutKernelDriver,
    #[error(
        "the device plugin does not support isRdma together with vdpaType: set isRdma to false, or remove vdpaType"
    )]
    RdmaWithVdpa,
    #[error("vdpaType needs eSwitchMode switchdev and deviceType netdevice")]
    VdpaNotSupported,
    #[error(
        "policy {policy} has VFs on this PF and is invalid, so the PF is not changed: correct policy {policy}"
    )]
    BlockedByInvalidPolicy { policy: String },
}

impl PolicyFault {
    /// Returns the reason for conditions, Events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "InvalidSelector",
            Self::RangeBeyondCount { .. } => "VfRangeNotSupported",
            Self::TooManyVfs { .. } => "TooManyVfs",
            Self::NegativeVfs { .. } => "InvalidSpec",
            Self::MtuNotSupported { .. } => "MtuNotSupported",
            Self::TwoBridges
            | Self::BridgeWithoutSwitchdev
            | Self::BridgeExternallyManaged
            | Self::InvalidPortSetting(_)
            | Self::InvalidMtuRequest { .. } => "InvalidBridge",
            Self::FeatureGateOff => "FeatureGateDisabled",
            Self::SwitchdevNotEthernet => "LinkTypeNotSupported",
            Self::RdmaWithoutKernelDriver | Self::RdmaWithVdpa => "RdmaNotSupported",
            Self::VdpaNotSupported => "VdpaNotSupported",
            Self::BlockedByInvalidPolicy { .. } => "OtherPolicyInvalid",
        }
    }
}

/// Returns whether the policy requests a software bridge, Open vSwitch or Linux.
pub fn requests_bridge(spec: &SriovNetworkNodePolicySpec) -> bool {
    spec.bridge.as_ref().is_some_and(|bridge| bridge.ovs.is_some() || bridge.linux.is_some())
}

/// Returns the settings of the policy that are impossible or exclude each other on every PF, each with its field.
pub(super) fn find_faults(
    spec: &SriovNetworkNodePolicySpec,
    manage_software_bridges: bool,
) -> impl Iterator<Item = (&'static str, PolicyFault)> {
    let switchdev = spec.e_switch_mode == Some(EswitchMode::Switchdev);
    let kernel_driver = spec.device_type.unwrap_or_default() == DeviceType::Netdevice;
    let rdma = spec.is_rdma == Some(true);
    let has_bridge = requests_bridge(spec);
    let two_bridges =
        spec.bridge.as_ref().is_some_and(|bridge| bridge.ovs.is_some() && bridge.linux.is_some());
    let external = spec.externally_managed == Some(true);
    let other_link = spec.link_type.is_some_and(|kind| kind.upper() != "ETH");
    let mtu = read_mtu(spec.mtu).err().map(|requested| ("mtu", PolicyFault::MtuNotSupported { requested }));
    let combinations = [
        (two_bridges, "bridge", PolicyFault::TwoBridges),
        (has_bridge && !switchdev, "bridge", PolicyFault::BridgeWithoutSwitchdev),
        (has_bridge && external, "bridge", PolicyFault::BridgeExternallyManaged),
        (has_bridge && !manage_software_bridges, "bridge", PolicyFault::FeatureGateOff),
        (switchdev && other_link, "linkType", PolicyFault::SwitchdevNotEthernet),
        (rdma && !kernel_driver, "isRdma", PolicyFault::RdmaWithoutKernelDriver),
        (rdma && spec.vdpa_type.is_some(), "isRdma", PolicyFault::RdmaWithVdpa),
        (
            spec.vdpa_type.is_some() && !(switchdev && kernel_driver),
            "vdpaType",
            PolicyFault::VdpaNotSupported,
        ),
    ];
    let combinations =
        combinations.into_iter().filter_map(|(is_fault, field, fault)| is_fault.then_some((field, fault)));
    mtu.into_iter().chain(combinations)
}

/// Returns the settings of the uplink of a bridge that are unknown or invalid, each with its field. They do not keep a
/// policy from being used: the node that cannot set them reports it.
pub(super) fn find_uplink_faults(
    spec: &SriovNetworkNodePolicySpec,
) -> impl Iterator<Item = (String, PolicyFault)> {
    let bridge = spec.bridge.as_ref();
    let interface = bridge.and_then(|bridge| bridge.ovs.as_ref()?.uplink.as_ref()?.interface.as_ref());
    let request = interface.and_then(|interface| read_mtu(interface.mtu_request).err()).map(|requested| {
        let field = "bridge.ovs.uplink.interface.mtuRequest".to_owned();
        (field, PolicyFault::InvalidMtuRequest { requested })
    });
    let settings = bridge.and_then(|bridge| bridge.linux.as_ref()?.uplink.as_ref());
    let settings = settings.into_iter().flat_map(bridge_port::find_faults);
    let settings = settings.map(|(name, fault)| {
        (format!("bridge.linux.uplink[{name}]"), PolicyFault::InvalidPortSetting(fault))
    });
    request.into_iter().chain(settings)
}

/// Checks the settings of the policy that do not depend on the PF.
pub(super) fn check(
    spec: &SriovNetworkNodePolicySpec,
    manage_software_bridges: bool,
) -> Result<(), PolicyFault> {
    find_faults(spec, manage_software_bridges).next().map_or(Ok(()), |(_, fault)| Err(fault))
}
