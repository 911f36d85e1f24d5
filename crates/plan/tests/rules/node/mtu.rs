//! MTUs of PFs, and of VFs that pods hold: the MTU of such a VF cannot be read, and changing that of its PF disturbs
//! it.

use std::collections::BTreeSet;

use vfleet_plan::{Disruption, HostFacts, PfFacts, Step, plan_node};

use super::machine::{expect, machine, pf, recorded, steps, to_vfio, two};

const RAISE: &str = "set 0000:3b:00.0 mtu 3000";
const VF_0: &str = "set 0000:3b:00.0 vf 0 mtu 3000";
const VF_1: &str = "set 0000:3b:00.0 vf 1 mtu 3000";

/// Returns a PF whose VFs have this MTU; a pod holds VF 0.
fn held(mtu: u32) -> PfFacts {
    let mut pf = pf(2);
    for link in pf.vfs.iter_mut().filter_map(|vf| vf.link.as_mut()) {
        link.mtu = mtu;
    }
    pf.vfs[0].link = None;
    pf
}

fn with_pf_mtu(mut pf: PfFacts, mtu: u32) -> PfFacts {
    pf.link.as_mut().unwrap().mtu = mtu;
    pf
}

#[test]
fn raising_the_mtu_of_a_pf_needs_a_drain_while_a_vf_is_held() {
    let desired = two("mtu: 3000");
    expect(machine(held(1500)), Some(&two("")), &desired, &[RAISE, VF_0, VF_1], Disruption::Drain);
    // The PF was lowered manually, and the desired state is unchanged.
    expect(machine(held(3000)), Some(&desired), &desired, &[RAISE], Disruption::Drain);
    let mut for_a_program = pf(2);
    for_a_program.vfs.iter_mut().for_each(to_vfio);
    let vfio = two("deviceType: vfio-pci, mtu: 3000");
    expect(machine(for_a_program), Some(&vfio), &vfio, &[RAISE], Disruption::Drain);
    let mut free = pf(2);
    free.vfs.iter_mut().for_each(|vf| (vf.driver, vf.link) = (None, None));
    let plan = plan_node(&desired, &recorded(machine(free), &desired));
    assert_eq!(plan.disruption(), Disruption::Pf, "a VF without a driver has no holder");
}

#[test]
fn an_unchanged_mtu_needs_no_step_for_a_held_vf() {
    let facts = || machine(with_pf_mtu(held(3000), 3000));
    let desired = two("mtu: 3000");
    expect(facts(), Some(&desired), &desired, &[], Disruption::None);
    expect(facts(), Some(&two("")), &two(""), &[], Disruption::None);
}

/// Returns the MTU changes in the records that a plan writes, in order.
fn mtu_changes(desired: &str, facts: &HostFacts) -> Vec<BTreeSet<u16>> {
    let plan = plan_node(&two(desired), facts);
    let records = plan.steps.into_iter().filter_map(|planned| match planned.step {
        Step::WriteRecord { record } => Some(record.mtu_changes),
        _ => None,
    });
    records.collect()
}

#[test]
fn an_interrupted_process_does_not_forget_a_held_vf() {
    let mut facts = recorded(machine(with_pf_mtu(held(3000), 3000)), &two(""));
    assert_eq!(mtu_changes("mtu: 3000", &facts), [[0].into(), BTreeSet::new()]);
    // Only the record was written.
    facts = recorded(facts, &two("mtu: 3000"));
    facts.records[0].mtu_changes = [0].into();
    let plan = plan_node(&two("mtu: 3000"), &facts);
    assert_eq!((steps(&plan), plan.disruption()), (vec![VF_0.to_owned()], Disruption::Drain));
    // The pod is gone.
    facts.pfs[0].vfs[0].link = Some(super::machine::link("ens1f0v0", 0));
    let plan = plan_node(&two("mtu: 3000"), &facts);
    assert_eq!((steps(&plan), plan.disruption()), (vec![VF_0.to_owned()], Disruption::Vf));
    facts.pfs[0].vfs[0].link.as_mut().unwrap().mtu = 3000;
    assert_eq!(mtu_changes("mtu: 3000", &facts), [BTreeSet::new()], "the MTU can be read again");
}

#[test]
fn vfs_get_the_default_mtu_again_when_no_policy_requests_another() {
    let usual = ["set 0000:3b:00.0 vf 0 mtu 1500", "set 0000:3b:00.0 vf 1 mtu 1500"];
    let raised = two("mtu: 3000");
    for pf in [held(3000), {
        let mut pf = held(3000);
        pf.vfs[0].link = Some(super::machine::link("ens1f0v0", 0));
        pf.vfs[0].link.as_mut().unwrap().mtu = 3000;
        pf
    }] {
        let facts = machine(with_pf_mtu(pf, 3000));
        expect(facts.clone(), Some(&raised), &two(""), &usual, Disruption::Drain);
        let recorded = recorded(facts, &raised);
        assert_eq!(mtu_changes("", &recorded), [[0, 1].into(), BTreeSet::new()]);
        let mut cut = super::machine::recorded(recorded, &two(""));
        cut.records[0].mtu_changes = [0, 1].into();
        assert_eq!(steps(&plan_node(&two(""), &cut)), usual, "an interrupted process continues");
    }
}

#[test]
fn an_mtu_that_vfleet_did_not_set_is_kept() {
    let facts = machine(with_pf_mtu(held(4000), 9000));
    let restored = ["set 0000:3b:00.0 vf 0 mtu 1500"];
    expect(facts.clone(), Some(&two("mtu: 3000")), &two(""), &restored, Disruption::Drain);
    expect(facts, Some(&two("")), &two(""), &[], Disruption::None);
}
