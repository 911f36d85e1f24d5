//! What is said about the operator config.

use vfleet_api::SriovOperatorConfig;
use vfleet_api::conditions::{ADMISSION, DEGRADED, READY, Verdict};
use vfleet_api::keys::{AGENT_DAEMON_SET, DEVICE_PLUGIN_DAEMON_SET, OPERATOR_CONFIG};
use vfleet_api::meta::Timestamp;
use vfleet_plan::admission::{ConfigFacts, Findings, Installation, Request, check_operator_config, valid};

use crate::admission::Standing;
use crate::components::deployed::{CniImages, Site};
use crate::components::go_device_plugin::Problem;

/// What is known besides the config.
pub(super) struct Outcome<'a> {
    pub(super) site: &'a Site<'a>,
    /// Why not all that is wanted could be deployed.
    pub(super) failure: Option<String>,
    /// What keeps the separate device plugin from being told what it should know.
    pub(super) plugin_problem: Problem,
    /// Whether the Go operator's device plugin runs, without us having been given its image.
    pub(super) foreign_device_plugin: bool,
    /// How admission stands.
    pub(super) admission: &'a Standing,
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
    let message = [vec![message], notes(outcome)].concat().join("; ");
    let ready = Verdict { type_: READY, holds, reason, message };
    let degraded = Verdict { type_: DEGRADED, holds: !holds, ..ready.clone() };
    let mut verdicts = vec![ready, degraded, valid(&judged(config, outcome.site))];
    verdicts.extend(admission(config, outcome));
    verdicts
}

/// What is wrong with what it says. As it is there, nothing of it is about to change: no rule about that looks at facts.
fn judged(config: &SriovOperatorConfig, site: &Site<'_>) -> Findings {
    let home = Installation { namespace: site.namespace, dev_mode: site.deploy.dev_mode };
    let request = Request::creation(site.namespace, OPERATOR_CONFIG, &config.spec);
    check_operator_config(&request, &home, Some(&ConfigFacts::default()))
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
fn notes(outcome: &Outcome<'_>) -> Vec<String> {
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
    if outcome.foreign_device_plugin {
        notes.push(format!(
            "the DaemonSet {DEVICE_PLUGIN_DAEMON_SET} of the Go operator is left as it is; set \
             SRIOV_DEVICE_PLUGIN_IMAGE to have it looked after, or delete it"
        ));
    }
    notes
}

/// `None` as long as nobody has looked: another replica that begins to lead is no change of what is served.
fn admission(config: &SriovOperatorConfig, outcome: &Outcome<'_>) -> Option<Verdict> {
    let spec = &config.spec;
    let (checks, injects) = (spec.enable_operator_webhook == Some(true), spec.enable_injector == Some(true));
    let (holds, reason, message) = match outcome.admission {
        // Also when nothing is wanted: the API server may still ask.
        Standing::Trouble { reason, message } => (false, *reason, message.clone()),
        _ if !checks && !injects => {
            (false, "Disabled", "neither enableOperatorWebhook nor enableInjector is set".to_owned())
        }
        Standing::Unknown => return None,
        // Nobody has looked since it was switched on.
        Standing::Disabled | Standing::Starting => {
            (false, "Starting", "nothing is refused for want of an answer before one can come".to_owned())
        }
        Standing::Serving { until, ends_soon } => {
            (true, "Serving", served(checks, injects, until.as_ref(), *ends_soon))
        }
    };
    let stay = match outcome.go_webhook_servers.as_slice() {
        [] => String::new(),
        servers => format!("; those of the Go operator stay until then: {}", servers.join(", ")),
    };
    Some(Verdict { type_: ADMISSION, holds, reason, message: message + &stay })
}

fn served(checks: bool, injects: bool, until: Option<&Timestamp>, ends_soon: bool) -> String {
    let what = [(checks, "objects are checked"), (injects, "pods get their resources")];
    let mut parts: Vec<_> =
        what.into_iter().filter(|(is_on, _)| *is_on).map(|(_, what)| what.to_owned()).collect();
    parts.extend(until.map(|until| format!("the certificate is valid until {until}")));
    parts.extend(ends_soon.then(|| "that is soon: put another one into its Secret".to_owned()));
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use vfleet_api::conditions::VALID;
    use vfleet_api::operator_config::SriovOperatorConfigSpec;

    use super::*;
    use crate::components::deployed::DeployConfig;

    /// Nothing failed.
    fn outcome<'a>(site: &'a Site<'a>, admission: &'a Standing) -> Outcome<'a> {
        Outcome {
            site,
            failure: None,
            plugin_problem: None,
            foreign_device_plugin: false,
            admission,
            go_webhook_servers: Vec::new(),
        }
    }

    /// What is said in conditions Ready and Valid.
    fn told(spec: SriovOperatorConfigSpec, deploy: &DeployConfig) -> [String; 2] {
        let site =
            Site { namespace: "ns", resource_prefix: "openshift.io", deploy, agent_image: Some("vfleet:1") };
        let verdicts =
            verdicts(&SriovOperatorConfig::new("default", spec), &outcome(&site, &Standing::Disabled));
        [READY, VALID].map(|type_| {
            let verdict = verdicts.iter().find(|verdict| verdict.type_ == type_).unwrap();
            assert!(verdict.holds, "{verdict:?}");
            verdict.message.clone()
        })
    }

    #[test]
    fn what_a_default_install_lacks_is_said() {
        let [message, valid] = told(SriovOperatorConfigSpec::default(), &DeployConfig::default());
        assert!(message.contains("no CNI plugins") && message.contains("SRIOV_CNI_IMAGE, "), "{message}");
        assert!(message.contains("SRIOV_DEVICE_PLUGIN_IMAGE"), "{message}");
        assert!(!valid.contains("disableDrain"), "{valid}");

        let mut deploy =
            DeployConfig { device_plugin_image: Some("plugin:1".to_owned()), ..Default::default() };
        deploy.cni_images.ovs = Some("ovs:1".to_owned());
        let spec = SriovOperatorConfigSpec { disable_drain: Some(true), ..Default::default() };
        let [message, valid] = told(spec, &deploy);
        assert!(!message.contains("CNI") && !message.contains("IMAGE"), "{message}");
        assert!(valid.contains("note: spec.disableDrain: disableDrain is set"), "{valid}");
    }

    #[test]
    fn as_long_as_nobody_has_looked_what_was_said_of_admission_stays() {
        let deploy = DeployConfig::default();
        let site = Site { namespace: "ns", resource_prefix: "p", deploy: &deploy, agent_image: None };
        let outcome = outcome(&site, &Standing::Unknown);
        let on = SriovOperatorConfigSpec { enable_operator_webhook: Some(true), ..Default::default() };
        let types = |spec| {
            let verdicts = verdicts(&SriovOperatorConfig::new("default", spec), &outcome);
            verdicts.iter().map(|verdict| verdict.type_).collect::<Vec<_>>()
        };
        assert!(!types(on).contains(&ADMISSION));
        assert!(types(SriovOperatorConfigSpec::default()).contains(&ADMISSION), "that it is off is known");
    }

    #[test]
    fn how_admission_stands_is_said() {
        let said = |spec: SriovOperatorConfigSpec, admission: &Standing, servers: Vec<&'static str>| {
            let deploy = DeployConfig::default();
            let site = Site { namespace: "ns", resource_prefix: "p", deploy: &deploy, agent_image: None };
            let outcome = Outcome { go_webhook_servers: servers, ..outcome(&site, admission) };
            let verdict = super::admission(&SriovOperatorConfig::new("default", spec), &outcome).unwrap();
            (verdict.holds, verdict.reason, verdict.message)
        };
        let on = SriovOperatorConfigSpec { enable_operator_webhook: Some(true), ..Default::default() };
        let until = Timestamp::from_second(0).ok();
        assert_eq!(said(SriovOperatorConfigSpec::default(), &Standing::Starting, vec![]).1, "Disabled");
        assert_eq!(
            said(on.clone(), &Standing::Serving { until, ends_soon: false }, vec![]),
            (
                true,
                "Serving",
                "objects are checked; the certificate is valid until 1970-01-01T00:00:00Z".to_owned()
            )
        );
        let (holds, _, message) = said(on.clone(), &Standing::Serving { until, ends_soon: true }, vec![]);
        assert!(holds && message.contains("soon: put another one"), "{message}");
        let (holds, reason, message) = said(on.clone(), &Standing::Disabled, vec!["operator-webhook"]);
        assert!(
            !holds && reason == "Starting" && message.ends_with("until then: operator-webhook"),
            "{message}"
        );
        let trouble = Standing::Trouble { reason: "NoConfiguration", message: "why".to_owned() };
        assert_eq!(said(on, &trouble, vec![]), (false, "NoConfiguration", "why".to_owned()));
        let off = SriovOperatorConfigSpec::default();
        assert_eq!(said(off, &trouble, vec![]).1, "NoConfiguration", "the API server may still ask");
    }
}
