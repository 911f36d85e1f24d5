//! Pods that want the same VF.

use std::sync::{Arc, Mutex};
use std::thread;

use proptest::prelude::*;
use proptest::sample::Index;
use vfleet_host::sim::EffectFault;
use vfleet_plan::cni::journal::Phase;
use vfleet_plan::cni::protocol::ErrorCode;

use super::runtime::{phase, state};
use super::scenario::{device, scenario};
use super::{CASES, check_next_pod, config, effects_of_add, prepare};

proptest! {
    #![proptest_config(config(CASES))]

    #[test]
    fn a_vf_in_a_pod_is_refused_to_others(scenario in scenario()) {
        let (host, [pod, other, next], before) = prepare(&scenario);
        let Ok(result) = pod.add(&host.new_process()) else { return Ok(()) };
        let attached = state(&host);
        for refused in [&other, &next] {
            let process = host.new_process();
            let error = refused.add(&process).expect_err("the VF is held");
            prop_assert_eq!(error.code, ErrorCode::TryAgainLater, "{}", error);
            prop_assert!(error.message.contains(pod.container_id), "{}", error);
            prop_assert_eq!(process.executed_effects(), Vec::<String>::new());
            refused.del_once(&host.new_process()).expect("DEL of the refused pod");
        }
        prop_assert_eq!(state(&host), attached);
        prop_assert!(pod.check(&host.new_process(), &result).is_ok());
        pod.del_once(&host.new_process()).expect("DEL");
        check_next_pod(&host, &next, &before)?;
    }
}

proptest! {
    #![proptest_config(config(CASES / 8))]

    #[test]
    fn of_two_adds_at_once_one_wins(scenario in scenario(), at in any::<Index>(), kills in any::<bool>()) {
        let Some(effects) = effects_of_add(&scenario) else { return Ok(()) };
        let (host, [pod, other, next], before) = prepare(&scenario);
        let (host, at) = (Arc::new(host), at.index(effects.len()));
        let process = host.new_process();
        if kills {
            process.inject_at_effect(at, EffectFault::KillBefore);
        }
        let second = Arc::new(Mutex::new(None));
        let (started, machine, rival) = (Arc::clone(&second), Arc::clone(&host), other.clone());
        process.set_effect_hook(move |number, _| {
            if number == at {
                let (machine, rival) = (Arc::clone(&machine), rival.clone());
                let add = thread::spawn(move || rival.add(&machine.new_process()));
                *started.lock().expect("a lock") = Some(add);
            }
        });
        let first = pod.add(&process);
        let second = second.lock().expect("a lock").take().expect("a second ADD").join().expect("no panic");
        let (winner, loser, result) = match (first, second) {
            (Ok(result), Err(error)) => {
                prop_assert_eq!(error.code, ErrorCode::TryAgainLater, "{}", error);
                (&pod, &other, result)
            }
            (Err(_), Ok(result)) => (&other, &pod, result),
            // The first plugin of the chain had attached the pod before the process of the second one was killed.
            (Err(_), Err(_)) if kills && phase(&host, &pod, device()) == Some(Phase::Attached) => {
                pod.del_once(&host.new_process()).expect("DEL of the interrupted pod");
                return check_next_pod(&host, &next, &before);
            }
            both => return Err(TestCaseError::fail(format!("{both:?}"))),
        };
        loser.del_once(&host.new_process()).expect("DEL of the loser");
        let checked = winner.check(&host.new_process(), &result);
        prop_assert!(checked.is_ok(), "{:?}", checked);
        winner.del_once(&host.new_process()).expect("DEL of the winner");
        prop_assert_eq!(state(&host), &before[..]);
        check_next_pod(&host, &next, &before)?;
    }
}
