//! Who configures the cards.

use std::collections::BTreeMap;

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_plan::boot::{accepted, config_text};
use vfleet_plan::files::BOOT_CONFIG;
use vfleet_plan::{
    BootConfig, BootWish, HostFacts, NodeSettings, Plan, plan_boot, plan_no_boot, plan_node_with,
};

use crate::boot::{known_result, parse};

/// Who configures the cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The agent, while it runs.
    #[default]
    Daemon,
    /// Units of systemd, at boot; the agent tells them what is wanted, and the cluster what came of it.
    Systemd,
}

impl Mode {
    /// What is to be done for `spec`. In one mode nothing of the other is left.
    pub(crate) fn plan(
        self,
        spec: &SriovNetworkNodeStateSpec,
        facts: &HostFacts,
        settings: &NodeSettings,
    ) -> Plan {
        match self {
            Self::Daemon => {
                let node = plan_node_with(spec, facts, &settings.options);
                Plan { steps: [plan_no_boot(facts), node.steps].concat(), problems: node.problems }
            }
            Self::Systemd => {
                // One that cannot be read says nothing of what was accepted earlier.
                let last = facts.files.get(BOOT_CONFIG).and_then(|text| parse(text).ok());
                let accepted = accepted(spec, facts, last.as_ref().map(|last| &last.spec));
                let (spec_at_boot, settings_at_boot) = (accepted.clone(), settings.clone());
                let config =
                    BootConfig { spec: spec_at_boot, settings: settings_at_boot, in_use: BTreeMap::new() };
                let (text, result) = (config_text(&config), known_result(facts));
                let options = settings.options;
                let wish =
                    BootWish { spec, accepted: &accepted, config: &text, result: result.as_ref(), options };
                plan_boot(&wish, facts)
            }
        }
    }
}
