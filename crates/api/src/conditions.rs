//! Status conditions: their types, and updates of condition lists.

use crate::meta::{Condition, Time, Timestamp};

/// The object is in its desired state.
pub const READY: &str = "Ready";
/// Changes are in progress.
pub const PROGRESSING: &str = "Progressing";
/// The desired state cannot be reached; the reason names the problem.
pub const DEGRADED: &str = "Degraded";

/// Condition of a card that works, but deviates from the desired state in a way that needs no action.
pub const WARNING: &str = "Warning";

/// The object passes all checks of admission, also when the admission webhook is disabled.
pub const VALID: &str = "Valid";
/// Condition of the operator config: the admission webhooks serve requests.
pub const ADMISSION: &str = "Admission";

/// Condition of a node state: its drain does not progress; the message contains the remedy.
pub const BLOCKED: &str = "Blocked";
/// Condition of a node state in a cloud; false while the metadata service does not report the networks of cards.
pub const CLOUD_METADATA: &str = "CloudMetadata";
/// Condition of a node state, present only while it is false: no other program has the name of a CNI plugin of vfleet.
pub const CNI_PLUGINS: &str = "CniPlugins";
/// Condition of a node state, present only while it is false: the files of CNI plugins, which say which VFs pods have, can be
/// read.
pub const ATTACHMENTS: &str = "Attachments";
/// Condition of a node state, present only while it is false: the agent of the node serves its metrics.
pub const METRICS: &str = "Metrics";
/// Condition of a node state, present only while it is false: the resources of the Node match the Open vSwitch bridges of
/// its machine, and all bridges are known.
pub const BRIDGE_RESOURCES: &str = "BridgeResources";
/// Condition of a pool: a limit for parallel drains is set.
pub const LIMIT: &str = "Limit";

/// Condition of a pool that requests Open vSwitch hardware offload: the MachineConfig for it exists.
pub const HARDWARE_OFFLOAD: &str = "HardwareOffload";

/// Reason of [`DEGRADED`] while it is false.
pub const NO_FAILURE: &str = "NoFailure";

/// New status, reason and message of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate {
    /// Condition type: [`READY`], [`PROGRESSING`], [`DEGRADED`]...
    pub type_: &'static str,
    /// Status: `True` or `False`.
    pub status: bool,
    /// Reason in `CamelCase`.
    pub reason: &'static str,
    /// Message for people.
    pub message: String,
}

/// Returns `conditions` with `updates` applied. Conditions of other types are kept, and a transition time changes only
/// when the status does.
pub fn update_conditions(
    conditions: &[Condition],
    updates: &[ConditionUpdate],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut list = conditions.to_vec();
    for update in updates {
        let status = if update.status { "True" } else { "False" };
        let position = list.iter().position(|condition| condition.type_ == update.type_);
        let last_transition_time = position
            .map(|at| &list[at])
            .filter(|condition| condition.status == status)
            .map_or(Time(now), |condition| condition.last_transition_time);
        let condition = Condition {
            type_: update.type_.to_owned(),
            status: status.to_owned(),
            reason: update.reason.to_owned(),
            message: update.message.clone(),
            observed_generation: generation,
            last_transition_time,
        };
        match position {
            Some(at) => list[at] = condition,
            None => list.push(condition),
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(status: bool, reason: &'static str) -> ConditionUpdate {
        ConditionUpdate { type_: READY, status, reason, message: String::new() }
    }

    #[test]
    fn the_transition_time_changes_with_the_status_only() {
        let early = Timestamp::from_second(100).unwrap();
        let late = Timestamp::from_second(200).unwrap();
        let first = update_conditions(&[], &[update(false, "A")], Some(1), early);
        let same = update_conditions(&first, &[update(false, "B")], Some(2), late);
        assert_eq!(same[0].last_transition_time, Time(early));
        assert_eq!(same[0].reason, "B");
        let changed = update_conditions(&same, &[update(true, "C")], Some(2), late);
        assert_eq!(changed[0].last_transition_time, Time(late));
    }

    #[test]
    fn conditions_of_others_are_kept() {
        let now = Timestamp::from_second(100).unwrap();
        let other = update_conditions(
            &[],
            &[ConditionUpdate { type_: "Foreign", status: true, reason: "X", message: String::new() }],
            None,
            now,
        );
        let list = update_conditions(&other, &[update(true, "A")], None, now);
        assert_eq!(list.len(), 2);
        assert_eq!(list[0], other[0]);
    }
}
