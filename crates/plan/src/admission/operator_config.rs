//! The operator config.

use vfleet_api::keys::OPERATOR_CONFIG;
use vfleet_api::keys::agent_environment::{HOST_IPS, NAMESPACE, NODE_NAME};
use vfleet_api::operator_config::SriovOperatorConfigSpec;

use super::texts::{NOT_CHECKED, some_of};
use super::{Findings, Installation, Operation, Request, judge};
use crate::gates::{self, Gate};
use crate::prelude::*;

/// Variables that the operator config cannot set: an agent that takes itself for another node's would do harm.
pub const FIXED_VARIABLES: [&str; 3] = [NODE_NAME, NAMESPACE, HOST_IPS];

/// What is known of the cluster when an operator config is judged. All lists are in the order of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFacts<'a> {
    /// Nodes that are being configured now.
    pub in_progress: Vec<&'a str>,
    /// Policies that are followed.
    pub policies: Vec<&'a str>,
    /// Of those, the ones that want software bridges.
    pub with_bridge: Vec<&'a str>,
    /// Nodes with VFs that run an agent now and would run none with this config.
    pub left_out: Vec<&'a str>,
}

/// What is wrong with an operator config, or with deleting it. `facts` is `None` while the cluster is not completely
/// known.
pub fn check_operator_config(
    request: &Request<'_, SriovOperatorConfigSpec>,
    home: &Installation<'_>,
    facts: Option<&ConfigFacts<'_>>,
) -> Findings {
    judge(request, PartialEq::eq, |request| check(request, home, facts))
}

fn check(
    request: &Request<'_, SriovOperatorConfigSpec>,
    home: &Installation<'_>,
    facts: Option<&ConfigFacts<'_>>,
) -> Findings {
    let mut findings = Findings::default();
    let is_ours = request.namespace == home.namespace && request.name == OPERATOR_CONFIG;
    let new = request.new.filter(|_| request.operation != Operation::Delete);
    match new {
        None if !is_ours => return findings,
        None => deletion(facts, &mut findings),
        Some(_) if !is_ours => {
            elsewhere(request, home, &mut findings);
            return findings;
        }
        Some(new) => {
            as_it_is(new, &mut findings);
            drains(new, request.old, facts, &mut findings);
            if let Some(facts) = facts {
                change(new, request.old, facts, &mut findings);
            }
        }
    }
    if facts.is_none() {
        findings.warning("G02", "NotChecked", "", NOT_CHECKED);
    }
    findings
}

/// O11, O12.
fn deletion(facts: Option<&ConfigFacts<'_>>, findings: &mut Findings) {
    let policies = facts.map(|facts| facts.policies.as_slice()).unwrap_or_default();
    if policies.is_empty() {
        let text = "agents and all else that it deploys go with it";
        findings.warning("O12", "AgentsGo", "metadata.name", text);
        return;
    }
    let text = format!(
        "{} policies still exist ({}): their VFs would stay as they are, with no agent to look after them; delete the policies first",
        policies.len(),
        some_of(policies)
    );
    findings.error("O11", "PoliciesExist", "metadata.name", text);
}

/// O01, O02.
fn elsewhere(
    request: &Request<'_, SriovOperatorConfigSpec>,
    home: &Installation<'_>,
    findings: &mut Findings,
) {
    if request.namespace == home.namespace {
        let text = "only the config named default is honoured: change that one";
        findings.error("O01", "NotHonoured", "metadata.name", text);
    } else {
        let text =
            format!("only the config default in namespace {} is honoured: change that one", home.namespace);
        findings.error("O02", "NotHonoured", "metadata.namespace", text);
    }
}

/// O05 to O08, O10.
fn as_it_is(new: &SriovOperatorConfigSpec, findings: &mut Findings) {
    for name in gates::unknown(new) {
        let known: Vec<_> = Gate::ALL.iter().map(|gate| gate.name()).collect();
        let text = format!("no feature is called {name}: known are {}", known.join(", "));
        findings.warning("O05", "UnknownFeature", format!("spec.featureGates.{name}"), text);
    }
    if Gate::MetricsExporter.is_on(new) {
        let text = "the metrics exporter (featureGates.metricsExporter) is not deployed by this version";
        findings.warning("O06", "NoMetricsExporter", "spec.featureGates.metricsExporter", text);
    }
    for name in new.config_daemon_env_vars.iter().flat_map(BTreeMap::keys) {
        if FIXED_VARIABLES.contains(&name.as_str()) {
            let field = format!("spec.configDaemonEnvVars.{name}");
            let text = format!("{name} in configDaemonEnvVars is left out: it comes from the agent's pod");
            findings.warning("O07", "FixedVariable", field, text);
        } else if !can_be_a_variable(name) {
            let text = format!(
                "{name:?} cannot be the name of an environment variable: the API server would refuse the agents' DaemonSet"
            );
            findings.error("O08", "InvalidVariable", "spec.configDaemonEnvVars", text);
        }
    }
    if new.enable_ovs_offload == Some(true) {
        let text = "enableOvsOffload is not read: use a pool with ovsHardwareOffloadConfig";
        findings.warning("O10", "NotRead", "spec.enableOvsOffload", text);
    }
}

/// O03, O04. Drains that are under way would be cut off.
fn drains(
    new: &SriovOperatorConfigSpec,
    old: Option<&SriovOperatorConfigSpec>,
    facts: Option<&ConfigFacts<'_>>,
    findings: &mut Findings,
) {
    const FIELD: &str = "spec.disableDrain";
    if new.disable_drain != Some(true) {
        return;
    }
    let is_switched = old.is_some_and(|old| old.disable_drain != Some(true));
    let busy = facts.filter(|_| is_switched).map(|facts| facts.in_progress.as_slice()).unwrap_or_default();
    if busy.is_empty() {
        let text = "disableDrain is set: nodes are changed, and restarted, without being drained";
        findings.warning("O03", "NoDrain", FIELD, text);
        return;
    }
    let text = format!(
        "{} nodes are being configured ({}): set disableDrain when they are done",
        busy.len(),
        some_of(busy)
    );
    findings.error("O04", "NodesInProgress", FIELD, text);
}

/// O09, O13.
fn change(
    new: &SriovOperatorConfigSpec,
    old: Option<&SriovOperatorConfigSpec>,
    facts: &ConfigFacts<'_>,
    findings: &mut Findings,
) {
    let bridges = Gate::ManageSoftwareBridges;
    let is_switched_off = old.is_some_and(|old| bridges.is_on(old)) && !bridges.is_on(new);
    if is_switched_off && !facts.with_bridge.is_empty() {
        let names = some_of(&facts.with_bridge);
        let text = format!(
            "policies {names} want software bridges, and are not followed any more: remove bridge from them, or leave it on"
        );
        findings.warning("O09", "BridgesWanted", "spec.featureGates.manageSoftwareBridges", text);
    }
    if !facts.left_out.is_empty() {
        let text = format!(
            "{} nodes with VFs get no agent any more ({}): their VFs stay as they are",
            facts.left_out.len(),
            some_of(&facts.left_out)
        );
        findings.warning("O13", "NodesLeftOut", "spec.configDaemonNodeSelector", text);
    }
}

/// As the API server sees it.
fn can_be_a_variable(name: &str) -> bool {
    let is_good = |sign: char| (sign == ' ' || sign.is_ascii_graphic()) && sign != '=';
    !name.is_empty() && name.chars().all(is_good)
}
