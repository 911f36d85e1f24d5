//! Whole plans for embedded switches, in the order that each kind of switch wants.
//!
//! The planner follows the order of the card's vendor first, which it knows by the name of the card's driver. The driver of
//! a bench's card is one that it does not know: the order that each kind of switch wants is found by trying. Where the
//! vendor's own order is to be shown, a plan is made as if the card had that vendor's driver.

use vfleet_agent::apply::{self, Work};
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_api::node_state::Interface;
use vfleet_host::with_causes;
use vfleet_plan::files::UDEV_RULES;
use vfleet_plan::{EswitchMode, Fact, HostFacts, Plan, plan_node};

use super::cases;
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{agree, agree_on_switch, ensure, look, same, there};
use crate::contract::specs::{group, spec, with_groups};

cases! {
    a_switch_is_applied_changed_and_reset: SwitchCard,
    a_switch_that_wants_free_vfs_is_applied_changed_and_reset: SwitchForFreeVfs,
    a_switch_that_wants_vfs_is_applied_changed_and_reset: SwitchForVfs,
    a_switch_that_wants_no_vfs_is_applied_changed_and_reset: SwitchForNoVfs,
    a_plan_for_mlx5_suits_a_switch_that_wants_free_vfs: SwitchForFreeVfs,
    a_plan_for_ice_suits_a_switch_that_wants_no_vfs: SwitchForNoVfs,
    a_plan_for_a_stuck_switch_ends_with_the_kernels_reason: StuckSwitch,
}

/// How often is planned until nothing is left to do: names of representors are known once they are there.
const ROUNDS: usize = 3;
const COUNT: u16 = 3;

/// A VF for the kernel and two for programs, in switchdev mode.
fn switchdev(bench: &dyn Bench) -> SriovNetworkNodeStateSpec {
    let groups = vec![group("netdevice", (0, 0), None), group("vfio-pci", (1, COUNT - 1), None)];
    let interface = with_groups(bench.pf(), COUNT.into(), None, groups);
    spec(vec![Interface { e_switch_mode: Some("switchdev".to_owned()), ..interface }])
}

/// A plan for the card as if `driver` were its driver.
fn plan(bench: &dyn Bench, wanted: &SriovNetworkNodeStateSpec, driver: &str) -> Result<Plan, Stop> {
    let mut facts = bench.new_host().facts()?;
    let card = facts.pfs.iter_mut().find(|pf| pf.address == bench.pf());
    there("the card among the facts", card)?.driver = Some(driver.to_owned());
    Ok(plan_node(wanted, &facts))
}

/// Carries out a plan; gives how many steps it had, or what the first that was refused said.
fn carry_out(
    bench: &dyn Bench,
    wanted: &SriovNetworkNodeStateSpec,
    driver: &str,
) -> Result<Result<usize, String>, Stop> {
    let plan = plan(bench, wanted, driver)?;
    same("the problems", &plan.problems, &Vec::new())?;
    let host = bench.new_host();
    for planned in &plan.steps {
        if let Err(error) = host.execute(&planned.step) {
            return Ok(Err(format!("{}: {}", error.reason(), with_causes(&error))));
        }
    }
    bench.outsider().settle()?;
    Ok(Ok(plan.steps.len()))
}

/// Plans and carries out until nothing is left to do.
fn apply(bench: &dyn Bench, wanted: &SriovNetworkNodeStateSpec, driver: &str) -> Shown {
    for _ in 0..ROUNDS {
        match carry_out(bench, wanted, driver)? {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(refusal) => return Err(Stop::Failed(refusal)),
        }
    }
    let left: Vec<String> = plan(bench, wanted, driver)?.steps.iter().map(ToString::to_string).collect();
    Err(Stop::Failed(format!("still to do after {ROUNDS} plans: {left:#?}")))
}

fn makes_switchdev(bench: &dyn Bench, driver: &str) -> Shown {
    let name = there("the interface", look(bench)?.link)?.name;
    apply(bench, &switchdev(bench), driver)?;
    let switch = agree_on_switch(bench)?;
    same("the mode", &switch.mode, &Fact::Value(EswitchMode::Switchdev))?;
    same("whether offloading is on", &switch.tc_offload, &Some(true))?;
    let expected: Vec<_> = (0..COUNT).map(|index| Some(format!("{name}_{index}"))).collect();
    same("the representors", &switch.representors, &expected)?;
    same("whether software steers", &switch.software_steering, &Some(driver == "mlx5_core"))?;
    let pf = agree(bench)?;
    same("the name of the PF", &pf.link.map(|link| link.name), &Some(name))?;
    let drivers: Vec<_> = pf.vfs.iter().map(|vf| vf.driver.as_deref() == Some("vfio-pci")).collect();
    same("which VFs have vfio-pci", &drivers, &vec![false, true, true])?;
    ensure(pf.vfs[0].link.is_some() && pf.autoprobe, "the first VF has an interface, autoprobe is as before")
}

/// Applies a spec as the agent does it: what is refused is planned anew in another order.
fn carry_out_as_agent(bench: &dyn Bench, wanted: &SriovNetworkNodeStateSpec) -> Shown {
    let host = bench.new_host();
    let planner = |facts: &HostFacts| plan_node(wanted, facts);
    let work =
        Work { host: &*host, node: "bench", planner: &planner, one_card_at_a_time: false, listener: &|_| {} };
    let (facts, plan) = apply::survey(&*host, &planner)?;
    let failures: Vec<String> =
        apply::carry_out(&work, facts, plan).failures.iter().map(ToString::to_string).collect();
    bench.outsider().settle()?;
    same("the failures", &failures, &Vec::new())
}

/// As [`switchdev`], with so many VFs.
fn switchdev_with(bench: &dyn Bench, count: u16) -> SriovNetworkNodeStateSpec {
    let groups = vec![group("netdevice", (0, count - 1), None)];
    let interface = with_groups(bench.pf(), count.into(), None, groups);
    spec(vec![Interface { e_switch_mode: Some("switchdev".to_owned()), ..interface }])
}

/// Switchdev mode on a fresh card, another number of VFs, and back.
fn apply_change_and_reset(bench: &dyn Bench) -> Shown {
    bench.outsider().set_num_vfs(bench.pf(), 0)?;
    for count in [1, 2] {
        carry_out_as_agent(bench, &switchdev_with(bench, count))?;
        let switch = agree_on_switch(bench)?;
        same("the mode", &switch.mode, &Fact::Value(EswitchMode::Switchdev))?;
        let has_names =
            switch.representors.iter().all(|name| name.as_ref().is_some_and(|name| name.contains('_')));
        ensure(has_names && switch.representors.len() == usize::from(count), format!("{switch:?}"))?;
        let pf = agree(bench)?;
        ensure(pf.autoprobe && pf.vfs.iter().all(|vf| vf.link.is_some()), format!("{pf:?}"))?;
    }
    carry_out_as_agent(bench, &spec(Vec::new()))?;
    let mode = agree_on_switch(bench)?.mode;
    ensure(mode != Fact::Value(EswitchMode::Switchdev), format!("the mode is {mode:?}"))?;
    same("the VFs", &agree(bench)?.vfs, &Vec::new())?;
    same("the record", &bench.witness().record(bench.pf())?, &None)?;
    let rule = format!("{UDEV_RULES}/20-switchdev-{}.rules", bench.pf());
    same("the rule for representors", &bench.witness().file(&rule)?, &None)
}

fn a_switch_is_applied_changed_and_reset(bench: &dyn Bench) -> Shown {
    apply_change_and_reset(bench)
}

fn a_switch_that_wants_free_vfs_is_applied_changed_and_reset(bench: &dyn Bench) -> Shown {
    apply_change_and_reset(bench)
}

fn a_switch_that_wants_vfs_is_applied_changed_and_reset(bench: &dyn Bench) -> Shown {
    apply_change_and_reset(bench)
}

fn a_switch_that_wants_no_vfs_is_applied_changed_and_reset(bench: &dyn Bench) -> Shown {
    apply_change_and_reset(bench)
}

fn a_plan_for_mlx5_suits_a_switch_that_wants_free_vfs(bench: &dyn Bench) -> Shown {
    makes_switchdev(bench, "mlx5_core")
}

fn a_plan_for_ice_suits_a_switch_that_wants_no_vfs(bench: &dyn Bench) -> Shown {
    makes_switchdev(bench, "ice")
}

fn refusal(bench: &dyn Bench, driver: &str) -> Result<String, Stop> {
    match carry_out(bench, &switchdev(bench), driver)? {
        Ok(_) => Err(Stop::Failed("the plan was carried out".to_owned())),
        Err(refusal) => Ok(refusal),
    }
}

fn a_plan_for_a_stuck_switch_ends_with_the_kernels_reason(bench: &dyn Bench) -> Shown {
    let text = refusal(bench, "ice")?;
    ensure(text.starts_with("NetlinkRefused") && text.contains("Asked to fail"), text)?;
    same("the mode", &agree_on_switch(bench)?.mode, &Fact::Value(EswitchMode::Legacy))
}
