//! Drain slots of a pool: holders, grants and release.

use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Ordering;

use vfleet_api::node_state::DrainStatus;

use super::{DrainFacts, DrainLimit, DrainRules, Moment, PoolDrain, PoolMember, is_in_flight};
use crate::prelude::*;

/// Granted slot, as listed in the pool's status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Node that holds the slot.
    pub node: String,
    /// Request for which the slot was granted.
    pub request: Moment,
}

/// Changes of a pool's slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotPlan {
    /// Desired slots of the pool. Written with the resource version from which the current slots were read.
    pub slots: Vec<Slot>,
    /// Nodes that get a new slot.
    pub granted: Vec<String>,
    /// Nodes whose slots may be free: read their Node and node state from the API server and plan again.
    pub verify: Vec<String>,
    /// Slots of finished requests that the Node does not record yet: record them on the Node and plan again.
    pub conclude: Vec<Slot>,
}

/// Use of a slot that a pool lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotUse {
    /// The node needs the slot.
    Needed,
    /// The observed state of the node may be older than the slot.
    Unknown,
    /// The slot is not needed, but another replica may still be about to cordon the node for it.
    Finished,
    /// The slot can be freed.
    Free,
}

/// Returns whether a node must have a slot, independent of the slots in the pool's status.
pub fn holds_slot(facts: &DrainFacts) -> bool {
    let Some(node) = facts.node else { return false };
    node.mark.is_some() || facts.state.is_some_and(|state| is_in_flight(state.status))
}

/// Returns how `facts` use the slot for `request`.
fn slot_use(facts: &DrainFacts, request: Moment, rules: &DrainRules, now: Moment) -> SlotUse {
    if holds_slot(facts) {
        return SlotUse::Needed;
    }
    let Some(node) = facts.node else {
        // If the Node is created again, its drain must not continue without a slot.
        let is_in_flight = facts.state.is_some_and(|state| is_in_flight(state.status));
        return match facts.is_verified {
            false => SlotUse::Unknown,
            true if is_in_flight => SlotUse::Needed,
            true => SlotUse::Free,
        };
    };
    match facts.state.map(|state| state.request.cmp(&Some(request))) {
        // The node state may also have been deleted or created again.
        None | Some(Ordering::Less) if !facts.is_verified => SlotUse::Unknown,
        Some(Ordering::Equal) if is_waiting(facts, rules, now) => SlotUse::Needed,
        _ if node.last_request < Some(request) => SlotUse::Finished,
        _ => SlotUse::Free,
    }
}

/// Returns whether a node has requested a drain and may get a slot.
pub(super) fn is_waiting(facts: &DrainFacts, rules: &DrainRules, now: Moment) -> bool {
    let (Some(node), Some(state)) = (facts.node, facts.state) else { return false };
    state.status == DrainStatus::DrainRequired
        && state.request > node.last_request
        && !state.is_external
        && !rules.refuses(&state)
        && state.retry.is_none_or(|retry| retry.not_before <= now)
}

/// Plans the slots of a pool. `members` are its nodes and the nodes that its status lists.
pub(super) fn plan_slots(pool: &PoolDrain<'_>, members: &[PoolMember<'_>], now: Moment) -> SlotPlan {
    let listed: BTreeMap<&str, Moment> =
        pool.slots.iter().map(|slot| (slot.node.as_str(), slot.request)).collect();
    let excess = excess(pool);
    let is_revoked = |member: &PoolMember<'_>, request: Moment| {
        member.facts.node.is_some() && (member.is_former_member || excess.contains(&(request, member.name)))
    };
    let mut plan = SlotPlan::default();
    let mut waiting = Vec::new();
    let mut unlisted = 0;
    for member in members {
        let slot = listed.get(member.name).copied();
        let listing = || slot.map(|request| Slot { node: member.name.to_owned(), request });
        let slot_use = match slot {
            // The pool that it belongs to has granted a slot by now.
            Some(_) if member.is_former_member && member.slot_in_other_pool >= slot => SlotUse::Free,
            Some(request) => match slot_use(member.facts, request, &pool.rules, now) {
                // The drain has not started and must not start.
                SlotUse::Needed if !holds_slot(member.facts) && is_revoked(member, request) => {
                    SlotUse::Finished
                }
                other => other,
            },
            // The facts of a draining node that no pool lists may be old: it was listed until its drain had finished.
            None if holds_slot(member.facts) && !member.facts.is_verified => SlotUse::Unknown,
            None if holds_slot(member.facts) => SlotUse::Needed,
            None => SlotUse::Free,
        };
        match slot_use {
            SlotUse::Needed => {
                plan.slots
                    .push(Slot { node: member.name.to_owned(), request: request_of_slot(member, slot) });
            }
            SlotUse::Unknown => {
                unlisted += usize::from(slot.is_none());
                plan.slots.extend(listing());
                plan.verify.push(member.name.to_owned());
            }
            SlotUse::Finished => {
                plan.slots.extend(listing());
                plan.conclude.extend(listing());
            }
            SlotUse::Free => waiting.extend(slot_priority(member, &pool.rules, now)),
        }
    }
    waiting.sort_unstable();
    let free = pool.limit.free(plan.slots.len() + unlisted);
    for next in waiting.into_iter().take(free) {
        plan.slots.push(Slot { node: next.node.to_owned(), request: next.request });
        plan.granted.push(next.node.to_owned());
    }
    plan.slots.sort_unstable();
    plan
}

/// Returns the slots above the limit after it was lowered: those of the latest requests.
fn excess<'a>(pool: &PoolDrain<'a>) -> BTreeSet<(Moment, &'a str)> {
    let most = match pool.limit {
        DrainLimit::AtMost(most) if pool.slots.len() > most => most,
        _ => return BTreeSet::new(),
    };
    let all: BTreeSet<_> = pool.slots.iter().map(|slot| (slot.request, slot.node.as_str())).collect();
    all.into_iter().skip(most).collect()
}

/// Returns the request of a slot that stays granted: the last one for which the node was drained.
fn request_of_slot(member: &PoolMember<'_>, slot: Option<Moment>) -> Moment {
    let request = member.facts.state.and_then(|state| state.request);
    let mark = member.facts.node.and_then(|node| node.mark);
    slot.max(member.slot_in_other_pool).max(request).or(mark.map(|mark| mark.request)).unwrap_or_default()
}

/// Order in which waiting nodes get slots: the smallest first. Cordoned and unready nodes come first because draining
/// them costs no capacity, then the earliest request, then the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotPriority<'a> {
    /// The node is ready and not cordoned.
    pub is_serving: bool,
    /// Time of the request by the API server's clock, because node clocks differ.
    pub requested_at: Moment,
    /// Request of the node.
    pub request: Moment,
    /// Name of the node.
    pub node: &'a str,
}

/// Returns the priority of a node, if it waits for a slot.
pub fn slot_priority<'a>(
    member: &PoolMember<'a>,
    rules: &DrainRules,
    now: Moment,
) -> Option<SlotPriority<'a>> {
    let (node, state) = (member.facts.node?, member.facts.state?);
    // A slot of another pool must be freed first.
    let is_eligible = !member.is_former_member
        && member.slot_in_other_pool.is_none()
        && is_waiting(member.facts, rules, now);
    let request = state.request?;
    is_eligible.then_some(SlotPriority {
        is_serving: node.is_ready && !node.is_cordoned,
        requested_at: state.requested_at.unwrap_or(request),
        request,
        node: member.name,
    })
}
