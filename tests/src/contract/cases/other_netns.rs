//! VFs whose interface is in another network namespace, as if pods used them.

use super::cases;
use crate::contract::check::{bind_step, compare_pf, ensure, execute, expect_eq, expect_refusal, vf_ref};
use crate::contract::testbed::{CaseResult, TestBed};
use vfleet_plan::Step;

cases! {
    reports_a_vf_in_another_network_namespace: VfsCreatedUp,
    binding_a_vf_returns_it_from_another_network_namespace: VfsCreatedUp,
    removes_a_vf_in_another_network_namespace: VfsCreatedUp,
}

fn reports_a_vf_in_another_network_namespace(testbed: &dyn TestBed) -> CaseResult {
    let before = compare_pf(testbed)?;
    testbed.admin().move_to_other_netns(vf_ref(testbed, 0))?;
    let after = compare_pf(testbed)?;
    expect_eq("the interface", &after.vfs[0].link, &None)?;
    expect_eq("the driver", &after.vfs[0].driver, &before.vfs[0].driver)?;
    expect_eq("the admin MAC", &after.vfs[0].admin_mac, &before.vfs[0].admin_mac)?;
    expect_eq("another VF", &after.vfs[1], &before.vfs[1])
}

fn binding_a_vf_returns_it_from_another_network_namespace(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().move_to_other_netns(vf_ref(testbed, 0))?;
    execute(testbed, &[bind_step(testbed, 0, None)])?;
    ensure(compare_pf(testbed)?.vfs[0].link.is_some(), "the interface of the VF is missing")
}

fn removes_a_vf_in_another_network_namespace(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().move_to_other_netns(vf_ref(testbed, 0))?;
    execute(testbed, &[Step::SetNumVfs { pf: testbed.pf(), count: 0 }])?;
    expect_eq("the VFs", &compare_pf(testbed)?.vfs, &Vec::new())?;
    expect_refusal(testbed, &bind_step(testbed, 0, None), "NoSuchVf").map(drop)
}
