//! What others do to VFs that is none of vfleet's business.

use super::{GIVEN_VFS, cases};
use crate::contract::bench::{Bench, Shown};
use crate::contract::cases::plans::{apply, netdevices, nothing_to_do, split};
use crate::contract::check::{agree, ensure, facts, look, same, there, vf};

cases! {
    tells_the_address_that_a_card_was_made_with: NoVfs,
    what_others_tune_does_not_change_the_facts: VfsMadeUp,
    what_others_tune_needs_no_plan: VfsMadeUp,
    a_vf_that_is_held_elsewhere_needs_no_plan: VfsMadeUp,
    a_vf_that_came_back_needs_no_plan: VfsMadeUp,
    a_soft_rdma_device_is_none_of_the_card: VfsMadeUp,
}

fn tells_the_address_that_a_card_was_made_with(bench: &dyn Bench) -> Shown {
    let told = there("the interface", facts(bench)?.link)?.permanent_mac;
    ensure(told.is_some(), "it tells none")?;
    same("the address", &told, &bench.witness().permanent_mac(bench.pf())?)
}

fn what_others_tune_does_not_change_the_facts(bench: &dyn Bench) -> Shown {
    let before = facts(bench)?;
    bench.outsider().tune(vf(bench, 1))?;
    same("the facts", &facts(bench)?, &before)?;
    agree(bench).map(drop)
}

fn what_others_tune_needs_no_plan(bench: &dyn Bench) -> Shown {
    let wanted = split(bench);
    apply(bench, &wanted)?;
    (0..GIVEN_VFS).try_for_each(|index| bench.outsider().tune(vf(bench, index)))?;
    nothing_to_do(bench.host(), &wanted)
}

fn a_vf_that_is_held_elsewhere_needs_no_plan(bench: &dyn Bench) -> Shown {
    let wanted = netdevices(bench, GIVEN_VFS);
    apply(bench, &wanted)?;
    bench.outsider().hold_elsewhere(vf(bench, 1))?;
    bench.outsider().settle()?;
    nothing_to_do(bench.host(), &wanted)
}

fn a_vf_that_came_back_needs_no_plan(bench: &dyn Bench) -> Shown {
    let wanted = netdevices(bench, GIVEN_VFS);
    apply(bench, &wanted)?;
    let before = look(bench)?;
    bench.outsider().hold_elsewhere(vf(bench, 1))?;
    bench.outsider().bring_back(vf(bench, 1))?;
    let after = agree(bench)?;
    same("its driver", &after.vfs[1].driver, &before.vfs[1].driver)?;
    ensure(after.vfs[1].link.is_some(), "its interface is here")?;
    nothing_to_do(bench.host(), &wanted)
}

fn a_soft_rdma_device_is_none_of_the_card(bench: &dyn Bench) -> Shown {
    bench.outsider().add_soft_rdma(vf(bench, 0))?;
    let facts = facts(bench)?;
    same("the RDMA device of the PF", &facts.rdma, &None)?;
    ensure(facts.vfs.iter().all(|vf| vf.rdma.is_none()), format!("VFs with RDMA: {:?}", facts.vfs))?;
    agree(bench).map(drop)
}
