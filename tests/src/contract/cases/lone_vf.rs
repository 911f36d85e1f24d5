//! Lone VFs.

use vfleet_plan::Step;

use super::cases;
use crate::contract::check::{bind_step, compare_pf, ensure, execute, expect_eq, observe_pf, read_pf_facts};
use crate::contract::testbed::{CaseResult, TestBed};

cases! {
    a_pf_is_not_reported_as_a_lone_vf: VfsCreatedDown,
    reports_a_lone_vf_as_its_own_vf: LoneVf,
    binds_a_lone_vf_to_a_named_driver_and_back: LoneVf,
    refuses_to_set_the_number_of_vfs_of_a_lone_vf: LoneVf,
}

fn a_pf_is_not_reported_as_a_lone_vf(testbed: &dyn TestBed) -> CaseResult {
    ensure(!read_pf_facts(testbed)?.is_lone_vf, "a PF is reported as a lone VF")
}

fn reports_a_lone_vf_as_its_own_vf(testbed: &dyn TestBed) -> CaseResult {
    let facts = read_pf_facts(testbed)?;
    ensure(facts.is_lone_vf, "the lone VF is not reported as one")?;
    expect_eq("the total number of VFs", &facts.total_vfs, &1)?;
    let vfs: Vec<_> = facts.vfs.iter().map(|vf| (vf.index, vf.address)).collect();
    expect_eq("the VFs", &vfs, &vec![(0, testbed.pf())])?;
    expect_eq("the driver", &facts.vfs[0].driver, &facts.driver)?;
    expect_eq("the interface", &facts.vfs[0].link, &facts.link)?;
    ensure(facts.link.is_some(), "the VF has no interface")
}

fn binds_a_lone_vf_to_a_named_driver_and_back(testbed: &dyn TestBed) -> CaseResult {
    let before = compare_pf(testbed)?;
    execute(testbed, &[bind_step(testbed, 0, Some("vfio-pci"))])?;
    let bound = compare_pf(testbed)?;
    expect_eq("the driver", &bound.driver.as_deref(), &Some("vfio-pci"))?;
    expect_eq("the interface", &bound.link, &None)?;
    execute(testbed, &[bind_step(testbed, 0, None)])?;
    expect_eq("the card", &compare_pf(testbed)?, &before)
}

fn refuses_to_set_the_number_of_vfs_of_a_lone_vf(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_pf(testbed)?;
    let done = testbed.host().execute(&Step::SetNumVfs { pf: testbed.pf(), count: 0 });
    ensure(done.is_err(), "the step succeeded")?;
    expect_eq("the card", &observe_pf(testbed)?, &before)
}
