use std::sync::{Condvar, Mutex, mpsc};
use std::time::Duration;

use serde_json::json;
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};
use vfleet_host::SimHost;
use vfleet_host::sim::{EswitchRule, Machine};
use vfleet_plan::{Disruption, EswitchMode, Fact, HostFile, ModuleState, Reboots, Record, plan_node};

use super::*;

/// Longer than any of it takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn machine() -> SimHost {
    SimHost::new(&Machine::lab(), "agent").unwrap()
}

fn cards() -> [PciAddress; 2] {
    [Machine::lab().pfs[0].address, Machine::lab().pfs[1].address]
}

/// Four VFs on both cards.
fn wish() -> SriovNetworkNodeStateSpec {
    let card = |pf: PciAddress| json!({ "pciAddress": pf, "numVfs": 4, "vfGroups": [{ "vfRange": "0-3", "deviceType": "netdevice" }] });
    serde_json::from_value(json!({ "interfaces": cards().map(card) })).unwrap()
}

fn apply(host: &SimHost, listener: &(dyn Fn(Happening<'_>) + Sync)) -> Outcome {
    let planner = |facts: &HostFacts| plan_node(&wish(), facts);
    let work = Work { host, node: "node", planner: &planner, one_card_at_a_time: false, listener };
    let (facts, plan) = survey(host, &planner).unwrap();
    carry_out(&work, facts, plan)
}

#[test]
fn everything_is_done_and_nothing_is_left() {
    let host = machine();
    let outcome = apply(&host, &|_| {});
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert!(outcome.executed > 8);
    assert_eq!(apply(&host, &|_| {}).executed, 0);
}

/// A machine whose first card has an embedded switch that follows `rule`.
fn switch_machine(rule: EswitchRule) -> SimHost {
    let mut machine = Machine::lab();
    (machine.pfs[0].eswitch, machine.pfs[0].eswitch_rule) = (Some(EswitchMode::Legacy), rule);
    SimHost::new(&machine, "agent").unwrap()
}

fn apply_switchdev(host: &SimHost) -> Outcome {
    let card = json!({ "pciAddress": cards()[0], "numVfs": 2, "eSwitchMode": "switchdev", "vfGroups": [{ "vfRange": "0-1" }] });
    let spec: SriovNetworkNodeStateSpec = serde_json::from_value(json!({ "interfaces": [card] })).unwrap();
    let planner = |facts: &HostFacts| plan_node(&spec, facts);
    let work = Work { host, node: "node", planner: &planner, one_card_at_a_time: false, listener: &|_| {} };
    let (facts, plan) = survey(host, &planner).unwrap();
    carry_out(&work, facts, plan)
}

#[test]
fn an_order_that_the_kernel_refuses_is_no_failure_when_the_other_one_works() {
    let outcome = apply_switchdev(&switch_machine(EswitchRule::NoVfs));
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let pf = &outcome.facts.unwrap().pfs[0];
    assert_eq!((pf.eswitch, pf.vfs.len()), (Fact::Value(EswitchMode::Switchdev), 2));
}

#[test]
fn when_both_orders_are_refused_one_failure_tells_both_and_is_not_tried_again() {
    let host = switch_machine(EswitchRule::Unsupported);
    let outcome = apply_switchdev(&host);
    let [failure] = &outcome.failures[..] else { panic!("{:?}", outcome.failures) };
    assert_eq!(failure.reason(), "EswitchModeNotPossible");
    assert!(!failure.is_worth_a_retry());
    assert!(outcome.facts.unwrap().pfs[0].vfs.is_empty());
    let before = host.executed().len();
    assert_eq!((apply_switchdev(&host).failures.len(), host.executed().len()), (1, before));
}

#[test]
fn a_switch_that_fails_for_another_reason_is_tried_again_in_the_same_order() {
    let host = switch_machine(EswitchRule::Never);
    for _ in 0..2 {
        let outcome = apply_switchdev(&host);
        let [failure] = &outcome.failures[..] else { panic!("{:?}", outcome.failures) };
        assert!(failure.is_worth_a_retry() && failure.to_string().contains("Asked to fail"), "{failure}");
        assert!(outcome.facts.unwrap().records[0].refused_orders.is_empty());
    }
}

#[test]
fn a_record_that_cannot_be_read_is_a_failure_and_the_other_card_is_given_back() {
    let host = machine();
    assert!(apply(&host, &|_| {}).failures.is_empty());
    let [torn, good] = cards();
    host.behind_its_back(|kernel| {
        kernel.records.remove(&torn);
        kernel.go_records.remove(&torn);
        kernel.damaged_records.insert(torn);
    });
    let nothing = SriovNetworkNodeStateSpec { interfaces: Some(Vec::new()), ..Default::default() };
    let planner = |facts: &HostFacts| plan_node(&nothing, facts);
    let work =
        Work { host: &host, node: "node", planner: &planner, one_card_at_a_time: false, listener: &|_| {} };
    let (facts, plan) = survey(&host, &planner).unwrap();
    let outcome = carry_out(&work, facts, plan);
    let failures: Vec<_> = outcome.failures.iter().map(|failure| (failure.pf(), failure.reason())).collect();
    assert_eq!(failures, [(Some(torn), "RecordDamaged")]);
    let vfs = |pf| host.behind_its_back(|kernel| kernel.pf(pf).unwrap().vfs.len());
    assert_eq!((vfs(torn), vfs(good)), (4, 0));
}

#[test]
fn a_record_that_is_still_to_be_written_is_a_failure_unless_only_names_differ() {
    let host = machine();
    let facts = apply(&host, &|_| {}).facts.unwrap();
    let written = facts.record(cards()[0]).unwrap();
    let reasons = |record: Record| -> Vec<_> {
        let (step, why) = (Step::WriteRecord { record }, "a test".to_owned());
        let steps = vec![PlannedStep { step, disruption: Disruption::None, why }];
        let left = Plan { steps, problems: Vec::new() };
        what_is_wrong(Vec::new(), left, &facts).iter().map(Failure::reason).collect()
    };
    let mut renamed = written.clone();
    renamed.identity.name = Fact::Value("renamed".to_owned());
    assert_eq!(reasons(renamed.clone()), [""; 0]);
    assert_eq!(reasons(Record { making: true, ..written.clone() }), ["NotVerified"]);
    assert_eq!(reasons(Record { making: true, ..renamed }), ["NotVerified"]);
    assert_eq!(reasons(Record { pf: "0000:ff:00.0".parse().unwrap(), ..written.clone() }), ["NotVerified"]);
}

#[test]
fn a_card_that_hangs_does_not_hold_up_the_other() {
    let host = machine();
    let [stuck, good] = cards();
    let (let_go, hangs) = mpsc::channel::<()>();
    let hangs = Mutex::new(hangs);
    host.before_each_step(move |step| {
        if matches!(step, Step::SetNumVfs { pf, .. } if *pf == stuck) {
            hangs.lock().unwrap().recv_timeout(PATIENCE).expect("the other card is done meanwhile");
        }
    });
    let let_go = Mutex::new(let_go);
    let outcome = apply(&host, &|happening| {
        if let Happening::LaneEnded { target, is_done } = happening
            && target == Target::Pf(good)
        {
            assert!(is_done);
            let_go.lock().unwrap().send(()).unwrap();
        }
    });
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
}

#[test]
fn vfs_of_a_card_are_set_up_at_once() {
    let host = machine();
    let running = std::sync::Arc::new((Mutex::new(0), Condvar::new()));
    let met = std::sync::Arc::clone(&running);
    host.before_each_step(move |step| {
        if matches!(step, Step::BindVf { .. }) {
            let (number, changed) = &*met;
            let mut number = number.lock().unwrap();
            *number += 1;
            changed.notify_all();
            // Counted up only: four of them meet, or the first one waits in vain.
            let (_number, waited) =
                changed.wait_timeout_while(number, PATIENCE, |number| *number < 4).unwrap();
            assert!(!waited.timed_out(), "one after the other");
        }
    });
    let outcome = apply(&host, &|_| {});
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
}

#[test]
fn every_vf_that_fails_is_named_and_its_card_goes_no_further() {
    let host = machine();
    let [bad, good] = cards();
    let plan = survey(&host, &|facts| plan_node(&wish(), facts)).unwrap().1;
    let last = |pf: PciAddress| {
        let mut steps = plan.steps.iter().filter(|planned| planned.step.pf() == Some(pf));
        steps.next_back().unwrap().step.to_string()
    };
    // VFs that are gone when they shall be bound.
    let other = std::sync::Arc::new(host.another());
    let thief = std::sync::Arc::clone(&other);
    host.before_each_step(move |step| {
        if matches!(step, Step::BindVf { vf, .. } if vf.pf == bad) {
            thief.behind_its_back(|kernel| kernel.pf_mut(bad).unwrap().vfs.clear());
        }
    });
    let outcome = apply(&host, &|_| {});
    let failed = outcome.failures.iter().filter(|failure| matches!(failure, Failure::Step { .. }));
    assert_eq!(failed.filter(|failure| failure.pf() == Some(bad)).count(), 4, "{:?}", outcome.failures);
    assert!(!host.executed().contains(&last(bad)), "{:?}", host.executed());
    assert!(host.executed().contains(&last(good)), "{:?}", host.executed());
}

/// A machine with a module that no VF needs, and whose step of this number fails.
fn machine_with_tun(fails_at: usize) -> SimHost {
    let mut machine = Machine::lab();
    machine.kernel.modules = [("tun".to_owned(), ModuleState::Loadable)].into();
    let host = SimHost::new(&machine, "agent").unwrap();
    host.fail_at(fails_at);
    host
}

fn load_tun() -> Step {
    Step::LoadModule { module: "tun".to_owned(), options: Vec::new() }
}

#[test]
fn a_module_that_no_vf_needs_is_done_without() {
    // After a script for udev.
    let host = machine_with_tun(1);
    let outcome = apply(&host, &|_| {});
    assert_eq!(outcome.done_without, [load_tun()]);
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert!(!host.executed().contains(&load_tun().to_string()), "tried once: {:?}", host.executed());
    assert_eq!(outcome.facts.unwrap().pf(cards()[0]).unwrap().vfs.len(), 4);
}

#[test]
fn a_module_that_no_vf_needs_does_not_put_a_restart_off() {
    let host = machine_with_tun(0);
    let plan = Plan { steps: [planned(load_tun()), planned(Step::Reboot)].into(), problems: Vec::new() };
    let planner = |_: &HostFacts| plan.clone();
    let work =
        Work { host: &host, node: "node", planner: &planner, one_card_at_a_time: true, listener: &|_| {} };
    let outcome = carry_out(&work, host.facts().unwrap(), plan.clone());
    assert!(outcome.reboots && outcome.failures.is_empty(), "{outcome:?}");
}

fn planned(step: Step) -> PlannedStep {
    PlannedStep { step, disruption: Disruption::None, why: "firmware of enp1s0".to_owned() }
}

/// Two cards, then a script for udev, then a restart.
fn plan_with_restart() -> Plan {
    let script = HostFile {
        path: vfleet_plan::files::REPRESENTOR_SCRIPT.to_owned(),
        text: "#!/bin/sh".to_owned(),
        is_program: true,
    };
    let reboots = Reboots::for_one("firmware", 1, "this one");
    let [bad, good] = cards();
    let steps = [
        Step::SetNumVfs { pf: bad, count: 2 },
        Step::SetNumVfs { pf: good, count: 2 },
        Step::WriteFile { pf: None, file: script },
        Step::CountReboot { reboots },
        Step::Reboot,
    ];
    Plan { steps: steps.map(planned).into(), problems: Vec::new() }
}

fn carry_out_with_restart(host: &SimHost) -> Outcome {
    let planner = |_: &HostFacts| plan_with_restart();
    let work = Work { host, node: "node", planner: &planner, one_card_at_a_time: true, listener: &|_| {} };
    carry_out(&work, host.facts().unwrap(), plan_with_restart())
}

#[test]
fn the_machine_does_not_restart_when_a_step_failed_and_says_what_for() {
    let host = machine();
    host.fail_at(0);
    let outcome = carry_out_with_restart(&host);
    let executed = host.executed();
    assert!(!outcome.reboots && !executed.iter().any(|step| step.contains("reboot")), "{executed:?}");
    let [_, good] = cards();
    assert!(executed.contains(&format!("set {good} numvfs 2")), "the other card goes on: {executed:?}");
    assert!(executed.iter().any(|step| step.contains("switchdev-vf-link-name")), "{executed:?}");
    let reasons: Vec<_> = outcome.failures.iter().map(Failure::reason).collect();
    assert!(reasons.contains(&"RestartPutOff"), "{:?}", outcome.failures);
    let text = outcome.failures.last().unwrap().to_string();
    assert!(text.contains("not restarted") && text.contains("firmware of enp1s0"), "{text}");
}

#[test]
fn it_restarts_when_all_steps_did_what_they_should() {
    let host = machine();
    let outcome = carry_out_with_restart(&host);
    assert!(outcome.reboots && outcome.failures.is_empty(), "{outcome:?}");
    assert_eq!(host.executed().last().map(String::as_str), Some("reboot"));
}

#[test]
fn one_card_is_finished_before_the_next_where_that_is_wanted() {
    let host = machine();
    host.delays(|_| Duration::from_millis(2));
    let planner = |facts: &HostFacts| plan_node(&wish(), facts);
    let order = Mutex::new(Vec::new());
    let listener = |happening: Happening<'_>| {
        if let Happening::Begins(planned) = happening {
            order.lock().unwrap().extend(planned.step.pf());
        }
    };
    let work =
        Work { host: &host, node: "node", planner: &planner, one_card_at_a_time: true, listener: &listener };
    let (facts, plan) = survey(&host, &planner).unwrap();
    assert!(carry_out(&work, facts, plan).failures.is_empty());
    let mut order = order.into_inner().unwrap();
    order.dedup();
    assert_eq!(order, cards(), "each card once, and no way back");
}
