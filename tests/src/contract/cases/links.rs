//! MTU and link state.

use vfleet_api::PciAddress;
use vfleet_plan::Step;

use super::{INITIAL_VFS, cases};
use crate::contract::check::{
    bind_step, compare_pf, ensure, execute, expect_eq, expect_refusal, expect_some, observe_pf,
    observe_vf_link, vf_ref,
};
use crate::contract::observed::ObservedLink;
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    sets_the_mtu_of_a_pf: NoVfs,
    refuses_an_mtu_outside_the_range_of_the_card: NoVfs,
    sets_the_mtu_of_the_right_vf: VfsCreatedDown,
    sets_the_mtu_of_an_interface_renamed_by_others: VfsCreatedDown,
    waits_for_the_interface_of_a_vf: NoVfs,
    refuses_an_mtu_for_a_vf_without_an_interface: VfsCreatedDown,
    sets_a_pf_up: NoVfs,
    setting_up_a_pf_that_is_up_changes_nothing: NoVfs,
    refuses_steps_for_a_missing_card: NoVfs,
    leaves_the_other_pf_alone: NoVfs,
}

fn set_mtu(testbed: &dyn TestBed, mtu: u32) -> Step {
    Step::SetPfMtu { pf: testbed.pf(), mtu }
}

fn set_vf_mtu(testbed: &dyn TestBed, index: u16, mtu: u32) -> Step {
    Step::SetVfMtu { vf: vf_ref(testbed, index), mtu }
}

fn compare_link(testbed: &dyn TestBed) -> Result<ObservedLink, CaseError> {
    expect_some("the interface", compare_pf(testbed)?.link)
}

fn sets_the_mtu_of_a_pf(testbed: &dyn TestBed) -> CaseResult {
    for mtu in [9000, 9000, 2000, 1500] {
        execute(testbed, &[set_mtu(testbed, mtu)])?;
        expect_eq("the MTU", &compare_link(testbed)?.mtu, &mtu)?;
    }
    Ok(())
}

fn refuses_an_mtu_outside_the_range_of_the_card(testbed: &dyn TestBed) -> CaseResult {
    let max = expect_some("the maximum MTU", compare_link(testbed)?.max_mtu)?;
    let text = expect_refusal(testbed, &set_mtu(testbed, max + 1), "NetlinkRefused")?;
    ensure(text.contains("greater than device maximum") && text.contains("Invalid argument"), text)?;
    let text = expect_refusal(testbed, &set_mtu(testbed, 10), "NetlinkRefused")?;
    ensure(text.contains("less than device minimum"), text)?;
    expect_eq("the MTU", &compare_link(testbed)?.mtu, &1500)
}

fn sets_the_mtu_of_the_right_vf(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_pf(testbed)?;
    execute(testbed, &[set_vf_mtu(testbed, 1, 3000)])?;
    let after = compare_pf(testbed)?;
    expect_eq("the MTU", &after.vfs[1].link.as_ref().map(|link| link.mtu), &Some(3000))?;
    expect_eq("another VF", &after.vfs[0], &before.vfs[0])?;
    expect_eq("the PF's interface", &after.link, &before.link)
}

fn sets_the_mtu_of_an_interface_renamed_by_others(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_vf_mtu(testbed, 1, 3000)])?;
    testbed.admin().rename(vf_ref(testbed, 1), "contract1")?;
    execute(testbed, &[set_vf_mtu(testbed, 1, 4000)])?;
    expect_eq("the MTU", &observe_vf_link(testbed, 1)?.mtu, &4000)
}

fn waits_for_the_interface_of_a_vf(testbed: &dyn TestBed) -> CaseResult {
    let pf = testbed.pf();
    execute(
        testbed,
        &[
            Step::SetAutoprobe { pf, on: false },
            Step::SetNumVfs { pf, count: 1 },
            Step::SetAutoprobe { pf, on: true },
            bind_step(testbed, 0, None),
            set_vf_mtu(testbed, 0, 2500),
        ],
    )?;
    expect_eq("the MTU", &observe_vf_link(testbed, 0)?.mtu, &2500)
}

fn refuses_an_mtu_for_a_vf_without_an_interface(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[bind_step(testbed, 0, Some("vfio-pci"))])?;
    let text = expect_refusal(testbed, &set_vf_mtu(testbed, 0, 3000), "NoInterface")?;
    ensure(text.contains("vf 0"), text)?;
    expect_refusal(testbed, &set_vf_mtu(testbed, INITIAL_VFS, 3000), "NoSuchVf").map(drop)
}

fn sets_a_pf_up(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[Step::SetLinkUp { pf: testbed.pf() }])?;
    ensure(compare_link(testbed)?.up, "the link is not up")
}

fn setting_up_a_pf_that_is_up_changes_nothing(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().set_up(testbed.pf(), true)?;
    let before = observe_pf(testbed)?;
    execute(testbed, &[Step::SetLinkUp { pf: testbed.pf() }])?;
    expect_eq("the card", &observe_pf(testbed)?, &before)
}

fn refuses_steps_for_a_missing_card(testbed: &dyn TestBed) -> CaseResult {
    let Some(pf) = PciAddress::new(0, 0xfe, 0, 0) else { return Ok(()) };
    for step in
        [Step::SetLinkUp { pf }, Step::SetPfMtu { pf, mtu: 9000 }, Step::SetAutoprobe { pf, on: false }]
    {
        expect_refusal(testbed, &step, "NoSuchDevice")?;
    }
    Ok(())
}

fn leaves_the_other_pf_alone(testbed: &dyn TestBed) -> CaseResult {
    let pf = testbed.pf();
    let before = testbed.observer().pf(testbed.other_pf())?;
    execute(
        testbed,
        &[Step::SetPfMtu { pf, mtu: 5000 }, Step::SetAutoprobe { pf, on: false }, Step::SetLinkUp { pf }],
    )?;
    expect_eq("the MTU", &compare_link(testbed)?.mtu, &5000)?;
    expect_eq("the other card", &testbed.observer().pf(testbed.other_pf())?, &before)
}
