//! Rules about a policy on the nodes that it selects, together with the other policies there. Each node class is
//! checked once. Equal findings of several classes are merged into one, with one node as the example.

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::node_state::InterfaceExt;

use super::super::{Finding, Findings, NodeClass, PolicyFacts, Severity};
use super::card::check_on_card;
use super::conflicts::{PolicyPeers, check_topology};
use crate::policy::{derive_interface, selects};
use crate::prelude::*;
use crate::{NamedPolicy, PfEvaluation, PolicyEvaluation};

/// Adds the findings about a policy on the nodes that it selects.
pub(super) fn check(findings: &mut Findings, candidate: NamedPolicy<'_>, facts: &PolicyFacts<'_>) {
    check_nodes(findings, facts);
    let mut fleet_findings = FleetFindings::default();
    let mut peers = PolicyPeers::new(candidate, facts.manage_software_bridges);
    let mut selects_a_pf = false;
    for class in &facts.classes {
        let mut class_findings = ClassFindings::default();
        let peer_group = peers.group(&class.others);
        for card in class.cards.iter().filter(|card| selects(&candidate.spec.nic_selector, card)) {
            selects_a_pf = true;
            check_card(&mut class_findings, candidate.spec, card);
            class_findings.extend(peer_group.find_conflicts(card));
        }
        class_findings.extend(check_topology(candidate.spec, &class.others));
        fleet_findings.add(class_findings, class);
    }
    // Earlier errors may be the reason why nothing is selected.
    let is_complete = facts.without_cards == 0 && facts.classes_left_out == 0;
    if !selects_a_pf && is_complete && findings.errors().next().is_none() {
        warn_of_no_pf(findings, candidate, facts);
    }
    findings.extend(fleet_findings.into_findings());
}

fn check_nodes(findings: &mut Findings, facts: &PolicyFacts<'_>) {
    let mut warn = |rule, reason, message| findings.warning(rule, reason, "spec.nodeSelector", message);
    let with_agent = facts.nodes.saturating_sub(facts.without_agent);
    if facts.nodes == 0 {
        let message = "no node has these labels yet: the policy takes effect when a node gets them";
        warn("D02", "NoMatchingNode", message.to_owned());
    } else if with_agent == 0 {
        let message = format!(
            "none of the {} nodes with these labels runs an agent: check configDaemonNodeSelector of the operator config",
            facts.nodes
        );
        warn("D03", "NoAgent", message);
    }
    if facts.without_cards > 0 {
        let message = format!(
            "{} of {with_agent} selected nodes have not reported their cards yet: the policy was not checked there",
            facts.without_cards
        );
        warn("D04", "WaitingForNodes", message);
    }
    if facts.classes_left_out > 0 {
        let checked = facts.classes.len();
        let all = checked + facts.classes_left_out;
        let message =
            format!("checked on {checked} of {all} kinds of nodes: see condition Valid for the others");
        warn("D20", "NotChecked", message);
    }
}

fn warn_of_no_pf(findings: &mut Findings, candidate: NamedPolicy<'_>, facts: &PolicyFacts<'_>) {
    let Some(class) = facts.classes.iter().min_by_key(|class| class.example) else { return };
    let nodes: usize = facts.classes.iter().map(|class| class.count).sum();
    let evaluations = class.cards.iter().filter_map(|card| {
        let outcome = derive_interface(&candidate, card, facts.manage_software_bridges).err()?;
        Some(PfEvaluation { pci_address: card.pci_address.clone(), name: card.name.clone(), outcome })
    });
    let evaluation = PolicyEvaluation { policy: candidate.name.to_owned(), pfs: evaluations.collect() };
    let nodes = if nodes == 1 { "the node".to_owned() } else { format!("any of {nodes} nodes") };
    let message =
        format!("the policy selects no PF on {nodes}; {}: {}", class.example, evaluation.explain_no_pf());
    findings.warning("D05", "NoMatchingPf", "spec.nicSelector", message);
}

fn check_card(findings: &mut ClassFindings, spec: &SriovNetworkNodePolicySpec, card: &InterfaceExt) {
    for found in check_on_card(spec, card) {
        let before = format!("{} ({} on ", found.message, name_of(card));
        let attributes = FindingAttributes {
            reason: found.reason,
            severity: found.severity,
            field: found.field,
            subject: None,
        };
        findings.insert(MessageTemplate { rule: found.rule, before, after: ")".to_owned() }, attributes);
    }
}

pub(super) fn name_of(card: &InterfaceExt) -> &str {
    card.name.as_deref().unwrap_or(card.pci_address.text())
}

/// Message of a rule, with a gap for the names of nodes. Equal templates are merged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MessageTemplate {
    pub(super) rule: &'static str,
    pub(super) before: String,
    pub(super) after: String,
}

/// Attributes of a finding other than rule and message.
#[derive(Clone, Debug)]
pub(super) struct FindingAttributes {
    pub(super) reason: &'static str,
    pub(super) severity: Severity,
    pub(super) field: &'static str,
    /// Identity of the problem if the message has more details.
    pub(super) subject: Option<String>,
}

/// Findings on the nodes of one class.
#[derive(Default)]
struct ClassFindings(BTreeMap<MessageTemplate, FindingAttributes>);

impl ClassFindings {
    fn insert(&mut self, template: MessageTemplate, attributes: FindingAttributes) {
        self.0.insert(template, attributes);
    }

    fn extend(&mut self, more: impl IntoIterator<Item = (MessageTemplate, FindingAttributes)>) {
        self.0.extend(more);
    }
}

/// Findings on all nodes, each with the first node by name and the number of nodes.
#[derive(Default)]
struct FleetFindings<'a>(BTreeMap<MessageTemplate, (FindingAttributes, &'a str, usize)>);

impl<'a> FleetFindings<'a> {
    fn add(&mut self, findings: ClassFindings, class: &NodeClass<'a>) {
        for (template, attributes) in findings.0 {
            let (_, example, count) = self.0.entry(template).or_insert((attributes, class.example, 0));
            *example = class.example.min(example);
            *count += class.count;
        }
    }

    fn into_findings(self) -> impl Iterator<Item = Finding> {
        self.0.into_iter().map(|(MessageTemplate { rule, before, after }, (attributes, example, count))| {
            let FindingAttributes { reason, severity, field, subject } = attributes;
            let message = format!("{before}{}{after}", describe_nodes(example, count));
            Finding { rule, reason, severity, field: field.to_owned(), message, subject }
        })
    }
}

fn describe_nodes(example: &str, count: usize) -> String {
    match count {
        0 | 1 => example.to_owned(),
        2 => format!("{example} and 1 more node"),
        _ => format!("{example} and {} more nodes", count - 1),
    }
}
