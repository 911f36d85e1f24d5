//! Configuration modes: by the agent, or by systemd units at boot.

use std::collections::BTreeMap;

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_plan::boot::{accepted_spec, config_text, kept_bridges};
use vfleet_plan::files::BOOT_CONFIG;
use vfleet_plan::{
    BootConfig, BootRequest, HostFacts, NodeSettings, Plan, plan_boot, plan_node_with,
    plan_systemd_mode_removal,
};

use crate::boot::{parse_config, read_result};

/// Configuration mode of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The agent configures the cards while it runs.
    #[default]
    Daemon,
    /// systemd units configure the cards at boot. The agent writes their configuration and reports their result.
    Systemd,
}

impl Mode {
    /// Returns the name of the mode in the operator config.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Systemd => "systemd",
        }
    }

    /// Returns the plan for `spec`. It removes everything that the other mode left.
    pub(crate) fn plan(
        self,
        spec: &SriovNetworkNodeStateSpec,
        facts: &HostFacts,
        settings: &NodeSettings,
    ) -> Plan {
        match self {
            Self::Daemon => {
                let node = plan_node_with(spec, facts, &settings.options);
                Plan {
                    steps: [plan_systemd_mode_removal(facts), node.steps].concat(),
                    problems: node.problems,
                }
            }
            Self::Systemd => {
                // An unreadable config does not tell which spec was accepted earlier.
                let last = facts.files.get(BOOT_CONFIG).and_then(|text| parse_config(text).ok());
                let accepted = accepted_spec(spec, facts, last.as_ref().map(|last| &last.spec));
                let (spec_at_boot, settings_at_boot) = (accepted.clone(), settings.clone());
                let config = BootConfig {
                    spec: spec_at_boot,
                    settings: settings_at_boot,
                    in_use: BTreeMap::new(),
                    kept_bridges: kept_bridges(spec, &accepted, facts, settings.options.manage_bridges),
                };
                let (text, result) = (text_to_write(&config, facts, last.as_ref()), read_result(facts));
                let options = settings.options;
                let request = BootRequest {
                    spec,
                    accepted: &accepted,
                    config: &text,
                    result: result.as_ref(),
                    options,
                };
                plan_boot(&request, facts)
            }
        }
    }
}

/// Returns the text of the boot configuration. A file that says the same in another form (another version of vfleet wrote
/// it, parsed as `last`) stays as it is: a new text would remove the result of the units and count reboots anew.
fn text_to_write(config: &BootConfig, facts: &HostFacts, last: Option<&BootConfig>) -> String {
    let text = config_text(config);
    let says_the_same = last.is_some_and(|last| config_text(last) == text);
    facts.files.get(BOOT_CONFIG).filter(|_| says_the_same).cloned().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_in_another_form_stays_as_it_is() {
        let spec = serde_json::from_value(serde_json::json!({ "interfaces": [
            { "pciAddress": "0000:3b:00.0", "numVfs": 4, "vfGroups": [{ "vfRange": "0-3", "deviceType": "netdevice" }] },
        ] }));
        let config = BootConfig { spec: spec.unwrap(), ..Default::default() };
        let value: serde_json::Value = serde_json::from_str(&config_text(&config)).unwrap();
        let yaml = serde_saphyr::to_string(&value).unwrap();
        assert!(yaml != config_text(&config) && yaml.contains("numvfs: 4"), "{yaml}");
        let mut facts = HostFacts::default();
        assert_eq!(text_to_write(&config, &facts, None), config_text(&config));
        facts.files.insert(BOOT_CONFIG.to_owned(), yaml.clone());
        let last = parse_config(&yaml).unwrap();
        assert_eq!(text_to_write(&config, &facts, Some(&last)), yaml);
        let other = BootConfig { spec: SriovNetworkNodeStateSpec::default(), ..config };
        assert_eq!(text_to_write(&other, &facts, Some(&last)), config_text(&other));
    }
}
