//! VFs that may be in use are not disturbed needlessly.

use vfleet_api::{SriovNetworkNodeStateSpec, VfRef};
use vfleet_host::sim::Machine;
use vfleet_host::{Host, SimHost};
use vfleet_plan::report::ReportContext;
use vfleet_plan::{Disruption, Plan, Record, Step, plan_node, report};

const PF: &str = "0000:01:00.0";

fn four_vfs() -> SriovNetworkNodeStateSpec {
    serde_saphyr::from_str(
        "interfaces: [{pciAddress: '0000:01:00.0', numVfs: 4, mtu: 2000, name: enp1s0,
           vfGroups: [{deviceType: netdevice, vfRange: 0-3, policyName: p, mtu: 2000}]}]",
    )
    .unwrap()
}

fn execute(host: &SimHost, plan: &Plan) {
    for planned in &plan.steps {
        host.execute(&planned.step).unwrap();
    }
}

fn configured() -> SimHost {
    let host = SimHost::new(&Machine::lab(), "in use").unwrap();
    execute(&host, &plan_node(&four_vfs(), &host.facts().unwrap()));
    host
}

fn plan(host: &SimHost) -> Plan {
    plan_node(&four_vfs(), &host.facts().unwrap())
}

fn vf(index: u16) -> VfRef {
    VfRef { pf: PF.parse().unwrap(), index }
}

/// Marks the VF creation as unfinished, as after a change of numVfs that was reverted.
fn mark_as_unfinished(host: &SimHost) {
    let record = host.facts().unwrap().record(PF.parse().unwrap()).unwrap().clone();
    host.execute(&Step::WriteRecord { record: Record { creating_vfs: true, ..record } }).unwrap();
}

#[test]
fn configured_vfs_are_not_changed_when_vf_creation_was_interrupted() {
    let host = configured();
    mark_as_unfinished(&host);
    host.modify_kernel(|kernel| kernel.unbind(vf(2))).unwrap();
    let plan = plan(&host);
    let touched: Vec<_> =
        plan.steps.iter().filter(|planned| matches!(planned.step, Step::BindVf { .. })).collect();
    assert_eq!(touched.len(), 1, "{plan:#?}");
    assert!(touched[0].step.to_string().contains("vf 2"), "{plan:#?}");
    assert!(plan.disruption() < Disruption::Drain, "{plan:#?}");
}

#[test]
fn a_vf_that_a_pod_holds_is_left_alone() {
    let host = configured();
    host.modify_kernel(|kernel| kernel.set_in_other_namespace(vf(1), true)).unwrap();
    assert!(plan(&host).is_done(), "{:#?}", plan(&host));
    mark_as_unfinished(&host);
    let steps = plan(&host).steps;
    assert!(steps.iter().all(|planned| matches!(planned.step, Step::WriteRecord { .. })), "{steps:#?}");
}

#[test]
fn a_vf_without_a_driver_is_repaired_without_a_drain() {
    let host = configured();
    host.modify_kernel(|kernel| kernel.unbind(vf(3))).unwrap();
    let plan = plan(&host);
    assert!(!plan.steps.is_empty());
    assert!(plan.disruption() <= Disruption::Vf, "{plan:#?}");
    execute(&host, &plan);
    assert!(plan_node(&four_vfs(), &host.facts().unwrap()).is_done());
}

/// VFs of a card that is not reported would be removed, since no policy selects it.
#[test]
fn a_card_without_its_interface_is_still_reported() {
    let host = configured();
    let mut facts = host.facts().unwrap();
    facts.pfs[0].link = None;
    let reported = report::interfaces(&facts, &ReportContext::default());
    assert_eq!(reported[0].pci_address.text(), PF);
    assert_eq!(reported[0].name.as_deref(), Some("enp1s0"));
    let plan = plan_node(&four_vfs(), &facts);
    assert!(plan.steps.is_empty(), "{plan:#?}");
    assert_eq!(plan.problems[0].cause.reason(), "NoInterface");
    facts.records.clear();
    assert!(
        report::interfaces(&facts, &ReportContext::default())
            .iter()
            .all(|card| card.pci_address.text() != PF)
    );
}

#[test]
fn an_mtu_that_vfleet_did_not_set_is_kept_on_reset() {
    let host = configured();
    let nothing = SriovNetworkNodeStateSpec { interfaces: Some(Vec::new()), ..Default::default() };
    let mtu_steps = |host: &SimHost| {
        let plan = plan_node(&nothing, &host.facts().unwrap());
        plan.steps.into_iter().filter(|planned| matches!(planned.step, Step::SetPfMtu { .. })).count()
    };
    assert_eq!(mtu_steps(&host), 1);
    host.modify_kernel(|kernel| kernel.set_pf_mtu(PF.parse().unwrap(), 9000)).unwrap();
    assert_eq!(mtu_steps(&host), 0);
}
