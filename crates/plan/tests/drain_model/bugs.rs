//! Bugs inserted between the decisions and the API server, to check that the properties find them.

use vfleet_plan::drain::{DrainFacts, NodeAction, Slot, SlotPlan};

use crate::model::{Pod, Write};

/// Inserted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// Slots are written without a version check.
    UnguardedSlots,
    /// Node states are written without a version check.
    UnguardedStates,
    /// Slots are freed although a replica may still be about to cordon the node.
    NoFinishRecord,
    /// Slots are planned without reading the objects again.
    NoVerification,
    /// `Draining_Complete` while pods are terminating.
    TerminatingIsGone,
    /// Nodes are not uncordoned.
    NoUncordon,
    /// The mark is not renewed for a new request.
    OldMark,
    /// No slot is granted.
    NoGrant,
    /// Slots are not freed.
    NoRelease,
}

impl Bug {
    pub(crate) fn distort(self, mut facts: DrainFacts) -> DrainFacts {
        let request = facts.state.and_then(|state| state.request);
        let mark = facts.node.as_mut().and_then(|node| node.mark.as_mut());
        if let (Self::OldMark, Some(mark), Some(request)) = (self, mark, request) {
            mark.request = request;
        }
        facts
    }

    pub(crate) fn distort_for_slots(self, facts: DrainFacts) -> DrainFacts {
        DrainFacts { is_verified: facts.is_verified || self == Self::NoVerification, ..facts }
    }

    /// Changes a slot plan. `listed` are the current slots of the pool.
    pub(crate) fn distort_slots(self, mut plan: SlotPlan, listed: &[Slot]) -> SlotPlan {
        match self {
            Self::NoRelease => {
                let is_kept = |slot: &&Slot| plan.slots.iter().all(|other| other.node != slot.node);
                let kept: Vec<_> = listed.iter().filter(is_kept).cloned().collect();
                plan.slots.extend(kept);
                plan
            }
            Self::NoGrant if !plan.granted.is_empty() => SlotPlan {
                slots: plan.slots.into_iter().filter(|slot| !plan.granted.contains(&slot.node)).collect(),
                ..plan
            },
            Self::NoFinishRecord if !plan.conclude.is_empty() => SlotPlan {
                slots: plan.slots.into_iter().filter(|slot| !plan.conclude.contains(slot)).collect(),
                conclude: Vec::new(),
                ..plan
            },
            _ => plan,
        }
    }

    pub(crate) fn distort_action(self, action: NodeAction) -> NodeAction {
        match action {
            NodeAction::Uncordon { .. } if self == Self::NoUncordon => NodeAction::None,
            action => action,
        }
    }

    /// Returns whether a write succeeds with an old version.
    pub(crate) fn is_unguarded(self, write: &Write) -> bool {
        match write {
            Write::Slots(..) => self == Self::UnguardedSlots,
            Write::State(..) => self == Self::UnguardedStates,
            Write::Node(..) => false,
        }
    }

    pub(crate) fn is_gone(self, pod: Pod) -> bool {
        pod == Pod::None || self == Self::TerminatingIsGone && pod == Pod::Terminating
    }
}
