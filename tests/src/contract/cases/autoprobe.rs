//! Autoprobe: binding of new VFs by the kernel.

use vfleet_api::MacAddr;
use vfleet_plan::Step;

use super::cases;
use crate::contract::check::{
    bind_step, compare_pf, ensure, execute, expect_eq, expect_refusal, observe_pf, observe_vf, vf_ref,
};
use crate::contract::testbed::{CaseResult, TestBed};

cases! {
    switches_autoprobe_off_and_on: NoVfs,
    vfs_created_without_autoprobe_have_no_driver_and_no_mac: NoVfs,
    without_autoprobe_the_kernel_binds_nothing: VfsCreatedDown,
    without_autoprobe_a_named_driver_is_still_bound: VfsCreatedDown,
}

fn autoprobe_step(testbed: &dyn TestBed, on: bool) -> Step {
    Step::SetAutoprobe { pf: testbed.pf(), on }
}

fn switches_autoprobe_off_and_on(testbed: &dyn TestBed) -> CaseResult {
    for on in [false, false, true, true] {
        execute(testbed, &[autoprobe_step(testbed, on)])?;
        expect_eq("autoprobe", &observe_pf(testbed)?.autoprobe, &on)?;
    }
    Ok(())
}

fn vfs_created_without_autoprobe_have_no_driver_and_no_mac(testbed: &dyn TestBed) -> CaseResult {
    let pf = testbed.pf();
    execute(
        testbed,
        &[Step::SetLinkUp { pf }, autoprobe_step(testbed, false), Step::SetNumVfs { pf, count: 2 }],
    )?;
    let pf = compare_pf(testbed)?;
    expect_eq("the number of VFs", &pf.vfs.len(), &2)?;
    for vf in pf.vfs {
        ensure(vf.driver.is_none() && vf.link.is_none(), format!("has a driver or an interface: {vf:?}"))?;
        expect_eq("the admin MAC", &vf.admin_mac, &Some(MacAddr::ZERO))?;
    }
    Ok(())
}

/// Switches autoprobe off and unbinds VF 0, as if the VF had been created without autoprobe.
fn prepare_unbound_vf(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().set_autoprobe(testbed.pf(), false)?;
    testbed.admin().unbind(vf_ref(testbed, 0))
}

fn without_autoprobe_the_kernel_binds_nothing(testbed: &dyn TestBed) -> CaseResult {
    prepare_unbound_vf(testbed)?;
    let text = expect_refusal(testbed, &bind_step(testbed, 0, None), "AutoprobeOff")?;
    ensure(text.contains("sriov_drivers_autoprobe"), text)?;
    expect_eq("the driver", &observe_vf(testbed, 0)?.driver, &None)
}

fn without_autoprobe_a_named_driver_is_still_bound(testbed: &dyn TestBed) -> CaseResult {
    prepare_unbound_vf(testbed)?;
    execute(testbed, &[bind_step(testbed, 0, Some("vfio-pci"))])?;
    let vf = observe_vf(testbed, 0)?;
    expect_eq("the driver", &vf.driver.as_deref(), &Some("vfio-pci"))?;
    expect_eq("driver_override", &vf.driver_override, &None)
}
