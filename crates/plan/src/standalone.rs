//! Standalone mode, without a cluster: policies from a file => desired state of the machine.
//!
//! The file is the complete desired state, so a PF that no policy selects is reset. While a policy has a fault, or
//! names a card that is not present, no PF is reset, since the policy may be meant for it.

use core::fmt;

use vfleet_api::bridge::{Bridges, LinuxBridgeConfigExt, OvsConfigExt};
use vfleet_api::node_state::{Interface, InterfaceExt};
use vfleet_api::{Parsed, PciAddress, SriovNetworkNodeStateSpec};

use crate::admission::{Finding, Installation, NodeClasses, Request, Severity, check_policy};
use crate::facts::{Fact, HostFacts};
use crate::node::recorded_bridges;
use crate::policy::{
    NamedPolicy, NodeInput, PolicyEvaluation, has_name, plan_node_spec, selects, selects_node,
};
use crate::prelude::*;
use crate::report::{self, ReportContext};

/// Admission rules about the cards that a policy selects: standalone mode evaluates each card instead.
const ABOUT_MATCHING: [&str; 4] = ["D02", "D03", "D04", "D05"];

/// Policies of a file.
#[derive(Clone, Copy, Debug)]
pub struct PolicyFile<'a> {
    /// Policies that can be read.
    pub policies: &'a [NamedPolicy<'a>],
    /// Names of the policies that cannot be read.
    pub unreadable: &'a BTreeSet<String>,
    /// Labels of the machine, for `nodeSelector`.
    pub labels: &'a BTreeMap<String, String>,
    /// Software bridges are managed.
    pub manage_software_bridges: bool,
}

/// Desired state of a machine, and the evaluation of its policies.
#[derive(Clone, Debug)]
pub struct StandalonePlan {
    /// Desired state.
    pub spec: SriovNetworkNodeStateSpec,
    /// Evaluations of the policies that select this machine and pass admission.
    pub evaluations: Vec<PolicyEvaluation>,
    /// Findings of admission, by policy.
    pub findings: Vec<(String, Finding)>,
    /// Policies for this machine that admission refuses. They are ignored.
    pub refused: BTreeSet<String>,
    /// Cards that policies name and that are not present.
    pub missing: Vec<MissingCard>,
    /// PFs that keep their configuration because a policy has a fault.
    pub kept: Vec<KeptPf>,
}

/// Card that a policy names and that is not present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingCard {
    /// Name of the policy.
    pub policy: String,
    /// Name or PCI address in the policy.
    pub card: String,
    /// Error of a card that is present and cannot be read.
    pub unread: Option<String>,
}

impl fmt::Display for MissingCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { card, unread, .. } = self;
        match unread {
            Some(error) => write!(f, "{card} cannot be read now: {error}"),
            None => write!(
                f,
                "there is no card {card} with SR-IOV support: correct nicSelector, or check that the card is present and its driver loaded"
            ),
        }
    }
}

/// PF that keeps its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPf {
    /// PCI address.
    pub pf: PciAddress,
    /// Name of the interface when the PF was configured.
    pub name: Option<String>,
    /// Policy whose fault is the reason.
    pub policy: String,
}

impl fmt::Display for KeptPf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pf, name, policy } = self;
        let name = name.as_deref().map_or_else(|| pf.to_string(), |name| format!("{name} ({pf})"));
        write!(f, "PF {name} keeps its configuration, because policy {policy} cannot be applied")
    }
}

/// Returns the last desired state of a machine.
pub fn recorded_spec(facts: &HostFacts) -> SriovNetworkNodeStateSpec {
    let interfaces = facts.records.iter().map(|record| record.interface.clone()).collect();
    let bridges = recorded_bridges(facts);
    SriovNetworkNodeStateSpec { interfaces: Some(interfaces), bridges, ..Default::default() }
}

/// Returns the desired state that the policies of a file define for a machine.
pub fn plan_standalone(file: &PolicyFile<'_>, facts: &HostFacts) -> StandalonePlan {
    let cards = report::interfaces(facts, &ReportContext::default());
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
        rdma_mode: Fact::None,
        manage_software_bridges: file.manage_software_bridges,
    };
    let plan = plan_node_spec(&sound, &at_fault, &input);
    let missing: Vec<_> = sound.iter().flat_map(|policy| missing_cards(policy, &cards, facts)).collect();
    let mut spec = plan.spec;
    let interfaces = spec.interfaces.get_or_insert_default();
    let mut kept = Vec::new();
    for record in &facts.records {
        let entry = &record.interface;
        let at = interfaces.iter().position(|interface| interface.pci_address.value() == Ok(&record.pf));
        let card = cards.iter().find(|card| card.pci_address.value() == Ok(&record.pf));
        let by = owner_at_fault(entry, card, &sound, &at_fault, &missing)
            .or_else(|| if at.is_none() { first_at_fault(&at_fault, &missing) } else { None });
        let Some(by) = by else { continue };
        match at {
            Some(at) => interfaces[at] = entry.clone(),
            None => interfaces.push(entry.clone()),
        }
        keep_bridge(&mut spec.bridges, current.bridges.as_ref(), record.pf);
        kept.push(KeptPf { pf: record.pf, name: entry.name.clone(), policy: by.to_owned() });
    }
    StandalonePlan { spec, evaluations: plan.evaluations, findings, refused, missing, kept }
}

/// Replaces the desired bridge of a PF with its current one.
fn keep_bridge(desired: &mut Option<Bridges>, current: Option<&Bridges>, pf: PciAddress) {
    let is_uplink = |address: &Parsed<PciAddress>| address.value() == Ok(&pf);
    let has_ovs =
        |bridge: &OvsConfigExt| bridge.uplinks.iter().flatten().any(|uplink| is_uplink(&uplink.pci_address));
    let has_linux = |bridge: &LinuxBridgeConfigExt| {
        bridge.uplinks.iter().flatten().any(|uplink| is_uplink(&uplink.pci_address))
    };
    let Bridges { ovs, linux } = desired.take().unwrap_or_default();
    let (mut ovs, mut linux) = (ovs.unwrap_or_default(), linux.unwrap_or_default());
    ovs.retain(|bridge| !has_ovs(bridge));
    linux.retain(|bridge| !has_linux(bridge));
    if let Some(current) = current {
        ovs.extend(current.ovs.iter().flatten().filter(|bridge| has_ovs(bridge)).cloned());
        linux.extend(current.linux.iter().flatten().filter(|bridge| has_linux(bridge)).cloned());
    }
    *desired = Some(Bridges {
        ovs: Some(ovs).filter(|bridges| !bridges.is_empty()),
        linux: Some(linux).filter(|bridges| !bridges.is_empty()),
    });
}

/// Returns the findings that admission would have in a cluster whose nodes are all like this machine.
fn admission_findings(
    policy: NamedPolicy<'_>,
    file: &PolicyFile<'_>,
    cards: &[InterfaceExt],
) -> Vec<(String, Finding)> {
    let mut classes = NodeClasses::with_candidate(policy, file.policies);
    classes.add("this machine", file.labels, true, Some(cards));
    // Without a cluster there are no feature gates and no namespace, and every card is checked.
    let facts = classes.collect_facts(policy.name, true, None);
    let home = Installation { namespace: "", dev_mode: true };
    let findings = check_policy(&Request::creation("", policy.name, policy.spec), &home, Some(&facts));
    let others = findings.iter().filter(|finding| !ABOUT_MATCHING.contains(&finding.rule));
    others.map(|finding| (policy.name.to_owned(), finding.clone())).collect()
}

/// Returns the cards that a policy names and that are not present. For a policy that names none, these are missing
/// cards that it configured before.
fn missing_cards(policy: &NamedPolicy<'_>, cards: &[InterfaceExt], facts: &HostFacts) -> Vec<MissingCard> {
    let nic = &policy.spec.nic_selector;
    let unread = |address| facts.unreadable(address).map(|unread| unread.error.clone());
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

/// Returns a policy with VFs on a PF that cannot be applied there: it has a fault, or does not select the PF and names
/// a card that is not present, which may be a typo.
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
