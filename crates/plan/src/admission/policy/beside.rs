//! A policy beside the others that select the same nodes. Most nodes have the same others, and on PFs that are selected
//! alike they want the same: each such pair is looked at once.

use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{SriovNetworkNodePolicySpec, VfRange};

use super::super::Severity;
use super::fleet::{Meaning, Said, name_of};
use crate::policy::{Clash, PfSetting, Rival, SelectedBy, claim, rival, selects};
use crate::prelude::*;
use crate::{LossReason, NamedPolicy};

const CONFLICT: &str = "PolicyConflict";
const OUTRANKED: &str = "Outranked";

/// A policy, and all companies of others in which it was found so far.
pub(super) struct Beside<'a> {
    candidate: NamedPolicy<'a>,
    manage_software_bridges: bool,
    companies: Vec<Company<'a>>,
}

/// A policy beside certain others.
pub(super) struct Company<'a> {
    candidate: NamedPolicy<'a>,
    manage_software_bridges: bool,
    others: &'a [NamedPolicy<'a>],
    known: BTreeMap<SelectedBy<'a>, Vec<(Said, Meaning)>>,
}

impl<'a> Beside<'a> {
    pub(super) fn new(candidate: NamedPolicy<'a>, manage_software_bridges: bool) -> Self {
        Self { candidate, manage_software_bridges, companies: Vec::new() }
    }

    pub(super) fn company(&mut self, others: &'a [NamedPolicy<'a>]) -> &mut Company<'a> {
        let is_it = |company: &Company<'_>| is_same(company.others, others);
        let at = self.companies.iter().position(is_it).unwrap_or_else(|| {
            let Self { candidate, manage_software_bridges, .. } = *self;
            let known = BTreeMap::new();
            self.companies.push(Company { candidate, manage_software_bridges, others, known });
            self.companies.len() - 1
        });
        &mut self.companies[at]
    }
}

fn is_same(one: &[NamedPolicy<'_>], other: &[NamedPolicy<'_>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| core::ptr::eq(one.spec, other.spec))
}

impl<'a> Company<'a> {
    /// What it and others cannot both have on a PF.
    pub(super) fn clashes(&mut self, card: &'a InterfaceExt) -> Vec<(Said, Meaning)> {
        let place = SelectedBy::from(card);
        if let Some(known) = self.known.get(&place) {
            return known.clone();
        }
        let found = self.look_at(card);
        self.known.insert(place, found.clone());
        found
    }

    /// Every other policy that wants something of the PF, by itself: a third one that wins over both settles nothing
    /// between the two.
    fn look_at(&self, card: &InterfaceExt) -> Vec<(Said, Meaning)> {
        let gate = self.manage_software_bridges;
        let Some(own) = claim(self.candidate, card, gate) else { return Vec::new() };
        let mut found = Vec::new();
        for other in self.others.iter().filter(|other| selects(&other.spec.nic_selector, card)) {
            // A policy that cannot be followed takes nothing.
            let Some(theirs) = claim(*other, card, gate) else { continue };
            let rival = rival(&own, &theirs);
            let pair = Pair { candidate: self.candidate, other: *other, rival: &rival };
            found.extend(rival.clashes.iter().map(|clash| say(pair, name_of(card), clash)));
        }
        found
    }
}

/// A policy that is judged beside another one.
#[derive(Clone, Copy)]
struct Pair<'a> {
    candidate: NamedPolicy<'a>,
    other: NamedPolicy<'a>,
    rival: &'a Rival<'a>,
}

impl Pair<'_> {
    /// Who gives a PF by its name to one policy and then to another means both: a priority would take it from one.
    fn both_name_it(&self) -> bool {
        names_pfs(self.candidate.spec) && names_pfs(self.other.spec)
    }

    fn name(&self, policy: &str) -> String {
        if policy == self.candidate.name { "this policy".to_owned() } else { format!("policy {policy}") }
    }
}

/// Whether it says which PFs, and not only what they are like.
fn names_pfs(spec: &SriovNetworkNodePolicySpec) -> bool {
    let nic = &spec.nic_selector;
    nic.pf_names.as_ref().is_some_and(|names| !names.is_empty())
        || nic.root_devices.as_ref().is_some_and(|addresses| !addresses.is_empty())
}

fn say(pair: Pair<'_>, pf: &str, clash: &Clash) -> (Said, Meaning) {
    use Severity::{Error, Warning};
    let (other, rival) = (pair.other.name, pair.rival);
    let (loser, winner) = (pair.name(rival.loser), pair.name(rival.winner));
    let subject = format!("{pf} {other}");
    let (rule, reason, severity, field, (before, after)) = match (clash, rival.equal_priority) {
        (Clash::Vfs { range, why: LossReason::Overlap }, is_equal) if is_equal || pair.both_name_it() => {
            ("D13", CONFLICT, Error, "spec.nicSelector", (format!("on {pf} of "), overlap(&pair, *range)))
        }
        (Clash::Vfs { range, why: LossReason::Overlap }, _) => {
            let after = format!(
                ": VFs {range} of {loser} go to {winner}, which has a lower priority number: if both shall have VFs, give them ranges that do not overlap"
            );
            ("D14", OUTRANKED, Warning, "spec.nicSelector", (format!("on {pf} of "), after))
        }
        (Clash::Vfs { why: LossReason::SameResource, .. }, true) => {
            let after = format!(
                ": policy {other}, of the same priority, gives VFs as the same resource: put both ranges into one policy, or give the two different resources"
            );
            ("D15", CONFLICT, Error, "spec.resourceName", (format!("on {pf} of "), after))
        }
        (Clash::Vfs { range, why: LossReason::SameResource }, false) => {
            let after = format!(
                ": VFs {range} of {loser} give way to {winner}, which gives VFs as the same resource and has a lower priority number: put both ranges into one policy, or give the two different resources"
            );
            ("D16", OUTRANKED, Warning, "spec.resourceName", (format!("on {pf} of "), after))
        }
        (Clash::Vfs { why: LossReason::NeedsSwitchdev, .. }, is_equal) => {
            let rank = if is_equal { "of the same priority" } else { "with a lower priority number" };
            let after = format!(
                ": {loser} makes vDPA devices, which need switchdev, and {winner}, {rank}, does not want it: set eSwitchMode to switchdev in both, or give the vDPA devices another PF"
            );
            let (rule, reason, severity) = of_mode(is_equal);
            (rule, reason, severity, "spec.eSwitchMode", (format!("on {pf} of "), after))
        }
        (Clash::Setting(setting), is_equal) => {
            let ((rule, reason, severity), field) = match setting {
                PfSetting::EswitchMode { .. } => (of_mode(is_equal), "spec.eSwitchMode"),
                PfSetting::LinkType { .. } => (of_link_type(is_equal), "spec.linkType"),
            };
            (rule, reason, severity, field, (format!("on {pf} of "), other_setting(&pair, *setting)))
        }
        (Clash::Outside, _) => {
            let before = format!("policy {other} says otherwise about externallyManaged on {pf} of ");
            let after = ": set it in both, or in neither".to_owned();
            ("D17", CONFLICT, Error, "spec.externallyManaged", (before, after))
        }
    };
    (Said { rule, before, after }, Meaning { reason, severity, field, subject: Some(subject) })
}

const fn of_mode(equal_priority: bool) -> (&'static str, &'static str, Severity) {
    if equal_priority { ("D21", CONFLICT, Severity::Error) } else { ("D22", OUTRANKED, Severity::Warning) }
}

const fn of_link_type(equal_priority: bool) -> (&'static str, &'static str, Severity) {
    if equal_priority { ("D23", CONFLICT, Severity::Error) } else { ("D24", OUTRANKED, Severity::Warning) }
}

fn other_setting(pair: &Pair<'_>, setting: PfSetting) -> String {
    let (field, (asked, given)) = (setting.field(), setting.words());
    let (loser, winner) = (pair.name(pair.rival.loser), pair.name(pair.rival.winner));
    if pair.rival.equal_priority {
        format!(
            ": {loser} wants {field} {asked} and {winner}, of the same priority, {given}, and a PF has one: set {field} alike in both"
        )
    } else {
        format!(
            ": {field} is {given} for the whole PF, as {winner} wants with a lower priority number, and not {asked}, as {loser} wants: set {field} alike in both"
        )
    }
}

fn overlap(pair: &Pair<'_>, range: VfRange) -> String {
    let other = pair.other.name;
    let apart = "give the two ranges that do not overlap";
    match (pair.both_name_it(), pair.rival.equal_priority) {
        (false, _) => format!(
            ": policy {other}, of the same priority, wants some of the same VFs ({range}): {apart}, or different priorities"
        ),
        (true, true) => {
            format!(": policy {other}, of the same priority, wants some of the same VFs ({range}): {apart}")
        }
        (true, false) => format!(
            ": policy {other} names this PF too, and wants some of the same VFs ({range}): {apart}, or let the one that is to be overruled select by vendor and deviceID"
        ),
    }
}

/// All VFs of a resource are told to the kubelet in one way.
pub(super) fn check_topology(
    spec: &SriovNetworkNodePolicySpec,
    others: &[NamedPolicy<'_>],
) -> impl Iterator<Item = (Said, Meaning)> {
    let is_excluded = |spec: &SriovNetworkNodePolicySpec| spec.exclude_topology.unwrap_or(false);
    let own = is_excluded(spec);
    let differs = move |other: &&NamedPolicy<'_>| {
        other.spec.resource_name == spec.resource_name && is_excluded(other.spec) != own
    };
    others.iter().filter(differs).map(move |other| {
        let before =
            format!("policy {} offers the same resource with excludeTopology {} on ", other.name, !own);
        let after = ": set it alike, or give the two different resources".to_owned();
        let (severity, field) = (Severity::Error, "spec.excludeTopology");
        let meaning = Meaning { reason: CONFLICT, severity, field, subject: None };
        (Said { rule: "D18", before, after }, meaning)
    })
}
