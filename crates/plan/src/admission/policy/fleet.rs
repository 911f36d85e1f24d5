//! A policy on the nodes that it selects, and beside the other policies there. Nodes that are alike are judged once, and
//! what is the same on several is said once, with one of them as the example.

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::node_state::InterfaceExt;

use super::super::{Finding, Findings, NodeClass, PolicyFacts, Severity};
use super::beside::{Beside, check_topology};
use super::on_card::on_card;
use crate::policy::{selects, wish};
use crate::prelude::*;
use crate::{NamedPolicy, PfAnswer, PolicyAnswer};

/// Adds what is wrong with a policy on the nodes that it selects.
pub(super) fn check(findings: &mut Findings, candidate: NamedPolicy<'_>, facts: &PolicyFacts<'_>) {
    check_nodes(findings, facts);
    let mut everywhere = Everywhere::default();
    let mut beside = Beside::new(candidate, facts.manage_software_bridges);
    let mut selects_a_pf = false;
    for class in &facts.classes {
        let mut here = Here::default();
        let company = beside.company(&class.others);
        for card in class.cards.iter().filter(|card| selects(&candidate.spec.nic_selector, card)) {
            selects_a_pf = true;
            check_card(&mut here, candidate.spec, card);
            here.extend(company.clashes(card));
        }
        here.extend(check_topology(candidate.spec, &class.others));
        everywhere.add(here, class);
    }
    // What was found until here may well be the reason why nothing is selected.
    let is_complete = facts.without_cards == 0 && facts.classes_left_out == 0;
    if !selects_a_pf && is_complete && findings.errors().next().is_none() {
        warn_of_no_pf(findings, candidate, facts);
    }
    findings.extend(everywhere.findings());
}

fn check_nodes(findings: &mut Findings, facts: &PolicyFacts<'_>) {
    let mut warn = |rule, reason, message| findings.warning(rule, reason, "spec.nodeSelector", message);
    let with_agent = facts.nodes.saturating_sub(facts.without_agent);
    if facts.nodes == 0 {
        let message = "no node has these labels yet: the policy is followed as soon as one has";
        warn("D02", "NoMatchingNode", message.to_owned());
    } else if with_agent == 0 {
        let message = format!(
            "none of the {} nodes with these labels runs an agent: see configDaemonNodeSelector of the operator config",
            facts.nodes
        );
        warn("D03", "NoAgent", message);
    }
    if facts.without_cards > 0 {
        let message = format!(
            "{} of {with_agent} selected nodes have not reported their cards yet: not checked there",
            facts.without_cards
        );
        warn("D04", "WaitingForNodes", message);
    }
    if facts.classes_left_out > 0 {
        let checked = facts.classes.len();
        let all = checked + facts.classes_left_out;
        let message = format!("checked on {checked} of {all} kinds of nodes: see the status for the others");
        warn("D20", "NotChecked", message);
    }
}

fn warn_of_no_pf(findings: &mut Findings, candidate: NamedPolicy<'_>, facts: &PolicyFacts<'_>) {
    let Some(class) = facts.classes.iter().min_by_key(|class| class.example) else { return };
    let nodes: usize = facts.classes.iter().map(|class| class.count).sum();
    let verdicts = class.cards.iter().filter_map(|card| {
        let verdict = wish(&candidate, card, facts.manage_software_bridges).err()?;
        Some(PfAnswer { pci_address: card.pci_address.clone(), name: card.name.clone(), verdict })
    });
    let answer = PolicyAnswer { policy: candidate.name.to_owned(), pfs: verdicts.collect() };
    let nodes = if nodes == 1 { "the node".to_owned() } else { format!("any of {nodes} nodes") };
    let message = format!("it selects no PF on {nodes}; {}: {}", class.example, answer.why_no_pf());
    findings.warning("D05", "NoMatchingPf", "spec.nicSelector", message);
}

fn check_card(here: &mut Here, spec: &SriovNetworkNodePolicySpec, card: &InterfaceExt) {
    for found in on_card(spec, card) {
        let before = format!("{} ({} on ", found.message, name_of(card));
        let meaning =
            Meaning { reason: found.reason, severity: found.severity, field: found.field, subject: None };
        here.say(Said { rule: found.rule, before, after: ")".to_owned() }, meaning);
    }
}

pub(super) fn name_of(card: &InterfaceExt) -> &str {
    card.name.as_deref().unwrap_or(card.pci_address.text())
}

/// What is said of something: a rule, and what stands before and after the names of nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Said {
    pub(super) rule: &'static str,
    pub(super) before: String,
    pub(super) after: String,
}

/// What it means.
#[derive(Clone, Debug)]
pub(super) struct Meaning {
    pub(super) reason: &'static str,
    pub(super) severity: Severity,
    pub(super) field: &'static str,
    /// What it is about, where the sentence says more.
    pub(super) subject: Option<String>,
}

/// What is found on the nodes of one class.
#[derive(Default)]
struct Here(BTreeMap<Said, Meaning>);

impl Here {
    fn say(&mut self, said: Said, meaning: Meaning) {
        self.0.insert(said, meaning);
    }

    fn extend(&mut self, more: impl IntoIterator<Item = (Said, Meaning)>) {
        self.0.extend(more);
    }
}

/// What is found, and on how many nodes, with the first of them by name.
#[derive(Default)]
struct Everywhere<'a>(BTreeMap<Said, (Meaning, &'a str, usize)>);

impl<'a> Everywhere<'a> {
    fn add(&mut self, here: Here, class: &NodeClass<'a>) {
        for (said, meaning) in here.0 {
            let (_, example, count) = self.0.entry(said).or_insert((meaning, class.example, 0));
            *example = class.example.min(example);
            *count += class.count;
        }
    }

    fn findings(self) -> impl Iterator<Item = Finding> {
        self.0.into_iter().map(|(Said { rule, before, after }, (meaning, example, count))| {
            let Meaning { reason, severity, field, subject } = meaning;
            let message = format!("{before}{}{after}", nodes(example, count));
            Finding { rule, reason, severity, field: field.to_owned(), message, subject }
        })
    }
}

fn nodes(example: &str, count: usize) -> String {
    match count {
        0 | 1 => example.to_owned(),
        2 => format!("{example} and 1 more node"),
        _ => format!("{example} and {} more nodes", count - 1),
    }
}
