//! VFs that somebody else makes, and vfleet only sets up.

use std::time::Duration;

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_api::node_state::Interface;
use vfleet_plan::plan_node;

use super::cases;
use super::plans::{apply, nothing_to_do};
use super::watch::watch;
use crate::contract::bench::{Bench, Shown};
use crate::contract::check::{agree, ensure, look, same};
use crate::contract::specs::{group, spec, with_groups};

cases! {
    vfs_that_others_make_wake_and_are_set_up: NoVfs,
    only_the_vfs_of_a_group_are_touched: VfsMadeUp,
    removing_the_wish_leaves_the_vfs_of_others: VfsMadeUp,
}

fn external(bench: &dyn Bench, num_vfs: i64, vfs: (u16, u16)) -> SriovNetworkNodeStateSpec {
    let interface = with_groups(bench.pf(), num_vfs, None, vec![group("vfio-pci", vfs, None)]);
    spec(vec![Interface { externally_managed: Some(true), ..interface }])
}

fn vfs_that_others_make_wake_and_are_set_up(bench: &dyn Bench) -> Shown {
    let wanted = external(bench, 2, (0, 1));
    let deadline = Duration::from_secs(if bench.is_fast() { 1 } else { 30 });
    let (_watch, woken) = watch(bench)?;
    let early = plan_node(&wanted, &bench.host().facts()?);
    ensure(!early.problems.is_empty(), "a plan for VFs that are not there has a problem")?;
    bench.outsider().set_num_vfs(bench.pf(), 2)?;
    let mut plan = plan_node(&wanted, &bench.host().facts()?);
    while !plan.problems.is_empty() {
        ensure(woken.recv_timeout(deadline).is_ok(), format!("nobody was woken: {:?}", plan.problems))?;
        plan = plan_node(&wanted, &bench.host().facts()?);
    }
    bench.outsider().settle()?;
    apply(bench, &wanted)?;
    let pf = agree(bench)?;
    ensure(pf.vfs.iter().all(|vf| vf.driver.as_deref() == Some("vfio-pci")), format!("{pf:?}"))?;
    ensure(pf.link.is_some_and(|link| !link.up) && pf.autoprobe, "the PF is as before")
}

fn only_the_vfs_of_a_group_are_touched(bench: &dyn Bench) -> Shown {
    let wanted = external(bench, 3, (1, 1));
    bench.outsider().unbind(crate::contract::check::vf(bench, 2))?;
    let before = look(bench)?;
    apply(bench, &wanted)?;
    let after = agree(bench)?;
    same("the driver of the VF in the group", &after.vfs[1].driver.as_deref(), &Some("vfio-pci"))?;
    same("the VF before it", &after.vfs[0], &before.vfs[0])?;
    same("the unbound VF after it", &after.vfs[2], &before.vfs[2])?;
    same("the PF", &after.link, &before.link)
}

fn removing_the_wish_leaves_the_vfs_of_others(bench: &dyn Bench) -> Shown {
    apply(bench, &external(bench, 3, (1, 1)))?;
    let count = look(bench)?.vfs.len();
    apply(bench, &spec(Vec::new()))?;
    same("the number of VFs", &agree(bench)?.vfs.len(), &count)?;
    same("the record", &bench.witness().record(bench.pf())?, &None)?;
    nothing_to_do(bench.host(), &spec(Vec::new()))
}
