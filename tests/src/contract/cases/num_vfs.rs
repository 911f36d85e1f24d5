//! Number of VFs.

use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::Step;

use super::{INITIAL_VFS, cases};
use crate::contract::check::{compare_pf, ensure, execute, expect_eq, expect_refusal, observe_pf, vf_ref};
use crate::contract::testbed::{CaseResult, TestBed};

cases! {
    creates_vfs: NoVfs,
    removes_vfs: VfsCreatedDown,
    refuses_another_number_while_vfs_exist: VfsCreatedDown,
    refuses_more_vfs_than_the_card_supports: NoVfs,
    setting_the_same_number_of_vfs_changes_nothing: VfsCreatedUp,
    setting_no_vfs_on_a_pf_without_vfs_changes_nothing: NoVfs,
    refuses_to_create_vfs_on_a_missing_card: NoVfs,
    creates_vfs_on_the_right_pf: NoVfs,
}

fn set_step(testbed: &dyn TestBed, count: u16) -> Step {
    Step::SetNumVfs { pf: testbed.pf(), count }
}

fn creates_vfs(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_step(testbed, 3)])?;
    let pf = compare_pf(testbed)?;
    expect_eq("the number of VFs", &pf.vfs.len(), &3)?;
    for vf in &pf.vfs {
        ensure(vf.driver.is_some() && vf.link.is_some(), format!("not bound by the kernel: {vf:?}"))?;
        ensure(vf.vendor == pf.vendor && vf.device != pf.device, format!("not a VF of this card: {vf:?}"))?;
    }
    Ok(())
}

fn removes_vfs(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_step(testbed, 0)])?;
    expect_eq("the VFs", &compare_pf(testbed)?.vfs, &Vec::new())
}

fn refuses_another_number_while_vfs_exist(testbed: &dyn TestBed) -> CaseResult {
    for count in [INITIAL_VFS + 1, INITIAL_VFS - 1] {
        let text = expect_refusal(testbed, &set_step(testbed, count), "VfsExist")?;
        ensure(text.contains("3 VFs") && text.contains("remove them first"), text)?;
    }
    expect_eq("the number of VFs", &observe_pf(testbed)?.vfs.len(), &INITIAL_VFS.into())
}

fn refuses_more_vfs_than_the_card_supports(testbed: &dyn TestBed) -> CaseResult {
    let total = observe_pf(testbed)?.total_vfs;
    let text = expect_refusal(testbed, &set_step(testbed, total + 1), "TooManyVfs")?;
    ensure(text.contains(&total.to_string()), text)?;
    expect_eq("the VFs", &compare_pf(testbed)?.vfs, &Vec::new())
}

fn setting_the_same_number_of_vfs_changes_nothing(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().set_vf_mac(vf_ref(testbed, 1), MacAddr([2, 0, 0, 0, 0xaa, 1]))?;
    let before = observe_pf(testbed)?;
    execute(testbed, &[set_step(testbed, INITIAL_VFS), set_step(testbed, INITIAL_VFS)])?;
    expect_eq("the card", &observe_pf(testbed)?, &before)
}

fn setting_no_vfs_on_a_pf_without_vfs_changes_nothing(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_step(testbed, 0), set_step(testbed, 0)])?;
    expect_eq("the VFs", &observe_pf(testbed)?.vfs, &Vec::new())
}

fn refuses_to_create_vfs_on_a_missing_card(testbed: &dyn TestBed) -> CaseResult {
    if let Some(pf) = PciAddress::new(0, 0xfe, 0, 0) {
        let text = expect_refusal(testbed, &Step::SetNumVfs { pf, count: 1 }, "NoSuchDevice")?;
        ensure(text.contains("0000:fe:00.0"), text)?;
    }
    Ok(())
}

fn creates_vfs_on_the_right_pf(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_step(testbed, 1)])?;
    expect_eq("the number of VFs", &compare_pf(testbed)?.vfs.len(), &1)?;
    expect_eq("the VFs of the other card", &testbed.observer().pf(testbed.other_pf())?.vfs, &Vec::new())
}
