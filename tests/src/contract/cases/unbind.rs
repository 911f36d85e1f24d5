//! Taking VFs from their drivers.

use vfleet_api::MacAddr;
use vfleet_plan::Step;

use super::cases;
use crate::contract::bench::{Bench, Shown};
use crate::contract::check::{agree, bind, ensure, execute, look, refused, same, vf};

cases! {
    unbinds_a_vf: VfsMadeUp,
    unbinds_the_right_vf: VfsMadeUp,
    unbinding_twice_is_harmless: VfsMadeDown,
    unbinds_from_a_driver_for_programs: VfsMadeDown,
    an_unbound_vf_keeps_its_address: VfsMadeUp,
    unbinds_a_vf_that_is_held_elsewhere: VfsMadeUp,
    refuses_to_unbind_a_vf_that_is_not_there: NoVfs,
}

fn unbind(bench: &dyn Bench, index: u16) -> Step {
    Step::UnbindVf { vf: vf(bench, index) }
}

fn unbinds_a_vf(bench: &dyn Bench) -> Shown {
    execute(bench, &[unbind(bench, 0)])?;
    let vf = agree(bench)?.vfs.remove(0);
    same("its driver and interface", &(vf.driver, vf.link), &(None, None))
}

fn unbinds_the_right_vf(bench: &dyn Bench) -> Shown {
    let before = look(bench)?;
    execute(bench, &[unbind(bench, 1)])?;
    let after = agree(bench)?;
    same("its driver", &after.vfs[1].driver, &None)?;
    same("the VF before it", &after.vfs[0], &before.vfs[0])?;
    same("the VF after it", &after.vfs[2], &before.vfs[2])
}

fn unbinding_twice_is_harmless(bench: &dyn Bench) -> Shown {
    execute(bench, &[unbind(bench, 0)])?;
    let before = look(bench)?;
    execute(bench, &[unbind(bench, 0)])?;
    same("the card", &look(bench)?, &before)
}

fn unbinds_from_a_driver_for_programs(bench: &dyn Bench) -> Shown {
    execute(bench, &[bind(bench, 0, Some("vfio-pci")), unbind(bench, 0)])?;
    let vf = agree(bench)?.vfs.remove(0);
    same("its driver and override", &(vf.driver, vf.driver_override), &(None, None))
}

fn an_unbound_vf_keeps_its_address(bench: &dyn Bench) -> Shown {
    let mac = MacAddr([2, 0, 0, 0, 0xbb, 1]);
    execute(bench, &[Step::SetVfMac { vf: vf(bench, 0), mac }, unbind(bench, 0)])?;
    same("the address that the PF keeps", &agree(bench)?.vfs[0].admin_mac, &Some(mac))?;
    execute(bench, &[bind(bench, 0, None)])?;
    let link = agree(bench)?.vfs.remove(0).link;
    same("the address of its interface", &link.and_then(|link| link.mac), &Some(mac))
}

fn unbinds_a_vf_that_is_held_elsewhere(bench: &dyn Bench) -> Shown {
    bench.outsider().hold_elsewhere(vf(bench, 0))?;
    execute(bench, &[unbind(bench, 0)])?;
    same("its driver", &agree(bench)?.vfs[0].driver, &None)?;
    execute(bench, &[bind(bench, 0, None)])?;
    ensure(agree(bench)?.vfs[0].link.is_some(), "its interface is here once it is bound again")
}

fn refuses_to_unbind_a_vf_that_is_not_there(bench: &dyn Bench) -> Shown {
    refused(bench, &unbind(bench, 3), "NoSuchVf").map(drop)
}
