//! Properties of attachments of pods, on random machines with random networks:
//!
//! - ADD and DEL leave the machine as it was, and so does an ADD that fails
//! - an ADD or DEL that fails or is killed at any effect leaves nothing behind after the next DEL, GC or sweep, and the VF can
//!   be attached again
//! - the same if the namespace of the pod is deleted, or the machine is rebooted, at any effect
//! - two pods never have one VF, and nothing of the one that has it is touched
//! - every address that an IPAM plugin gives out is given back

mod bridges;
mod deaths;
mod go_pods;
mod mishaps;
mod network;
mod rivals;
mod runtime;
mod scenario;
mod switch;

use proptest::prelude::*;
use proptest::sample::Index;
use vfleet_cni::engine;
use vfleet_host::SimHost;
use vfleet_host::sim::EffectFault;
use vfleet_plan::cni::journal::Phase;
use vfleet_plan::cni::protocol::ErrorCode;

use super::config;
use runtime::{Pod, collect_all, device_state, phase, state};
use scenario::{CniScenario, device, scenario};

/// Minimum number of scenarios; `PROPTEST_CASES` can raise it.
const CASES: u32 = 400;

/// Operation after an interrupted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    /// DEL of the pod.
    Del,
    /// ADD of another pod, then DEL of the first one.
    OtherPod,
    /// ADD of the same attachment again.
    Retry,
    /// GC without valid attachments.
    Gc,
    /// Deletion of the namespace, and a sweep by the agent.
    Sweep,
}

impl Recovery {
    const ALL: [Self; 5] = [Self::Del, Self::OtherPod, Self::Retry, Self::Gc, Self::Sweep];
}

fn recovery() -> impl Strategy<Value = Recovery> {
    prop::sample::select(Recovery::ALL.to_vec())
}

fn fault() -> impl Strategy<Value = EffectFault> {
    prop::sample::select(EffectFault::ALL.to_vec())
}

/// Machine of a scenario with the namespaces of three pods, and its state before any attachment.
fn prepare(scenario: &CniScenario) -> (SimHost, [Pod; 3], Vec<String>) {
    let host = scenario.prepare();
    let pods = [0, 1, 2].map(|number| Pod::new(number, &scenario.chain));
    for pod in &pods {
        pod.start(&host);
    }
    let before = state(&host);
    (host, pods, before)
}

/// Returns the effects of an uninterrupted ADD; `None` if it is refused.
fn effects_of_add(scenario: &CniScenario) -> Option<Vec<String>> {
    let (host, [pod, ..], _) = prepare(scenario);
    pod.add(&host).ok()?;
    Some(host.executed_effects())
}

fn effects_of_del(scenario: &CniScenario) -> Option<Vec<String>> {
    let (host, [pod, ..], _) = prepare(scenario);
    pod.add(&host).ok()?;
    let process = host.new_process();
    pod.del_once(&process).expect("DEL");
    Some(process.executed_effects())
}

/// Attaches and detaches a pod, and checks that it leaves nothing behind.
fn check_next_pod(host: &SimHost, pod: &Pod, before: &[String]) -> Result<(), TestCaseError> {
    let process = host.new_process();
    let result = pod.add(&process);
    prop_assert!(result.is_ok(), "the next ADD fails: {:?}\n{:#?}", result, state(host));
    let checked = pod.check(&host.new_process(), &result.expect("ADD"));
    prop_assert!(checked.is_ok(), "CHECK of the next pod: {:?}", checked);
    let deleted = pod.del_once(&host.new_process());
    prop_assert!(deleted.is_ok(), "DEL of the next pod: {:?}", deleted);
    prop_assert_eq!(state(host), before);
    Ok(())
}

fn recover(
    host: &SimHost,
    pods: &[Pod; 3],
    before: &[String],
    recovery: Recovery,
) -> Result<(), TestCaseError> {
    let [pod, other, next] = pods;
    let process = || host.new_process();
    match recovery {
        Recovery::Del => {}
        Recovery::OtherPod => {
            if let Err(error) = other.add(&process()) {
                prop_assert_eq!(phase(host, pod, device()), Some(Phase::Attached), "{}", error);
                prop_assert_eq!(error.code, ErrorCode::TryAgainLater, "{}", error);
                pod.del(&process()).expect("DEL of the holder");
                let again = other.add(&process());
                prop_assert!(again.is_ok(), "{:?}", again);
            }
            let attached = state(host);
            pod.del(&process()).expect("DEL of the interrupted pod");
            let is_of_pod = |line: &String| line.contains(pod.container_id) || line.contains(pod.netns);
            let of_other = |lines: Vec<String>| -> Vec<String> {
                lines.into_iter().filter(|line| !is_of_pod(line)).collect()
            };
            prop_assert_eq!(of_other(state(host)), of_other(attached), "DEL touches the VF of another pod");
            other.del_once(&process()).expect("DEL of the other pod");
        }
        Recovery::Retry => {
            let again = pod.add(&process());
            let was_attached = phase(host, pod, device()) == Some(Phase::Attached);
            prop_assert!(was_attached, "{:?}\n{:#?}", again, state(host));
        }
        Recovery::Gc => {
            let collected = collect_all(&process(), &pod.chain);
            prop_assert!(collected.is_ok(), "{:?}", collected);
            prop_assert_eq!(state(host), before, "after GC");
        }
        Recovery::Sweep => {
            host.modify_kernel(|kernel| {
                kernel.delete_namespace(pod.netns);
                kernel.return_devices();
            });
            let swept = engine::sweep(&process());
            prop_assert!(swept.is_ok(), "{:?}", swept);
            prop_assert_eq!(device_state(host), before, "after the sweep: {:?}", swept);
        }
    }
    let deleted = pod.del_once(&process());
    prop_assert!(deleted.is_ok(), "{:?}", deleted);
    prop_assert_eq!(state(host), before, "after the last DEL");
    check_next_pod(host, next, before)
}

/// Interrupts an ADD at an effect, and checks that nothing is left behind.
fn interrupt_add(
    scenario: &CniScenario,
    at: usize,
    fault: EffectFault,
    recovery: Recovery,
) -> Result<(), TestCaseError> {
    let (host, pods, before) = prepare(scenario);
    let process = host.new_process();
    process.inject_at_effect(at, fault);
    let result = pods[0].add(&process);
    prop_assert!(result.is_err() || !fault.kills());
    recover(&host, &pods, &before, recovery)
}

/// Interrupts a DEL at an effect, and checks that nothing is left behind.
fn interrupt_del(
    scenario: &CniScenario,
    at: usize,
    fault: EffectFault,
    recovery: Recovery,
) -> Result<(), TestCaseError> {
    let (host, pods, before) = prepare(scenario);
    pods[0].add(&host.new_process()).expect("ADD");
    let process = host.new_process();
    process.inject_at_effect(at, fault);
    let _ = pods[0].del_once(&process);
    recover(&host, &pods, &before, recovery)
}

/// Every effect of both plugins that move interfaces, with every fault and every recovery.
#[test]
fn every_interruption_of_a_network_with_all_settings_is_repaired() {
    let scenarios = [
        CniScenario::with_all_settings(),
        CniScenario::with_all_infiniband_settings(),
        CniScenario::with_own_mac(),
    ];
    scenarios.iter().for_each(|scenario| interrupt_everywhere(scenario, &Recovery::ALL));
}

/// Interrupts ADD and DEL at every effect, with every fault.
fn interrupt_everywhere(scenario: &CniScenario, recoveries: &[Recovery]) {
    let adds = effects_of_add(scenario).expect("ADD");
    let dels = effects_of_del(scenario).expect("DEL");
    for (fault, recovery) in EffectFault::ALL
        .into_iter()
        .flat_map(|fault| recoveries.iter().map(move |recovery| (fault, *recovery)))
    {
        for (at, effect) in adds.iter().enumerate() {
            let result = interrupt_add(scenario, at, fault, recovery);
            result.unwrap_or_else(|error| panic!("ADD, {fault:?} at {effect}, {recovery:?}: {error}"));
        }
        for (at, effect) in dels.iter().enumerate() {
            let result = interrupt_del(scenario, at, fault, recovery);
            result.unwrap_or_else(|error| panic!("DEL, {fault:?} at {effect}, {recovery:?}: {error}"));
        }
    }
}

/// Attaches and detaches a pod, and checks that the machine is as it was.
fn add_and_del(scenario: &CniScenario) -> Result<(), TestCaseError> {
    let (host, [pod, ..], before) = prepare(scenario);
    let process = host.new_process();
    match pod.add(&process) {
        Ok(result) => {
            let checked = pod.check(&host.new_process(), &result);
            prop_assert!(checked.is_ok(), "{:?}", checked);
            let swept = engine::sweep(&host.new_process()).expect("a sweep");
            prop_assert!(swept.is_empty(), "a sweep touches a living pod: {:?}", swept);
            pod.del_once(&host.new_process()).expect("DEL");
            let runs: Vec<String> =
                host.delegate_records().iter().map(|run| run.command().to_owned()).collect();
            let has_added = runs.iter().any(|command| command == "ADD");
            prop_assert!(has_added || runs.is_empty(), "IPAM that ADD did not run: {:?}", runs);
        }
        Err(error) => prop_assert_eq!(state(&host), &before[..], "after {}", error),
    }
    prop_assert_eq!(state(&host), before, "{:#?}", process.executed_effects());
    pod.del_once(&host.new_process()).expect("a second DEL");
    Ok(())
}

proptest! {
    #![proptest_config(config(CASES))]

    #[test]
    fn add_and_del_leave_the_machine_as_it_was(scenario in scenario()) {
        add_and_del(&scenario)?;
    }

    #[test]
    fn an_interrupted_add_leaves_nothing_behind(
        scenario in scenario(),
        at in any::<Index>(),
        fault in fault(),
        recovery in recovery(),
    ) {
        let Some(effects) = effects_of_add(&scenario) else { return Ok(()) };
        interrupt_add(&scenario, at.index(effects.len()), fault, recovery)?;
    }

    #[test]
    fn an_interrupted_del_is_finished_by_the_next_operation(
        scenario in scenario(),
        at in any::<Index>(),
        fault in fault(),
        recovery in recovery(),
    ) {
        let Some(effects) = effects_of_del(&scenario) else { return Ok(()) };
        interrupt_del(&scenario, at.index(effects.len()), fault, recovery)?;
    }
}
