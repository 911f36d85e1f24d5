//! Drivers of VFs.

use vfleet_plan::is_userspace_driver;

use super::cases;
use crate::contract::check::{
    bind_step, compare_pf, ensure, execute, expect_eq, expect_refusal, observe_pf, observe_vf, vf_ref,
};
use crate::contract::testbed::{CaseResult, TestBed};

const VFIO: Option<&str> = Some("vfio-pci");

cases! {
    binds_to_a_named_driver_and_back: VfsCreatedUp,
    binds_the_right_vf: VfsCreatedUp,
    binds_an_unbound_vf_to_the_kernels_driver: VfsCreatedDown,
    binding_to_a_named_driver_twice_is_harmless: VfsCreatedDown,
    binding_to_the_kernels_driver_twice_is_harmless: VfsCreatedDown,
    clears_a_driver_override_left_by_others: VfsCreatedDown,
    leaves_no_driver_override_behind: VfsCreatedDown,
    refuses_a_driver_that_is_not_loaded: VfsCreatedDown,
    a_driver_that_does_not_support_the_vf_is_an_error: VfsCreatedDown,
    refuses_to_bind_a_missing_vf: NoVfs,
}

fn binds_to_a_named_driver_and_back(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_vf(testbed, 0)?;
    execute(testbed, &[bind_step(testbed, 0, VFIO)])?;
    let vf = compare_pf(testbed)?.vfs.remove(0);
    expect_eq("the driver", &vf.driver.as_deref(), &VFIO)?;
    expect_eq("the interface", &vf.link, &None)?;
    execute(testbed, &[bind_step(testbed, 0, None)])?;
    let vf = compare_pf(testbed)?.vfs.remove(0);
    expect_eq("the driver", &vf.driver, &before.driver)?;
    ensure(vf.link.is_some(), "the VF has no interface")
}

fn binds_the_right_vf(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_pf(testbed)?;
    execute(testbed, &[bind_step(testbed, 1, VFIO)])?;
    let after = compare_pf(testbed)?;
    expect_eq("the driver", &after.vfs[1].driver.as_deref(), &VFIO)?;
    expect_eq("the previous VF", &after.vfs[0], &before.vfs[0])?;
    expect_eq("the next VF", &after.vfs[2], &before.vfs[2])
}

fn binds_an_unbound_vf_to_the_kernels_driver(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().unbind(vf_ref(testbed, 0))?;
    execute(testbed, &[bind_step(testbed, 0, None)])?;
    let vf = compare_pf(testbed)?.vfs.remove(0);
    let driver = vf.driver.unwrap_or_default();
    ensure(!driver.is_empty() && !is_userspace_driver(&driver), format!("the driver: {driver:?}"))?;
    ensure(vf.link.is_some(), "the VF has no interface")
}

fn binding_to_a_named_driver_twice_is_harmless(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[bind_step(testbed, 0, VFIO)])?;
    let before = observe_pf(testbed)?;
    execute(testbed, &[bind_step(testbed, 0, VFIO)])?;
    expect_eq("the card", &observe_pf(testbed)?, &before)
}

fn binding_to_the_kernels_driver_twice_is_harmless(testbed: &dyn TestBed) -> CaseResult {
    let driver = observe_vf(testbed, 0)?.driver;
    execute(testbed, &[bind_step(testbed, 0, None), bind_step(testbed, 0, None)])?;
    let vf = compare_pf(testbed)?.vfs.remove(0);
    expect_eq("the driver", &vf.driver, &driver)?;
    ensure(vf.link.is_some(), "the VF has no interface")
}

fn clears_a_driver_override_left_by_others(testbed: &dyn TestBed) -> CaseResult {
    let driver = observe_vf(testbed, 0)?.driver;
    testbed.admin().set_override(vf_ref(testbed, 0), VFIO)?;
    execute(testbed, &[bind_step(testbed, 0, None)])?;
    let vf = observe_vf(testbed, 0)?;
    expect_eq("the driver", &vf.driver, &driver)?;
    expect_eq("driver_override", &vf.driver_override, &None)
}

fn leaves_no_driver_override_behind(testbed: &dyn TestBed) -> CaseResult {
    for driver in [VFIO, None] {
        execute(testbed, &[bind_step(testbed, 0, driver)])?;
        expect_eq("driver_override", &observe_vf(testbed, 0)?.driver_override, &None)?;
    }
    Ok(())
}

fn refuses_a_driver_that_is_not_loaded(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_pf(testbed)?;
    let text = expect_refusal(testbed, &bind_step(testbed, 0, Some("no-such-driver")), "DriverNotLoaded")?;
    ensure(text.contains("no-such-driver") && text.contains("load its module"), text)?;
    expect_eq("the card", &observe_pf(testbed)?, &before)
}

fn a_driver_that_does_not_support_the_vf_is_an_error(testbed: &dyn TestBed) -> CaseResult {
    // The driver of the PF is loaded, but does not support VFs.
    let driver = observe_pf(testbed)?.driver;
    let text = expect_refusal(testbed, &bind_step(testbed, 0, driver.as_deref()), "NotVerified")?;
    ensure(text.contains(&driver.unwrap_or_default()), text)?;
    let vf = observe_vf(testbed, 0)?;
    expect_eq("the driver", &vf.driver, &None)?;
    expect_eq("driver_override", &vf.driver_override, &None)
}

fn refuses_to_bind_a_missing_vf(testbed: &dyn TestBed) -> CaseResult {
    for driver in [VFIO, None] {
        let text = expect_refusal(testbed, &bind_step(testbed, 3, driver), "NoSuchVf")?;
        ensure(text.contains("vf 3"), text)?;
    }
    Ok(())
}
