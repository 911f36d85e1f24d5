//! Whole plans for embedded switches, in the order that each kind of switch requires.
//!
//! The planner starts with the order of the vendor, which it knows from the driver of the card. It does not know the
//! driver of the card in a test bed, so the agent finds the order by trying. Cases for the order of a vendor plan as if
//! the card had the driver of that vendor.

use vfleet_agent::apply::{self, ApplyContext, Planner};
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_api::node_state::Interface;
use vfleet_host::format_error_chain;
use vfleet_plan::files::UDEV_RULES;
use vfleet_plan::{EswitchMode, Fact, Plan, plan_node};

use super::cases;
use crate::contract::check::{compare_eswitch, compare_pf, ensure, expect_eq, expect_some, observe_pf};
use crate::contract::specs::{group, spec, with_groups};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    an_eswitch_is_applied_changed_and_reset: EswitchAnyTime,
    an_eswitch_that_requires_unbound_vfs_is_applied_changed_and_reset: EswitchRequiresUnboundVfs,
    an_eswitch_that_requires_vfs_is_applied_changed_and_reset: EswitchRequiresVfs,
    an_eswitch_that_requires_no_vfs_is_applied_changed_and_reset: EswitchRequiresNoVfs,
    a_plan_for_mlx5_works_on_an_eswitch_that_requires_unbound_vfs: EswitchRequiresUnboundVfs,
    a_plan_for_ice_works_on_an_eswitch_that_requires_no_vfs: EswitchRequiresNoVfs,
    a_plan_for_an_eswitch_that_refuses_modes_fails_with_the_kernels_reason: EswitchRefusesModes,
}

/// Maximum number of plans until no step is left: representors have names only after they were created.
const MAX_PLANS: usize = 3;
const COUNT: u16 = 3;

/// Desired state: switchdev mode with one VF for the kernel driver and two for vfio-pci.
fn switchdev(testbed: &dyn TestBed) -> SriovNetworkNodeStateSpec {
    let groups = vec![group("netdevice", (0, 0), None), group("vfio-pci", (1, COUNT - 1), None)];
    let interface = with_groups(testbed.pf(), COUNT.into(), None, groups);
    spec(vec![Interface { e_switch_mode: Some("switchdev".to_owned()), ..interface }])
}

/// Plans for the card as if `driver` were its driver.
fn plan_for_driver(
    testbed: &dyn TestBed,
    desired: &SriovNetworkNodeStateSpec,
    driver: &str,
) -> Result<Plan, CaseError> {
    let mut facts = testbed.new_host().facts()?;
    let card = facts.pfs.iter_mut().find(|pf| pf.address == testbed.pf());
    expect_some("the card among the facts", card)?.driver = Some(driver.to_owned());
    Ok(plan_node(desired, &facts))
}

/// Executes a plan; returns the number of its steps, or the error of the first refused step.
fn execute_plan(
    testbed: &dyn TestBed,
    desired: &SriovNetworkNodeStateSpec,
    driver: &str,
) -> Result<Result<usize, String>, CaseError> {
    let plan = plan_for_driver(testbed, desired, driver)?;
    expect_eq("the problems", &plan.problems, &Vec::new())?;
    let host = testbed.new_host();
    for planned in &plan.steps {
        if let Err(error) = host.execute(&planned.step) {
            return Ok(Err(format!("{}: {}", error.reason(), format_error_chain(&error))));
        }
    }
    testbed.admin().settle()?;
    Ok(Ok(plan.steps.len()))
}

/// Plans and executes until no step is left.
fn apply_for_driver(testbed: &dyn TestBed, desired: &SriovNetworkNodeStateSpec, driver: &str) -> CaseResult {
    for _ in 0..MAX_PLANS {
        match execute_plan(testbed, desired, driver)? {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(refusal) => return Err(CaseError::Failed(refusal)),
        }
    }
    let remaining: Vec<String> =
        plan_for_driver(testbed, desired, driver)?.steps.iter().map(ToString::to_string).collect();
    Err(CaseError::Failed(format!("steps are left after {MAX_PLANS} plans: {remaining:#?}")))
}

fn apply_switchdev(testbed: &dyn TestBed, driver: &str) -> CaseResult {
    let name = expect_some("the interface", observe_pf(testbed)?.link)?.name;
    apply_for_driver(testbed, &switchdev(testbed), driver)?;
    let switch = compare_eswitch(testbed)?;
    expect_eq("the mode", &switch.mode, &Fact::Value(EswitchMode::Switchdev))?;
    expect_eq("hw-tc-offload", &switch.tc_offload, &Some(true))?;
    let expected: Vec<_> = (0..COUNT).map(|index| Some(format!("{name}_{index}"))).collect();
    expect_eq("the representors", &switch.representors, &expected)?;
    expect_eq("software steering", &switch.software_steering, &Some(driver == "mlx5_core"))?;
    let pf = compare_pf(testbed)?;
    expect_eq("the name of the PF", &pf.link.map(|link| link.name), &Some(name))?;
    let drivers: Vec<_> = pf.vfs.iter().map(|vf| vf.driver.as_deref() == Some("vfio-pci")).collect();
    expect_eq("which VFs have vfio-pci", &drivers, &vec![false, true, true])?;
    ensure(
        pf.vfs[0].link.is_some() && pf.autoprobe,
        "the first VF has no interface, or autoprobe was changed",
    )
}

/// Applies a spec as the agent does: after a refusal it plans again with another order.
fn apply_as_agent(testbed: &dyn TestBed, desired: &SriovNetworkNodeStateSpec) -> CaseResult {
    let failures = apply_with(testbed, &|facts| plan_node(desired, facts))?;
    expect_eq("the failures", &failures, &Vec::new())
}

/// Applies the plans of a planner as the agent does; returns the failures and problems.
pub(super) fn apply_with(testbed: &dyn TestBed, planner: Planner<'_>) -> Result<Vec<String>, CaseError> {
    let host = testbed.new_host();
    let work =
        ApplyContext { host: &*host, node: "testbed", planner, one_card_at_a_time: false, listener: &|_| {} };
    let (facts, plan) = apply::survey(&*host, planner)?;
    let failures: Vec<String> =
        apply::apply_plan(&work, facts, plan).failures.iter().map(ToString::to_string).collect();
    testbed.admin().settle()?;
    Ok(failures)
}

/// Desired state: switchdev mode with `count` VFs for the kernel driver.
fn switchdev_with(testbed: &dyn TestBed, count: u16) -> SriovNetworkNodeStateSpec {
    let groups = vec![group("netdevice", (0, count - 1), None)];
    let interface = with_groups(testbed.pf(), count.into(), None, groups);
    spec(vec![Interface { e_switch_mode: Some("switchdev".to_owned()), ..interface }])
}

/// Applies switchdev mode to a card without VFs, changes the number of VFs, and resets the card.
fn apply_change_and_reset(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().set_num_vfs(testbed.pf(), 0)?;
    for count in [1, 2] {
        apply_as_agent(testbed, &switchdev_with(testbed, count))?;
        let switch = compare_eswitch(testbed)?;
        expect_eq("the mode", &switch.mode, &Fact::Value(EswitchMode::Switchdev))?;
        let are_named =
            switch.representors.iter().all(|name| name.as_ref().is_some_and(|name| name.contains('_')));
        ensure(are_named && switch.representors.len() == usize::from(count), format!("{switch:?}"))?;
        let pf = compare_pf(testbed)?;
        ensure(pf.autoprobe && pf.vfs.iter().all(|vf| vf.link.is_some()), format!("{pf:?}"))?;
    }
    apply_as_agent(testbed, &spec(Vec::new()))?;
    let mode = compare_eswitch(testbed)?.mode;
    ensure(mode != Fact::Value(EswitchMode::Switchdev), format!("the mode is {mode:?}"))?;
    expect_eq("the VFs", &compare_pf(testbed)?.vfs, &Vec::new())?;
    expect_eq("the record", &testbed.observer().record(testbed.pf())?, &None)?;
    let rule = format!("{UDEV_RULES}/20-switchdev-{}.rules", testbed.pf());
    expect_eq("the rule for representors", &testbed.observer().file(&rule)?, &None)
}

fn an_eswitch_is_applied_changed_and_reset(testbed: &dyn TestBed) -> CaseResult {
    apply_change_and_reset(testbed)
}

fn an_eswitch_that_requires_unbound_vfs_is_applied_changed_and_reset(testbed: &dyn TestBed) -> CaseResult {
    apply_change_and_reset(testbed)
}

fn an_eswitch_that_requires_vfs_is_applied_changed_and_reset(testbed: &dyn TestBed) -> CaseResult {
    apply_change_and_reset(testbed)
}

fn an_eswitch_that_requires_no_vfs_is_applied_changed_and_reset(testbed: &dyn TestBed) -> CaseResult {
    apply_change_and_reset(testbed)
}

fn a_plan_for_mlx5_works_on_an_eswitch_that_requires_unbound_vfs(testbed: &dyn TestBed) -> CaseResult {
    apply_switchdev(testbed, "mlx5_core")
}

fn a_plan_for_ice_works_on_an_eswitch_that_requires_no_vfs(testbed: &dyn TestBed) -> CaseResult {
    apply_switchdev(testbed, "ice")
}

fn expect_refused_plan(testbed: &dyn TestBed, driver: &str) -> Result<String, CaseError> {
    match execute_plan(testbed, &switchdev(testbed), driver)? {
        Ok(_) => Err(CaseError::Failed("the plan succeeded".to_owned())),
        Err(refusal) => Ok(refusal),
    }
}

fn a_plan_for_an_eswitch_that_refuses_modes_fails_with_the_kernels_reason(
    testbed: &dyn TestBed,
) -> CaseResult {
    let text = expect_refused_plan(testbed, "ice")?;
    ensure(text.starts_with("NetlinkRefused") && text.contains("Asked to fail"), text)?;
    expect_eq("the mode", &compare_eswitch(testbed)?.mode, &Fact::Value(EswitchMode::Legacy))
}
