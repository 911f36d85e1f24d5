//! Features of admission that the operator config enables.

use vfleet_plan::gates::FeatureGate;

use super::configurations::ConfigurationKind;
use crate::components::config_watch::OperatorConfigState;

/// Features that the operator config enables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnabledFeatures {
    /// `enableOperatorWebhook`: objects of this operator are checked and get defaults.
    pub(crate) webhook: bool,
    /// `enableInjector`: pods get the resources of their networks.
    pub(crate) injector: bool,
    /// Feature gate `resourceInjectorMatchCondition`: pods that name a network are refused while no operator answers.
    pub(crate) injector_required: bool,
}

impl EnabledFeatures {
    /// Returns the enabled features; none if the config is being deleted.
    pub(crate) fn of(settings: &OperatorConfigState) -> Self {
        let config = settings.existing().filter(|config| config.metadata.deletion_timestamp.is_none());
        let Some(spec) = config.map(|config| &config.spec) else { return Self::default() };
        Self {
            webhook: spec.enable_operator_webhook == Some(true),
            injector: spec.enable_injector == Some(true),
            injector_required: FeatureGate::ResourceInjectorMatchCondition.is_enabled(spec),
        }
    }

    pub(crate) fn is_none(self) -> bool {
        !self.webhook && !self.injector
    }

    /// Returns the webhook configurations that the features need.
    pub(super) fn configurations(self) -> Vec<ConfigurationKind> {
        let is_needed = |kind: &ConfigurationKind| match kind {
            ConfigurationKind::Validating | ConfigurationKind::Defaults => self.webhook,
            ConfigurationKind::Injector => self.injector,
        };
        ConfigurationKind::ALL.into_iter().filter(is_needed).collect()
    }
}

#[cfg(test)]
pub(super) mod testing {
    use vfleet_api::SriovOperatorConfig;
    use vfleet_api::operator_config::SriovOperatorConfigSpec;

    use super::*;

    /// Returns an operator config with these features.
    pub(in crate::admission) fn config(webhook: bool, injector: bool) -> OperatorConfigState {
        let spec = SriovOperatorConfigSpec {
            enable_operator_webhook: Some(webhook),
            enable_injector: Some(injector),
            ..Default::default()
        };
        OperatorConfigState::Config(Box::new(SriovOperatorConfig::new("default", spec)))
    }
}
