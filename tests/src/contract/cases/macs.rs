//! The addresses that a PF keeps for its VFs, and those of their interfaces.

use vfleet_api::MacAddr;
use vfleet_plan::Step;

use super::{GIVEN_VFS, cases};
use crate::contract::bench::{Bench, Shown};
use crate::contract::check::{
    agree, bind, ensure, execute, look, look_at_vf, look_at_vf_link, refused, same, vf,
};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0xbb, 1]);

cases! {
    sets_the_address_of_the_right_vf: VfsMadeDown,
    setting_the_same_address_twice_is_harmless: VfsMadeDown,
    an_address_reaches_the_interface_at_the_next_bind: VfsMadeUp,
    an_address_survives_another_driver: VfsMadeUp,
    an_address_set_before_the_first_bind_is_the_interfaces: NoVfs,
    vfs_made_while_up_have_the_address_of_their_interface: VfsMadeUp,
    vfs_made_while_down_have_an_interface_and_no_address: VfsMadeDown,
    a_vf_bound_while_the_pf_is_down_makes_up_an_address: VfsMadeDown,
    an_address_that_a_vf_made_up_is_the_same_again: VfsMadeUp,
    setting_up_gives_no_address_to_vfs_that_have_none: VfsMadeDown,
    refuses_an_address_for_a_vf_that_is_not_there: VfsMadeDown,
    refuses_a_group_address: VfsMadeDown,
    without_vfs_there_is_no_vf_to_give_an_address: NoVfs,
}

fn set(bench: &dyn Bench, index: u16, mac: MacAddr) -> Step {
    Step::SetVfMac { vf: vf(bench, index), mac }
}

fn sets_the_address_of_the_right_vf(bench: &dyn Bench) -> Shown {
    execute(bench, &[set(bench, 1, MAC)])?;
    let kept: Vec<_> = agree(bench)?.vfs.iter().map(|vf| vf.admin_mac).collect();
    same("the addresses", &kept, &vec![Some(MacAddr::ZERO), Some(MAC), Some(MacAddr::ZERO)])
}

fn setting_the_same_address_twice_is_harmless(bench: &dyn Bench) -> Shown {
    execute(bench, &[set(bench, 0, MAC)])?;
    let before = look(bench)?;
    execute(bench, &[set(bench, 0, MAC)])?;
    same("the card", &look(bench)?, &before)
}

fn an_address_reaches_the_interface_at_the_next_bind(bench: &dyn Bench) -> Shown {
    let before = look(bench)?;
    execute(bench, &[set(bench, 0, MAC)])?;
    let meanwhile = look(bench)?;
    same("the interface before it is bound again", &meanwhile.vfs[0].link, &before.vfs[0].link)?;
    execute(bench, &[bind(bench, 0, None)])?;
    let after = agree(bench)?;
    same("the address that the PF keeps", &after.vfs[0].admin_mac, &Some(MAC))?;
    let mac = after.vfs[0].link.as_ref().and_then(|link| link.mac);
    same("the address of the interface", &mac, &Some(MAC))?;
    same("the other VF", &after.vfs[1], &before.vfs[1])
}

fn an_address_survives_another_driver(bench: &dyn Bench) -> Shown {
    execute(bench, &[set(bench, 0, MAC), bind(bench, 0, Some("vfio-pci"))])?;
    same("the address that the PF keeps", &look_at_vf(bench, 0)?.admin_mac, &Some(MAC))?;
    execute(bench, &[bind(bench, 0, None)])?;
    same("the address that the PF keeps", &look_at_vf(bench, 0)?.admin_mac, &Some(MAC))?;
    same("the address of the interface", &look_at_vf_link(bench, 0)?.mac, &Some(MAC))
}

/// The way that the planner goes.
fn an_address_set_before_the_first_bind_is_the_interfaces(bench: &dyn Bench) -> Shown {
    let pf = bench.pf();
    execute(
        bench,
        &[
            Step::SetLinkUp { pf },
            Step::SetAutoprobe { pf, on: false },
            Step::SetNumVfs { pf, count: 1 },
            set(bench, 0, MAC),
            Step::SetAutoprobe { pf, on: true },
            bind(bench, 0, None),
        ],
    )?;
    let vf = agree(bench)?.vfs.remove(0);
    same("the address that the PF keeps", &vf.admin_mac, &Some(MAC))?;
    same("the address of the interface", &vf.link.and_then(|link| link.mac), &Some(MAC))
}

fn vfs_made_while_up_have_the_address_of_their_interface(bench: &dyn Bench) -> Shown {
    for vf in agree(bench)?.vfs {
        ensure(vf.admin_mac.is_some_and(MacAddr::is_usable), format!("has an address: {vf:?}"))?;
        same("the address of the interface", &vf.link.and_then(|link| link.mac), &vf.admin_mac)?;
    }
    Ok(())
}

fn vfs_made_while_down_have_an_interface_and_no_address(bench: &dyn Bench) -> Shown {
    let vf = agree(bench)?.vfs.remove(0);
    same("the address that the PF keeps", &vf.admin_mac, &Some(MacAddr::ZERO))?;
    ensure(vf.link.is_some_and(|link| link.mac.is_some_and(MacAddr::is_usable)), "the interface has one")
}

fn a_vf_bound_while_the_pf_is_down_makes_up_an_address(bench: &dyn Bench) -> Shown {
    execute(bench, &[set(bench, 0, MAC), bind(bench, 0, None)])?;
    let vf = agree(bench)?.vfs.remove(0);
    same("the address that the PF keeps", &vf.admin_mac, &Some(MAC))?;
    let mac = vf.link.and_then(|link| link.mac);
    ensure(mac.is_some_and(|mac| mac.is_usable() && mac != MAC), format!("it cannot ask the PF: {mac:?}"))
}

/// Thanks to udev: the driver alone makes up another one each time.
fn an_address_that_a_vf_made_up_is_the_same_again(bench: &dyn Bench) -> Shown {
    let before = look(bench)?;
    execute(bench, &[bind(bench, 0, None)])?;
    same("the card", &agree(bench)?, &before)
}

fn setting_up_gives_no_address_to_vfs_that_have_none(bench: &dyn Bench) -> Shown {
    let before = look_at_vf(bench, 0)?;
    execute(bench, &[Step::SetLinkUp { pf: bench.pf() }])?;
    same("the VF", &look_at_vf(bench, 0)?, &before)
}

fn refuses_an_address_for_a_vf_that_is_not_there(bench: &dyn Bench) -> Shown {
    let text = refused(bench, &set(bench, GIVEN_VFS, MAC), "NoSuchVf")?;
    ensure(text.contains("vf 3"), text)
}

fn refuses_a_group_address(bench: &dyn Bench) -> Shown {
    refused(bench, &set(bench, 0, MacAddr([1, 0, 0x5e, 0, 0, 1])), "NetlinkRefused")?;
    same("the address that the PF keeps", &look_at_vf(bench, 0)?.admin_mac, &Some(MacAddr::ZERO))
}

fn without_vfs_there_is_no_vf_to_give_an_address(bench: &dyn Bench) -> Shown {
    let text = refused(bench, &set(bench, 0, MAC), "NoSuchVf")?;
    ensure(text.contains("has 0 VFs"), text)
}
