//! Status conditions: their types, and the one way to change a list of them.

use crate::meta::{Condition, Time, Timestamp};

/// Done, and as wanted.
pub const READY: &str = "Ready";
/// Being worked on.
pub const PROGRESSING: &str = "Progressing";
/// Something is wrong; the reason says what.
pub const DEGRADED: &str = "Degraded";

/// Of a card: it works, and something about it is not quite as desired and is left at that; the reason says what.
pub const WARNING: &str = "Warning";

/// Nothing of what it says is wrong: the verdict of admission, also where no admission is.
pub const VALID: &str = "Valid";
/// Of the operator config: whether objects are checked and changed at admission.
pub const ADMISSION: &str = "Admission";

/// Of a node state: something keeps its drain from going on; the reason says what, the message what to do.
pub const BLOCKED: &str = "Blocked";
/// Of a node state in a cloud: false while the cloud does not tell the networks of cards.
pub const CLOUD_METADATA: &str = "CloudMetadata";
/// Of a node state, only while it is false: the agent of the node serves its metrics.
pub const METRICS: &str = "Metrics";
/// Of a pool: whether it says how many nodes may be drained at once.
pub const LIMIT: &str = "Limit";

/// Of a pool that asks for Open vSwitch hardware offload: whether it is seen to.
pub const HARDWARE_OFFLOAD: &str = "HardwareOffload";

/// One thing to say about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// [`READY`], [`PROGRESSING`], [`DEGRADED`]...
    pub type_: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// Why, in one `PascalCase` word.
    pub reason: &'static str,
    /// Why, in a sentence.
    pub message: String,
}

/// `conditions` after `verdicts`: conditions of other types are kept, and a transition time changes only
/// when the status does.
pub fn updated(
    conditions: &[Condition],
    verdicts: &[Verdict],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut list = conditions.to_vec();
    for verdict in verdicts {
        let status = if verdict.holds { "True" } else { "False" };
        let known = list.iter().position(|condition| condition.type_ == verdict.type_);
        let since = known
            .map(|at| &list[at])
            .filter(|condition| condition.status == status)
            .map_or(Time(now), |condition| condition.last_transition_time);
        let condition = Condition {
            type_: verdict.type_.to_owned(),
            status: status.to_owned(),
            reason: verdict.reason.to_owned(),
            message: verdict.message.clone(),
            observed_generation: generation,
            last_transition_time: since,
        };
        match known {
            Some(at) => list[at] = condition,
            None => list.push(condition),
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(holds: bool, reason: &'static str) -> Verdict {
        Verdict { type_: READY, holds, reason, message: String::new() }
    }

    #[test]
    fn the_transition_time_changes_with_the_status_only() {
        let early = Timestamp::from_second(100).unwrap();
        let late = Timestamp::from_second(200).unwrap();
        let first = updated(&[], &[verdict(false, "A")], Some(1), early);
        let same = updated(&first, &[verdict(false, "B")], Some(2), late);
        assert_eq!(same[0].last_transition_time, Time(early));
        assert_eq!(same[0].reason, "B");
        let changed = updated(&same, &[verdict(true, "C")], Some(2), late);
        assert_eq!(changed[0].last_transition_time, Time(late));
    }

    #[test]
    fn conditions_of_others_are_kept() {
        let now = Timestamp::from_second(100).unwrap();
        let other = updated(
            &[],
            &[Verdict { type_: "Foreign", holds: true, reason: "X", message: String::new() }],
            None,
            now,
        );
        let list = updated(&other, &[verdict(true, "A")], None, now);
        assert_eq!(list.len(), 2);
        assert_eq!(list[0], other[0]);
    }
}
