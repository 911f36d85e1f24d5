//! Feature gates: what `featureGates` of the operator config switches.

use std::collections::BTreeMap;

use vfleet_api::operator_config::SriovOperatorConfigSpec;

/// A feature that can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    ParallelNicConfig,
    ManageSoftwareBridges,
    MellanoxFirmwareReset,
    MetricsExporter,
    ResourceInjectorMatchCondition,
    BlockDevicePluginUntilConfigured,
}

impl Gate {
    const ALL: [Self; 6] = [
        Self::ParallelNicConfig,
        Self::ManageSoftwareBridges,
        Self::MellanoxFirmwareReset,
        Self::MetricsExporter,
        Self::ResourceInjectorMatchCondition,
        Self::BlockDevicePluginUntilConfigured,
    ];

    pub(crate) fn name(self) -> &'static str {
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

    pub(crate) fn is_on(self, spec: &SriovOperatorConfigSpec) -> bool {
        let switched = spec.feature_gates.as_ref().and_then(|gates| gates.get(self.name()));
        switched.copied().unwrap_or_else(|| self.is_on_by_default())
    }
}

/// Names that no feature has.
pub(crate) fn unknown(spec: &SriovOperatorConfigSpec) -> Vec<&str> {
    let is_known = |name: &str| Gate::ALL.iter().any(|gate| gate.name() == name);
    let names = spec.feature_gates.iter().flat_map(BTreeMap::keys).map(String::as_str);
    names.filter(|name| !is_known(name)).collect()
}
