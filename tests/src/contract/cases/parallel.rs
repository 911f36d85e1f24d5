//! Steps that run in parallel.

use std::thread;

use vfleet_plan::Step;

use super::{INITIAL_VFS, cases};
use crate::contract::check::{bind_step, compare_pf, execute, expect_eq};
use crate::contract::observed::ObservedPf;
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    binding_vfs_in_parallel_equals_binding_them_in_sequence: VfsCreatedUp,
    changes_pfs_in_parallel: NoVfs,
}

/// Executes each step in its own thread.
fn execute_in_parallel(testbed: &dyn TestBed, steps: &[Step]) -> CaseResult {
    let host = testbed.host();
    let results: Vec<CaseResult> = thread::scope(|scope| {
        let running: Vec<_> = steps.iter().map(|step| scope.spawn(|| Ok(host.execute(step)?))).collect();
        let panicked = |_| Err(CaseError::Failed("a step panicked".to_owned()));
        running.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    results.into_iter().collect()
}

/// Clears the names of VF interfaces, which udev assigns in any order.
fn without_names(mut pf: ObservedPf) -> ObservedPf {
    for link in pf.vfs.iter_mut().filter_map(|vf| vf.link.as_mut()) {
        link.name.clear();
        link.alt_names.clear();
    }
    pf
}

fn binding_vfs_in_parallel_equals_binding_them_in_sequence(testbed: &dyn TestBed) -> CaseResult {
    let all = |driver: Option<&str>| -> Vec<Step> {
        (0..INITIAL_VFS).map(|index| bind_step(testbed, index, driver)).collect()
    };
    let (vfio, kernel) = (all(Some("vfio-pci")), all(None));
    execute(testbed, &vfio)?;
    let with_vfio = compare_pf(testbed)?;
    execute(testbed, &kernel)?;
    let with_kernel = without_names(compare_pf(testbed)?);
    execute_in_parallel(testbed, &vfio)?;
    expect_eq("the card with vfio-pci", &compare_pf(testbed)?, &with_vfio)?;
    execute_in_parallel(testbed, &kernel)?;
    expect_eq("the card with the kernel's driver", &without_names(compare_pf(testbed)?), &with_kernel)
}

fn changes_pfs_in_parallel(testbed: &dyn TestBed) -> CaseResult {
    let pfs = [testbed.pf(), testbed.other_pf()];
    execute_in_parallel(testbed, &pfs.map(|pf| Step::SetLinkUp { pf }))?;
    execute_in_parallel(testbed, &pfs.map(|pf| Step::SetNumVfs { pf, count: 2 }))?;
    testbed.admin().settle()?;
    for pf in pfs {
        expect_eq("the number of VFs", &testbed.observer().pf(pf)?.vfs.len(), &2)?;
    }
    execute_in_parallel(testbed, &pfs.map(|pf| Step::SetNumVfs { pf, count: 0 }))
}
