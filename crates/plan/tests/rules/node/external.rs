//! Externally managed PFs.

use vfleet_api::node_state::InterfaceExt;
use vfleet_plan::external::{DesiredExternalPf, ExternalFault, ObservedExternalPf, check};
use vfleet_plan::report::{ReportContext, interfaces};
use vfleet_plan::{Disruption, EswitchMode, Fact, HostFacts, Step, plan_node};

use super::machine::{expect, machine, nothing, pf, reasons, recorded, spec, two};

fn external() -> vfleet_api::SriovNetworkNodeStateSpec {
    spec("numVfs: 2, externallyManaged: true, vfGroups: [{vfRange: 0-1, policyName: p}]")
}

/// Returns the facts after the plan for `desired`.
fn after(facts: HostFacts, desired: &vfleet_api::SriovNetworkNodeStateSpec) -> HostFacts {
    let plan = plan_node(desired, &facts);
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
    let was_managed = after(after(machine(pf(2)), &ours), &external());
    expect(was_managed, None, &nothing(), &["remove state file of 0000:3b:00.0"], Disruption::None);
    let is_ours = after(after(machine(pf(2)), &external()), &ours);
    let plan = plan_node(&nothing(), &is_ours);
    assert!(plan.steps.iter().any(|planned| planned.step.to_string() == "set 0000:3b:00.0 numvfs 0"));
}

/// A reset restores the values that the PF had when vfleet started to manage it.
#[test]
fn a_pf_that_becomes_managed_gets_a_new_record() {
    let mut facts = after(machine(pf(2)), &external());
    facts.pfs[0].link.as_mut().unwrap().mtu = 4000;
    let ours = after(facts, &two("deviceType: netdevice"));
    assert_eq!(ours.records[0].original.mtu, Some(4000));
}

#[test]
fn the_pf_itself_is_never_changed() {
    let mut pf = pf(2);
    pf.link.as_mut().unwrap().admin_up = false;
    pf.vfs[0].driver = None;
    pf.vfs[0].link = None;
    let plan = plan_node(&external(), &machine(pf));
    let about_vfs = |step: &Step| step.vf().is_some() || matches!(step, Step::WriteRecord { .. });
    assert!(plan.steps.iter().all(|planned| about_vfs(&planned.step)), "{plan:#?}");
    assert_eq!(plan.disruption(), Disruption::Vf);
}

/// VF creation was interrupted, and then the PF became externally managed.
#[test]
fn autoprobe_is_restored_when_a_pf_becomes_externally_managed() {
    let mut facts = recorded(machine(pf(2)), &two("deviceType: netdevice"));
    facts.records[0].creating_vfs = true;
    facts.pfs[0].drivers_autoprobe = false;
    let plan = plan_node(&external(), &facts);
    assert_eq!(plan.steps[0].step.to_string(), "set 0000:3b:00.0 autoprobe on");
    assert_eq!(reasons(&plan), Vec::<&str>::new());
}

#[test]
fn admission_and_node_find_the_same_faults() {
    let mut pf = pf(1);
    pf.eswitch = Fact::Value(EswitchMode::Switchdev);
    let desired = DesiredExternalPf {
        num_vfs: 2,
        mtu: Some(9000),
        link_type: "ib".to_owned(),
        eswitch: EswitchMode::Legacy,
    };
    let faults = check(&desired, &ObservedExternalPf::from(&pf));
    assert_eq!(
        faults,
        [
            ExternalFault::TooFewVfs { requested: 2, observed: 1 },
            ExternalFault::Mtu { requested: 9000, observed: 1500 },
            ExternalFault::LinkType { requested: "ib".to_owned(), observed: "ETH".to_owned() },
            ExternalFault::Eswitch { requested: EswitchMode::Legacy, observed: EswitchMode::Switchdev },
        ]
    );
    let reported: Vec<InterfaceExt> = interfaces(&machine(pf), &ReportContext::default());
    assert_eq!(check(&desired, &ObservedExternalPf::from(&reported[0])), faults);
}

#[test]
fn a_sufficient_pf_has_no_faults() {
    let desired = DesiredExternalPf {
        num_vfs: 2,
        mtu: Some(1500),
        link_type: "eth".to_owned(),
        eswitch: EswitchMode::Legacy,
    };
    assert_eq!(check(&desired, &ObservedExternalPf::from(&pf(2))), []);
    let any = DesiredExternalPf { num_vfs: 1, mtu: None, link_type: String::new(), ..desired };
    assert_eq!(check(&any, &ObservedExternalPf::from(&pf(2))), []);
}
