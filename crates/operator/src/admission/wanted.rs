//! What of admission is wanted.

use vfleet_plan::gates::Gate;

use super::configurations::Which;
use crate::components::settings::Seen;

/// What the operator config asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Our objects are judged, and added to.
    pub(crate) webhook: bool,
    /// Pods get their resources.
    pub(crate) injector: bool,
    /// A pod that names a network is refused while nobody can give it its resource.
    pub(crate) pods_need_us: bool,
}

impl Wanted {
    /// Of a config that goes, nothing.
    pub(crate) fn of(settings: &Seen) -> Self {
        let config = settings.config().filter(|config| config.metadata.deletion_timestamp.is_none());
        let Some(spec) = config.map(|config| &config.spec) else { return Self::default() };
        Self {
            webhook: spec.enable_operator_webhook == Some(true),
            injector: spec.enable_injector == Some(true),
            pods_need_us: Gate::ResourceInjectorMatchCondition.is_on(spec),
        }
    }

    pub(crate) fn is_nothing(self) -> bool {
        !self.webhook && !self.injector
    }

    /// The configurations that it takes.
    pub(super) fn configurations(self) -> Vec<Which> {
        let is_for = |which: &Which| match which {
            Which::Validating | Which::Defaults => self.webhook,
            Which::Injector => self.injector,
        };
        Which::ALL.into_iter().filter(is_for).collect()
    }
}

#[cfg(test)]
pub(super) mod testing {
    use vfleet_api::SriovOperatorConfig;
    use vfleet_api::operator_config::SriovOperatorConfigSpec;

    use super::*;

    /// A config that asks for these.
    pub(in crate::admission) fn config(webhook: bool, injector: bool) -> Seen {
        let spec = SriovOperatorConfigSpec {
            enable_operator_webhook: Some(webhook),
            enable_injector: Some(injector),
            ..Default::default()
        };
        Seen::Config(Box::new(SriovOperatorConfig::new("default", spec)))
    }
}
