//! Check that every run ends: an endless run visits a cycle of states.
//!
//! Runs in which a replica never observes an available change are left out: such a replica may undo the writes of the
//! other one for ever.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Model;

use crate::model::ModelState;
use crate::protocol::{Action, Protocol};

struct Edge {
    to: usize,
    action: Action,
}

/// Returns the actions of an endless run, if there is one.
pub(crate) fn find_endless(protocol: &Protocol) -> Option<Vec<Action>> {
    let edges = graph(protocol);
    components(&edges).into_iter().find_map(|component| endless(&edges, &component))
}

/// Builds the graph of all states and actions. Here replicas are not interchangeable.
fn graph(protocol: &Protocol) -> Vec<Vec<Edge>> {
    let mut known = HashMap::new();
    let mut edges: Vec<Vec<Edge>> = Vec::new();
    let mut left: Vec<(usize, ModelState)> = protocol.init_states().into_iter().enumerate().collect();
    for (number, model) in &left {
        known.insert(fingerprint(model), *number);
        edges.push(Vec::new());
    }
    let mut actions = Vec::new();
    while let Some((from, model)) = left.pop() {
        protocol.actions(&model, &mut actions);
        for action in actions.drain(..) {
            let next = protocol.next_state(&model, action).unwrap();
            let to = *known.entry(fingerprint(&next)).or_insert_with(|| {
                edges.push(Vec::new());
                left.push((edges.len() - 1, next));
                edges.len() - 1
            });
            edges[from].push(Edge { to, action });
        }
    }
    edges
}

fn fingerprint(model: &ModelState) -> u64 {
    let mut hasher = DefaultHasher::new();
    (model, model.replicas).hash(&mut hasher);
    hasher.finish()
}

/// Returns the strongly connected components (Kosaraju's algorithm).
fn components(edges: &[Vec<Edge>]) -> Vec<Vec<usize>> {
    let forwards: Vec<Vec<usize>> =
        edges.iter().map(|all| all.iter().map(|edge| edge.to).collect()).collect();
    let mut backwards = vec![Vec::new(); edges.len()];
    for (from, all) in forwards.iter().enumerate() {
        for to in all {
            backwards[*to].push(from);
        }
    }
    let mut visited = vec![false; edges.len()];
    let order: Vec<usize> =
        (0..edges.len()).flat_map(|start| visit(&forwards, start, &mut visited)).collect();
    visited.fill(false);
    order.into_iter().rev().map(|start| visit(&backwards, start, &mut visited)).collect()
}

/// Returns the unvisited nodes reachable from `start` in post-order.
fn visit(edges: &[Vec<usize>], start: usize, visited: &mut [bool]) -> Vec<usize> {
    let mut order = Vec::new();
    let mut path = Vec::new();
    if !std::mem::replace(&mut visited[start], true) {
        path.push((start, 0));
    }
    while let Some((node, next)) = path.last_mut() {
        match edges[*node].get(*next) {
            None => {
                order.push(*node);
                path.pop();
            }
            Some(to) => {
                *next += 1;
                if !std::mem::replace(&mut visited[*to], true) {
                    path.push((*to, 0));
                }
            }
        }
    }
    order
}

/// Returns the actions within a component, if they form an endless run in which every change is observed eventually.
fn endless(edges: &[Vec<Edge>], component: &[usize]) -> Option<Vec<Action>> {
    let states: HashSet<usize> = component.iter().copied().collect();
    let all = || component.iter().flat_map(|state| &edges[*state]);
    let mut actions: Vec<Action> = Vec::new();
    for edge in all().filter(|edge| states.contains(&edge.to)) {
        if !actions.contains(&edge.action) {
            actions.push(edge.action);
        }
    }
    let is_always_available = |action: &Action| {
        component.iter().all(|state| edges[*state].iter().any(|edge| edge.action == *action))
    };
    let is_never_observed = |action: &Action| {
        matches!(action, Action::Observe(..)) && !actions.contains(action) && is_always_available(action)
    };
    let is_endless = !actions.is_empty() && !all().any(|edge| is_never_observed(&edge.action));
    is_endless.then_some(actions)
}
