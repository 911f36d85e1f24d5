//! VFs whose interface is in another network namespace, as those that pods hold.

use super::cases;
use crate::contract::bench::{Bench, Shown};
use crate::contract::check::{agree, bind, ensure, execute, refused, same, vf};
use vfleet_plan::Step;

cases! {
    tells_a_vf_that_is_held_elsewhere: VfsMadeUp,
    binding_takes_a_vf_back: VfsMadeUp,
    removes_a_vf_that_is_held_elsewhere: VfsMadeUp,
}

fn tells_a_vf_that_is_held_elsewhere(bench: &dyn Bench) -> Shown {
    let before = agree(bench)?;
    bench.outsider().hold_elsewhere(vf(bench, 0))?;
    let after = agree(bench)?;
    same("its interface", &after.vfs[0].link, &None)?;
    same("its driver", &after.vfs[0].driver, &before.vfs[0].driver)?;
    same("the address that the PF keeps", &after.vfs[0].admin_mac, &before.vfs[0].admin_mac)?;
    same("the other VF", &after.vfs[1], &before.vfs[1])
}

fn binding_takes_a_vf_back(bench: &dyn Bench) -> Shown {
    bench.outsider().hold_elsewhere(vf(bench, 0))?;
    execute(bench, &[bind(bench, 0, None)])?;
    ensure(agree(bench)?.vfs[0].link.is_some(), "its interface is here")
}

fn removes_a_vf_that_is_held_elsewhere(bench: &dyn Bench) -> Shown {
    bench.outsider().hold_elsewhere(vf(bench, 0))?;
    execute(bench, &[Step::SetNumVfs { pf: bench.pf(), count: 0 }])?;
    same("the VFs", &agree(bench)?.vfs, &Vec::new())?;
    refused(bench, &bind(bench, 0, None), "NoSuchVf").map(drop)
}
