//! Conditions of the cards in the status of the node state.

use k8s_openapi::jiff::Timestamp;
use vfleet_api::conditions::{ConditionUpdate, READY, WARNING, update_conditions};
use vfleet_api::meta::Condition;
use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{PciAddress, SriovNetworkNodeState};
use vfleet_plan::report::ReportContext;
use vfleet_plan::{HostFacts, Problem, UnreadableCard, node_warnings, report};

use super::{AttemptPhase, EXECUTING, RECONCILED, WAITING_FOR_DRAIN, join_failures};
use crate::apply::Failure;
use crate::progress::PartProgress;

/// Returns the reported cards, with conditions on those that the spec configures or that cannot be read. While steps
/// are being executed, cards without steps and without problems keep their conditions. A warning exists as long as its
/// cause; `warnings_of_bridges` has those of bridges.
pub(super) fn build_interfaces(
    facts: &HostFacts,
    report_context: &ReportContext<'_>,
    warnings_of_bridges: &[Problem],
    state: &SriovNetworkNodeState,
    phase: &AttemptPhase<'_>,
) -> Vec<InterfaceExt> {
    let is_desired = |pf: PciAddress| {
        let mut entries = state.spec.interfaces.iter().flatten();
        entries.any(|entry| entry.pci_address.value() == Ok(&pf))
    };
    let mut warnings = node_warnings(&state.spec, facts);
    warnings.extend_from_slice(warnings_of_bridges);
    let is_under_way = matches!(phase, AttemptPhase::Waiting { .. } | AttemptPhase::Executing(_));
    let with_conditions = |mut card: InterfaceExt| {
        if let Ok(&pf) = card.pci_address.value() {
            let ready = match phase {
                AttemptPhase::PlatformUnknown(_) | AttemptPhase::NotPlanned => None,
                AttemptPhase::Waiting { progress, .. } => progress.pf(pf).map(waiting_condition),
                AttemptPhase::Executing(progress) => progress.pf(pf).map(progress_condition),
                AttemptPhase::Done(failures) => failure_condition(pf, failures)
                    .or_else(|| facts.unreadable(pf).map(unreadable_condition))
                    .or_else(|| is_desired(pf).then(ready_condition)),
            };
            let warning = warning_condition(pf, &warnings);
            let mut last = previous_conditions(state, pf).unwrap_or_default();
            last.retain(|condition| match condition.type_.as_str() {
                READY => ready.is_some() || is_under_way,
                _ => warning.is_some(),
            });
            let updates: Vec<_> = ready.into_iter().chain(warning).collect();
            let conditions = update_conditions(&last, &updates, state.metadata.generation, Timestamp::now());
            card.conditions = Some(conditions).filter(|conditions| !conditions.is_empty());
        }
        card
    };
    report::interfaces(facts, report_context).into_iter().map(with_conditions).collect()
}

fn previous_conditions(state: &SriovNetworkNodeState, pf: PciAddress) -> Option<Vec<Condition>> {
    let mut cards = state.status.as_ref()?.interfaces.iter().flatten();
    cards.find(|card| card.pci_address.value() == Ok(&pf))?.conditions.clone()
}

fn failure_condition(pf: PciAddress, failures: &[Failure]) -> Option<ConditionUpdate> {
    let of_pf: Vec<_> = failures.iter().filter(|failure| failure.pf() == Some(pf)).collect();
    let first = of_pf.first()?;
    Some(ConditionUpdate {
        type_: READY,
        status: false,
        reason: first.reason(),
        message: join_failures(of_pf.iter().copied()),
    })
}

/// Returns the condition of a PF or bridge before the drain: no step was started, but problems are known.
pub(super) fn waiting_condition(progress: &PartProgress) -> ConditionUpdate {
    let (reason, message) = match &progress.problem {
        Some((reason, text)) => (*reason, text.clone()),
        None => (WAITING_FOR_DRAIN, "waiting for a drain of the node".to_owned()),
    };
    ConditionUpdate { type_: READY, status: false, reason, message }
}

/// Returns the condition of a PF or bridge before the machine is read again. Each step that ended has verified its own
/// effect.
pub(super) fn progress_condition(progress: &PartProgress) -> ConditionUpdate {
    let not_ready = |reason, message| ConditionUpdate { type_: READY, status: false, reason, message };
    match progress.failure.as_ref().or(progress.problem.as_ref()) {
        Some((reason, text)) => not_ready(reason, text.clone()),
        None if progress.is_done => ready_condition(),
        None => not_ready(EXECUTING, progress.text()),
    }
}

fn unreadable_condition(card: &UnreadableCard) -> ConditionUpdate {
    ConditionUpdate { type_: READY, status: false, reason: card.reason, message: card.error.clone() }
}

fn warning_condition(pf: PciAddress, warnings: &[Problem]) -> Option<ConditionUpdate> {
    let of_pf: Vec<_> = warnings.iter().filter(|warning| warning.pf == Some(pf)).collect();
    let reason = of_pf.first()?.cause.reason();
    let message = of_pf.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    Some(ConditionUpdate { type_: WARNING, status: true, reason, message })
}

fn ready_condition() -> ConditionUpdate {
    ConditionUpdate { type_: READY, status: true, reason: RECONCILED, message: String::new() }
}
