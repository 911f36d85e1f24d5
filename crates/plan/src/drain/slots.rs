//! A pool's slots: who has one, who gets one, and which can be taken back.

use alloc::collections::BTreeMap;
use core::cmp::Ordering;

use vfleet_api::node_state::DrainStatus;

use super::{DrainFacts, Limit, Moment, is_in_flight};
use crate::prelude::*;

/// A slot that was given away, as the pool's status lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The node.
    pub node: String,
    /// The request that it was given for.
    pub request: Moment,
}

/// What happens to a pool's slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotPlan {
    /// The pool's list as it shall be. Written on top of the version that `slots` was read from.
    pub slots: Vec<Slot>,
    /// Nodes that get a slot with this.
    pub granted: Vec<String>,
    /// Slots that seem to be free. Read both objects of each node from the API server, and plan again.
    pub verify: Vec<String>,
    /// Slots whose requests are over, but not so that their nodes say so. Note it there, and plan again.
    pub conclude: Vec<Slot>,
}

/// A node of the pool.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its objects.
    pub facts: &'a DrainFacts,
}

/// Where a slot that the pool lists stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is needed.
    Held,
    /// What we see of the node may be older than the slot.
    Unknown,
    /// It is not needed, but somebody may still be about to cordon the node for it.
    Over,
    /// It can be taken back.
    Free,
}

/// Whether a node has a slot, or must have one, whatever its pool lists.
pub fn holds_slot(facts: &DrainFacts) -> bool {
    let (Some(node), Some(state)) = (facts.node, facts.state) else { return false };
    is_in_flight(state.status) || node.mark.is_some()
}

/// Where the slot for `request` stands.
fn standing(facts: &DrainFacts, request: Moment, now: Moment) -> Standing {
    if holds_slot(facts) {
        return Standing::Held;
    }
    let (Some(node), Some(state)) = (facts.node, facts.state) else {
        return if facts.is_verified { Standing::Free } else { Standing::Unknown };
    };
    match state.request.cmp(&Some(request)) {
        // Or the node state was made anew.
        Ordering::Less if !facts.is_verified => Standing::Unknown,
        Ordering::Equal if waits(facts, now) => Standing::Held,
        _ if node.last_request < Some(request) => Standing::Over,
        _ => Standing::Free,
    }
}

/// Whether a node has asked and nothing speaks against giving it a slot.
fn waits(facts: &DrainFacts, now: Moment) -> bool {
    facts.node.is_some()
        && facts.state.is_some_and(|state| {
            state.status == DrainStatus::DrainRequired
                && state.request.is_some()
                && state.retry.is_none_or(|retry| retry.not_before <= now)
        })
}

/// What happens to a pool's slots. `slots` is its list, `members` are its nodes and those that the list names. Nodes
/// that are cordoned or not ready come first, as nothing is lost with them; then those that asked first.
pub fn plan_slots(limit: Limit, slots: &[Slot], members: &[Member<'_>], now: Moment) -> SlotPlan {
    let listed: BTreeMap<&str, Moment> = slots.iter().map(|slot| (slot.node.as_str(), slot.request)).collect();
    let mut plan = SlotPlan::default();
    let mut waiting = Vec::new();
    for member in members {
        let node = || member.name.to_owned();
        let slot = listed.get(member.name).copied();
        let standing = match slot {
            Some(request) => standing(member.facts, request, now),
            None if holds_slot(member.facts) => Standing::Held,
            None => Standing::Free,
        };
        match standing {
            Standing::Held => plan.slots.push(Slot { node: node(), request: held_for(member, slot) }),
            Standing::Unknown => {
                plan.slots.extend(slot.map(|request| Slot { node: node(), request }));
                plan.verify.push(node());
            }
            Standing::Over => {
                let slot = slot.map(|request| Slot { node: node(), request });
                plan.slots.extend(slot.clone());
                plan.conclude.extend(slot);
            }
            Standing::Free => {
                if let Some(turn) = turn(member, now) {
                    waiting.push((turn, member.name));
                }
            }
        }
    }
    waiting.sort_unstable();
    let free = limit.free(plan.slots.len());
    for ((_, request), name) in waiting.into_iter().take(free) {
        plan.slots.push(Slot { node: name.to_owned(), request });
        plan.granted.push(name.to_owned());
    }
    plan.slots.sort_unstable();
    plan
}

/// A slot that is held on is for the request that the node was drained for last.
fn held_for(member: &Member<'_>, slot: Option<Moment>) -> Moment {
    let request = member.facts.state.and_then(|state| state.request);
    slot.max(request).unwrap_or_default()
}

/// Where a waiting node comes.
fn turn(member: &Member<'_>, now: Moment) -> Option<(bool, Moment)> {
    let (node, state) = (member.facts.node?, member.facts.state?);
    let costs_something = node.is_ready && !node.is_cordoned;
    waits(member.facts, now).then_some((costs_something, state.request?))
}
