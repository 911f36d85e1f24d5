//! Disruption of steps. A repair has less than a change of the desired state.

use vfleet_api::MacAddr;
use vfleet_plan::{Disruption, VfFacts};

use super::machine::{expect, machine, pf, spec, to_vfio, two};

const BIND_0: &str = "bind 0000:3b:00.0 vf 0 to the kernel driver";
const MTU_0: &str = "set 0000:3b:00.0 vf 0 mtu 1400";

/// Damage of VF 0, the steps, and their disruption if the desired state is unchanged, and if it changed.
type Row = (fn(&mut VfFacts), &'static [&'static str], Disruption, Disruption);

const ROWS: [Row; 5] = [
    (
        /* it lost its driver */ |vf| (vf.driver, vf.link) = (None, None),
        &[BIND_0, MTU_0],
        Disruption::Vf,
        Disruption::Vf,
    ),
    (
        /* it has another MTU */ |vf| vf.link.as_mut().unwrap().mtu = 1500,
        &[MTU_0],
        Disruption::Vf,
        Disruption::Drain,
    ),
    (/* it is bound to vfio-pci */ to_vfio, &[BIND_0, MTU_0], Disruption::Drain, Disruption::Drain),
    (
        /* it lost its address on the PF */ |vf| vf.admin_mac = Some(MacAddr::ZERO),
        &["set 0000:3b:00.0 vf 0 mac 02:00:00:00:00:00"],
        Disruption::Vf,
        Disruption::Vf,
    ),
    (/* configured */ |_| (), &[], Disruption::None, Disruption::None),
];

#[test]
fn a_repair_disturbs_nobody_and_a_change_needs_a_drain() {
    let desired = two("deviceType: netdevice, mtu: 1400");
    let other = two("deviceType: vfio-pci");
    for (happens, steps, heal, change) in ROWS {
        let mut pf = pf(2);
        for vf in &mut pf.vfs {
            vf.link.as_mut().unwrap().mtu = 1400;
        }
        happens(&mut pf.vfs[0]);
        for (before, disruption) in [(&desired, heal), (&other, change)] {
            expect(machine(pf.clone()), Some(before), &desired, steps, disruption);
        }
    }
}

#[test]
fn another_policy_name_is_no_change_of_the_desired_state() {
    let desired = spec("numVfs: 2, vfGroups: [{vfRange: 0-0, policyName: a, mtu: 1400}]");
    let before = spec("numVfs: 2, vfGroups: [{vfRange: 0-1, policyName: b, mtu: 1400}]");
    expect(machine(pf(2)), Some(&before), &desired, &[MTU_0], Disruption::Vf);
}

#[test]
fn creating_vfs_on_a_pf_without_vfs_disturbs_no_pod() {
    let plan = vfleet_plan::plan_node(&two("deviceType: vfio-pci, mtu: 9000"), &machine(pf(0)));
    assert_eq!(plan.disruption(), Disruption::Pf);
}

#[test]
fn vfs_in_no_group_are_in_no_step() {
    let mut pf = pf(4);
    for vf in &mut pf.vfs {
        (vf.driver, vf.link, vf.admin_mac) = (None, None, Some(MacAddr::ZERO));
    }
    for external in [false, true] {
        let group = "vfGroups: [{vfRange: 2-2, deviceType: netdevice}]";
        let desired = spec(&format!("numVfs: 4, externallyManaged: {external}, {group}"));
        let plan = vfleet_plan::plan_node(&desired, &machine(pf.clone()));
        let touched: Vec<_> = plan.steps.iter().filter_map(|planned| planned.step.vf()).collect();
        assert!(!touched.is_empty() && touched.iter().all(|vf| vf.index == 2), "{plan:#?}");
    }
}
