//! Whole plans: after planning and executing no step is left, and a plan that is interrupted anywhere and started again
//! has the same result.

use vfleet_api::{MacAddr, SriovNetworkNodeStateSpec};
use vfleet_host::{Host, format_error_chain};
use vfleet_plan::{Plan, is_userspace_driver, plan_node};

use super::{INITIAL_VFS, cases};
use crate::contract::check::{compare_pf, ensure, expect_eq, expect_some, observe_pf};
use crate::contract::observed::ObservedPf;
use crate::contract::specs::{group, interface, spec, with_groups};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    a_plan_creates_seven_vfs: NoVfs,
    a_plan_changes_the_number_of_vfs: NoVfs,
    a_plan_splits_vfs_between_drivers: NoVfs,
    a_plan_resets_a_pf: NoVfs,
    a_plan_for_a_configured_machine_is_empty: VfsCreatedUp,
    a_plan_repairs_what_others_changed: VfsCreatedUp,
    an_interrupted_plan_has_the_same_result: NoVfs,
    a_plan_leaves_the_other_pf_alone: NoVfs,
}

/// Plans with a new host and executes at most the first `limit` steps.
fn execute_plan(
    testbed: &dyn TestBed,
    desired: &SriovNetworkNodeStateSpec,
    limit: usize,
) -> Result<Plan, CaseError> {
    let host = testbed.new_host();
    let plan = plan_node(desired, &host.facts()?);
    for planned in plan.steps.iter().take(limit) {
        host.execute(&planned.step)
            .map_err(|error| CaseError::Failed(format!("`{planned}`: {}", format_error_chain(&error))))?;
    }
    Ok(plan)
}

/// Plans and executes all steps, and checks that no step is left, also for another process. Returns the number of
/// steps.
pub(super) fn apply(testbed: &dyn TestBed, desired: &SriovNetworkNodeStateSpec) -> Result<usize, CaseError> {
    let plan = execute_plan(testbed, desired, usize::MAX)?;
    expect_eq("the problems", &plan.problems, &Vec::new())?;
    testbed.admin().settle()?;
    expect_no_steps(testbed.host(), desired)?;
    expect_no_steps(&*testbed.new_host(), desired)?;
    Ok(plan.steps.len())
}

pub(super) fn expect_no_steps(host: &dyn Host, desired: &SriovNetworkNodeStateSpec) -> CaseResult {
    let remaining: Vec<String> =
        plan_node(desired, &host.facts()?).steps.iter().map(ToString::to_string).collect();
    ensure(remaining.is_empty(), format!("steps are left: {remaining:#?}"))
}

pub(super) fn netdevices(testbed: &dyn TestBed, count: u16) -> SriovNetworkNodeStateSpec {
    let groups = vec![group("netdevice", (0, count - 1), None)];
    spec(vec![with_groups(testbed.pf(), count.into(), None, groups)])
}

pub(super) fn split(testbed: &dyn TestBed) -> SriovNetworkNodeStateSpec {
    let groups = vec![group("netdevice", (0, 0), Some(3000)), group("vfio-pci", (1, 2), None)];
    spec(vec![with_groups(testbed.pf(), 3, Some(3000), groups)])
}

fn a_plan_creates_seven_vfs(testbed: &dyn TestBed) -> CaseResult {
    apply(testbed, &netdevices(testbed, 7))?;
    let pf = compare_pf(testbed)?;
    expect_eq("the number of VFs", &pf.vfs.len(), &7)?;
    ensure(
        pf.link.is_some_and(|link| link.up) && pf.autoprobe,
        "the link is not up, or autoprobe was changed",
    )?;
    for vf in &pf.vfs {
        let mac = vf.admin_mac.filter(|mac| *mac != MacAddr::ZERO);
        ensure(mac.is_some() && vf.link.as_ref().and_then(|link| link.mac) == mac, format!("{vf:?}"))?;
    }
    let record = expect_some("the record", testbed.observer().record(testbed.pf())?)?;
    expect_eq("whether VFs are being created", &record.parse_json()?["making"], &false.into())
}

fn a_plan_changes_the_number_of_vfs(testbed: &dyn TestBed) -> CaseResult {
    apply(testbed, &netdevices(testbed, 3))?;
    let before = observe_pf(testbed)?;
    apply(testbed, &netdevices(testbed, 2))?;
    let after = compare_pf(testbed)?;
    expect_eq("the number of VFs", &after.vfs.len(), &2)?;
    for (old, new) in before.vfs.iter().zip(&after.vfs) {
        expect_eq("the admin MAC of a VF that was created again", &new.admin_mac, &old.admin_mac)?;
    }
    Ok(())
}

fn a_plan_splits_vfs_between_drivers(testbed: &dyn TestBed) -> CaseResult {
    apply(testbed, &split(testbed))?;
    let pf = compare_pf(testbed)?;
    expect_eq("the MTU of the PF", &pf.link.map(|link| link.mtu), &Some(3000))?;
    let drivers: Vec<_> = pf.vfs.iter().filter_map(|vf| vf.driver.as_deref()).collect();
    ensure(drivers.len() == 3 && !is_userspace_driver(drivers[0]), format!("{drivers:?}"))?;
    expect_eq("the drivers of the other VFs", &drivers[1..], &["vfio-pci", "vfio-pci"][..])?;
    expect_eq("the MTU of the VF", &pf.vfs[0].link.as_ref().map(|link| link.mtu), &Some(3000))?;
    ensure(pf.vfs.iter().all(|vf| vf.driver_override.is_none()), "a driver override is left")
}

fn a_plan_resets_a_pf(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_pf(testbed)?;
    apply(testbed, &split(testbed))?;
    apply(testbed, &spec(Vec::new()))?;
    let mut after = compare_pf(testbed)?;
    expect_eq("the record", &testbed.observer().record(testbed.pf())?, &None)?;
    if let Some(link) = &mut after.link {
        // The link stays up, because another program may use it by now.
        link.up = false;
    }
    expect_eq("the card", &after, &before)
}

fn a_plan_for_a_configured_machine_is_empty(testbed: &dyn TestBed) -> CaseResult {
    let desired = netdevices(testbed, INITIAL_VFS);
    apply(testbed, &desired)?;
    let before = observe_pf(testbed)?;
    expect_eq("the steps", &apply(testbed, &desired)?, &0)?;
    expect_eq("the card", &observe_pf(testbed)?, &before)
}

fn a_plan_repairs_what_others_changed(testbed: &dyn TestBed) -> CaseResult {
    let desired = split(testbed);
    apply(testbed, &desired)?;
    let before = observe_pf(testbed)?;
    let vf = |index| crate::contract::check::vf_ref(testbed, index);
    testbed.admin().unbind(vf(0))?;
    testbed.admin().unbind(vf(2))?;
    testbed.admin().set_mtu(testbed.pf(), 1500)?;
    apply(testbed, &desired)?;
    expect_eq("the card", &compare_pf(testbed)?, &before)
}

/// A fast test bed interrupts after every step, a slow one only after creating VFs and between binds.
fn an_interrupted_plan_has_the_same_result(testbed: &dyn TestBed) -> CaseResult {
    let desired = split(testbed);
    let steps = apply(testbed, &desired)?;
    let whole = without_alt_names(compare_pf(testbed)?);
    let limits: Vec<usize> = if testbed.is_fast() { (0..=steps).collect() } else { vec![5, 11] };
    for limit in limits {
        apply(testbed, &spec(Vec::new()))?;
        execute_plan(testbed, &desired, limit)?;
        apply(testbed, &desired)?;
        expect_eq(
            &format!("the card, interrupted after {limit} steps"),
            &without_alt_names(compare_pf(testbed)?),
            &whole,
        )?;
    }
    Ok(())
}

/// Clears the alternative names of VF interfaces, which udev assigns at any time.
fn without_alt_names(mut pf: ObservedPf) -> ObservedPf {
    for link in pf.vfs.iter_mut().filter_map(|vf| vf.link.as_mut()) {
        link.alt_names.clear();
    }
    pf
}

fn a_plan_leaves_the_other_pf_alone(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().set_autoprobe(testbed.other_pf(), false)?;
    testbed.admin().set_mtu(testbed.other_pf(), 4000)?;
    let before = testbed.observer().pf(testbed.other_pf())?;
    apply(testbed, &spec(vec![interface(testbed.pf(), 1)]))?;
    apply(testbed, &spec(Vec::new()))?;
    expect_eq("the other card", &testbed.observer().pf(testbed.other_pf())?, &before)
}
