//! PFs that are managed outside.

use vfleet_api::node_state::InterfaceExt;
use vfleet_plan::external::{ExternalFault, ExternalFound, ExternalWish, check};
use vfleet_plan::report::{View, interfaces};
use vfleet_plan::{Disruption, EswitchMode, Fact, HostFacts, Step, plan_node};

use super::machine::{expect, machine, nothing, pf, reasons, recorded, spec, two};

fn outside() -> vfleet_api::SriovNetworkNodeStateSpec {
    spec("numVfs: 2, externallyManaged: true, vfGroups: [{vfRange: 0-1, policyName: p}]")
}

/// The machine as another process finds it, after the plan for `wanted`.
fn after(facts: HostFacts, wanted: &vfleet_api::SriovNetworkNodeStateSpec) -> HostFacts {
    let plan = plan_node(wanted, &facts);
    let mut facts = facts;
    for planned in plan.steps {
        match planned.step {
            Step::WriteRecord { record } => facts.records = vec![record],
            Step::WriteFile { file, .. } => drop(facts.files.insert(file.path, file.text)),
            Step::RemoveFile { path, .. } => drop(facts.files.remove(&path)),
            other => unreachable!("{other}"),
        }
    }
    facts
}

#[test]
fn the_last_record_decides_what_a_removal_means() {
    let ours = two("deviceType: netdevice");
    let was_ours = after(after(machine(pf(2)), &ours), &outside());
    expect(was_ours, None, &nothing(), &["forget 0000:3b:00.0"], Disruption::None);
    let is_ours = after(after(machine(pf(2)), &outside()), &ours);
    let plan = plan_node(&nothing(), &is_ours);
    assert!(plan.steps.iter().any(|planned| planned.step.to_string() == "set 0000:3b:00.0 numvfs 0"));
}

/// What somebody else set while the PF was his is what it is given back as.
#[test]
fn a_pf_that_becomes_ours_begins_anew() {
    let mut facts = after(machine(pf(2)), &outside());
    facts.pfs[0].link.as_mut().unwrap().mtu = 4000;
    let ours = after(facts, &two("deviceType: netdevice"));
    assert_eq!(ours.records[0].first_seen.mtu, Some(4000));
}

#[test]
fn the_pf_itself_is_never_touched() {
    let mut pf = pf(2);
    pf.link.as_mut().unwrap().admin_up = false;
    pf.vfs[0].driver = None;
    pf.vfs[0].link = None;
    let plan = plan_node(&outside(), &machine(pf));
    let about_vfs = |step: &Step| step.vf().is_some() || matches!(step, Step::WriteRecord { .. });
    assert!(plan.steps.iter().all(|planned| about_vfs(&planned.step)), "{plan:#?}");
    assert_eq!(plan.disruption(), Disruption::Vf);
}

/// The making of VFs was cut off, and then the PF was handed over.
#[test]
fn what_we_switched_off_is_switched_on_again_when_a_pf_is_handed_over() {
    let mut facts = recorded(machine(pf(2)), &two("deviceType: netdevice"));
    facts.records[0].making = true;
    facts.pfs[0].drivers_autoprobe = false;
    let plan = plan_node(&outside(), &facts);
    assert_eq!(plan.steps[0].step.to_string(), "set 0000:3b:00.0 autoprobe on");
    assert_eq!(reasons(&plan), Vec::<&str>::new());
}

#[test]
fn admission_and_node_find_the_same_faults() {
    let mut pf = pf(1);
    pf.eswitch = Fact::Value(EswitchMode::Switchdev);
    let wish = ExternalWish {
        num_vfs: 2,
        mtu: Some(9000),
        link_type: "ib".to_owned(),
        eswitch: EswitchMode::Legacy,
    };
    let faults = check(&wish, &ExternalFound::from(&pf));
    assert_eq!(
        faults,
        [
            ExternalFault::TooFewVfs { asked: 2, found: 1 },
            ExternalFault::Mtu { asked: 9000, found: 1500 },
            ExternalFault::LinkType { asked: "ib".to_owned(), found: "ETH".to_owned() },
            ExternalFault::Eswitch { asked: EswitchMode::Legacy, found: EswitchMode::Switchdev },
        ]
    );
    let reported: Vec<InterfaceExt> = interfaces(&machine(pf), &View::default());
    assert_eq!(check(&wish, &ExternalFound::from(&reported[0])), faults);
}

#[test]
fn enough_is_enough() {
    let wish = ExternalWish {
        num_vfs: 2,
        mtu: Some(1500),
        link_type: "eth".to_owned(),
        eswitch: EswitchMode::Legacy,
    };
    assert_eq!(check(&wish, &ExternalFound::from(&pf(2))), []);
    let any = ExternalWish { num_vfs: 1, mtu: None, link_type: String::new(), ..wish };
    assert_eq!(check(&any, &ExternalFound::from(&pf(2))), []);
}
