//! Model check of the drain protocol in all its runs: agents, two replicas of the operator that both act as leader,
//! delayed watches, late writes and crashes. All decisions are those of `vfleet_plan::drain`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panics")]

#[path = "drain_model/agents.rs"]
mod agents;
#[path = "drain_model/bugs.rs"]
mod bugs;
#[path = "drain_model/cycles.rs"]
mod cycles;
#[path = "drain_model/decisions.rs"]
mod decisions;
#[path = "drain_model/model.rs"]
mod model;
#[path = "drain_model/observation.rs"]
mod observation;
#[path = "drain_model/properties.rs"]
mod properties;
#[path = "drain_model/protocol.rs"]
mod protocol;

use std::fmt::Write;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Instant;

use bugs::Bug;
use libtest_mimic::{Arguments, Failed, Trial};
use model::Budget;
use observation::WatchGranularity;
use protocol::{Action, Protocol};
use stateright::{Checker, HasDiscoveries, Model};

/// Checks every state of the protocol. `expected` is the property that an inserted bug violates.
fn check(name: &str, protocol: Protocol, expected: Option<&'static str>) -> Result<(), Failed> {
    let started = Instant::now();
    let threads = available_parallelism().map_or(1, usize::from);
    let checker =
        protocol.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    eprintln!(
        "{} states, {} unique, runs of up to {} steps",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
    );
    eprintln!("{name} took {:.1} s", started.elapsed().as_secs_f64());
    let mut found = checker.discoveries();
    let is_used = found.remove(properties::USED).is_some();
    match expected {
        None if !is_used => Err("no node was ever drained".into()),
        Some(property) if found.contains_key(property) => Ok(()),
        Some(property) => Err(format!("{property:?} holds, but not {:?}", found.keys()).into()),
        None if found.is_empty() => Ok(()),
        None => {
            let failures = found
                .into_iter()
                .map(|(property, path)| format!("does not hold: {property}\n{}", list(&path.into_actions())));
            Err(failures.collect::<String>().into())
        }
    }
}

fn check_termination(protocol: &Protocol) -> Result<(), Failed> {
    match cycles::find_endless(protocol) {
        None => Ok(()),
        Some(actions) => Err(format!("endless run:\n{}", list(&actions)).into()),
    }
}

fn list(actions: &[Action]) -> String {
    actions.iter().fold(String::new(), |mut text, action| {
        let _ = writeln!(text, "  {action:?}");
        text
    })
}

/// Configurations with millions of states, which take a minute on two cores: run with `--include-ignored` as in `make
/// soak`.
const LONG: [&str; 2] =
    ["three nodes, two pools, each replica and an agent crash", "many disturbances, one replica"];

/// Returns name and protocol of each configuration, and whether termination of every run is checked too.
#[expect(clippy::too_many_lines, reason = "a table")]
fn configurations() -> Vec<(&'static str, Protocol, bool)> {
    let two = Protocol {
        nodes: 2,
        replicas: 2,
        replica_crashes: 0,
        granularity: WatchGranularity::Whole,
        has_preexisting_cordon: false,
        sets_clocks_back: false,
        budget: Budget::default(),
        bug: Bug::None,
    };
    let alone = Protocol { replicas: 1, granularity: WatchGranularity::Object, ..two };
    let none = Budget::default();
    let agent_crash = Budget { agent_crashes: 1, ..none };
    let deletion = Budget { deletions: 1, ..none };
    vec![
        (
            "three nodes, two pools, each replica and an agent crash",
            Protocol { nodes: 3, replica_crashes: 1, budget: agent_crash, ..two },
            false,
        ),
        (
            "three nodes, two pools, each replica crashes",
            Protocol { nodes: 3, replica_crashes: 1, ..two },
            false,
        ),
        (
            "kinds of objects are observed one by one",
            Protocol { granularity: WatchGranularity::Kind, ..two },
            true,
        ),
        (
            "objects are observed one by one",
            Protocol { granularity: WatchGranularity::Object, has_preexisting_cordon: true, ..two },
            false,
        ),
        ("crashes", Protocol { replica_crashes: 1, budget: agent_crash, ..two }, true),
        (
            "a withdrawal and a new request",
            Protocol { budget: Budget { withdrawals: 1, new_requests: 1, pods: 1, ..none }, ..two },
            false,
        ),
        (
            "a wider scope is needed",
            Protocol { budget: Budget { escalations: 1, pods: 1, ..none }, ..two },
            true,
        ),
        (
            "a withdrawal, kinds of objects are observed one by one",
            Protocol {
                granularity: WatchGranularity::Kind,
                budget: Budget { withdrawals: 1, ..none },
                ..two
            },
            false,
        ),
        ("a write comes late", Protocol { budget: Budget { late_writes: 2, ..none }, ..two }, true),
        ("a node state is created again", Protocol { budget: deletion, ..two }, false),
        (
            "a node state is created again, clocks are set back",
            Protocol { budget: deletion, sets_clocks_back: true, ..two },
            false,
        ),
        ("a node changes its pool", Protocol { budget: Budget { moves: 1, ..none }, ..two }, true),
        (
            "a node changes its pool, three nodes, one replica",
            Protocol {
                nodes: 3,
                replica_crashes: 1,
                budget: Budget { moves: 1, withdrawals: 1, ..none },
                ..alone
            },
            false,
        ),
        ("a drain times out", Protocol { budget: Budget { hours: 1, ..none }, ..two }, true),
        (
            "some disturbances, one replica",
            Protocol {
                replica_crashes: 1,
                budget: Budget { agent_crashes: 1, withdrawals: 1, pods: 1, deletions: 1, ..none },
                granularity: WatchGranularity::Kind,
                ..alone
            },
            false,
        ),
        (
            "many disturbances, one replica",
            Protocol {
                replica_crashes: 1,
                budget: Budget {
                    agent_crashes: 1,
                    withdrawals: 1,
                    new_requests: 1,
                    pods: 1,
                    late_writes: 1,
                    deletions: 1,
                    ..none
                },
                granularity: WatchGranularity::Kind,
                ..alone
            },
            false,
        ),
    ]
}

/// Bugs, with the property that each violates and the configuration that finds it.
const DEFECTS: &[(Bug, &str, &str)] = &[
    (Bug::UnguardedSlots, properties::LIMIT, "kinds of objects are observed one by one"),
    (Bug::NoFinishRecord, properties::LIMIT, "a withdrawal and a new request"),
    (Bug::NoVerification, properties::LIMIT, "kinds of objects are observed one by one"),
    (Bug::OldMark, properties::PODS, "a wider scope is needed"),
    (Bug::TerminatingIsGone, properties::PODS, "crashes"),
    (Bug::UnguardedStates, properties::WITHDRAWAL, "a withdrawal and a new request"),
    (Bug::NoGrant, properties::SERVED, "crashes"),
    (Bug::NoUncordon, properties::CORDON, "crashes"),
    (Bug::NoRelease, properties::SLOTS, "crashes"),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each test uses all processors.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    let configurations = configurations();
    for long in LONG {
        assert!(configurations.iter().any(|(name, ..)| *name == long), "there is no {long:?}");
    }
    for (bug, _, found_in) in DEFECTS {
        assert!(
            configurations.iter().any(|(name, ..)| name == found_in),
            "{bug:?}: there is no {found_in:?}"
        );
    }
    for (name, protocol, checks_termination) in configurations {
        let trial = Trial::test(name, move || check(name, protocol, None));
        trials.push(trial.with_ignored_flag(LONG.contains(&name)));
        if checks_termination {
            trials.push(Trial::test(format!("{name}: every run ends"), move || check_termination(&protocol)));
        }
        for (bug, property, _) in DEFECTS.iter().filter(|(_, _, found_in)| *found_in == name) {
            let protocol = Protocol { bug: *bug, ..protocol };
            let name = format!("{bug:?} is found");
            trials.push(Trial::test(name.clone(), move || check(&name, protocol, Some(property))));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
