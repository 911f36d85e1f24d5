//! Kernel modules.

use vfleet_plan::{ModuleState, Step};

use super::cases;
use crate::contract::check::{bind_step, compare_pf, ensure, execute, expect_eq, expect_refusal};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

/// Module that every kernel has and that is not loaded.
const MODULE: &str = "uio_pci_generic";

cases! {
    reports_a_loaded_module: NoVfs,
    reports_a_loadable_module: NoVfs,
    loads_a_module: NoVfs,
    loading_a_module_twice_is_harmless: NoVfs,
    refuses_a_missing_module: NoVfs,
    loading_a_module_makes_its_driver_available: VfsCreatedDown,
}

fn load(module: &str) -> Step {
    Step::LoadModule { module: module.to_owned(), options: Vec::new() }
}

fn read_state(testbed: &dyn TestBed, module: &str) -> Result<Option<ModuleState>, CaseError> {
    Ok(testbed.host().facts()?.kernel.modules.get(module).copied())
}

fn reports_a_loaded_module(testbed: &dyn TestBed) -> CaseResult {
    ensure(testbed.observer().is_module_loaded("vfio_pci")?, "the test bed has not loaded vfio_pci")?;
    expect_eq("vfio_pci", &read_state(testbed, "vfio_pci")?, &Some(ModuleState::Loaded))?;
    expect_eq("igb_uio, which is not installed", &read_state(testbed, "igb_uio")?, &None)
}

fn reports_a_loadable_module(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().unload_module(MODULE)?;
    expect_eq("the module", &read_state(testbed, MODULE)?, &Some(ModuleState::Loadable))
}

fn loads_a_module(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().unload_module(MODULE)?;
    expect_eq("the module", &read_state(testbed, MODULE)?, &Some(ModuleState::Loadable))?;
    execute(testbed, &[load(MODULE)])?;
    ensure(testbed.observer().is_module_loaded(MODULE)?, "the module is not loaded")?;
    expect_eq("the module", &read_state(testbed, MODULE)?, &Some(ModuleState::Loaded))
}

fn loading_a_module_twice_is_harmless(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[load(MODULE), load(MODULE)])?;
    ensure(testbed.observer().is_module_loaded(MODULE)?, "the module is not loaded")
}

fn refuses_a_missing_module(testbed: &dyn TestBed) -> CaseResult {
    let text = expect_refusal(testbed, &load("igb_uio"), "NoSuchModule")?;
    ensure(text.contains("igb_uio") && text.contains("install"), text)
}

fn loading_a_module_makes_its_driver_available(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().unload_module(MODULE)?;
    let bind = bind_step(testbed, 0, Some(MODULE));
    expect_refusal(testbed, &bind, "DriverNotLoaded")?;
    execute(testbed, &[load(MODULE), bind])?;
    expect_eq("the driver", &compare_pf(testbed)?.vfs[0].driver.as_deref(), &Some(MODULE))?;
    execute(testbed, &[bind_step(testbed, 0, None)])
}
