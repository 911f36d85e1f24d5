//! The node state's status, worked out from facts and outcomes.

mod devices;

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use vfleet_api::conditions::{CLOUD_METADATA, DEGRADED, METRICS, PROGRESSING, READY, Verdict, updated};
use vfleet_api::meta::Condition;
use vfleet_api::node_state::{FAILED, IN_PROGRESS, SUCCEEDED, System};
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{PciAddress, SriovNetworkNodeState, SriovNetworkNodeStateStatus};
use vfleet_plan::report::View;
use vfleet_plan::{HostFacts, NicIds, Question};

use crate::Standing;
use crate::apply::Failure;
use crate::course::Course;

/// Steps are being executed.
const EXECUTING: &str = "Executing";
/// Steps are being executed, and the last one restarts the machine.
const REBOOTING: &str = "Rebooting";

/// The platform of the node is not known yet.
const PLATFORM_UNKNOWN: &str = "PlatformUnknown";
/// The node must be drained first.
const WAITING_FOR_DRAIN: &str = "WaitingForDrain";

/// Types of conditions that do not come from attempts. One that is not set is removed.
pub(crate) const STANDING: [&str; 1] = [METRICS];

/// Where the agent is.
#[derive(Debug)]
pub(crate) enum Progress<'a> {
    /// It does not know what the node runs on, for this reason, and so reports nothing else.
    PlatformUnknown(&'a str),
    /// It looked at the machine; what is wanted of it is not known yet.
    NotPlanned,
    /// It waits until the node is drained.
    Waiting {
        /// Of what it will do then.
        course: &'a Course,
        /// What it waits for.
        text: &'a str,
    },
    /// It executes a plan.
    Executing(&'a Course),
    /// It is done.
    Done(&'a [Failure]),
}

/// The part of the status that the agent owns, as it shall be now. `facts` is `None` when the machine cannot be read;
/// `narrow` has the kinds of cards that are reported, if not all are.
pub(crate) fn status(
    state: &SriovNetworkNodeState,
    facts: Option<&HostFacts>,
    narrow: Option<&NicIds>,
    progress: &Progress<'_>,
) -> SriovNetworkNodeStateStatus {
    let old = state.status.as_ref();
    let (sync_status, error) = match progress {
        Progress::PlatformUnknown(_) => {
            (old.and_then(|old| old.sync_status.as_deref()), old.and_then(|old| old.last_sync_error.clone()))
        }
        Progress::NotPlanned => (None, None),
        Progress::Waiting { .. } | Progress::Executing(_) => {
            (Some(IN_PROGRESS), old.and_then(|old| old.last_sync_error.clone()))
        }
        Progress::Done([]) => (Some(SUCCEEDED), None),
        Progress::Done(failures) => (Some(FAILED), Some(message(*failures))),
    };
    let conditions = old.and_then(|old| old.conditions.as_deref()).unwrap_or_default();
    let known = old.and_then(|old| old.interfaces.as_deref()).unwrap_or_default();
    let view = View { known, narrow };
    SriovNetworkNodeStateStatus {
        // What cannot be read now is as it was last seen.
        interfaces: facts
            .map(|facts| devices::with_conditions(facts, &view, state, progress))
            .or_else(|| old.and_then(|old| old.interfaces.clone())),
        system: match facts {
            Some(facts) => facts.kernel.rdma_mode.map(|mode| System { rdma_mode: Some(mode) }),
            None => old.and_then(|old| old.system.clone()),
        },
        sync_status: sync_status.map(str::to_owned),
        // Always written: an error of an earlier program must not outlive our success.
        last_sync_error: Some(error.unwrap_or_default()),
        conditions: Some(updated_conditions(conditions, facts, progress, state.metadata.generation)),
        ..Default::default()
    }
}

/// Returns `status` with the conditions that do not come from attempts as they are now.
pub(crate) fn with_standing(
    status: SriovNetworkNodeStateStatus,
    standing: &Standing,
    generation: Option<i64>,
) -> SriovNetworkNodeStateStatus {
    let is_set = |type_: &str| standing.contains_key(type_);
    let conditions = status.conditions.iter().flatten();
    let kept: Vec<_> = conditions
        .filter(|condition| !STANDING.contains(&condition.type_.as_str()) || is_set(&condition.type_))
        .cloned()
        .collect();
    let verdicts: Vec<_> = standing.values().cloned().collect();
    let conditions = updated(&kept, &verdicts, generation, Timestamp::now());
    SriovNetworkNodeStateStatus { conditions: Some(conditions), ..status }
}

/// All failures, in one line.
pub(crate) fn message<'a>(failures: impl IntoIterator<Item = &'a Failure>) -> String {
    failures.into_iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Returns the agent's conditions as they shall be now. One about the cloud is there only while something is wrong with it.
fn updated_conditions(
    conditions: &[Condition],
    facts: Option<&HostFacts>,
    progress: &Progress<'_>,
    generation: Option<i64>,
) -> Vec<Condition> {
    let mut last = ours(conditions);
    let cloud = facts.and_then(cloud_metadata);
    if facts.is_some() && cloud.is_none() {
        last.retain(|condition| condition.type_ != CLOUD_METADATA);
    }
    let verdicts: Vec<_> = verdicts(progress).into_iter().chain(cloud).collect();
    updated(&last, &verdicts, generation, Timestamp::now())
}

/// Returns what is wrong with the metadata service of the cloud, which tells the networks of cards.
fn cloud_metadata(facts: &HostFacts) -> Option<Verdict> {
    let unanswered = facts.unanswered.iter().find(|unanswered| unanswered.question == Question::Network)?;
    let message = format!(
        "{}; the networks of cards (netFilter) are as they were last known: look whether the node reaches the \
         metadata service of its cloud, which is asked again every minute",
        unanswered.error
    );
    Some(Verdict { type_: CLOUD_METADATA, holds: false, reason: unanswered.reason, message })
}

/// In server-side apply, conditions of other writers stay theirs by not being sent.
fn ours(conditions: &[Condition]) -> Vec<Condition> {
    let of_attempts = [READY, PROGRESSING, DEGRADED, CLOUD_METADATA];
    let is_ours =
        |condition: &&Condition| of_attempts.iter().chain(&STANDING).any(|type_| *type_ == condition.type_);
    conditions.iter().filter(is_ours).cloned().collect()
}

fn verdicts(progress: &Progress<'_>) -> Vec<Verdict> {
    let verdict =
        |type_, holds, reason, message: &str| Verdict { type_, holds, reason, message: message.to_owned() };
    match progress {
        Progress::PlatformUnknown(why) => vec![
            verdict(READY, false, PLATFORM_UNKNOWN, why),
            verdict(PROGRESSING, true, PLATFORM_UNKNOWN, why),
        ],
        Progress::NotPlanned => {
            let text = "the cards are reported; waiting for the operator to work out what is wanted";
            vec![
                verdict(READY, false, "NotPlanned", text),
                verdict(PROGRESSING, true, "NotPlanned", text),
                verdict(DEGRADED, false, "NotPlanned", ""),
            ]
        }
        Progress::Waiting { text, .. } => vec![
            verdict(READY, false, WAITING_FOR_DRAIN, text),
            verdict(PROGRESSING, true, WAITING_FOR_DRAIN, text),
        ],
        Progress::Executing(course) => {
            let reason = if course.reboots() { REBOOTING } else { EXECUTING };
            let text = course.text();
            vec![verdict(READY, false, reason, &text), verdict(PROGRESSING, true, reason, &text)]
        }
        Progress::Done([]) => vec![
            verdict(READY, true, "AsWanted", "the cards are as the policies want"),
            verdict(PROGRESSING, false, "AsWanted", ""),
            verdict(DEGRADED, false, "AsWanted", ""),
        ],
        Progress::Done(failures @ [first, ..]) => {
            let text = message(*failures);
            vec![
                verdict(READY, false, first.reason(), &text),
                verdict(PROGRESSING, false, first.reason(), ""),
                verdict(DEGRADED, true, first.reason(), &text),
            ]
        }
    }
}

/// Whether the node state says that all is as its spec wants now.
pub(crate) fn is_ready(state: &SriovNetworkNodeState) -> bool {
    let conditions = state.status.as_ref().and_then(|status| status.conditions.as_deref());
    says_ready(conditions, state.metadata.generation)
}

/// The PFs that the node state says to be as its spec wants now.
pub(crate) fn ready_pfs(state: &SriovNetworkNodeState) -> BTreeSet<PciAddress> {
    let cards = state.status.iter().flat_map(|status| status.interfaces.iter().flatten());
    let ready = cards.filter(|card| says_ready(card.conditions.as_deref(), state.metadata.generation));
    ready.filter_map(|card| card.pci_address.value().ok().copied()).collect()
}

fn says_ready(conditions: Option<&[Condition]>, generation: Option<i64>) -> bool {
    conditions.unwrap_or_default().iter().any(|condition| {
        condition.type_ == READY && condition.status == "True" && condition.observed_generation == generation
    })
}

/// What came of it, without the details.
pub(crate) fn result(status: &SriovNetworkNodeStateStatus) -> (Option<&str>, &str) {
    (status.sync_status.as_deref(), status.last_sync_error.as_deref().unwrap_or_default())
}

/// What is said about the machine as a whole.
pub(crate) fn rdma_mode(status: &SriovNetworkNodeStateStatus) -> Option<RdmaMode> {
    status.system.as_ref()?.rdma_mode
}

/// Whether writing `new` would change anything that others can see in `state`.
pub(crate) fn is_news(state: &SriovNetworkNodeState, new: &SriovNetworkNodeStateStatus) -> bool {
    let Some(old) = &state.status else { return true };
    let conditions = old.conditions.as_deref().map(ours);
    old.interfaces != new.interfaces
        || rdma_mode(old) != rdma_mode(new)
        || result(old) != result(new)
        || conditions.as_deref() != new.conditions.as_deref()
}

#[cfg(test)]
mod tests;
