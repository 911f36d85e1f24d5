//! Deaths of namespaces and of the machine in the middle of an operation.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;
use vfleet_cni::engine;
use vfleet_host::sim::Kernel;
use vfleet_plan::cni::protocol::ErrorCode;

use super::runtime::{device_state, state};
use super::scenario::{CniScenario, scenario};
use super::{CASES, check_next_pod, config, effects_of_add, effects_of_del, prepare};

/// Returns the effects of an uninterrupted ADD or DEL; `None` if ADD is refused.
pub(super) fn effects_of(scenario: &CniScenario, is_in_del: bool) -> Option<Vec<String>> {
    if is_in_del { effects_of_del(scenario) } else { effects_of_add(scenario) }
}

/// Deletes the namespace of the pod before an effect of ADD or DEL, and checks that nothing is left behind.
pub(super) fn delete_namespace(
    scenario: &CniScenario,
    at: usize,
    is_in_del: bool,
    returns_at_once: bool,
) -> Result<(), TestCaseError> {
    let (host, [pod, other, next], before) = prepare(scenario);
    if is_in_del {
        pod.add(&host.new_process()).expect("ADD");
    }
    let process = host.new_process();
    let (machine, netns) = (host.new_process(), pod.netns);
    process.set_effect_hook(move |number, _| {
        if number == at {
            machine.modify_kernel(|kernel| {
                kernel.delete_namespace(netns);
                if returns_at_once {
                    kernel.return_devices();
                }
            });
        }
    });
    let _ = if is_in_del { pod.del_once(&process) } else { pod.add(&process).map(drop) };
    pod.del(&host.new_process()).expect("DEL without a namespace");
    if let Err(error) = other.add(&host.new_process()) {
        let is_late = scenario.returns_late && !returns_at_once;
        prop_assert!(is_late && error.code == ErrorCode::TryAgainLater, "{}", error);
        host.modify_kernel(Kernel::return_devices);
        other.add(&host.new_process()).expect("ADD of the other pod");
    }
    other.del_once(&host.new_process()).expect("DEL of the other pod");
    pod.del(&host.new_process()).expect("a second DEL");
    prop_assert_eq!(state(&host), &before[..]);
    check_next_pod(&host, &next, &before)
}

/// Reboots the machine before an effect of ADD or DEL, and checks that nothing is left behind.
pub(super) fn reboot(scenario: &CniScenario, at: usize, is_in_del: bool) -> Result<(), TestCaseError> {
    let (host, [pod, other, next], _) = prepare(scenario);
    if is_in_del {
        pod.add(&host.new_process()).expect("ADD");
    }
    let process = host.new_process();
    let machine = host.new_process();
    process.set_effect_hook(move |number, _| {
        if number == at {
            machine.modify_kernel(Kernel::reboot);
        }
    });
    let result = if is_in_del { pod.del_once(&process) } else { pod.add(&process).map(drop) };
    prop_assert!(result.is_err());
    host.restart_process();
    host.modify_kernel(|kernel| scenario.create_vfs(kernel));
    for pod in [&pod, &other, &next] {
        pod.start(&host);
    }
    // Files and rows of Open vSwitch survive a boot.
    let is_created = |line: &String| line.contains("driver") || line.contains("Linux bridge");
    let before: Vec<String> = device_state(&host).into_iter().filter(is_created).collect();
    if other.add(&host.new_process()).is_ok() {
        other.del_once(&host.new_process()).expect("DEL of the other pod");
    }
    pod.del(&host.new_process()).expect("DEL after a reboot");
    prop_assert_eq!(state(&host), &before[..]);
    check_next_pod(&host, &next, &before)
}

/// Every effect of a network that moves an RDMA device. The interface of a VF with another GUID is created again, and an
/// RDMA device with it.
#[test]
fn a_namespace_with_an_rdma_device_may_be_deleted_at_every_moment() {
    let switches = [(false, false), (false, true), (true, false), (true, true)];
    for (is_in_del, returns_late) in switches {
        let with_guid = CniScenario { returns_late, ..CniScenario::with_all_infiniband_settings() };
        let mut without_guid = with_guid.clone();
        without_guid.chain[0]["runtimeConfig"] = Value::Null;
        for scenario in [with_guid, without_guid] {
            for (at, effect) in effects_of(&scenario, is_in_del).expect("effects").iter().enumerate() {
                let result = delete_namespace(&scenario, at, is_in_del, false);
                result.unwrap_or_else(|error| panic!("late: {returns_late}, before {effect}: {error}"));
            }
        }
    }
}

proptest! {
    #![proptest_config(config(CASES))]

    #[test]
    fn a_namespace_may_be_deleted_at_any_moment(
        scenario in scenario(),
        at in any::<Index>(),
        is_in_del in any::<bool>(),
        returns_at_once in any::<bool>(),
    ) {
        let Some(effects) = effects_of(&scenario, is_in_del) else { return Ok(()) };
        delete_namespace(&scenario, at.index(effects.len()), is_in_del, returns_at_once)?;
    }

    /// The path and the inode of the namespace are those of another one at last.
    #[test]
    fn a_namespace_with_the_inode_of_a_deleted_one_is_another_one(
        scenario in scenario(),
        sweeps in any::<bool>(),
    ) {
        let (host, [pod, other, next], before) = prepare(&scenario);
        if pod.add(&host.new_process()).is_err() {
            return Ok(());
        }
        let [old, new] = host.modify_kernel(|kernel| {
            let old = kernel.namespace_id(pod.netns);
            kernel.delete_namespace(pod.netns);
            kernel.return_devices();
            kernel.create_namespace(pod.netns);
            [old, kernel.namespace_id(pod.netns)]
        });
        prop_assert_eq!(old.map(|id| id.inode), new.map(|id| id.inode));
        // Before 5.14 only an interface that is on the host again tells that the pod is gone.
        let is_known = !scenario.hides_identities;
        if sweeps && is_known {
            engine::sweep(&host.new_process()).expect("a sweep");
            prop_assert_eq!(device_state(&host), &before[..]);
        }
        if is_known || !scenario.vf.is_for_userspace && scenario.chain.len() == 1 {
            let added = other.add(&host.new_process());
            prop_assert!(added.is_ok(), "{:?}", added);
            other.del_once(&host.new_process()).expect("DEL of the other pod");
        }
        pod.del_once(&host.new_process()).expect("DEL of the pod that is gone");
        prop_assert_eq!(state(&host), &before[..]);
        check_next_pod(&host, &next, &before)?;
    }

    #[test]
    fn a_machine_may_be_rebooted_at_any_moment(
        scenario in scenario(),
        at in any::<Index>(),
        is_in_del in any::<bool>(),
    ) {
        let Some(effects) = effects_of(&scenario, is_in_del) else { return Ok(()) };
        reboot(&scenario, at.index(effects.len()), is_in_del)?;
    }
}
