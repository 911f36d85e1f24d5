//! Feature gates: what `featureGates` of the operator config switches.

use vfleet_api::operator_config::SriovOperatorConfigSpec;

use crate::prelude::*;

/// A feature that can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Several cards of a node are configured at once.
    ParallelNicConfig,
    /// Software bridges are made for policies that want them.
    ManageSoftwareBridges,
    /// A card's firmware may be reset instead of the machine.
    MellanoxFirmwareReset,
    /// Metrics of VFs are exported.
    MetricsExporter,
    /// Pods that name a network are refused while nobody can give them its resource.
    ResourceInjectorMatchCondition,
    /// The separate device plugin waits until its node's VFs are there.
    BlockDevicePluginUntilConfigured,
}

impl Gate {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ParallelNicConfig,
        Self::ManageSoftwareBridges,
        Self::MellanoxFirmwareReset,
        Self::MetricsExporter,
        Self::ResourceInjectorMatchCondition,
        Self::BlockDevicePluginUntilConfigured,
    ];

    /// As `featureGates` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ParallelNicConfig => "parallelNicConfig",
            Self::ManageSoftwareBridges => "manageSoftwareBridges",
            Self::MellanoxFirmwareReset => "mellanoxFirmwareReset",
            Self::MetricsExporter => "metricsExporter",
            Self::ResourceInjectorMatchCondition => "resourceInjectorMatchCondition",
            Self::BlockDevicePluginUntilConfigured => "blockDevicePluginUntilConfigured",
        }
    }

    /// As in the Go operator, but for the first: with us several cards at once are the usual case.
    fn is_on_by_default(self) -> bool {
        match self {
            Self::ParallelNicConfig
            | Self::MellanoxFirmwareReset
            | Self::BlockDevicePluginUntilConfigured => true,
            Self::ManageSoftwareBridges | Self::MetricsExporter | Self::ResourceInjectorMatchCondition => {
                false
            }
        }
    }

    /// Whether the operator config has it on, or says nothing and it is on by default.
    pub fn is_on(self, spec: &SriovOperatorConfigSpec) -> bool {
        let switched = spec.feature_gates.as_ref().and_then(|gates| gates.get(self.name()));
        switched.copied().unwrap_or_else(|| self.is_on_by_default())
    }
}

/// Names that no feature has.
pub fn unknown(spec: &SriovOperatorConfigSpec) -> Vec<&str> {
    let is_known = |name: &str| Gate::ALL.iter().any(|gate| gate.name() == name);
    let names = spec.feature_gates.iter().flat_map(BTreeMap::keys).map(String::as_str);
    names.filter(|name| !is_known(name)).collect()
}
