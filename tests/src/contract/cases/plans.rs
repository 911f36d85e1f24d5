//! The planner's promises, kept by this host: plan, execute, and nothing is left to do; cut anywhere and start
//! over, and it ends the same.

use vfleet_api::{MacAddr, SriovNetworkNodeStateSpec};
use vfleet_host::{Host, with_causes};
use vfleet_plan::{Plan, is_userspace_driver, plan_node};

use super::{GIVEN_VFS, cases};
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{agree, ensure, look, same, there};
use crate::contract::seen::SeenPf;
use crate::contract::specs::{group, interface, spec, with_groups};

cases! {
    a_plan_makes_seven_vfs: NoVfs,
    a_plan_changes_the_number_of_vfs: NoVfs,
    a_plan_splits_vfs_between_drivers: NoVfs,
    a_plan_gives_a_pf_back: NoVfs,
    a_plan_for_a_machine_as_wanted_is_empty: VfsMadeUp,
    a_plan_heals_what_others_broke: VfsMadeUp,
    a_plan_that_is_cut_off_ends_the_same: NoVfs,
    a_plan_leaves_the_other_pf_alone: NoVfs,
}

/// Plans and executes the first `limit` steps at most, on a host that knows nothing yet.
fn carry_out(bench: &dyn Bench, wanted: &SriovNetworkNodeStateSpec, limit: usize) -> Result<Plan, Stop> {
    let host = bench.new_host();
    let plan = plan_node(wanted, &host.facts()?);
    for planned in plan.steps.iter().take(limit) {
        host.execute(&planned.step)
            .map_err(|error| Stop::Failed(format!("`{planned}`: {}", with_causes(&error))))?;
    }
    Ok(plan)
}

/// Plans and executes everything; then nothing is left to do, also for another process. Gives how many steps it
/// took.
pub(super) fn apply(bench: &dyn Bench, wanted: &SriovNetworkNodeStateSpec) -> Result<usize, Stop> {
    let plan = carry_out(bench, wanted, usize::MAX)?;
    same("the problems", &plan.problems, &Vec::new())?;
    bench.outsider().settle()?;
    nothing_to_do(bench.host(), wanted)?;
    nothing_to_do(&*bench.new_host(), wanted)?;
    Ok(plan.steps.len())
}

pub(super) fn nothing_to_do(host: &dyn Host, wanted: &SriovNetworkNodeStateSpec) -> Shown {
    let left: Vec<String> = plan_node(wanted, &host.facts()?).steps.iter().map(ToString::to_string).collect();
    ensure(left.is_empty(), format!("still to do: {left:#?}"))
}

pub(super) fn netdevices(bench: &dyn Bench, count: u16) -> SriovNetworkNodeStateSpec {
    let groups = vec![group("netdevice", (0, count - 1), None)];
    spec(vec![with_groups(bench.pf(), count.into(), None, groups)])
}

pub(super) fn split(bench: &dyn Bench) -> SriovNetworkNodeStateSpec {
    let groups = vec![group("netdevice", (0, 0), Some(3000)), group("vfio-pci", (1, 2), None)];
    spec(vec![with_groups(bench.pf(), 3, Some(3000), groups)])
}

fn a_plan_makes_seven_vfs(bench: &dyn Bench) -> Shown {
    apply(bench, &netdevices(bench, 7))?;
    let pf = agree(bench)?;
    same("the number of VFs", &pf.vfs.len(), &7)?;
    ensure(pf.link.is_some_and(|link| link.up) && pf.autoprobe, "it is up, and autoprobe as before")?;
    for vf in &pf.vfs {
        let mac = vf.admin_mac.filter(|mac| *mac != MacAddr::ZERO);
        ensure(mac.is_some() && vf.link.as_ref().and_then(|link| link.mac) == mac, format!("{vf:?}"))?;
    }
    let record = there("the record", bench.witness().record(bench.pf())?)?;
    same("whether VFs are being made", &record.content()?["making"], &false.into())
}

fn a_plan_changes_the_number_of_vfs(bench: &dyn Bench) -> Shown {
    apply(bench, &netdevices(bench, 3))?;
    let before = look(bench)?;
    apply(bench, &netdevices(bench, 2))?;
    let after = agree(bench)?;
    same("the number of VFs", &after.vfs.len(), &2)?;
    for (old, new) in before.vfs.iter().zip(&after.vfs) {
        same("the address of a VF that was made again", &new.admin_mac, &old.admin_mac)?;
    }
    Ok(())
}

fn a_plan_splits_vfs_between_drivers(bench: &dyn Bench) -> Shown {
    apply(bench, &split(bench))?;
    let pf = agree(bench)?;
    same("the PF's MTU", &pf.link.map(|link| link.mtu), &Some(3000))?;
    let drivers: Vec<_> = pf.vfs.iter().filter_map(|vf| vf.driver.as_deref()).collect();
    ensure(drivers.len() == 3 && !is_userspace_driver(drivers[0]), format!("{drivers:?}"))?;
    same("the drivers of the others", &drivers[1..], &["vfio-pci", "vfio-pci"][..])?;
    same("the MTU of the VF", &pf.vfs[0].link.as_ref().map(|link| link.mtu), &Some(3000))?;
    ensure(pf.vfs.iter().all(|vf| vf.driver_override.is_none()), "no override is left")
}

fn a_plan_gives_a_pf_back(bench: &dyn Bench) -> Shown {
    let before = look(bench)?;
    apply(bench, &split(bench))?;
    apply(bench, &spec(Vec::new()))?;
    let mut after = agree(bench)?;
    same("the record", &bench.witness().record(bench.pf())?, &None)?;
    if let Some(link) = &mut after.link {
        // It is not set down again: somebody else may have begun to use it.
        link.up = false;
    }
    same("the card", &after, &before)
}

fn a_plan_for_a_machine_as_wanted_is_empty(bench: &dyn Bench) -> Shown {
    let wanted = netdevices(bench, GIVEN_VFS);
    apply(bench, &wanted)?;
    let before = look(bench)?;
    same("the steps", &apply(bench, &wanted)?, &0)?;
    same("the card", &look(bench)?, &before)
}

fn a_plan_heals_what_others_broke(bench: &dyn Bench) -> Shown {
    let wanted = split(bench);
    apply(bench, &wanted)?;
    let before = look(bench)?;
    let vf = |index| crate::contract::check::vf(bench, index);
    bench.outsider().unbind(vf(0))?;
    bench.outsider().unbind(vf(2))?;
    bench.outsider().set_mtu(bench.pf(), 1500)?;
    apply(bench, &wanted)?;
    same("the card", &agree(bench)?, &before)
}

/// On a fast bench after every step, else right after VFs were made and amid binds.
fn a_plan_that_is_cut_off_ends_the_same(bench: &dyn Bench) -> Shown {
    let wanted = split(bench);
    let steps = apply(bench, &wanted)?;
    let whole = without_chance(agree(bench)?);
    let cuts: Vec<usize> = if bench.is_fast() { (0..=steps).collect() } else { vec![5, 11] };
    for cut in cuts {
        apply(bench, &spec(Vec::new()))?;
        carry_out(bench, &wanted, cut)?;
        apply(bench, &wanted)?;
        same(&format!("cut after {cut} steps, the card"), &without_chance(agree(bench)?), &whole)?;
    }
    Ok(())
}

/// The card without what udev makes of its interfaces at its leisure.
fn without_chance(mut pf: SeenPf) -> SeenPf {
    for link in pf.vfs.iter_mut().filter_map(|vf| vf.link.as_mut()) {
        link.alt_names.clear();
    }
    pf
}

fn a_plan_leaves_the_other_pf_alone(bench: &dyn Bench) -> Shown {
    bench.outsider().set_autoprobe(bench.other_pf(), false)?;
    bench.outsider().set_mtu(bench.other_pf(), 4000)?;
    let before = bench.witness().pf(bench.other_pf())?;
    apply(bench, &spec(vec![interface(bench.pf(), 1)]))?;
    apply(bench, &spec(Vec::new()))?;
    same("the other card", &bench.witness().pf(bench.other_pf())?, &before)
}
