//! Order of creating VFs and setting the eswitch mode, on simulated cards of every kind.

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::{Host, SimHost};
use vfleet_plan::{Disruption, EswitchMode, Fact, HostFacts, ModeOrder, Plan, Problem, plan_node};

const RULES: [&str; 4] = ["anyTime", "needsVfs", "noVfs", "freeVfs"];
const DRIVERS: [&str; 3] = ["igb", "mlx5_core", "ice"];
const PLANS: usize = 6;

fn machine(driver: &str, rule: &str) -> SimHost {
    let text = format!(
        "pfs:\n- {{address: \"0000:3b:00.0\", name: ens1f0, vendor: \"15b3\", device: \"1017\", vfDevice: \"1018\", \
         driver: {driver}, vfDriver: mlx5_core, totalVfs: 8, eswitch: legacy, eswitchRule: {rule}}}\n"
    );
    SimHost::from_yaml(&text, "order").unwrap()
}

fn switchdev(count: u16) -> SriovNetworkNodeStateSpec {
    let text = format!(
        "interfaces: [{{pciAddress: \"0000:3b:00.0\", name: ens1f0, numVfs: {count}, eSwitchMode: switchdev, vfGroups: \
         [{{vfRange: \"0-{}\", policyName: p, resourceName: r}}]}}]",
        count - 1
    );
    serde_saphyr::from_str(&text).unwrap()
}

fn nothing() -> SriovNetworkNodeStateSpec {
    serde_saphyr::from_str("interfaces: []").unwrap()
}

/// Executes the first `limit` steps of a plan, up to a refused trial, as the agent does.
fn execute(host: &SimHost, plan: &Plan, limit: usize) {
    for planned in plan.steps.iter().take(limit) {
        match host.execute(&planned.step) {
            Ok(()) => {}
            Err(error) if planned.step.is_trial() && error.is_refusal() => return,
            Err(error) => panic!("`{planned}`: {error}"),
        }
    }
}

/// Plans and executes until no steps are left.
#[track_caller]
fn settle(host: &SimHost, spec: &SriovNetworkNodeStateSpec) -> (HostFacts, Vec<Problem>) {
    for _ in 0..PLANS {
        let facts = host.facts().unwrap();
        let plan = plan_node(spec, &facts);
        if plan.steps.is_empty() {
            return (facts, plan.problems);
        }
        execute(host, &plan, usize::MAX);
    }
    panic!("the plan never ends: {:#?}", plan_node(spec, &host.facts().unwrap()));
}

fn refused(facts: &HostFacts) -> Vec<ModeOrder> {
    facts
        .records
        .iter()
        .flat_map(|record| &record.refused_orders)
        .map(|refused| refused.trial.order)
        .collect()
}

#[track_caller]
fn is_switchdev(facts: &HostFacts, count: usize) {
    let pf = &facts.pfs[0];
    assert_eq!((pf.eswitch, pf.vfs.len()), (Fact::Value(EswitchMode::Switchdev), count));
    assert!(pf.vfs.iter().all(|vf| vf.driver.is_some() && vf.representor.is_some()) && pf.drivers_autoprobe);
    assert!(!facts.records[0].creating_vfs);
}

#[test]
fn every_eswitch_enters_switchdev_mode_and_is_reset() {
    for (driver, rule) in DRIVERS.into_iter().flat_map(|driver| RULES.map(|rule| (driver, rule))) {
        let host = machine(driver, rule);
        for count in [2, 4, 3] {
            let (facts, problems) = settle(&host, &switchdev(count));
            assert_eq!(problems, [], "{driver} {rule}");
            is_switchdev(&facts, count.into());
            assert!(refused(&facts).len() <= 1, "{driver} {rule}: {:?}", refused(&facts));
        }
        let (facts, problems) = settle(&host, &nothing());
        assert_eq!(problems, []);
        let pf = &facts.pfs[0];
        assert!(pf.vfs.is_empty() && facts.records.is_empty(), "{driver} {rule}");
        assert_ne!(pf.eswitch, Fact::Value(EswitchMode::Switchdev), "{driver} {rule}");
    }
}

#[test]
fn a_card_with_an_unknown_mode_uses_the_order_of_its_driver() {
    let host = machine("mlx5_core", "needsVfs");
    assert_eq!(host.facts().unwrap().pfs[0].eswitch, Fact::Unknown);
    let (facts, problems) = settle(&host, &switchdev(2));
    is_switchdev(&facts, 2);
    assert_eq!((problems, refused(&facts)), (Vec::new(), Vec::new()));
}

#[test]
fn a_refused_order_is_not_tried_again() {
    let host = machine("igb", "noVfs");
    let (facts, _) = settle(&host, &switchdev(2));
    assert_eq!(refused(&facts), [ModeOrder::VfsFirst]);
    let before = host.executed_steps().len();
    settle(&host, &switchdev(4));
    host.modify_kernel(vfleet_host::sim::Kernel::reboot);
    host.restart_process();
    let (facts, _) = settle(&host, &switchdev(4));
    is_switchdev(&facts, 4);
    assert_eq!(refused(&facts), [ModeOrder::VfsFirst]);
    let steps = host.executed_steps();
    let counts: Vec<_> = steps[before..].iter().filter(|step| step.contains("numvfs")).collect();
    assert_eq!(counts.len(), 3, "removed, created, and created again after the boot: {counts:?}");
}

#[test]
fn an_interrupted_process_has_the_same_result() {
    for rule in RULES {
        let whole = settle(&machine("igb", rule), &switchdev(2)).0.pfs;
        for cut in 1..40 {
            let host = machine("igb", rule);
            let mut left = cut;
            while left > 0 {
                let plan = plan_node(&switchdev(2), &host.facts().unwrap());
                if plan.steps.is_empty() {
                    break;
                }
                execute(&host, &plan, left);
                left -= plan.steps.len().min(left);
            }
            let (facts, problems) = settle(&host, &switchdev(2));
            assert_eq!((facts.pfs, problems), (whole.clone(), Vec::new()), "{rule}, cut after {cut} steps");
        }
    }
}

#[test]
fn when_both_orders_are_refused_nothing_is_left_and_the_errors_are_reported() {
    for driver in DRIVERS {
        let host = machine(driver, "unsupported");
        let (facts, problems) = settle(&host, &switchdev(2));
        let pf = &facts.pfs[0];
        assert!(pf.vfs.is_empty() && pf.drivers_autoprobe && !facts.records[0].creating_vfs, "{driver}");
        assert_eq!(pf.eswitch, Fact::Value(EswitchMode::Legacy));
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!(problem.cause.reason(), "EswitchModeNotSupported");
        let text = problem.to_string();
        for part in
            ["with VFs:", "without VFs:", "The firmware has no switchdev mode", "set eSwitchMode to legacy"]
        {
            assert!(text.contains(part), "{text}");
        }
        let tries =
            || host.executed_steps().iter().filter(|step| step.contains("eswitch mode switchdev")).count();
        let before = tries();
        settle(&host, &switchdev(2));
        assert_eq!(tries(), before, "no retry");
        host.modify_kernel(vfleet_host::sim::Kernel::reboot);
        host.restart_process();
        settle(&host, &switchdev(2));
        assert_eq!(tries(), before + 2, "retried after a reboot");
        settle(&host, &switchdev(3));
        assert_eq!(tries(), before + 4, "retried when the desired state changes");
        let (facts, problems) = settle(&host, &nothing());
        assert!(facts.records.is_empty() && problems.is_empty());
    }
}

#[test]
fn vfs_without_a_driver_are_removed_for_the_other_order_without_a_drain() {
    let host = machine("igb", "noVfs");
    let plan = plan_node(&switchdev(2), &host.facts().unwrap());
    assert_eq!(plan.disruption(), Disruption::Pf);
    execute(&host, &plan, usize::MAX);
    let facts = host.facts().unwrap();
    assert_eq!((refused(&facts), facts.pfs[0].vfs.len()), (vec![ModeOrder::VfsFirst], 2));
    assert_eq!(plan_node(&switchdev(2), &facts).disruption(), Disruption::Pf);
}
