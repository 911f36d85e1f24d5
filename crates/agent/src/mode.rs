//! Who configures the cards.

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_plan::boot::{config_text, refused};
use vfleet_plan::{
    BootConfig, BootWish, HostFacts, NodeSettings, Plan, plan_boot, plan_no_boot, plan_node_with,
};

use crate::boot::known_result;

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
                let in_use = refused(spec, facts);
                let config = BootConfig { spec: spec.clone(), settings: settings.clone(), in_use };
                let (text, result) = (config_text(&config), known_result(facts));
                let options = settings.options;
                let wish = BootWish { spec, config: &text, result: result.as_ref(), options };
                plan_boot(&wish, facts)
            }
        }
    }
}
