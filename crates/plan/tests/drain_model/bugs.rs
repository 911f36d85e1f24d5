//! Defects that are put in between the product's decisions and the API server, to see that each is found.

use vfleet_plan::drain::{DrainFacts, NodeAction, Slot, SlotPlan};

use crate::world::{Pod, Write};

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// A pool's list is written whatever its version.
    UnguardedSlots,
    /// A node state is written whatever its version.
    UnguardedStates,
    /// Slots are taken back although somebody may still be about to cordon the node.
    NoConclusion,
    /// For slots, what is seen counts as if it had just been read.
    NoVerification,
    /// `Draining_Complete` when pods are told to end.
    EndingIsGone,
    /// Nothing is uncordoned.
    NoUncordon,
    /// A node that asks again is not marked anew.
    OldMark,
    /// Nobody who waits is given a slot.
    NoGrant,
    /// Slots are not taken back.
    NoReturn,
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

    /// `listed` are the pool's slots so far.
    pub(crate) fn distort_slots(self, mut plan: SlotPlan, listed: &[Slot]) -> SlotPlan {
        match self {
            Self::NoReturn => {
                let is_kept = |slot: &&Slot| plan.slots.iter().all(|other| other.node != slot.node);
                let kept: Vec<_> = listed.iter().filter(is_kept).cloned().collect();
                plan.slots.extend(kept);
                plan
            }
            Self::NoGrant if !plan.granted.is_empty() => SlotPlan {
                slots: plan.slots.into_iter().filter(|slot| !plan.granted.contains(&slot.node)).collect(),
                ..plan
            },
            Self::NoConclusion if !plan.conclude.is_empty() => SlotPlan {
                slots: plan.slots.into_iter().filter(|slot| !plan.conclude.contains(slot)).collect(),
                conclude: Vec::new(),
                ..plan
            },
            _ => plan,
        }
    }

    pub(crate) fn distort_action(self, action: NodeAction) -> NodeAction {
        match action {
            NodeAction::Uncordon { .. } if self == Self::NoUncordon => NodeAction::Rest,
            action => action,
        }
    }

    /// Whether a write goes through on top of an older version.
    pub(crate) fn is_unguarded(self, write: &Write) -> bool {
        match write {
            Write::Slots(..) => self == Self::UnguardedSlots,
            Write::State(..) => self == Self::UnguardedStates,
            Write::Node(..) => false,
        }
    }

    pub(crate) fn is_gone(self, pod: Pod) -> bool {
        pod == Pod::None || self == Self::EndingIsGone && pod == Pod::Ending
    }
}
