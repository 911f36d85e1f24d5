//! Binding VFs to drivers.

use vfleet_plan::is_userspace_driver;

use super::cases;
use crate::contract::bench::{Bench, Shown};
use crate::contract::check::{agree, bind, ensure, execute, look, look_at_vf, refused, same, vf};

const VFIO: Option<&str> = Some("vfio-pci");

cases! {
    binds_to_a_named_driver_and_back: VfsMadeUp,
    binds_the_right_vf: VfsMadeUp,
    binds_an_unbound_vf_to_the_kernels_driver: VfsMadeDown,
    binding_to_a_named_driver_twice_is_harmless: VfsMadeDown,
    binding_to_the_kernels_driver_twice_is_harmless: VfsMadeDown,
    clears_an_override_that_others_left: VfsMadeDown,
    leaves_no_override_behind: VfsMadeDown,
    refuses_a_driver_that_is_not_loaded: VfsMadeDown,
    a_driver_that_does_not_take_the_vf_is_an_error: VfsMadeDown,
    refuses_to_bind_a_vf_that_is_not_there: NoVfs,
}

fn binds_to_a_named_driver_and_back(bench: &dyn Bench) -> Shown {
    let before = look_at_vf(bench, 0)?;
    execute(bench, &[bind(bench, 0, VFIO)])?;
    let vf = agree(bench)?.vfs.remove(0);
    same("the driver", &vf.driver.as_deref(), &VFIO)?;
    same("the interface", &vf.link, &None)?;
    execute(bench, &[bind(bench, 0, None)])?;
    let vf = agree(bench)?.vfs.remove(0);
    same("the driver", &vf.driver, &before.driver)?;
    ensure(vf.link.is_some(), "it has an interface again")
}

fn binds_the_right_vf(bench: &dyn Bench) -> Shown {
    let before = look(bench)?;
    execute(bench, &[bind(bench, 1, VFIO)])?;
    let after = agree(bench)?;
    same("the driver", &after.vfs[1].driver.as_deref(), &VFIO)?;
    same("the VF before it", &after.vfs[0], &before.vfs[0])?;
    same("the VF after it", &after.vfs[2], &before.vfs[2])
}

fn binds_an_unbound_vf_to_the_kernels_driver(bench: &dyn Bench) -> Shown {
    bench.outsider().unbind(vf(bench, 0))?;
    execute(bench, &[bind(bench, 0, None)])?;
    let vf = agree(bench)?.vfs.remove(0);
    let driver = vf.driver.unwrap_or_default();
    ensure(!driver.is_empty() && !is_userspace_driver(&driver), format!("the driver: {driver:?}"))?;
    ensure(vf.link.is_some(), "it has an interface")
}

fn binding_to_a_named_driver_twice_is_harmless(bench: &dyn Bench) -> Shown {
    execute(bench, &[bind(bench, 0, VFIO)])?;
    let before = look(bench)?;
    execute(bench, &[bind(bench, 0, VFIO)])?;
    same("the card", &look(bench)?, &before)
}

fn binding_to_the_kernels_driver_twice_is_harmless(bench: &dyn Bench) -> Shown {
    let driver = look_at_vf(bench, 0)?.driver;
    execute(bench, &[bind(bench, 0, None), bind(bench, 0, None)])?;
    let vf = agree(bench)?.vfs.remove(0);
    same("the driver", &vf.driver, &driver)?;
    ensure(vf.link.is_some(), "it has an interface")
}

fn clears_an_override_that_others_left(bench: &dyn Bench) -> Shown {
    let driver = look_at_vf(bench, 0)?.driver;
    bench.outsider().set_override(vf(bench, 0), VFIO)?;
    execute(bench, &[bind(bench, 0, None)])?;
    let vf = look_at_vf(bench, 0)?;
    same("the driver", &vf.driver, &driver)?;
    same("driver_override", &vf.driver_override, &None)
}

fn leaves_no_override_behind(bench: &dyn Bench) -> Shown {
    for driver in [VFIO, None] {
        execute(bench, &[bind(bench, 0, driver)])?;
        same("driver_override", &look_at_vf(bench, 0)?.driver_override, &None)?;
    }
    Ok(())
}

fn refuses_a_driver_that_is_not_loaded(bench: &dyn Bench) -> Shown {
    let before = look(bench)?;
    let text = refused(bench, &bind(bench, 0, Some("no-such-driver")), "DriverNotLoaded")?;
    ensure(text.contains("no-such-driver") && text.contains("load its module"), text)?;
    same("the card", &look(bench)?, &before)
}

fn a_driver_that_does_not_take_the_vf_is_an_error(bench: &dyn Bench) -> Shown {
    // The PF's own driver is loaded, and wants no VFs.
    let driver = look(bench)?.driver;
    let text = refused(bench, &bind(bench, 0, driver.as_deref()), "NotVerified")?;
    ensure(text.contains(&driver.unwrap_or_default()), text)?;
    let vf = look_at_vf(bench, 0)?;
    same("the driver", &vf.driver, &None)?;
    same("driver_override", &vf.driver_override, &None)
}

fn refuses_to_bind_a_vf_that_is_not_there(bench: &dyn Bench) -> Shown {
    for driver in [VFIO, None] {
        let text = refused(bench, &bind(bench, 3, driver), "NoSuchVf")?;
        ensure(text.contains("vf 3"), text)?;
    }
    Ok(())
}
