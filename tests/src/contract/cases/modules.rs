//! Modules of the kernel.

use vfleet_plan::{ModuleState, Step};

use super::cases;
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{agree, bind, ensure, execute, refused, same};

/// Every kernel has it, and nobody has loaded it.
const MODULE: &str = "uio_pci_generic";

cases! {
    tells_a_module_that_is_loaded: NoVfs,
    tells_a_module_that_could_be_loaded: NoVfs,
    loads_a_module: NoVfs,
    loading_a_module_twice_is_harmless: NoVfs,
    refuses_a_module_that_is_not_there: NoVfs,
    a_module_brings_its_driver: VfsMadeDown,
}

fn load(module: &str) -> Step {
    Step::LoadModule { module: module.to_owned(), options: Vec::new() }
}

fn told(bench: &dyn Bench, module: &str) -> Result<Option<ModuleState>, Stop> {
    Ok(bench.host().facts()?.kernel.modules.get(module).copied())
}

fn tells_a_module_that_is_loaded(bench: &dyn Bench) -> Shown {
    ensure(bench.witness().is_loaded("vfio_pci")?, "the bench has loaded vfio_pci")?;
    same("vfio_pci", &told(bench, "vfio_pci")?, &Some(ModuleState::Loaded))?;
    same("igb_uio, which no kernel has", &told(bench, "igb_uio")?, &None)
}

fn tells_a_module_that_could_be_loaded(bench: &dyn Bench) -> Shown {
    bench.outsider().unload_module(MODULE)?;
    same("the module", &told(bench, MODULE)?, &Some(ModuleState::Loadable))
}

fn loads_a_module(bench: &dyn Bench) -> Shown {
    bench.outsider().unload_module(MODULE)?;
    same("the module", &told(bench, MODULE)?, &Some(ModuleState::Loadable))?;
    execute(bench, &[load(MODULE)])?;
    ensure(bench.witness().is_loaded(MODULE)?, "it is not loaded")?;
    same("the module", &told(bench, MODULE)?, &Some(ModuleState::Loaded))
}

fn loading_a_module_twice_is_harmless(bench: &dyn Bench) -> Shown {
    execute(bench, &[load(MODULE), load(MODULE)])?;
    ensure(bench.witness().is_loaded(MODULE)?, "it is not loaded")
}

fn refuses_a_module_that_is_not_there(bench: &dyn Bench) -> Shown {
    let text = refused(bench, &load("igb_uio"), "NoSuchModule")?;
    ensure(text.contains("igb_uio") && text.contains("install"), text)
}

fn a_module_brings_its_driver(bench: &dyn Bench) -> Shown {
    bench.outsider().unload_module(MODULE)?;
    let bound = bind(bench, 0, Some(MODULE));
    refused(bench, &bound, "DriverNotLoaded")?;
    execute(bench, &[load(MODULE), bound])?;
    same("the driver", &agree(bench)?.vfs[0].driver.as_deref(), &Some(MODULE))?;
    execute(bench, &[bind(bench, 0, None)])
}
