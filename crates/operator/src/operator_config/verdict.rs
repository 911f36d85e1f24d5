//! What is said about the operator config.

use vfleet_api::SriovOperatorConfig;
use vfleet_api::conditions::{DEGRADED, READY, Verdict};
use vfleet_api::keys::{AGENT_DAEMON_SET, DEVICE_PLUGIN_DAEMON_SET};

use crate::deployed::gates::{self, Gate};
use crate::deployed::{CniImages, FIXED_VARIABLES, Site};
use crate::device_plugin::Problem;

/// The condition about checking and changing objects at admission.
const ADMISSION: &str = "Admission";

/// What is known besides the config.
pub(super) struct Outcome<'a> {
    pub(super) site: &'a Site<'a>,
    /// Why not all that is wanted could be deployed.
    pub(super) failure: Option<String>,
    /// What keeps the separate device plugin from being told what it should know.
    pub(super) plugin_problem: Problem,
    /// Whether the Go operator's device plugin runs, without us having been given its image.
    pub(super) foreign_device_plugin: bool,
    /// Servers of webhooks that the Go operator deployed and that still run.
    pub(super) go_webhook_servers: Vec<&'static str>,
}

/// The conditions of `config`.
pub(super) fn verdicts(config: &SriovOperatorConfig, outcome: &Outcome<'_>) -> Vec<Verdict> {
    let (holds, reason, message) = if let Some(failure) = &outcome.failure {
        (false, "OperatorConfigSyncFailed", failure.clone())
    } else if let Some(problem) = &outcome.plugin_problem {
        (false, "DevicePluginConfigTooLarge", problem.clone())
    } else {
        (true, "OperatorConfigReady", deployed(outcome.site))
    };
    let message = [vec![message], notes(config, outcome)].concat().join("; ");
    let ready = Verdict { type_: READY, holds, reason, message };
    let degraded = Verdict { type_: DEGRADED, holds: !holds, ..ready.clone() };
    vec![ready, degraded, admission(config, outcome)]
}

fn deployed(site: &Site<'_>) -> String {
    let plugin = site.deploy.device_plugin_image.as_ref().map(|_| DEVICE_PLUGIN_DAEMON_SET);
    let names: Vec<_> = site.agent_image.map(|_| AGENT_DAEMON_SET).into_iter().chain(plugin).collect();
    if names.is_empty() {
        "nothing is deployed".to_owned()
    } else {
        format!("deployed: {}", names.join(", "))
    }
}

/// What one should know besides; nothing fails for it.
fn notes(config: &SriovOperatorConfig, outcome: &Outcome<'_>) -> Vec<String> {
    let spec = &config.spec;
    let mut notes = Vec::new();
    if outcome.site.agent_image.is_none() {
        notes.push(
            "agents are somebody else's to start, since their image is not known: set \
             SRIOV_NETWORK_CONFIG_DAEMON_IMAGE in the operator's environment, or run the operator in a pod"
                .to_owned(),
        );
    }
    if outcome.site.deploy.cni_images.is_empty() {
        notes.push(format!(
            "no CNI plugins are put on hosts, since no image of one is given ({})",
            CniImages::VARIABLES.join(", ")
        ));
    }
    if outcome.site.deploy.device_plugin_image.is_none() && !outcome.foreign_device_plugin {
        notes.push(
            "resources are not offered to pods yet: set SRIOV_DEVICE_PLUGIN_IMAGE, since the built-in device \
             plugin is not part of this version"
                .to_owned(),
        );
    }
    if spec.disable_drain == Some(true) {
        notes.push("disableDrain is set: nodes are changed, and restarted, without being drained".to_owned());
    }
    let unknown = gates::unknown(spec);
    if !unknown.is_empty() {
        notes.push(format!("featureGates has names that no feature has: {}", unknown.join(", ")));
    }
    if Gate::MetricsExporter.is_on(spec) {
        notes.push(
            "the metrics exporter (featureGates.metricsExporter) is not deployed by this version".to_owned(),
        );
    }
    let chosen = |name: &&str| spec.config_daemon_env_vars.iter().flatten().any(|(chosen, _)| chosen == name);
    for name in FIXED_VARIABLES.iter().filter(|name| chosen(name)) {
        notes.push(format!("{name} in configDaemonEnvVars is left out: it comes from the agent's pod"));
    }
    if outcome.foreign_device_plugin {
        notes.push(format!(
            "the DaemonSet {DEVICE_PLUGIN_DAEMON_SET} of the Go operator is left as it is; set \
             SRIOV_DEVICE_PLUGIN_IMAGE to have it looked after, or delete it"
        ));
    }
    notes
}

fn admission(config: &SriovOperatorConfig, outcome: &Outcome<'_>) -> Verdict {
    let wanted = [
        ("enableOperatorWebhook", config.spec.enable_operator_webhook),
        ("enableInjector", config.spec.enable_injector),
    ];
    let wanted: Vec<_> =
        wanted.iter().filter(|(_, enabled)| *enabled == Some(true)).map(|(name, _)| *name).collect();
    let (reason, message) = if wanted.is_empty() {
        ("Disabled", "neither enableOperatorWebhook nor enableInjector is set".to_owned())
    } else {
        ("NotServedYet", format!("this version serves no webhooks, which {} asks for", wanted.join(", as ")))
    };
    let stay = match outcome.go_webhook_servers.as_slice() {
        [] => String::new(),
        servers => format!("; those of the Go operator stay: {}", servers.join(", ")),
    };
    let message = message + &stay;
    Verdict { type_: ADMISSION, holds: false, reason, message }
}

#[cfg(test)]
mod tests {
    use vfleet_api::operator_config::SriovOperatorConfigSpec;

    use super::*;
    use crate::deployed::DeployConfig;

    fn ready(spec: SriovOperatorConfigSpec, deploy: &DeployConfig) -> String {
        let site =
            Site { namespace: "ns", resource_prefix: "openshift.io", deploy, agent_image: Some("vfleet:1") };
        let outcome = Outcome {
            site: &site,
            failure: None,
            plugin_problem: None,
            foreign_device_plugin: false,
            go_webhook_servers: Vec::new(),
        };
        let ready = verdicts(&SriovOperatorConfig::new("default", spec), &outcome).remove(0);
        assert!(ready.holds, "{ready:?}");
        ready.message
    }

    #[test]
    fn what_a_default_install_lacks_is_said() {
        let message = ready(SriovOperatorConfigSpec::default(), &DeployConfig::default());
        assert!(message.contains("no CNI plugins") && message.contains("SRIOV_CNI_IMAGE, "), "{message}");
        assert!(message.contains("SRIOV_DEVICE_PLUGIN_IMAGE"), "{message}");
        assert!(!message.contains("disableDrain"), "{message}");

        let mut deploy =
            DeployConfig { device_plugin_image: Some("plugin:1".to_owned()), ..Default::default() };
        deploy.cni_images.ovs = Some("ovs:1".to_owned());
        let spec = SriovOperatorConfigSpec { disable_drain: Some(true), ..Default::default() };
        let message = ready(spec, &deploy);
        assert!(!message.contains("CNI") && !message.contains("IMAGE"), "{message}");
        assert!(message.contains("disableDrain is set"), "{message}");
    }
}
