//! MAC addresses of VFs: the admin MAC that the PF assigns, and the MAC of the interface.

use vfleet_api::MacAddr;
use vfleet_plan::Step;

use super::{INITIAL_VFS, cases};
use crate::contract::check::{
    bind_step, compare_pf, ensure, execute, expect_eq, expect_refusal, observe_pf, observe_vf,
    observe_vf_link, vf_ref,
};
use crate::contract::testbed::{CaseResult, TestBed};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0xbb, 1]);

cases! {
    sets_the_mac_of_the_right_vf: VfsCreatedDown,
    setting_the_same_mac_twice_is_harmless: VfsCreatedDown,
    a_mac_takes_effect_at_the_next_bind: VfsCreatedUp,
    a_mac_survives_a_driver_change: VfsCreatedUp,
    a_mac_set_before_the_first_bind_is_used_by_the_interface: NoVfs,
    vfs_created_while_the_pf_is_up_have_the_mac_of_their_interface: VfsCreatedUp,
    vfs_created_while_the_pf_is_down_have_an_interface_and_no_admin_mac: VfsCreatedDown,
    a_vf_bound_while_the_pf_is_down_generates_a_mac: VfsCreatedDown,
    a_mac_generated_by_a_vf_is_stable: VfsCreatedUp,
    setting_a_pf_up_assigns_no_macs_to_its_vfs: VfsCreatedDown,
    refuses_a_mac_for_a_missing_vf: VfsCreatedDown,
    refuses_a_multicast_mac: VfsCreatedDown,
    refuses_a_vf_mac_on_a_pf_without_vfs: NoVfs,
}

fn set_step(testbed: &dyn TestBed, index: u16, mac: MacAddr) -> Step {
    Step::SetVfMac { vf: vf_ref(testbed, index), mac }
}

fn sets_the_mac_of_the_right_vf(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_step(testbed, 1, MAC)])?;
    let macs: Vec<_> = compare_pf(testbed)?.vfs.iter().map(|vf| vf.admin_mac).collect();
    expect_eq("the admin MACs", &macs, &vec![Some(MacAddr::ZERO), Some(MAC), Some(MacAddr::ZERO)])
}

fn setting_the_same_mac_twice_is_harmless(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_step(testbed, 0, MAC)])?;
    let before = observe_pf(testbed)?;
    execute(testbed, &[set_step(testbed, 0, MAC)])?;
    expect_eq("the card", &observe_pf(testbed)?, &before)
}

fn a_mac_takes_effect_at_the_next_bind(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_pf(testbed)?;
    execute(testbed, &[set_step(testbed, 0, MAC)])?;
    let meanwhile = observe_pf(testbed)?;
    expect_eq("the interface before the bind", &meanwhile.vfs[0].link, &before.vfs[0].link)?;
    execute(testbed, &[bind_step(testbed, 0, None)])?;
    let after = compare_pf(testbed)?;
    expect_eq("the admin MAC", &after.vfs[0].admin_mac, &Some(MAC))?;
    let mac = after.vfs[0].link.as_ref().and_then(|link| link.mac);
    expect_eq("the MAC of the interface", &mac, &Some(MAC))?;
    expect_eq("another VF", &after.vfs[1], &before.vfs[1])
}

fn a_mac_survives_a_driver_change(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_step(testbed, 0, MAC), bind_step(testbed, 0, Some("vfio-pci"))])?;
    expect_eq("the admin MAC", &observe_vf(testbed, 0)?.admin_mac, &Some(MAC))?;
    execute(testbed, &[bind_step(testbed, 0, None)])?;
    expect_eq("the admin MAC", &observe_vf(testbed, 0)?.admin_mac, &Some(MAC))?;
    expect_eq("the MAC of the interface", &observe_vf_link(testbed, 0)?.mac, &Some(MAC))
}

/// Uses the same order of steps as the planner.
fn a_mac_set_before_the_first_bind_is_used_by_the_interface(testbed: &dyn TestBed) -> CaseResult {
    let pf = testbed.pf();
    execute(
        testbed,
        &[
            Step::SetLinkUp { pf },
            Step::SetAutoprobe { pf, on: false },
            Step::SetNumVfs { pf, count: 1 },
            set_step(testbed, 0, MAC),
            Step::SetAutoprobe { pf, on: true },
            bind_step(testbed, 0, None),
        ],
    )?;
    let vf = compare_pf(testbed)?.vfs.remove(0);
    expect_eq("the admin MAC", &vf.admin_mac, &Some(MAC))?;
    expect_eq("the MAC of the interface", &vf.link.and_then(|link| link.mac), &Some(MAC))
}

fn vfs_created_while_the_pf_is_up_have_the_mac_of_their_interface(testbed: &dyn TestBed) -> CaseResult {
    for vf in compare_pf(testbed)?.vfs {
        ensure(vf.admin_mac.is_some_and(MacAddr::is_usable), format!("no usable admin MAC: {vf:?}"))?;
        expect_eq("the MAC of the interface", &vf.link.and_then(|link| link.mac), &vf.admin_mac)?;
    }
    Ok(())
}

fn vfs_created_while_the_pf_is_down_have_an_interface_and_no_admin_mac(testbed: &dyn TestBed) -> CaseResult {
    let vf = compare_pf(testbed)?.vfs.remove(0);
    expect_eq("the admin MAC", &vf.admin_mac, &Some(MacAddr::ZERO))?;
    ensure(
        vf.link.is_some_and(|link| link.mac.is_some_and(MacAddr::is_usable)),
        "the interface has no usable MAC",
    )
}

fn a_vf_bound_while_the_pf_is_down_generates_a_mac(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_step(testbed, 0, MAC), bind_step(testbed, 0, None)])?;
    let vf = compare_pf(testbed)?.vfs.remove(0);
    expect_eq("the admin MAC", &vf.admin_mac, &Some(MAC))?;
    let mac = vf.link.and_then(|link| link.mac);
    ensure(
        mac.is_some_and(|mac| mac.is_usable() && mac != MAC),
        format!("expected a generated MAC, found {mac:?}"),
    )
}

/// udev makes the MAC stable: the driver alone generates a new one at each bind.
fn a_mac_generated_by_a_vf_is_stable(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_pf(testbed)?;
    execute(testbed, &[bind_step(testbed, 0, None)])?;
    expect_eq("the card", &compare_pf(testbed)?, &before)
}

fn setting_a_pf_up_assigns_no_macs_to_its_vfs(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_vf(testbed, 0)?;
    execute(testbed, &[Step::SetLinkUp { pf: testbed.pf() }])?;
    expect_eq("the VF", &observe_vf(testbed, 0)?, &before)
}

fn refuses_a_mac_for_a_missing_vf(testbed: &dyn TestBed) -> CaseResult {
    let text = expect_refusal(testbed, &set_step(testbed, INITIAL_VFS, MAC), "NoSuchVf")?;
    ensure(text.contains("vf 3"), text)
}

fn refuses_a_multicast_mac(testbed: &dyn TestBed) -> CaseResult {
    expect_refusal(testbed, &set_step(testbed, 0, MacAddr([1, 0, 0x5e, 0, 0, 1])), "NetlinkRefused")?;
    expect_eq("the admin MAC", &observe_vf(testbed, 0)?.admin_mac, &Some(MacAddr::ZERO))
}

fn refuses_a_vf_mac_on_a_pf_without_vfs(testbed: &dyn TestBed) -> CaseResult {
    let text = expect_refusal(testbed, &set_step(testbed, 0, MAC), "NoSuchVf")?;
    ensure(text.contains("has 0 VFs"), text)
}
