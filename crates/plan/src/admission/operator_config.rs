//! Admission rules of the operator config.

use vfleet_api::keys::OPERATOR_CONFIG;
use vfleet_api::keys::agent_environment::{HOST_IPS, NAMESPACE, NODE_NAME};
use vfleet_api::operator_config::SriovOperatorConfigSpec;

use super::messages::{NOT_CHECKED, join_names};
use super::{Findings, Installation, Operation, Request, evaluate};
use crate::gates::{self, FeatureGate};
use crate::prelude::*;

/// Environment variables that the operator config cannot set, because they identify the agent's node.
pub const FIXED_VARIABLES: [&str; 3] = [NODE_NAME, NAMESPACE, HOST_IPS];

/// Cluster facts that rules of the operator config use. All lists are sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFacts<'a> {
    /// Nodes that are being configured.
    pub in_progress: Vec<&'a str>,
    /// Policies that are in effect.
    pub policies: Vec<&'a str>,
    /// Policies that request software bridges.
    pub with_bridge: Vec<&'a str>,
    /// Nodes with VFs that run an agent now and would not with this config.
    pub losing_agent: Vec<&'a str>,
}

/// Returns the findings about an operator config or its deletion. `facts` is `None` until the cluster has been read.
pub fn check_operator_config(
    request: &Request<'_, SriovOperatorConfigSpec>,
    home: &Installation<'_>,
    facts: Option<&ConfigFacts<'_>>,
) -> Findings {
    evaluate(request, PartialEq::eq, |request| check(request, home, facts))
}

fn check(
    request: &Request<'_, SriovOperatorConfigSpec>,
    home: &Installation<'_>,
    facts: Option<&ConfigFacts<'_>>,
) -> Findings {
    let mut findings = Findings::default();
    let is_used = request.namespace == home.namespace && request.name == OPERATOR_CONFIG;
    let new = request.new.filter(|_| request.operation != Operation::Delete);
    match new {
        None if !is_used => return findings,
        None => check_deletion(facts, &mut findings),
        Some(_) if !is_used => {
            check_name(request, home, &mut findings);
            return findings;
        }
        Some(new) => {
            check_fields(new, &mut findings);
            check_drains(new, request.old, facts, &mut findings);
            if let Some(facts) = facts {
                check_change(new, request.old, facts, &mut findings);
            }
        }
    }
    if facts.is_none() {
        findings.warning("G02", "NotChecked", "", NOT_CHECKED);
    }
    findings
}

/// Checks O11 and O12.
fn check_deletion(facts: Option<&ConfigFacts<'_>>, findings: &mut Findings) {
    let policies = facts.map(|facts| facts.policies.as_slice()).unwrap_or_default();
    if policies.is_empty() {
        let text = "agents, CNI plugins and device plugins are deleted with the operator config";
        findings.warning("O12", "ComponentsDeleted", "metadata.name", text);
        return;
    }
    let text = format!(
        "{} policies still exist ({}), and no agent would manage their VFs any more: delete the policies first",
        policies.len(),
        join_names(policies)
    );
    findings.error("O11", "PoliciesExist", "metadata.name", text);
}

/// Checks O01 and O02.
fn check_name(
    request: &Request<'_, SriovOperatorConfigSpec>,
    home: &Installation<'_>,
    findings: &mut Findings,
) {
    if request.namespace == home.namespace {
        let text = "only the SriovOperatorConfig named default is used: change that one";
        findings.error("O01", "NotUsed", "metadata.name", text);
    } else {
        let text = format!(
            "only SriovOperatorConfig default in namespace {} is used: change that one",
            home.namespace
        );
        findings.error("O02", "NotUsed", "metadata.namespace", text);
    }
}

/// Checks O05 to O08 and O10.
fn check_fields(new: &SriovOperatorConfigSpec, findings: &mut Findings) {
    for name in gates::find_unknown_gates(new) {
        let gates: Vec<_> = FeatureGate::ALL.iter().map(|gate| gate.name()).collect();
        let text = format!("unknown feature gate {name}: use one of {}", gates.join(", "));
        findings.warning("O05", "UnknownFeatureGate", format!("spec.featureGates.{name}"), text);
    }
    if FeatureGate::MetricsExporter.is_enabled(new) {
        let text = "this version does not deploy a metrics exporter: remove the gate, and scrape the agents";
        findings.warning("O06", "NoMetricsExporter", "spec.featureGates.metricsExporter", text);
    }
    for name in new.config_daemon_env_vars.iter().flat_map(BTreeMap::keys) {
        if FIXED_VARIABLES.contains(&name.as_str()) {
            let field = format!("spec.configDaemonEnvVars.{name}");
            let text = format!("variable {name} is set by the operator: remove it");
            findings.warning("O07", "FixedVariable", field, text);
        } else if !is_variable_name(name) {
            let text = format!(
                "{name:?} is not a valid name of an environment variable, and the API server would refuse the agents' DaemonSet: rename it"
            );
            findings.error("O08", "InvalidVariable", "spec.configDaemonEnvVars", text);
        }
    }
    if new.enable_ovs_offload == Some(true) {
        let text = "enableOvsOffload has no effect: create a pool with ovsHardwareOffloadConfig";
        findings.warning("O10", "NoEffect", "spec.enableOvsOffload", text);
    }
}

/// Checks O03 and O04: disabling drains would abort drains in progress.
fn check_drains(
    new: &SriovOperatorConfigSpec,
    old: Option<&SriovOperatorConfigSpec>,
    facts: Option<&ConfigFacts<'_>>,
    findings: &mut Findings,
) {
    const FIELD: &str = "spec.disableDrain";
    if new.disable_drain != Some(true) {
        return;
    }
    let is_disabled_now = old.is_some_and(|old| old.disable_drain != Some(true));
    let busy =
        facts.filter(|_| is_disabled_now).map(|facts| facts.in_progress.as_slice()).unwrap_or_default();
    if busy.is_empty() {
        let text = "disableDrain is set: nodes are configured and rebooted without being drained";
        findings.warning("O03", "NoDrain", FIELD, text);
        return;
    }
    let text = format!(
        "{} nodes are being configured ({}): set disableDrain after they have finished",
        busy.len(),
        join_names(busy)
    );
    findings.error("O04", "NodesInProgress", FIELD, text);
}

/// Checks O09 and O13.
fn check_change(
    new: &SriovOperatorConfigSpec,
    old: Option<&SriovOperatorConfigSpec>,
    facts: &ConfigFacts<'_>,
    findings: &mut Findings,
) {
    let bridges = FeatureGate::ManageSoftwareBridges;
    let is_disabled = old.is_some_and(|old| bridges.is_enabled(old)) && !bridges.is_enabled(new);
    if is_disabled && !facts.with_bridge.is_empty() {
        let names = join_names(&facts.with_bridge);
        let text = format!(
            "policies {names} request software bridges and would not be applied any more: remove bridge from them, or leave the gate on"
        );
        findings.warning("O09", "BridgesRequested", "spec.featureGates.manageSoftwareBridges", text);
    }
    if !facts.losing_agent.is_empty() {
        let text = format!(
            "{} nodes with VFs lose their agent ({}), and their VFs stay configured: delete the policies for these nodes first",
            facts.losing_agent.len(),
            join_names(&facts.losing_agent)
        );
        findings.warning("O13", "NodesWithoutAgent", "spec.configDaemonNodeSelector", text);
    }
}

/// Returns whether the API server accepts the name of an environment variable.
fn is_variable_name(name: &str) -> bool {
    let is_allowed = |letter: char| (letter == ' ' || letter.is_ascii_graphic()) && letter != '=';
    !name.is_empty() && name.chars().all(is_allowed)
}
