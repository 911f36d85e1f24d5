//! Software bridges in the status of the node state, with their conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::jiff::Timestamp;
use vfleet_api::bridge::{Bridges, LinuxBridgeConfigExt, OvsConfigExt};
use vfleet_api::conditions::{ConditionUpdate, READY, update_conditions};
use vfleet_api::meta::Condition;
use vfleet_api::{PciAddress, SriovNetworkNodeState};
use vfleet_plan::{BridgeFault, BridgeKind, Cause, HostFacts, Problem, Target, report, verified_bridges};

use super::devices::{progress_condition, waiting_condition};
use super::{AttemptPhase, NOT_CONFIGURED, NOT_DESIRED, RECONCILED, StatusContext, join_failures};
use crate::apply::Failure;
use crate::progress::PartProgress;

/// Identity of a bridge in the status: whether it is an Open vSwitch bridge, and its name.
type BridgeKey = (bool, String);

/// Returns the bridges that vfleet created and those that the spec requests, each with the condition `Ready`. While a
/// plan waits or is executed, bridges without steps and without problems keep their conditions.
pub(super) fn build_bridges(
    facts: &HostFacts,
    context: &StatusContext<'_>,
    state: &SriovNetworkNodeState,
    phase: &AttemptPhase<'_>,
) -> Option<Bridges> {
    let last = state.status.as_ref().and_then(|status| status.bridges.as_ref());
    let found = report::bridges(facts, last);
    let found_keys: BTreeSet<_> = entries(Some(&found)).map(|entry| entry.key()).collect();
    let requested = requested_bridges(state);
    let desired = if context.manages_bridges { requested.clone() } else { BTreeMap::new() };
    let verified = verified_bridges(&state.spec, facts);
    let recorded = recorded_bridges(facts);
    let previous: BTreeMap<_, _> = entries(last).map(|entry| (entry.key(), entry)).collect();
    let conditions = |key: &BridgeKey, uplink: Option<PciAddress>| {
        let last = previous.get(key);
        // A bridge that is kept for its ports has no uplink anymore.
        let pf = desired.get(key).or(uplink.as_ref()).or_else(|| recorded.get(key)).copied();
        let report = BridgeReport {
            name: &key.1,
            pf,
            is_requested: requested.contains_key(key),
            is_desired: desired.contains_key(key),
            is_verified: found_keys.contains(key) && pf.is_some_and(|pf| verified.contains(&pf)),
        };
        let last_conditions = last.and_then(BridgeEntry::conditions).unwrap_or_default();
        match report.condition(phase, last.and_then(BridgeEntry::is_ready)) {
            Some(update) => {
                let (generation, now) = (state.metadata.generation, Timestamp::now());
                Some(update_conditions(last_conditions, &[update], generation, now))
            }
            None => Some(last_conditions.to_vec()).filter(|conditions| !conditions.is_empty()),
        }
    };
    let missing = |is_ovs: bool| {
        let missing = desired.keys().filter(|(is_ovs_bridge, _)| *is_ovs_bridge == is_ovs);
        missing.filter(|key| !found_keys.contains(*key)).map(|(_, name)| name.clone()).collect::<Vec<_>>()
    };
    let mut ovs: Vec<_> = found.ovs.unwrap_or_default();
    ovs.extend(missing(true).into_iter().map(|name| OvsConfigExt { name, ..OvsConfigExt::default() }));
    let mut linux: Vec<_> = found.linux.unwrap_or_default();
    linux.extend(
        missing(false)
            .into_iter()
            .map(|name| LinuxBridgeConfigExt { name, ..LinuxBridgeConfigExt::default() }),
    );
    for bridge in &mut ovs {
        let entry = BridgeEntry::Ovs(bridge);
        bridge.conditions = conditions(&entry.key(), entry.uplink());
    }
    for bridge in &mut linux {
        let entry = BridgeEntry::Linux(bridge);
        bridge.conditions = conditions(&entry.key(), entry.uplink());
    }
    Bridges { ovs: Some(ovs), linux: Some(linux) }.into_sorted()
}

/// Returns the number of ready bridges and of all.
pub(super) fn count_ready(bridges: &Bridges) -> String {
    let is_ready: Vec<_> = entries(Some(bridges)).map(|entry| entry.is_ready() == Some(true)).collect();
    format!("{}/{}", is_ready.iter().filter(|is_ready| **is_ready).count(), is_ready.len())
}

/// Returns the bridges that vfleet created, with their PFs.
fn recorded_bridges(facts: &HostFacts) -> BTreeMap<BridgeKey, PciAddress> {
    let recorded = facts.records.iter().filter_map(|record| Some((record.bridge.as_ref()?, record.pf)));
    recorded.map(|(bridge, pf)| ((bridge.kind == BridgeKind::Ovs, bridge.name.clone()), pf)).collect()
}

/// Returns the bridges that the spec requests, with their PFs.
fn requested_bridges(state: &SriovNetworkNodeState) -> BTreeMap<BridgeKey, PciAddress> {
    entries(state.spec.bridges.as_ref())
        .filter_map(|entry| Some((entry.key(), entry.uplink()?)))
        .filter(|(_, pf)| !is_external(state, *pf))
        .collect()
}

/// Returns a warning for each PF whose VFs the Go device plugin offers although the requested bridge is not ready, also
/// because bridges are not managed.
pub(super) fn offered_without_bridge(
    facts: &HostFacts,
    bridges: Option<&Bridges>,
    context: &StatusContext<'_>,
    state: &SriovNetworkNodeState,
) -> Vec<Problem> {
    if !context.has_go_plugin {
        return Vec::new();
    }
    let ready = entries(bridges).filter(|entry| entry.is_ready() == Some(true));
    let ready: BTreeSet<_> = ready.map(|entry| entry.key()).collect();
    let is_offered = |pf| facts.pf(pf).is_some_and(|pf| !pf.vfs.is_empty());
    let requested = requested_bridges(state).into_iter();
    let offered = requested.filter(|(key, pf)| !ready.contains(key) && is_offered(*pf));
    let to_warning = |((_, bridge), pf)| Problem {
        pf: Some(pf),
        name: facts.pf(pf).and_then(|pf| Some(pf.link.as_ref()?.name.clone())),
        policies: Vec::new(),
        cause: Cause::from(BridgeFault::OfferedAnyway { bridge }),
    };
    offered.map(to_warning).collect()
}

/// Bridge of a node state.
#[derive(Clone, Copy, Debug)]
enum BridgeEntry<'a> {
    Ovs(&'a OvsConfigExt),
    Linux(&'a LinuxBridgeConfigExt),
}

impl<'a> BridgeEntry<'a> {
    fn key(&self) -> BridgeKey {
        match self {
            Self::Ovs(bridge) => (true, bridge.name.clone()),
            Self::Linux(bridge) => (false, bridge.name.clone()),
        }
    }

    fn uplink(&self) -> Option<PciAddress> {
        let address = match self {
            Self::Ovs(bridge) => &bridge.uplinks.as_ref()?.first()?.pci_address,
            Self::Linux(bridge) => &bridge.uplinks.as_ref()?.first()?.pci_address,
        };
        address.value().ok().copied()
    }

    fn conditions(&self) -> Option<&'a [Condition]> {
        match self {
            Self::Ovs(bridge) => bridge.conditions.as_deref(),
            Self::Linux(bridge) => bridge.conditions.as_deref(),
        }
    }

    /// Returns the status of the condition `Ready`; `None` if the bridge has none.
    fn is_ready(&self) -> Option<bool> {
        let mut conditions = self.conditions()?.iter();
        conditions.find(|condition| condition.type_ == READY).map(|ready| ready.status == "True")
    }
}

fn entries(bridges: Option<&Bridges>) -> impl Iterator<Item = BridgeEntry<'_>> {
    let ovs = bridges.into_iter().flat_map(|bridges| bridges.ovs.iter().flatten().map(BridgeEntry::Ovs));
    let linux =
        bridges.into_iter().flat_map(|bridges| bridges.linux.iter().flatten().map(BridgeEntry::Linux));
    ovs.chain(linux)
}

fn is_external(state: &SriovNetworkNodeState, pf: PciAddress) -> bool {
    let mut external =
        state.spec.interfaces.iter().flatten().filter(|entry| entry.externally_managed == Some(true));
    external.any(|entry| entry.pci_address.value() == Ok(&pf))
}

/// Bridge whose condition is reported.
#[derive(Clone, Copy, Debug)]
struct BridgeReport<'a> {
    name: &'a str,
    pf: Option<PciAddress>,
    /// The spec has the bridge.
    is_requested: bool,
    /// The spec has the bridge, and bridges are managed.
    is_desired: bool,
    is_verified: bool,
}

impl BridgeReport<'_> {
    /// Returns the condition in a phase; `None` if the last one, whose status is `was_ready`, is still true.
    fn condition(&self, phase: &AttemptPhase<'_>, was_ready: Option<bool>) -> Option<ConditionUpdate> {
        let (progress, is_waiting) = match phase {
            AttemptPhase::PlatformUnknown(_) | AttemptPhase::NotPlanned => return None,
            AttemptPhase::Waiting { progress, .. } => (progress, true),
            AttemptPhase::Executing(progress) => (progress, false),
            AttemptPhase::Done(failures) => return Some(self.final_condition(failures)),
        };
        match self.pf.and_then(|pf| progress.bridge(pf)) {
            Some(of_bridge) if is_waiting => Some(self.name_in(waiting_condition(of_bridge), of_bridge)),
            Some(of_bridge) => Some(match progress_condition(of_bridge) {
                ConditionUpdate { status: true, .. } => {
                    Self { is_verified: true, ..*self }.final_condition(&[])
                }
                update => self.name_in(update, of_bridge),
            }),
            None => (was_ready != Some(self.is_ready())).then(|| self.final_condition(&[])),
        }
    }

    /// Returns the condition with a message that names the bridge and its PF, as problems do.
    fn name_in(&self, update: ConditionUpdate, progress: &PartProgress) -> ConditionUpdate {
        let is_problem = progress.problem.as_ref().is_some_and(|(_, text)| *text == update.message);
        let message = if is_problem { update.message } else { format!("{self}: {}", update.message) };
        ConditionUpdate { message, ..update }
    }

    const fn is_ready(&self) -> bool {
        self.is_verified && self.is_desired
    }

    fn final_condition(&self, failures: &[Failure]) -> ConditionUpdate {
        let not_ready = |reason, message| ConditionUpdate { type_: READY, status: false, reason, message };
        let target = self.pf.map(Target::Bridge);
        let of_bridge: Vec<_> = failures.iter().filter(|failure| Some(failure.target()) == target).collect();
        if let Some(first) = of_bridge.first() {
            let texts = of_bridge.iter().map(|failure| match failure {
                Failure::Problem(problem) => problem.to_string(),
                failure => format!("{self}: {failure}"),
            });
            return not_ready(first.reason(), texts.collect::<Vec<_>>().join("; "));
        }
        if self.is_ready() {
            let uplink = self.pf.map_or_else(String::new, |pf| format!(", with PF {pf} as its uplink"));
            let message = format!("bridge {} is configured{uplink}", self.name);
            return ConditionUpdate { type_: READY, status: true, reason: RECONCILED, message };
        }
        let (reason, message) = if self.is_desired {
            (NOT_CONFIGURED, format!("{self} is not configured yet"))
        } else if self.is_requested {
            (
                NOT_DESIRED,
                format!("{self} has to be removed, since feature gate manageSoftwareBridges is disabled"),
            )
        } else {
            (NOT_DESIRED, format!("no policy requests {self} anymore"))
        };
        let of_pf = failures.iter().filter(|failure| failure.pf().is_none() || failure.pf() == self.pf);
        match join_failures(of_pf) {
            causes if causes.is_empty() => not_ready(reason, message),
            causes => not_ready(reason, format!("{message}: {causes}")),
        }
    }
}

impl fmt::Display for BridgeReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pf {
            Some(pf) => write!(f, "bridge {} of PF {pf}", self.name),
            None => write!(f, "bridge {}", self.name),
        }
    }
}
