//! The drain protocol, checked in all its runs: agents, two replicas of the operator that both believe to lead, views that
//! lag behind, writes that come late, crashes. Every decision is the product's own (`vfleet_plan::drain`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]

#[path = "drain_model/world.rs"]
mod world;

use std::thread::available_parallelism;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};
use world::{Budget, Bug, Protocol};

fn check(name: &str, protocol: Protocol) -> Vec<&'static str> {
    let started = Instant::now();
    let threads = available_parallelism().map_or(1, usize::from);
    let checker = protocol
        .checker()
        .threads(threads)
        .symmetry()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_dfs()
        .join();
    println!(
        "{name}: {} states ({} different ones) in {:.1} s, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        started.elapsed().as_secs_f64(),
        checker.max_depth(),
    );
    let found = checker.discoveries();
    for (property, path) in &found {
        println!("{property}:\n{path}");
    }
    found.into_keys().collect()
}

#[test]
fn sizes() {
    let none = Budget { replica_crashes: 0, agent_crashes: 0, withdrawals: 0, escalations: 0, pods: 0 };
    let all = std::env::var("MODEL").unwrap();
    let mut words = all.split(' ');
    let mut number = || words.next().unwrap().parse::<u8>().unwrap();
    let (nodes, replicas, whole) = (number(), number(), number());
    let budget = Budget {
        replica_crashes: number(),
        agent_crashes: number(),
        withdrawals: number(),
        escalations: number(),
        pods: number(),
        ..none
    };
    let mut protocol = Protocol::new(nodes.into(), replicas.into(), budget, Bug::None);
    protocol.sees_whole = whole == 1;
    println!("{:?}", check(&all, protocol));
}
