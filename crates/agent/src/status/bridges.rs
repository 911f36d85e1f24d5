//! Software bridges in the status of the node state, with their conditions.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use vfleet_api::bridge::{Bridges, LinuxBridgeConfigExt, OvsConfigExt};
use vfleet_api::conditions::{ConditionUpdate, READY, update_conditions};
use vfleet_api::meta::Condition;
use vfleet_api::{PciAddress, SriovNetworkNodeState};
use vfleet_plan::{BridgeFault, Cause, HostFacts, Problem, Target, report, verified_bridges};

use super::devices::{progress_condition, waiting_condition};
use super::{AttemptPhase, RECONCILED, StatusContext, join_failures};
use crate::apply::Failure;

/// Identity of a bridge in the status: whether it is an Open vSwitch bridge, and its name.
type BridgeKey = (bool, String);

/// Returns the bridges that vfleet created and those that the spec requests, each with the condition `Ready`. While
/// steps are being executed, bridges of PFs without steps and without problems keep their conditions.
pub(super) fn build_bridges(
    facts: &HostFacts,
    context: &StatusContext<'_>,
    state: &SriovNetworkNodeState,
    phase: &AttemptPhase<'_>,
) -> Option<Bridges> {
    let last = state.status.as_ref().and_then(|status| status.bridges.as_ref());
    let found = report::bridges(facts, last);
    let found_keys: BTreeSet<_> = entries(Some(&found)).map(|entry| entry.key()).collect();
    let desired = if context.manages_bridges { desired_bridges(state) } else { BTreeMap::new() };
    let verified = verified_bridges(&state.spec, facts);
    let previous: BTreeMap<_, _> = entries(last).map(|entry| (entry.key(), entry)).collect();
    let conditions = |key: &BridgeKey, uplink: Option<PciAddress>| {
        let last = previous.get(key);
        let pf = desired.get(key).copied().or(uplink).or_else(|| last.and_then(BridgeEntry::uplink));
        let report = BridgeReport {
            name: &key.1,
            pf,
            is_desired: desired.contains_key(key),
            is_verified: found_keys.contains(key) && pf.is_some_and(|pf| verified.contains(&pf)),
        };
        let last = last.and_then(BridgeEntry::conditions).unwrap_or_default();
        match report.condition(phase) {
            Some(update) => {
                Some(update_conditions(last, &[update], state.metadata.generation, Timestamp::now()))
            }
            None => Some(last.to_vec()).filter(|conditions| !conditions.is_empty()),
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
    ovs.sort_by(|one, other| one.name.cmp(&other.name));
    linux.sort_by(|one, other| one.name.cmp(&other.name));
    let bridges = Bridges {
        ovs: Some(ovs).filter(|bridges| !bridges.is_empty()),
        linux: Some(linux).filter(|bridges| !bridges.is_empty()),
    };
    Some(bridges).filter(|bridges| *bridges != Bridges::default())
}

/// Returns the bridges that the spec requests, with their PFs.
fn desired_bridges(state: &SriovNetworkNodeState) -> BTreeMap<BridgeKey, PciAddress> {
    entries(state.spec.bridges.as_ref())
        .filter_map(|entry| Some((entry.key(), entry.uplink()?)))
        .filter(|(_, pf)| !is_external(state, *pf))
        .collect()
}

/// Returns a warning for each PF whose VFs the Go device plugin offers although the desired bridge is not ready.
pub(super) fn offered_without_bridge(
    facts: &HostFacts,
    bridges: Option<&Bridges>,
    context: &StatusContext<'_>,
    state: &SriovNetworkNodeState,
) -> Vec<Problem> {
    if !context.has_go_plugin || !context.manages_bridges {
        return Vec::new();
    }
    let is_ready = |entry: &BridgeEntry<'_>| {
        let mut conditions = entry.conditions().unwrap_or_default().iter();
        conditions.any(|condition| condition.type_ == READY && condition.status == "True")
    };
    let ready: BTreeSet<_> = entries(bridges).filter(is_ready).map(|entry| entry.key()).collect();
    let is_offered = |pf| facts.pf(pf).is_some_and(|pf| !pf.vfs.is_empty());
    let offered =
        desired_bridges(state).into_iter().filter(|(key, pf)| !ready.contains(key) && is_offered(*pf));
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
#[derive(Debug)]
struct BridgeReport<'a> {
    name: &'a str,
    pf: Option<PciAddress>,
    is_desired: bool,
    is_verified: bool,
}

impl BridgeReport<'_> {
    /// Returns the condition in a phase; `None` if the last one is still true.
    fn condition(&self, phase: &AttemptPhase<'_>) -> Option<ConditionUpdate> {
        match phase {
            AttemptPhase::PlatformUnknown(_) | AttemptPhase::NotPlanned => None,
            AttemptPhase::Waiting { progress, .. } => Some(waiting_condition(progress.pf(self.pf?)?)),
            AttemptPhase::Executing(progress) => Some(progress_condition(progress.pf(self.pf?)?)),
            AttemptPhase::Done(failures) => Some(self.final_condition(failures)),
        }
    }

    fn final_condition(&self, failures: &[Failure]) -> ConditionUpdate {
        let not_ready = |reason, message| ConditionUpdate { type_: READY, status: false, reason, message };
        let join = |failures: Vec<&Failure>| {
            let first = failures.first()?;
            Some(not_ready(first.reason(), join_failures(failures.iter().copied())))
        };
        let Self { name, .. } = self;
        let pf = self.pf.map_or_else(|| "unknown".to_owned(), |pf| pf.to_string());
        let of_bridge = failures.iter().filter(|failure| self.concerns(failure)).collect();
        if let Some(condition) = join(of_bridge) {
            return condition;
        }
        if self.is_verified && self.is_desired {
            let message = format!("bridge {name} is configured, with PF {pf} as its uplink");
            return ConditionUpdate { type_: READY, status: true, reason: RECONCILED, message };
        }
        let of_pf = failures.iter().filter(|failure| failure.pf().is_none() || failure.pf() == self.pf);
        join(of_pf.collect()).unwrap_or_else(|| {
            if self.is_desired {
                not_ready("NotConfigured", format!("bridge {name} of PF {pf} is not configured yet"))
            } else {
                not_ready("NotDesired", format!("no policy requests bridge {name} of PF {pf} anymore"))
            }
        })
    }

    /// Returns whether the failure is about the bridge, not only about its PF.
    fn concerns(&self, failure: &Failure) -> bool {
        if self.pf.is_none() || failure.pf() != self.pf {
            return false;
        }
        match failure {
            Failure::Problem(problem) => matches!(problem.cause, Cause::Bridge(_)),
            _ => matches!(failure.target(), Target::Bridge(_)),
        }
    }
}
