//! Conditions of the operator config.

use vfleet_api::conditions::{ADMISSION, ConditionUpdate, DEGRADED, NO_FAILURE, READY};
use vfleet_api::keys::{AGENT_DAEMON_SET, DEVICE_PLUGIN_DAEMON_SET, OPERATOR_CONFIG};
use vfleet_api::meta::Timestamp;
use vfleet_api::operator_config::SriovOperatorConfigSpec;

use crate::admission::{
    ConfigFacts, Findings, Installation, Request, check_operator_config, valid_condition,
};
use crate::gates::FeatureGate;
use crate::prelude::*;

/// Status of the admission webhooks, for the condition `Admission`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmissionStatus {
    /// Not checked yet by this leader: the previous condition stays.
    Unknown,
    /// No webhook is enabled.
    Disabled,
    /// Something is still missing that will be created without action of an administrator.
    Starting,
    /// Requests of the API server are answered.
    Serving {
        /// Expiry of the certificate, if it is known.
        until: Option<Timestamp>,
        /// An administrator has to provide a new certificate soon.
        expires_soon: bool,
    },
    /// An administrator has to act.
    Failed {
        /// CamelCase reason.
        reason: &'static str,
        /// Problem and remedy.
        message: String,
    },
}

/// State of the deployed components and webhooks.
#[derive(Clone, Debug)]
pub struct OperatorConfigFacts<'a> {
    /// Namespace and mode of the operator.
    pub installation: Installation<'a>,
    /// The image of the agent is known, so that agents are deployed.
    pub deploys_agents: bool,
    /// The separate device plugin is deployed.
    pub deploys_device_plugin: bool,
    /// Error of the last attempt to deploy the components.
    pub failure: Option<String>,
    /// Reason why the ConfigMap of the separate device plugin cannot be written.
    pub plugin_problem: Option<String>,
    /// The device plugin of the Go operator runs, and its image is not configured.
    pub foreign_device_plugin: bool,
    /// Status of the admission webhooks.
    pub admission: &'a AdmissionStatus,
    /// Webhook servers of the Go operator that still run.
    pub go_webhook_servers: Vec<&'static str>,
}

/// Returns the conditions of the operator config with this spec.
pub fn operator_config_conditions(
    spec: &SriovOperatorConfigSpec,
    facts: &OperatorConfigFacts<'_>,
) -> Vec<ConditionUpdate> {
    let (status, reason, message) = if let Some(failure) = &facts.failure {
        (false, "OperatorConfigSyncFailed", failure.clone())
    } else if let Some(problem) = &facts.plugin_problem {
        (false, "DevicePluginConfigTooLarge", problem.clone())
    } else {
        (true, "OperatorConfigReady", describe_components(facts))
    };
    let message = [vec![message], notes(spec, facts)].concat().join("; ");
    let ready = ConditionUpdate { type_: READY, status, reason, message };
    let degraded = ConditionUpdate {
        type_: DEGRADED,
        status: !status,
        reason: if status { NO_FAILURE } else { reason },
        ..ready.clone()
    };
    let mut conditions = vec![ready, degraded, valid_condition(&check(spec, &facts.installation))];
    conditions.extend(admission_condition(spec, facts));
    conditions
}

/// Checks the stored config by the rules of admission. Rules about changes do not apply.
fn check(spec: &SriovOperatorConfigSpec, installation: &Installation<'_>) -> Findings {
    let request = Request::creation(installation.namespace, OPERATOR_CONFIG, spec);
    check_operator_config(&request, installation, Some(&ConfigFacts::default()))
}

fn describe_components(facts: &OperatorConfigFacts<'_>) -> String {
    let agent = facts.deploys_agents.then_some(AGENT_DAEMON_SET);
    let plugin = facts.deploys_device_plugin.then_some(DEVICE_PLUGIN_DAEMON_SET);
    let names: Vec<_> = agent.into_iter().chain(plugin).collect();
    if names.is_empty() {
        "no component is deployed".to_owned()
    } else {
        format!("deployed: {}", names.join(", "))
    }
}

/// Returns notes that are no failures.
fn notes(spec: &SriovOperatorConfigSpec, facts: &OperatorConfigFacts<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if !facts.deploys_agents {
        notes.push(
            "agents, which also install CNI plugins, are not deployed, because their image is not known: set \
             SRIOV_NETWORK_CONFIG_DAEMON_IMAGE in the environment of the operator, or run the operator in a pod"
                .to_owned(),
        );
    }
    if !facts.deploys_device_plugin && !facts.foreign_device_plugin {
        notes.push(
            "resources are not offered to pods, because this version has no built-in device plugin: set \
             SRIOV_DEVICE_PLUGIN_IMAGE"
                .to_owned(),
        );
    }
    if facts.foreign_device_plugin {
        notes.push(format!(
            "DaemonSet {DEVICE_PLUGIN_DAEMON_SET} of the Go operator is not managed: set SRIOV_DEVICE_PLUGIN_IMAGE to \
             manage it, or delete it"
        ));
    }
    notes
}

/// Returns `None` as long as this leader has not checked admission: a change of the leader is no change of what is
/// served.
fn admission_condition(
    spec: &SriovOperatorConfigSpec,
    facts: &OperatorConfigFacts<'_>,
) -> Option<ConditionUpdate> {
    let (checks, injects) = (spec.enable_operator_webhook == Some(true), spec.enable_injector == Some(true));
    let (status, reason, message) = match facts.admission {
        // Also if no webhook is enabled: the API server may still call one.
        AdmissionStatus::Failed { reason, message } => (false, *reason, message.clone()),
        _ if !checks && !injects => {
            (false, "Disabled", "neither enableOperatorWebhook nor enableInjector is set".to_owned())
        }
        AdmissionStatus::Unknown => return None,
        // Not checked since a webhook was enabled.
        AdmissionStatus::Disabled | AdmissionStatus::Starting => {
            (false, "Starting", "webhooks are starting: the API server does not call them yet".to_owned())
        }
        AdmissionStatus::Serving { until, expires_soon } => {
            (true, "Serving", describe_webhooks(checks, injects, until.as_ref(), *expires_soon))
        }
    };
    let go_servers = match facts.go_webhook_servers.as_slice() {
        [] => String::new(),
        servers => format!("; webhook servers of the Go operator stay until then: {}", servers.join(", ")),
    };
    Some(ConditionUpdate { type_: ADMISSION, status, reason, message: message + &go_servers })
}

fn describe_webhooks(checks: bool, injects: bool, until: Option<&Timestamp>, expires_soon: bool) -> String {
    let webhooks = [(checks, "objects are checked"), (injects, "resources are injected into pods")];
    let mut parts: Vec<_> =
        webhooks.into_iter().filter(|(is_on, _)| *is_on).map(|(_, text)| text.to_owned()).collect();
    parts.extend(until.map(|until| format!("the certificate is valid until {until}")));
    parts.extend(
        expires_soon.then(|| "the certificate expires soon: put a new one into its Secret".to_owned()),
    );
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use vfleet_api::conditions::VALID;

    use super::*;

    fn facts(admission: &AdmissionStatus) -> OperatorConfigFacts<'_> {
        OperatorConfigFacts {
            installation: Installation { namespace: "ns", dev_mode: false },
            deploys_agents: true,
            deploys_device_plugin: false,
            failure: None,
            plugin_problem: None,
            foreign_device_plugin: false,
            admission,
            go_webhook_servers: Vec::new(),
        }
    }

    /// Returns the messages of conditions Ready and Valid.
    fn messages(spec: &SriovOperatorConfigSpec, facts: &OperatorConfigFacts<'_>) -> [String; 2] {
        let conditions = operator_config_conditions(spec, facts);
        [READY, VALID].map(|type_| {
            let condition = conditions.iter().find(|condition| condition.type_ == type_).unwrap();
            assert!(condition.status, "{condition:?}");
            condition.message.clone()
        })
    }

    #[test]
    fn components_that_are_not_configured_are_reported() {
        let facts = facts(&AdmissionStatus::Disabled);
        let [message, valid] = messages(&SriovOperatorConfigSpec::default(), &facts);
        assert!(!message.contains("CNI"), "the built-in plugins are installed: {message}");
        assert!(message.contains("SRIOV_DEVICE_PLUGIN_IMAGE"), "{message}");
        assert!(!valid.contains("disableDrain"), "{valid}");

        let gates = BTreeMap::from([("manageSoftwareBridges".to_owned(), true)]);
        let bridges = SriovOperatorConfigSpec { feature_gates: Some(gates), ..Default::default() };
        let [message, _] = messages(&bridges, &facts);
        assert!(!message.contains("CNI"), "those for software bridges, too: {message}");

        let complete = OperatorConfigFacts { deploys_device_plugin: true, ..facts };
        let spec = SriovOperatorConfigSpec { disable_drain: Some(true), ..bridges };
        let [message, valid] = messages(&spec, &complete);
        assert!(!message.contains("CNI") && !message.contains("IMAGE"), "{message}");
        assert!(valid.contains("spec.disableDrain"), "{valid}");
    }

    #[test]
    fn the_admission_condition_stays_until_the_leader_has_checked_it() {
        let facts = facts(&AdmissionStatus::Unknown);
        let on = SriovOperatorConfigSpec { enable_operator_webhook: Some(true), ..Default::default() };
        let types = |spec| {
            let conditions = operator_config_conditions(&spec, &facts);
            conditions.iter().map(|condition| condition.type_).collect::<Vec<_>>()
        };
        assert!(!types(on).contains(&ADMISSION));
        assert!(
            types(SriovOperatorConfigSpec::default()).contains(&ADMISSION),
            "disabled is known without a check"
        );
    }

    #[test]
    fn the_admission_condition_reports_what_is_served() {
        let condition =
            |spec: SriovOperatorConfigSpec, admission: &AdmissionStatus, servers: Vec<&'static str>| {
                let facts = OperatorConfigFacts { go_webhook_servers: servers, ..facts(admission) };
                let condition = admission_condition(&spec, &facts).unwrap();
                (condition.status, condition.reason, condition.message)
            };
        let on = SriovOperatorConfigSpec { enable_operator_webhook: Some(true), ..Default::default() };
        let until = Timestamp::from_second(0).ok();
        assert_eq!(
            condition(SriovOperatorConfigSpec::default(), &AdmissionStatus::Starting, vec![]).1,
            "Disabled"
        );
        assert_eq!(
            condition(on.clone(), &AdmissionStatus::Serving { until, expires_soon: false }, vec![]),
            (
                true,
                "Serving",
                "objects are checked; the certificate is valid until 1970-01-01T00:00:00Z".to_owned()
            )
        );
        let (status, _, message) =
            condition(on.clone(), &AdmissionStatus::Serving { until, expires_soon: true }, vec![]);
        assert!(status && message.contains("soon: put a new one"), "{message}");
        let (status, reason, message) =
            condition(on.clone(), &AdmissionStatus::Disabled, vec!["operator-webhook"]);
        assert!(
            !status && reason == "Starting" && message.ends_with("until then: operator-webhook"),
            "{message}"
        );
        let failed = AdmissionStatus::Failed { reason: "NoConfiguration", message: "why".to_owned() };
        assert_eq!(condition(on, &failed, vec![]), (false, "NoConfiguration", "why".to_owned()));
        let off = SriovOperatorConfigSpec::default();
        assert_eq!(
            condition(off, &failed, vec![]).1,
            "NoConfiguration",
            "the API server may still call a webhook"
        );
    }
}
