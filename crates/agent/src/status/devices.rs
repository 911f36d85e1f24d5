//! What is said about each card: whether it is as wanted, so that a failure can be told from its neighbour's success.

use k8s_openapi::jiff::Timestamp;
use vfleet_api::conditions::{READY, Verdict, WARNING, updated};
use vfleet_api::meta::Condition;
use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{PciAddress, SriovNetworkNodeState};
use vfleet_plan::report::View;
use vfleet_plan::{HostFacts, Problem, Unread, node_warnings, report};

use super::{EXECUTING, Progress, WAITING_FOR_DRAIN, message};
use crate::apply::Failure;
use crate::course::PfCourse;

/// The cards, with a condition on each that the spec wants something of or that cannot be read. While steps are being
/// executed, the last verdict about cards without steps and without problems stands. A warning is there as long as it is
/// true.
pub(super) fn with_conditions(
    facts: &HostFacts,
    view: &View<'_>,
    state: &SriovNetworkNodeState,
    progress: &Progress<'_>,
) -> Vec<InterfaceExt> {
    let wanted = |pf: PciAddress| {
        let mut wanted = state.spec.interfaces.iter().flatten();
        wanted.any(|entry| entry.pci_address.value() == Ok(&pf))
    };
    let warnings = match progress {
        Progress::Done(_) => node_warnings(&state.spec, facts),
        Progress::PlatformUnknown(_)
        | Progress::NotPlanned
        | Progress::Waiting { .. }
        | Progress::Executing(_) => Vec::new(),
    };
    let with_condition = |mut card: InterfaceExt| {
        if let Ok(&pf) = card.pci_address.value() {
            let known = known(state, pf);
            let verdict = match progress {
                Progress::PlatformUnknown(_) | Progress::NotPlanned => None,
                Progress::Waiting { course, .. } | Progress::Executing(course) => {
                    let Some(of_pf) = course.of(pf) else {
                        card.conditions = known;
                        return card;
                    };
                    let waits = matches!(progress, Progress::Waiting { .. });
                    Some(if waits { before_the_drain(of_pf) } else { so_far(of_pf) })
                }
                Progress::Done(failures) => verdict(pf, failures)
                    .or_else(|| facts.unread(pf).map(unread))
                    .or_else(|| wanted(pf).then(as_wanted)),
            };
            card.conditions = verdict.map(|verdict| {
                let warning = warnings.iter().find(|warning| warning.pf == Some(pf)).map(warn);
                let mut known = known.unwrap_or_default();
                known.retain(|condition| condition.type_ != WARNING || warning.is_some());
                let verdicts: Vec<_> = [Some(verdict), warning].into_iter().flatten().collect();
                updated(&known, &verdicts, state.metadata.generation, Timestamp::now())
            });
        }
        card
    };
    report::interfaces(facts, view).into_iter().map(with_condition).collect()
}

fn known(state: &SriovNetworkNodeState, pf: PciAddress) -> Option<Vec<Condition>> {
    let mut cards = state.status.as_ref()?.interfaces.iter().flatten();
    cards.find(|card| card.pci_address.value() == Ok(&pf))?.conditions.clone()
}

fn verdict(pf: PciAddress, failures: &[Failure]) -> Option<Verdict> {
    let about_it: Vec<_> = failures.iter().filter(|failure| failure.pf() == Some(pf)).collect();
    let first = about_it.first()?;
    Some(Verdict {
        type_: READY,
        holds: false,
        reason: first.reason(),
        message: message(about_it.iter().copied()),
    })
}

/// Nothing was done yet, and what cannot be is known already.
fn before_the_drain(course: &PfCourse) -> Verdict {
    let (reason, message) = match &course.problem {
        Some((reason, text)) => (*reason, text.clone()),
        None => (WAITING_FOR_DRAIN, "waits until the node is drained".to_owned()),
    };
    Verdict { type_: READY, holds: false, reason, message }
}

/// What can be said before the machine is looked at again: each step that ended has seen its own effect.
fn so_far(course: &PfCourse) -> Verdict {
    let not_ready = |reason, message| Verdict { type_: READY, holds: false, reason, message };
    match course.failure.as_ref().or(course.problem.as_ref()) {
        Some((reason, text)) => not_ready(reason, text.clone()),
        None if course.is_done => as_wanted(),
        None => not_ready(EXECUTING, course.text()),
    }
}

fn unread(card: &Unread) -> Verdict {
    Verdict { type_: READY, holds: false, reason: card.reason, message: card.error.clone() }
}

fn warn(warning: &Problem) -> Verdict {
    Verdict { type_: WARNING, holds: true, reason: warning.cause.reason(), message: warning.to_string() }
}

fn as_wanted() -> Verdict {
    Verdict { type_: READY, holds: true, reason: "AsWanted", message: String::new() }
}
