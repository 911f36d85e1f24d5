//! Status of the node state, built from facts and outcomes.

mod bridges;
mod devices;

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use vfleet_api::conditions::{
    ATTACHMENTS, BRIDGE_RESOURCES, CLOUD_METADATA, CNI_PLUGINS, ConditionUpdate, DEGRADED, METRICS,
    NO_FAILURE, PROGRESSING, READY, update_conditions,
};
use vfleet_api::meta::Condition;
use vfleet_api::node_state::{FAILED, IN_PROGRESS, SUCCEEDED, System};
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{PciAddress, SriovNetworkNodeState, SriovNetworkNodeStateStatus};
use vfleet_plan::cni::programs::{InstalledProgram, foreign_programs, installed_version};
use vfleet_plan::report::ReportContext;
use vfleet_plan::{ExternalQuery, HostFacts, NicIds};

use crate::ProcessConditions;
use crate::apply::Failure;
use crate::progress::ExecutionProgress;

/// Steps are being executed.
const EXECUTING: &str = "Executing";
/// Steps are being executed, and the last one reboots the machine.
const REBOOTING: &str = "Rebooting";

/// All steps were executed and verified.
const RECONCILED: &str = "Reconciled";
/// The platform of the node is not known yet.
const PLATFORM_UNKNOWN: &str = "PlatformUnknown";
/// The node must be drained first.
const WAITING_FOR_DRAIN: &str = "WaitingForDrain";
/// A bridge is not configured because of another problem.
const NOT_CONFIGURED: &str = "NotConfigured";
/// A bridge still exists and is not desired anymore.
const NOT_DESIRED: &str = "NotDesired";

/// Types of conditions that do not come from attempts. Those that are not set are removed.
pub(crate) const PROCESS_CONDITION_TYPES: [&str; 2] = [METRICS, BRIDGE_RESOURCES];

/// Phase of an attempt.
#[derive(Debug)]
pub(crate) enum AttemptPhase<'a> {
    /// The platform of the node is not known, for this reason. Nothing else is reported.
    PlatformUnknown(&'a str),
    /// The machine was read; the operator did not write a desired state yet.
    NotPlanned,
    /// The plan waits for a drain.
    Waiting {
        /// Progress of the plan that waits.
        progress: &'a ExecutionProgress,
        /// Reason of the wait.
        text: &'a str,
    },
    /// A plan is being executed.
    Executing(&'a ExecutionProgress),
    /// The attempt has ended with these failures.
    Done(&'a [Failure]),
}

/// Context of the status, besides host facts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StatusContext<'a> {
    /// Kinds of cards that are reported; `None` for all.
    pub(crate) nic_filter: Option<&'a NicIds>,
    /// Software bridges are managed.
    pub(crate) manages_bridges: bool,
    /// The external Go device plugin offers the VFs of the node.
    pub(crate) has_go_plugin: bool,
    /// Programs with the names of our CNI plugins; `None` while they cannot be read.
    pub(crate) cni_programs: Option<&'a [InstalledProgram]>,
}

/// Returns the part of the status that the agent owns. `facts` is `None` when the machine cannot be read.
pub(crate) fn build_status(
    state: &SriovNetworkNodeState,
    facts: Option<&HostFacts>,
    context: &StatusContext<'_>,
    phase: &AttemptPhase<'_>,
) -> SriovNetworkNodeStateStatus {
    let old = state.status.as_ref();
    let (sync_status, error) = match phase {
        AttemptPhase::PlatformUnknown(_) => {
            (old.and_then(|old| old.sync_status.as_deref()), old.and_then(|old| old.last_sync_error.clone()))
        }
        AttemptPhase::NotPlanned => (None, None),
        AttemptPhase::Waiting { .. } | AttemptPhase::Executing(_) => {
            (Some(IN_PROGRESS), old.and_then(|old| old.last_sync_error.clone()))
        }
        AttemptPhase::Done([]) => (Some(SUCCEEDED), None),
        AttemptPhase::Done(failures) => (Some(FAILED), Some(join_failures(*failures))),
    };
    let conditions = old.and_then(|old| old.conditions.as_deref()).unwrap_or_default();
    let last_reported = old.and_then(|old| old.interfaces.as_deref()).unwrap_or_default();
    let report_context = ReportContext { last_reported, nic_ids: context.nic_filter };
    let bridges = match facts {
        Some(facts) => bridges::build_bridges(facts, context, state, phase),
        None => old.and_then(|old| old.bridges.clone()),
    };
    SriovNetworkNodeStateStatus {
        // The last report stays while the machine cannot be read.
        interfaces: facts
            .map(|facts| {
                let offered = bridges::offered_without_bridge(facts, bridges.as_ref(), context, state);
                devices::build_interfaces(facts, &report_context, &offered, state, phase)
            })
            .or_else(|| old.and_then(|old| old.interfaces.clone())),
        ready_bridges: bridges.as_ref().map(bridges::count_ready),
        bridges,
        system: match facts {
            Some(facts) => facts.kernel.rdma_mode.map(|mode| System { rdma_mode: Some(mode) }),
            None => old.and_then(|old| old.system.clone()),
        },
        cni_version: match context.cni_programs {
            Some(programs) => installed_version(programs),
            None => old.and_then(|old| old.cni_version.clone()),
        },
        sync_status: sync_status.map(str::to_owned),
        // Always written, to clear an error of an earlier program.
        last_sync_error: Some(error.unwrap_or_default()),
        conditions: Some(build_conditions(conditions, facts, context, phase, state.metadata.generation)),
        ..Default::default()
    }
}

/// Returns `status` with the present conditions that do not come from attempts.
pub(crate) fn add_process_conditions(
    status: SriovNetworkNodeStateStatus,
    process_conditions: &ProcessConditions,
    generation: Option<i64>,
) -> SriovNetworkNodeStateStatus {
    let is_set = |type_: &str| process_conditions.contains_key(type_);
    let conditions = status.conditions.iter().flatten();
    let kept: Vec<_> = conditions
        .filter(|condition| {
            !PROCESS_CONDITION_TYPES.contains(&condition.type_.as_str()) || is_set(&condition.type_)
        })
        .cloned()
        .collect();
    let updates: Vec<_> = process_conditions.values().cloned().collect();
    let conditions = update_conditions(&kept, &updates, generation, Timestamp::now());
    SriovNetworkNodeStateStatus { conditions: Some(conditions), ..status }
}

/// Returns all failures in one line.
pub(crate) fn join_failures<'a>(failures: impl IntoIterator<Item = &'a Failure>) -> String {
    failures.into_iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Returns the agent's conditions. Those about the cloud, attachments and CNI plugins exist only while they are false.
fn build_conditions(
    conditions: &[Condition],
    facts: Option<&HostFacts>,
    context: &StatusContext<'_>,
    phase: &AttemptPhase<'_>,
    generation: Option<i64>,
) -> Vec<Condition> {
    let mut last = own_conditions(conditions);
    let cloud = facts.and_then(cloud_metadata_condition);
    if facts.is_some() && cloud.is_none() {
        last.retain(|condition| condition.type_ != CLOUD_METADATA);
    }
    let attachments = facts.and_then(attachments_condition);
    if facts.is_some() && attachments.is_none() {
        last.retain(|condition| condition.type_ != ATTACHMENTS);
    }
    let cni_plugins = context.cni_programs.and_then(cni_plugins_condition);
    if context.cni_programs.is_some() && cni_plugins.is_none() {
        last.retain(|condition| condition.type_ != CNI_PLUGINS);
    }
    let of_facts = cloud.into_iter().chain(attachments).chain(cni_plugins);
    let updates: Vec<_> = phase_conditions(phase).into_iter().chain(of_facts).collect();
    update_conditions(&last, &updates, generation, Timestamp::now())
}

/// Returns the condition about the metadata service of the cloud, which knows the networks of cards, if it fails.
fn cloud_metadata_condition(facts: &HostFacts) -> Option<ConditionUpdate> {
    let failed = facts.failed_queries.iter().find(|failed| failed.query == ExternalQuery::Network)?;
    let message = format!(
        "{}; policies with netFilter use the last known networks of cards: check that the node reaches the metadata \
         service of its cloud; retrying every minute",
        failed.error
    );
    Some(ConditionUpdate { type_: CLOUD_METADATA, status: false, reason: failed.reason, message })
}

/// Returns the condition about the attachments of VFs, if they cannot be read.
fn attachments_condition(facts: &HostFacts) -> Option<ConditionUpdate> {
    let unread = facts.unread_attachments.as_ref()?;
    let message = format!("{unread}; retrying every minute");
    Some(ConditionUpdate { type_: ATTACHMENTS, status: false, reason: unread.reason, message })
}

/// Returns the condition about CNI plugins, if other programs have their names.
fn cni_plugins_condition(programs: &[InstalledProgram]) -> Option<ConditionUpdate> {
    let message = foreign_programs(programs)?;
    Some(ConditionUpdate { type_: CNI_PLUGINS, status: false, reason: "ForeignProgram", message })
}

/// Returns the conditions that the agent writes. Server-side apply keeps those of other writers if they are not sent.
fn own_conditions(conditions: &[Condition]) -> Vec<Condition> {
    let attempt_types = [READY, PROGRESSING, DEGRADED, CLOUD_METADATA, ATTACHMENTS, CNI_PLUGINS];
    let is_ours = |condition: &&Condition| {
        attempt_types.iter().chain(&PROCESS_CONDITION_TYPES).any(|type_| *type_ == condition.type_)
    };
    conditions.iter().filter(is_ours).cloned().collect()
}

fn phase_conditions(phase: &AttemptPhase<'_>) -> Vec<ConditionUpdate> {
    let condition = |type_, status, reason, message: &str| ConditionUpdate {
        type_,
        status,
        reason,
        message: message.to_owned(),
    };
    match phase {
        AttemptPhase::PlatformUnknown(reason) => vec![
            condition(READY, false, PLATFORM_UNKNOWN, reason),
            condition(PROGRESSING, true, PLATFORM_UNKNOWN, reason),
        ],
        AttemptPhase::NotPlanned => {
            let text = "the cards are reported: waiting for the operator to write the desired state";
            vec![
                condition(READY, false, "NotPlanned", text),
                condition(PROGRESSING, true, "NotPlanned", text),
                condition(DEGRADED, false, NO_FAILURE, ""),
            ]
        }
        AttemptPhase::Waiting { text, .. } => vec![
            condition(READY, false, WAITING_FOR_DRAIN, text),
            condition(PROGRESSING, true, WAITING_FOR_DRAIN, text),
        ],
        AttemptPhase::Executing(progress) => {
            let reason = if progress.reboots() { REBOOTING } else { EXECUTING };
            let text = progress.text();
            vec![condition(READY, false, reason, &text), condition(PROGRESSING, true, reason, &text)]
        }
        AttemptPhase::Done([]) => vec![
            condition(READY, true, RECONCILED, "all cards are configured as the policies request"),
            condition(PROGRESSING, false, RECONCILED, ""),
            condition(DEGRADED, false, NO_FAILURE, ""),
        ],
        AttemptPhase::Done(failures @ [first, ..]) => {
            let text = join_failures(*failures);
            vec![
                condition(READY, false, first.reason(), &text),
                condition(PROGRESSING, false, first.reason(), ""),
                condition(DEGRADED, true, first.reason(), &text),
            ]
        }
    }
}

/// Returns whether the status says that the node is in the desired state of its present spec.
pub(crate) fn is_ready(state: &SriovNetworkNodeState) -> bool {
    let conditions = state.status.as_ref().and_then(|status| status.conditions.as_deref());
    has_ready_condition(conditions, state.metadata.generation)
}

/// Returns the PFs that are ready for the present spec, according to the status.
pub(crate) fn ready_pfs(state: &SriovNetworkNodeState) -> BTreeSet<PciAddress> {
    let cards = state.status.iter().flat_map(|status| status.interfaces.iter().flatten());
    let ready =
        cards.filter(|card| has_ready_condition(card.conditions.as_deref(), state.metadata.generation));
    ready.filter_map(|card| card.pci_address.value().ok().copied()).collect()
}

fn has_ready_condition(conditions: Option<&[Condition]>, generation: Option<i64>) -> bool {
    conditions.unwrap_or_default().iter().any(|condition| {
        condition.type_ == READY && condition.status == "True" && condition.observed_generation == generation
    })
}

/// Returns the sync status and the last error.
pub(crate) fn sync_result(status: &SriovNetworkNodeStateStatus) -> (Option<&str>, &str) {
    (status.sync_status.as_deref(), status.last_sync_error.as_deref().unwrap_or_default())
}

/// Returns the reported RDMA mode of the machine.
pub(crate) fn rdma_mode(status: &SriovNetworkNodeStateStatus) -> Option<RdmaMode> {
    status.system.as_ref()?.rdma_mode
}

/// Returns whether `new` differs from the status of `state`.
pub(crate) fn needs_write(state: &SriovNetworkNodeState, new: &SriovNetworkNodeStateStatus) -> bool {
    let Some(old) = &state.status else { return true };
    let conditions = old.conditions.as_deref().map(own_conditions);
    old.interfaces != new.interfaces
        || old.bridges != new.bridges
        || old.ready_bridges != new.ready_bridges
        || old.cni_version != new.cni_version
        || rdma_mode(old) != rdma_mode(new)
        || sync_result(old) != sync_result(new)
        || conditions.as_deref() != new.conditions.as_deref()
}

#[cfg(test)]
mod tests;
