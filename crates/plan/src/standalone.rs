//! One machine without a cluster: policies from a file => desired state of the machine.
//!
//! The file is all that is desired, so a PF that no policy in it selects is given back. That is done only by a file that
//! can be followed: while one of its policies is at fault, or names a card that is not there, no PF is given back, since
//! the policy may have meant that one.

use core::fmt;

use vfleet_api::node_state::{Interface, InterfaceExt};
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use crate::admission::{Classes, Finding, Installation, Request, Severity, check_policy};
use crate::facts::HostFacts;
use crate::policy::{NamedPolicy, NodeInput, PolicyAnswer, has_name, plan_node_spec, selects, selects_node};
use crate::prelude::*;
use crate::report::{self, View};

/// Rules about what a policy selects: that is answered for each card.
const ABOUT_MATCHING: [&str; 4] = ["D02", "D03", "D04", "D05"];

/// Policies of a file.
#[derive(Clone, Copy, Debug)]
pub struct PolicyFile<'a> {
    /// Those that can be read.
    pub policies: &'a [NamedPolicy<'a>],
    /// Names of the others.
    pub unreadable: &'a BTreeSet<String>,
    /// Labels of the machine, for nodeSelector.
    pub labels: &'a BTreeMap<String, String>,
}

/// Desired state of a machine, and the answers to its policies.
#[derive(Clone, Debug)]
pub struct StandalonePlan {
    /// Desired state.
    pub spec: SriovNetworkNodeStateSpec,
    /// The policies that are for this machine and that admission accepts.
    pub answers: Vec<PolicyAnswer>,
    /// Findings of admission, by policy.
    pub findings: Vec<(String, Finding)>,
    /// Policies for this machine that admission refuses. They are not followed.
    pub refused: BTreeSet<String>,
    /// Cards that policies name and that are not there.
    pub missing: Vec<MissingCard>,
    /// PFs that stay as they were configured because of a policy that is at fault.
    pub kept: Vec<KeptPf>,
}

/// A card that a policy names and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingCard {
    /// The policy.
    pub policy: String,
    /// The card, as the policy names it.
    pub card: String,
    /// The error of a card that is there and cannot be read.
    pub unread: Option<String>,
}

impl fmt::Display for MissingCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { card, unread, .. } = self;
        match unread {
            Some(error) => write!(f, "{card} cannot be read now: {error}"),
            None => write!(
                f,
                "there is no network card {card} that can have VFs: correct nicSelector, or look whether the card and its driver are there"
            ),
        }
    }
}

/// A PF that stays as it was configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPf {
    /// PCI address.
    pub pf: PciAddress,
    /// Name of its interface when it was configured.
    pub name: Option<String>,
    /// The policy because of which it is kept.
    pub policy: String,
}

impl fmt::Display for KeptPf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pf, name, policy } = self;
        let name = name.as_deref().map_or_else(|| pf.to_string(), |name| format!("{name} ({pf})"));
        write!(f, "{name} stays as it was configured, since policy {policy} cannot be followed")
    }
}

/// Returns the state that was last desired of a machine.
pub fn recorded_spec(facts: &HostFacts) -> SriovNetworkNodeStateSpec {
    let interfaces = facts.records.iter().map(|record| record.interface.clone()).collect();
    SriovNetworkNodeStateSpec { interfaces: Some(interfaces), ..Default::default() }
}

/// Returns what the policies of a file desire of a machine.
pub fn plan_standalone(file: &PolicyFile<'_>, facts: &HostFacts) -> StandalonePlan {
    let cards = report::interfaces(facts, &View::default());
    let findings: Vec<_> =
        file.policies.iter().flat_map(|policy| admission_findings(*policy, file, &cards)).collect();
    let is_here = |policy: &&NamedPolicy<'_>| selects_node(policy, file.labels);
    let is_refused = |policy: &&NamedPolicy<'_>| {
        let mut own = findings.iter().filter(|(name, _)| name == policy.name);
        own.any(|(_, finding)| finding.severity == Severity::Error)
    };
    let here: Vec<_> = file.policies.iter().filter(is_here).copied().collect();
    let refused: BTreeSet<String> =
        here.iter().filter(is_refused).map(|policy| policy.name.to_owned()).collect();
    let sound: Vec<_> = here.iter().filter(|policy| !refused.contains(policy.name)).copied().collect();
    let at_fault: BTreeSet<String> = file.unreadable.union(&refused).cloned().collect();
    let current = recorded_spec(facts);
    let input = NodeInput {
        labels: file.labels,
        cards: &cards,
        current: &current,
        rdma_mode: None,
        manage_software_bridges: false,
    };
    let plan = plan_node_spec(&sound, &at_fault, &input);
    let missing: Vec<_> = sound.iter().flat_map(|policy| missing_cards(policy, &cards, facts)).collect();
    let mut spec = plan.spec;
    let wanted = spec.interfaces.get_or_insert_default();
    let mut kept = Vec::new();
    for record in &facts.records {
        let entry = &record.interface;
        let at = wanted.iter().position(|wanted| wanted.pci_address.value() == Ok(&record.pf));
        let card = cards.iter().find(|card| card.pci_address.value() == Ok(&record.pf));
        let by = owner_at_fault(entry, card, &sound, &at_fault, &missing)
            .or_else(|| if at.is_none() { first_at_fault(&at_fault, &missing) } else { None });
        let Some(by) = by else { continue };
        match at {
            Some(at) => wanted[at] = entry.clone(),
            None => wanted.push(entry.clone()),
        }
        kept.push(KeptPf { pf: record.pf, name: entry.name.clone(), policy: by.to_owned() });
    }
    StandalonePlan { spec, answers: plan.answers, findings, refused, missing, kept }
}

/// Returns what a cluster's admission would say of `policy`, if all its nodes were like this machine.
fn admission_findings(
    policy: NamedPolicy<'_>,
    file: &PolicyFile<'_>,
    cards: &[InterfaceExt],
) -> Vec<(String, Finding)> {
    let mut classes = Classes::among(policy, file.policies);
    classes.add("this machine", file.labels, true, Some(cards));
    // There is no cluster, and so no feature gate and no namespace, and every card is looked at.
    let facts = classes.facts_of(policy.name, true, None);
    let home = Installation { namespace: "", dev_mode: true };
    let findings = check_policy(&Request::creation("", policy.name, policy.spec), &home, Some(&facts));
    let others = findings.iter().filter(|finding| !ABOUT_MATCHING.contains(&finding.rule));
    others.map(|finding| (policy.name.to_owned(), finding.clone())).collect()
}

/// Returns the cards that a policy names and that are not there. A policy that names none may still have configured one
/// that is gone.
fn missing_cards(policy: &NamedPolicy<'_>, cards: &[InterfaceExt], facts: &HostFacts) -> Vec<MissingCard> {
    let nic = &policy.spec.nic_selector;
    let unread = |address| facts.unread(address).map(|unread| unread.error.clone());
    let missing = |card: String, unread| MissingCard { policy: policy.name.to_owned(), card, unread };
    let is_there = |address: &PciAddress| cards.iter().any(|card| card.pci_address.value() == Ok(address));
    let names = nic.pf_names.iter().flatten().filter_map(|written| written.value().ok());
    let names = names.map(|selector| selector.name.as_str()).collect::<BTreeSet<_>>();
    let addresses = nic.root_devices.iter().flatten().filter_map(|written| written.value().ok());
    let addresses = addresses.copied().collect::<BTreeSet<_>>();
    let configured = facts.records.iter().filter(|record| {
        names.is_empty() && addresses.is_empty() && owners(&record.interface).any(|name| name == policy.name)
    });
    let configured: Vec<_> = configured.map(|record| record.pf).collect();
    let unnamed = names
        .into_iter()
        .filter(|name| !cards.iter().any(|card| has_name(card, name)))
        .map(|name| missing(name.to_owned(), None));
    let unseen = addresses.into_iter().chain(configured).filter(|address| !is_there(address));
    unnamed.chain(unseen.map(|address| missing(address.to_string(), unread(address)))).collect()
}

/// Returns the policies that have VFs on a PF.
fn owners(entry: &Interface) -> impl Iterator<Item = &str> {
    entry.vf_groups.iter().flatten().filter_map(|group| group.policy_name.as_deref())
}

/// Returns a policy with VFs on a PF that cannot be followed there: it is at fault, or does not select the PF and names a
/// card that is not there, which may be a slip of the pen.
fn owner_at_fault<'a>(
    entry: &'a Interface,
    card: Option<&InterfaceExt>,
    sound: &[NamedPolicy<'_>],
    at_fault: &BTreeSet<String>,
    missing: &[MissingCard],
) -> Option<&'a str> {
    let selects_it = |name: &str| {
        let policy = sound.iter().find(|policy| policy.name == name);
        policy.zip(card).is_some_and(|(policy, card)| selects(&policy.spec.nic_selector, card))
    };
    let misses_cards = |name: &str| missing.iter().any(|missing| missing.policy == name);
    owners(entry).find(|name| at_fault.contains(*name) || misses_cards(name) && !selects_it(name))
}

fn first_at_fault<'a>(at_fault: &'a BTreeSet<String>, missing: &'a [MissingCard]) -> Option<&'a str> {
    at_fault.iter().next().map(String::as_str).or_else(|| Some(missing.first()?.policy.as_str()))
}
