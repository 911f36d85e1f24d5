mod bridges;

use std::sync::{Condvar, Mutex, mpsc};
use std::time::Duration;

use serde_json::json;
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};
use vfleet_host::SimHost;
use vfleet_host::sim::{EswitchRule, Machine};
use vfleet_plan::{Disruption, EswitchMode, Fact, HostFile, ModuleState, Reboots, Record, plan_node};

use super::*;

/// Longer than anything in these tests takes.
const TIMEOUT: Duration = Duration::from_secs(20);

fn machine() -> SimHost {
    SimHost::new(&Machine::lab(), "agent").unwrap()
}

fn cards() -> [PciAddress; 2] {
    [Machine::lab().pfs[0].address, Machine::lab().pfs[1].address]
}

/// Returns a spec with four VFs on both cards.
fn desired() -> SriovNetworkNodeStateSpec {
    let card = |pf: PciAddress| json!({ "pciAddress": pf, "numVfs": 4, "vfGroups": [{ "vfRange": "0-3", "deviceType": "netdevice" }] });
    serde_json::from_value(json!({ "interfaces": cards().map(card) })).unwrap()
}

fn context<'a>(host: &'a SimHost, planner: Planner<'a>) -> ApplyContext<'a> {
    ApplyContext { host, node: "node", planner, one_card_at_a_time: false, listener: &|_| {} }
}

fn apply(host: &SimHost, listener: &(dyn Fn(ExecutionEvent<'_>) + Sync)) -> ApplyOutcome {
    let planner = |facts: &HostFacts| plan_node(&desired(), facts);
    let context = ApplyContext { host, node: "node", planner: &planner, one_card_at_a_time: false, listener };
    let (facts, plan) = survey(host, &planner).unwrap();
    apply_plan(&context, facts, plan)
}

#[test]
fn all_steps_are_executed_and_none_is_left() {
    let host = machine();
    let outcome = apply(&host, &|_| {});
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert!(outcome.executed > 8);
    assert_eq!(apply(&host, &|_| {}).executed, 0);
}

/// Returns a machine whose first card has an embedded switch that follows `rule`.
fn switch_machine(rule: EswitchRule) -> SimHost {
    let mut machine = Machine::lab();
    (machine.pfs[0].eswitch, machine.pfs[0].eswitch_rule) = (Some(EswitchMode::Legacy), rule);
    SimHost::new(&machine, "agent").unwrap()
}

fn apply_switchdev(host: &SimHost) -> ApplyOutcome {
    let card = json!({ "pciAddress": cards()[0], "numVfs": 2, "eSwitchMode": "switchdev", "vfGroups": [{ "vfRange": "0-1" }] });
    let spec: SriovNetworkNodeStateSpec = serde_json::from_value(json!({ "interfaces": [card] })).unwrap();
    let planner = |facts: &HostFacts| plan_node(&spec, facts);
    let context = context(host, &planner);
    let (facts, plan) = survey(host, &planner).unwrap();
    apply_plan(&context, facts, plan)
}

#[test]
fn an_order_that_the_kernel_refuses_is_no_failure_when_the_other_one_works() {
    let outcome = apply_switchdev(&switch_machine(EswitchRule::NoVfs));
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let pf = &outcome.facts.unwrap().pfs[0];
    assert_eq!((pf.eswitch, pf.vfs.len()), (Fact::Value(EswitchMode::Switchdev), 2));
}

#[test]
fn when_both_orders_are_refused_one_failure_names_both_and_is_not_retried() {
    let host = switch_machine(EswitchRule::Unsupported);
    let outcome = apply_switchdev(&host);
    let [failure] = &outcome.failures[..] else { panic!("{:?}", outcome.failures) };
    assert_eq!(failure.reason(), "EswitchModeNotSupported");
    assert!(!failure.needs_retry());
    assert!(outcome.facts.unwrap().pfs[0].vfs.is_empty());
    let before = host.executed_steps().len();
    assert_eq!((apply_switchdev(&host).failures.len(), host.executed_steps().len()), (1, before));
}

#[test]
fn a_switch_that_fails_for_another_reason_is_retried_in_the_same_order() {
    let host = switch_machine(EswitchRule::Never);
    for _ in 0..2 {
        let outcome = apply_switchdev(&host);
        let [failure] = &outcome.failures[..] else { panic!("{:?}", outcome.failures) };
        assert!(failure.needs_retry() && failure.to_string().contains("Asked to fail"), "{failure}");
        assert!(outcome.facts.unwrap().records[0].refused_orders.is_empty());
    }
}

#[test]
fn a_record_that_cannot_be_read_is_a_failure_and_the_other_card_is_reset() {
    let host = machine();
    assert!(apply(&host, &|_| {}).failures.is_empty());
    let [torn, good] = cards();
    host.modify_kernel(|kernel| {
        kernel.records.remove(&torn);
        kernel.go_records.remove(&torn);
        kernel.damaged_records.insert(torn);
    });
    let nothing = SriovNetworkNodeStateSpec { interfaces: Some(Vec::new()), ..Default::default() };
    let planner = |facts: &HostFacts| plan_node(&nothing, facts);
    let context = context(&host, &planner);
    let (facts, plan) = survey(&host, &planner).unwrap();
    let outcome = apply_plan(&context, facts, plan);
    let failures: Vec<_> = outcome.failures.iter().map(|failure| (failure.pf(), failure.reason())).collect();
    assert_eq!(failures, [(Some(torn), "RecordDamaged")]);
    let vfs = |pf| host.modify_kernel(|kernel| kernel.pf(pf).unwrap().vfs.len());
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
        collect_failures(Vec::new(), left, &facts).iter().map(Failure::reason).collect()
    };
    let mut renamed = written.clone();
    renamed.identity.name = Fact::Value("renamed".to_owned());
    assert_eq!(reasons(renamed.clone()), [""; 0]);
    assert_eq!(reasons(Record { creating_vfs: true, ..written.clone() }), ["NotVerified"]);
    assert_eq!(reasons(Record { creating_vfs: true, ..renamed }), ["NotVerified"]);
    assert_eq!(reasons(Record { pf: "0000:ff:00.0".parse().unwrap(), ..written.clone() }), ["NotVerified"]);
}

#[test]
fn a_card_that_hangs_does_not_delay_the_other() {
    let host = machine();
    let [stuck, good] = cards();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    host.set_step_hook(move |step| {
        if matches!(step, Step::SetNumVfs { pf, .. } if *pf == stuck) {
            released.lock().unwrap().recv_timeout(TIMEOUT).expect("the other card is done meanwhile");
        }
    });
    let release = Mutex::new(release);
    let outcome = apply(&host, &|event| {
        if let ExecutionEvent::LaneFinished { target, succeeded } = event
            && target == Target::Pf(good)
        {
            assert!(succeeded);
            release.lock().unwrap().send(()).unwrap();
        }
    });
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
}

#[test]
fn vfs_of_a_card_are_configured_in_parallel() {
    let host = machine();
    let running = std::sync::Arc::new((Mutex::new(0), Condvar::new()));
    let counter = std::sync::Arc::clone(&running);
    host.set_step_hook(move |step| {
        if matches!(step, Step::BindVf { .. }) {
            let (number, changed) = &*counter;
            let mut number = number.lock().unwrap();
            *number += 1;
            changed.notify_all();
            // The number only grows: all four run at the same time, or the first one waits in vain.
            let (_number, waited) =
                changed.wait_timeout_while(number, TIMEOUT, |number| *number < 4).unwrap();
            assert!(!waited.timed_out(), "one after the other");
        }
    });
    let outcome = apply(&host, &|_| {});
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
}

#[test]
fn every_vf_that_fails_is_named_and_later_steps_of_its_card_are_not_executed() {
    let host = machine();
    let [bad, good] = cards();
    let plan = survey(&host, &|facts| plan_node(&desired(), facts)).unwrap().1;
    let last = |pf: PciAddress| {
        let mut steps = plan.steps.iter().filter(|planned| planned.step.pf() == Some(pf));
        steps.next_back().unwrap().step.to_string()
    };
    // The VFs disappear before they are bound.
    let other = std::sync::Arc::new(host.new_process());
    let other_handle = std::sync::Arc::clone(&other);
    host.set_step_hook(move |step| {
        if matches!(step, Step::BindVf { vf, .. } if vf.pf == bad) {
            other_handle.modify_kernel(|kernel| kernel.pf_mut(bad).unwrap().vfs.clear());
        }
    });
    let outcome = apply(&host, &|_| {});
    let failed = outcome.failures.iter().filter(|failure| matches!(failure, Failure::Step { .. }));
    assert_eq!(failed.filter(|failure| failure.pf() == Some(bad)).count(), 4, "{:?}", outcome.failures);
    assert!(!host.executed_steps().contains(&last(bad)), "{:?}", host.executed_steps());
    assert!(host.executed_steps().contains(&last(good)), "{:?}", host.executed_steps());
}

/// Returns a machine with an optional module, whose step of this number fails.
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
fn an_optional_module_that_cannot_be_loaded_is_no_failure() {
    // After a script for udev.
    let host = machine_with_tun(1);
    let outcome = apply(&host, &|_| {});
    assert_eq!(outcome.failed_optional_steps, [load_tun()]);
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert!(
        !host.executed_steps().contains(&load_tun().to_string()),
        "tried once: {:?}",
        host.executed_steps()
    );
    assert_eq!(outcome.facts.unwrap().pf(cards()[0]).unwrap().vfs.len(), 4);
}

#[test]
fn an_optional_module_that_cannot_be_loaded_does_not_postpone_a_reboot() {
    let host = machine_with_tun(0);
    let plan = Plan { steps: [planned(load_tun()), planned(Step::Reboot)].into(), problems: Vec::new() };
    let planner = |_: &HostFacts| plan.clone();
    let context = ApplyContext {
        host: &host,
        node: "node",
        planner: &planner,
        one_card_at_a_time: true,
        listener: &|_| {},
    };
    let outcome = apply_plan(&context, host.facts().unwrap(), plan.clone());
    assert!(outcome.reboots && outcome.failures.is_empty(), "{outcome:?}");
}

fn planned(step: Step) -> PlannedStep {
    PlannedStep { step, disruption: Disruption::None, why: "firmware of enp1s0".to_owned() }
}

/// Returns a plan for two cards, then a script for udev, then a reboot.
fn plan_with_reboot() -> Plan {
    let script = HostFile {
        path: vfleet_plan::files::REPRESENTOR_SCRIPT.to_owned(),
        text: "#!/bin/sh".to_owned(),
        is_program: true,
    };
    let reboots = Reboots::for_need("firmware", 1, "this one");
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

fn apply_with_reboot(host: &SimHost) -> ApplyOutcome {
    let planner = |_: &HostFacts| plan_with_reboot();
    let context =
        ApplyContext { host, node: "node", planner: &planner, one_card_at_a_time: true, listener: &|_| {} };
    apply_plan(&context, host.facts().unwrap(), plan_with_reboot())
}

#[test]
fn the_machine_does_not_reboot_when_a_step_failed_and_the_failure_has_the_reason() {
    let host = machine();
    host.fail_at(0);
    let outcome = apply_with_reboot(&host);
    let executed = host.executed_steps();
    assert!(!outcome.reboots && !executed.iter().any(|step| step.contains("reboot")), "{executed:?}");
    let [_, good] = cards();
    assert!(executed.contains(&format!("set {good} numvfs 2")), "the other card goes on: {executed:?}");
    assert!(executed.iter().any(|step| step.contains("switchdev-vf-link-name")), "{executed:?}");
    let reasons: Vec<_> = outcome.failures.iter().map(Failure::reason).collect();
    assert!(reasons.contains(&"RebootPostponed"), "{:?}", outcome.failures);
    let text = outcome.failures.last().unwrap().to_string();
    assert!(text.contains("not rebooted") && text.contains("firmware of enp1s0"), "{text}");
}

#[test]
fn the_machine_reboots_when_all_steps_succeeded() {
    let host = machine();
    let outcome = apply_with_reboot(&host);
    assert!(outcome.reboots && outcome.failures.is_empty(), "{outcome:?}");
    assert_eq!(host.executed_steps().last().map(String::as_str), Some("reboot"));
}

#[test]
fn one_card_is_finished_before_the_next_if_configured_so() {
    let host = machine();
    host.set_step_delay(|_| Duration::from_millis(2));
    let planner = |facts: &HostFacts| plan_node(&desired(), facts);
    let order = Mutex::new(Vec::new());
    let listener = |event: ExecutionEvent<'_>| {
        if let ExecutionEvent::StepStarted(planned) = event {
            order.lock().unwrap().extend(planned.step.pf());
        }
    };
    let context = ApplyContext {
        host: &host,
        node: "node",
        planner: &planner,
        one_card_at_a_time: true,
        listener: &listener,
    };
    let (facts, plan) = survey(&host, &planner).unwrap();
    assert!(apply_plan(&context, facts, plan).failures.is_empty());
    let mut order = order.into_inner().unwrap();
    order.dedup();
    assert_eq!(order, cards(), "each card once");
}
