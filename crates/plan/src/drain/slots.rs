//! A pool's slots: who has one, who gets one, and which can be taken back.

use alloc::collections::BTreeMap;
use core::cmp::Ordering;

use vfleet_api::node_state::DrainStatus;

use super::{DrainFacts, Member, Moment, PoolDrain, Rules, is_in_flight};
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
    let Some(node) = facts.node else { return false };
    node.mark.is_some() || facts.state.is_some_and(|state| is_in_flight(state.status))
}

/// Where the slot for `request` stands.
fn standing(facts: &DrainFacts, request: Moment, rules: &Rules, now: Moment) -> Standing {
    if holds_slot(facts) {
        return Standing::Held;
    }
    let Some(node) = facts.node else {
        return if facts.is_verified { Standing::Free } else { Standing::Unknown };
    };
    match facts.state.map(|state| state.request.cmp(&Some(request))) {
        // Or the node state is gone, or was made anew.
        None | Some(Ordering::Less) if !facts.is_verified => Standing::Unknown,
        Some(Ordering::Equal) if waits(facts, rules, now) => Standing::Held,
        _ if node.last_request < Some(request) => Standing::Over,
        _ => Standing::Free,
    }
}

/// Whether a node has asked and nothing speaks against giving it a slot.
pub(super) fn waits(facts: &DrainFacts, rules: &Rules, now: Moment) -> bool {
    let (Some(node), Some(state)) = (facts.node, facts.state) else { return false };
    state.status == DrainStatus::DrainRequired
        && state.request > node.last_request
        && !state.is_external
        && !rules.refuse(&state)
        && state.retry.is_none_or(|retry| retry.not_before <= now)
}

/// What happens to a pool's slots. `members` are its nodes and those that the list names.
pub(super) fn plan_slots(pool: &PoolDrain<'_>, members: &[Member<'_>], now: Moment) -> SlotPlan {
    let listed: BTreeMap<&str, Moment> =
        pool.slots.iter().map(|slot| (slot.node.as_str(), slot.request)).collect();
    let mut plan = SlotPlan::default();
    let mut waiting = Vec::new();
    for member in members {
        let here = listed.get(member.name).copied();
        let slot = here.max(member.slot_elsewhere);
        let listing = || slot.map(|request| Slot { node: member.name.to_owned(), request });
        let standing = match slot {
            // Its own pool has it on its list now.
            Some(_) if member.is_guest && member.slot_elsewhere >= here => Standing::Free,
            Some(request) => standing(member.facts, request, &pool.rules, now),
            None if holds_slot(member.facts) => Standing::Held,
            None => Standing::Free,
        };
        match standing {
            Standing::Held => {
                plan.slots.push(Slot { node: member.name.to_owned(), request: held_for(member, slot) });
            }
            Standing::Unknown => {
                plan.slots.extend(listing());
                plan.verify.push(member.name.to_owned());
            }
            Standing::Over => {
                plan.slots.extend(listing());
                plan.conclude.extend(listing());
            }
            Standing::Free => waiting.extend(turn(member, &pool.rules, now)),
        }
    }
    waiting.sort_unstable();
    let free = pool.limit.free(plan.slots.len());
    for turn in waiting.into_iter().take(free) {
        plan.slots.push(Slot { node: turn.node.to_owned(), request: turn.request });
        plan.granted.push(turn.node.to_owned());
    }
    plan.slots.sort_unstable();
    plan
}

/// A slot that is held on is for the request that the node was drained for last.
fn held_for(member: &Member<'_>, slot: Option<Moment>) -> Moment {
    let request = member.facts.state.and_then(|state| state.request);
    let mark = member.facts.node.and_then(|node| node.mark);
    slot.max(request).or(mark.map(|mark| mark.request)).unwrap_or_default()
}

/// When a waiting node's turn is: the least comes first. Nodes that are cordoned or not ready come first, as nothing is
/// lost with them; then those that asked first; then by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn<'a> {
    /// Whether it could serve somebody meanwhile.
    pub costs_something: bool,
    /// When it asked.
    pub request: Moment,
    /// Its name.
    pub node: &'a str,
}

/// When the node's turn is, if it waits for a slot.
pub fn turn<'a>(member: &Member<'a>, rules: &Rules, now: Moment) -> Option<Turn<'a>> {
    let (node, state) = (member.facts.node?, member.facts.state?);
    let is_in_line = !member.is_guest && waits(member.facts, rules, now);
    is_in_line.then_some(Turn {
        costs_something: node.is_ready && !node.is_cordoned,
        request: state.request?,
        node: member.name,
    })
}
