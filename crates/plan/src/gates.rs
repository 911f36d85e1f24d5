//! Feature gates of the operator config.

use vfleet_api::operator_config::SriovOperatorConfigSpec;

use crate::prelude::*;

/// Feature that `featureGates` of the operator config enables or disables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureGate {
    /// Configure several cards of a node in parallel.
    ParallelNicConfig,
    /// Create the software bridges that policies request.
    ManageSoftwareBridges,
    /// Report Open vSwitch bridges as resources of their Node.
    OvsBridgeResources,
    /// Reset the firmware of a card instead of rebooting the node.
    MellanoxFirmwareReset,
    /// Export metrics of VFs.
    MetricsExporter,
    /// Reject pods that name a network while the resource injector is unavailable.
    ResourceInjectorMatchCondition,
    /// Keep the Go device plugin from starting until the VFs of its node are configured.
    BlockDevicePluginUntilConfigured,
}

impl FeatureGate {
    /// All feature gates.
    pub const ALL: [Self; 7] = [
        Self::ParallelNicConfig,
        Self::ManageSoftwareBridges,
        Self::OvsBridgeResources,
        Self::MellanoxFirmwareReset,
        Self::MetricsExporter,
        Self::ResourceInjectorMatchCondition,
        Self::BlockDevicePluginUntilConfigured,
    ];

    /// Returns the key in `featureGates`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ParallelNicConfig => "parallelNicConfig",
            Self::ManageSoftwareBridges => "manageSoftwareBridges",
            Self::OvsBridgeResources => "ovsBridgeResources",
            Self::MellanoxFirmwareReset => "mellanoxFirmwareReset",
            Self::MetricsExporter => "metricsExporter",
            Self::ResourceInjectorMatchCondition => "resourceInjectorMatchCondition",
            Self::BlockDevicePluginUntilConfigured => "blockDevicePluginUntilConfigured",
        }
    }

    /// Returns the default, which is that of the Go operator except for parallelNicConfig. It does not know
    /// ovsBridgeResources.
    fn is_enabled_by_default(self) -> bool {
        match self {
            Self::ParallelNicConfig
            | Self::MellanoxFirmwareReset
            | Self::BlockDevicePluginUntilConfigured => true,
            Self::ManageSoftwareBridges
            | Self::OvsBridgeResources
            | Self::MetricsExporter
            | Self::ResourceInjectorMatchCondition => false,
        }
    }

    /// Returns whether the operator config enables the feature, or the default if it does not mention the feature.
    pub fn is_enabled(self, spec: &SriovOperatorConfigSpec) -> bool {
        let configured = spec.feature_gates.as_ref().and_then(|gates| gates.get(self.name()));
        configured.copied().unwrap_or_else(|| self.is_enabled_by_default())
    }
}

/// Returns the keys of `featureGates` that name no feature.
pub fn find_unknown_gates(spec: &SriovOperatorConfigSpec) -> Vec<&str> {
    let is_known = |name: &str| FeatureGate::ALL.iter().any(|gate| gate.name() == name);
    let names = spec.feature_gates.iter().flat_map(BTreeMap::keys).map(String::as_str);
    names.filter(|name| !is_known(name)).collect()
}
