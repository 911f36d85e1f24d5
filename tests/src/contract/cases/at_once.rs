//! Steps that are done at once, from several threads.

use std::thread;

use vfleet_plan::Step;

use super::{GIVEN_VFS, cases};
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{agree, bind, execute, same};
use crate::contract::seen::SeenPf;

cases! {
    binding_all_vfs_at_once_ends_as_one_by_one: VfsMadeUp,
    pfs_are_changed_at_once: NoVfs,
}

/// All of them, each in a thread of its own.
fn execute_at_once(bench: &dyn Bench, steps: &[Step]) -> Shown {
    let host = bench.host();
    let done: Vec<Shown> = thread::scope(|scope| {
        let running: Vec<_> = steps.iter().map(|step| scope.spawn(|| Ok(host.execute(step)?))).collect();
        let broken = |_| Err(Stop::Failed("it panicked".to_owned()));
        running.into_iter().map(|thread| thread.join().unwrap_or_else(broken)).collect()
    });
    done.into_iter().collect()
}

/// Names of interfaces are given by udev, in any order.
fn without_names(mut pf: SeenPf) -> SeenPf {
    for link in pf.vfs.iter_mut().filter_map(|vf| vf.link.as_mut()) {
        link.name.clear();
        link.alt_names.clear();
    }
    pf
}

fn binding_all_vfs_at_once_ends_as_one_by_one(bench: &dyn Bench) -> Shown {
    let all = |driver: Option<&str>| -> Vec<Step> {
        (0..GIVEN_VFS).map(|index| bind(bench, index, driver)).collect()
    };
    let (vfio, kernel) = (all(Some("vfio-pci")), all(None));
    execute(bench, &vfio)?;
    let with_vfio = agree(bench)?;
    execute(bench, &kernel)?;
    let with_kernel = without_names(agree(bench)?);
    execute_at_once(bench, &vfio)?;
    same("the card with vfio-pci", &agree(bench)?, &with_vfio)?;
    execute_at_once(bench, &kernel)?;
    same("the card with the kernel's driver", &without_names(agree(bench)?), &with_kernel)
}

fn pfs_are_changed_at_once(bench: &dyn Bench) -> Shown {
    let pfs = [bench.pf(), bench.other_pf()];
    execute_at_once(bench, &pfs.map(|pf| Step::SetLinkUp { pf }))?;
    execute_at_once(bench, &pfs.map(|pf| Step::SetNumVfs { pf, count: 2 }))?;
    bench.outsider().settle()?;
    for pf in pfs {
        same("the number of VFs", &bench.witness().pf(pf)?.vfs.len(), &2)?;
    }
    execute_at_once(bench, &pfs.map(|pf| Step::SetNumVfs { pf, count: 0 }))
}
