//! Whether every run ends: a run without an end comes through some states again and again.
//!
//! What changes is seen some time: runs in which a replica never sees what is there to see are left out. As long as it
//! does not, it may take what another has done for a mistake, and mend it for ever.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Model;

use crate::protocol::{Action, Protocol};
use crate::world::World;

struct Edge {
    to: usize,
    action: Action,
}

/// What happens in a run that never ends, if there is one.
pub(crate) fn find_endless(protocol: &Protocol) -> Option<Vec<Action>> {
    let edges = graph(protocol);
    components(&edges).into_iter().find_map(|component| endless(&edges, &component))
}

/// All that can happen, by state. Here it matters which replica is which.
fn graph(protocol: &Protocol) -> Vec<Vec<Edge>> {
    let mut known = HashMap::new();
    let mut edges: Vec<Vec<Edge>> = Vec::new();
    let mut left: Vec<(usize, World)> = protocol.init_states().into_iter().enumerate().collect();
    for (number, world) in &left {
        known.insert(print(world), *number);
        edges.push(Vec::new());
    }
    let mut actions = Vec::new();
    while let Some((from, world)) = left.pop() {
        protocol.actions(&world, &mut actions);
        for action in actions.drain(..) {
            let next = protocol.next_state(&world, action).unwrap();
            let to = *known.entry(print(&next)).or_insert_with(|| {
                edges.push(Vec::new());
                left.push((edges.len() - 1, next));
                edges.len() - 1
            });
            edges[from].push(Edge { to, action });
        }
    }
    edges
}

fn print(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    (world, world.replicas).hash(&mut hasher);
    hasher.finish()
}

/// States that lead to each other, in groups (Kosaraju's way: forwards for the order, then backwards).
fn components(edges: &[Vec<Edge>]) -> Vec<Vec<usize>> {
    let forwards: Vec<Vec<usize>> =
        edges.iter().map(|all| all.iter().map(|edge| edge.to).collect()).collect();
    let mut backwards = vec![Vec::new(); edges.len()];
    for (from, all) in forwards.iter().enumerate() {
        for to in all {
            backwards[*to].push(from);
        }
    }
    let mut seen = vec![false; edges.len()];
    let order: Vec<usize> = (0..edges.len()).flat_map(|start| visit(&forwards, start, &mut seen)).collect();
    seen.fill(false);
    order.into_iter().rev().map(|start| visit(&backwards, start, &mut seen)).collect()
}

/// What can be reached and was not seen yet; what leads to others comes after them.
fn visit(edges: &[Vec<usize>], start: usize, seen: &mut [bool]) -> Vec<usize> {
    let mut order = Vec::new();
    let mut way = Vec::new();
    if !std::mem::replace(&mut seen[start], true) {
        way.push((start, 0));
    }
    while let Some((place, next)) = way.last_mut() {
        match edges[*place].get(*next) {
            None => {
                order.push(*place);
                way.pop();
            }
            Some(to) => {
                *next += 1;
                if !std::mem::replace(&mut seen[*to], true) {
                    way.push((*to, 0));
                }
            }
        }
    }
    order
}

/// What happens among states that lead to each other, if it can go on although everything is seen some time.
fn endless(edges: &[Vec<Edge>], component: &[usize]) -> Option<Vec<Action>> {
    let states: HashSet<usize> = component.iter().copied().collect();
    let all = || component.iter().flat_map(|state| &edges[*state]);
    let mut told: Vec<Action> = Vec::new();
    for edge in all().filter(|edge| states.contains(&edge.to)) {
        if !told.contains(&edge.action) {
            told.push(edge.action);
        }
    }
    let is_always_there = |action: &Action| {
        component.iter().all(|state| edges[*state].iter().any(|edge| edge.action == *action))
    };
    let is_never_seen = |action: &Action| {
        matches!(action, Action::See(..)) && !told.contains(action) && is_always_there(action)
    };
    let goes_on = !told.is_empty() && !all().any(|edge| is_never_seen(&edge.action));
    goes_on.then_some(told)
}
