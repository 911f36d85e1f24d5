//! Whether the kernel binds VFs by itself.

use vfleet_api::MacAddr;
use vfleet_plan::Step;

use super::cases;
use crate::contract::bench::{Bench, Shown};
use crate::contract::check::{agree, bind, ensure, execute, look, look_at_vf, refused, same, vf};

cases! {
    switches_autoprobe_off_and_on: NoVfs,
    vfs_made_without_autoprobe_have_no_driver_and_no_address: NoVfs,
    without_autoprobe_the_kernel_binds_nothing: VfsMadeDown,
    without_autoprobe_a_named_driver_is_bound_all_the_same: VfsMadeDown,
}

fn autoprobe(bench: &dyn Bench, on: bool) -> Step {
    Step::SetAutoprobe { pf: bench.pf(), on }
}

fn switches_autoprobe_off_and_on(bench: &dyn Bench) -> Shown {
    for on in [false, false, true, true] {
        execute(bench, &[autoprobe(bench, on)])?;
        same("whether autoprobe is on", &look(bench)?.autoprobe, &on)?;
    }
    Ok(())
}

fn vfs_made_without_autoprobe_have_no_driver_and_no_address(bench: &dyn Bench) -> Shown {
    let pf = bench.pf();
    execute(bench, &[Step::SetLinkUp { pf }, autoprobe(bench, false), Step::SetNumVfs { pf, count: 2 }])?;
    let pf = agree(bench)?;
    same("the number of VFs", &pf.vfs.len(), &2)?;
    for vf in pf.vfs {
        ensure(vf.driver.is_none() && vf.link.is_none(), format!("without a driver: {vf:?}"))?;
        same("the address that the PF keeps", &vf.admin_mac, &Some(MacAddr::ZERO))?;
    }
    Ok(())
}

/// As if it had been made without autoprobe.
fn given_an_unbound_vf(bench: &dyn Bench) -> Shown {
    bench.outsider().set_autoprobe(bench.pf(), false)?;
    bench.outsider().unbind(vf(bench, 0))
}

fn without_autoprobe_the_kernel_binds_nothing(bench: &dyn Bench) -> Shown {
    given_an_unbound_vf(bench)?;
    let text = refused(bench, &bind(bench, 0, None), "AutoprobeOff")?;
    ensure(text.contains("sriov_drivers_autoprobe"), text)?;
    same("the driver", &look_at_vf(bench, 0)?.driver, &None)
}

fn without_autoprobe_a_named_driver_is_bound_all_the_same(bench: &dyn Bench) -> Shown {
    given_an_unbound_vf(bench)?;
    execute(bench, &[bind(bench, 0, Some("vfio-pci"))])?;
    let vf = look_at_vf(bench, 0)?;
    same("the driver", &vf.driver.as_deref(), &Some("vfio-pci"))?;
    same("driver_override", &vf.driver_override, &None)
}
