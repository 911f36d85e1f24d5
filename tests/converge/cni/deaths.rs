//! Deaths of namespaces and of the machine in the middle of an operation.

use proptest::prelude::*;
use proptest::sample::Index;
use vfleet_host::sim::Kernel;
use vfleet_plan::cni::protocol::ErrorCode;

use super::runtime::{device_state, state};
use super::scenario::scenario;
use super::{CASES, check_next_pod, config, effects_of_add, effects_of_del, prepare};

proptest! {
    #![proptest_config(config(CASES))]

    #[test]
    fn a_namespace_may_be_deleted_at_any_moment(
        scenario in scenario(),
        at in any::<Index>(),
        is_in_del in any::<bool>(),
        returns_at_once in any::<bool>(),
    ) {
        let effects = if is_in_del { effects_of_del(&scenario) } else { effects_of_add(&scenario) };
        let Some(effects) = effects else { return Ok(()) };
        let (host, [pod, other, next], before) = prepare(&scenario);
        // A release waits for interfaces, not for RDMA devices.
        let returns_at_once = returns_at_once || scenario.isolates_rdma();
        if is_in_del {
            pod.add(&host.new_process()).expect("ADD");
        }
        let process = host.new_process();
        let (at, machine, netns) = (at.index(effects.len()), host.new_process(), pod.netns);
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
        check_next_pod(&host, &next, &before)?;
    }

    #[test]
    fn a_machine_may_be_rebooted_at_any_moment(
        scenario in scenario(),
        at in any::<Index>(),
        is_in_del in any::<bool>(),
    ) {
        let effects = if is_in_del { effects_of_del(&scenario) } else { effects_of_add(&scenario) };
        let Some(effects) = effects else { return Ok(()) };
        let (host, [pod, other, next], _) = prepare(&scenario);
        if is_in_del {
            pod.add(&host.new_process()).expect("ADD");
        }
        let process = host.new_process();
        let (at, machine) = (at.index(effects.len()), host.new_process());
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
        let is_of_vf = |line: &String| line.contains("driver");
        let before: Vec<String> = device_state(&host).into_iter().filter(is_of_vf).collect();
        if other.add(&host.new_process()).is_ok() {
            other.del_once(&host.new_process()).expect("DEL of the other pod");
        }
        pod.del(&host.new_process()).expect("DEL after a reboot");
        prop_assert_eq!(state(&host), &before[..]);
        check_next_pod(&host, &next, &before)?;
    }
}
