//! Making and removing VFs.

use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::Step;

use super::{GIVEN_VFS, cases};
use crate::contract::bench::{Bench, Shown};
use crate::contract::check::{agree, ensure, execute, look, refused, same, vf};

cases! {
    makes_vfs: NoVfs,
    removes_vfs: VfsMadeDown,
    refuses_another_number_while_there_are_vfs: VfsMadeDown,
    refuses_more_vfs_than_there_can_be: NoVfs,
    the_same_number_again_changes_nothing: VfsMadeUp,
    none_of_none_is_fine: NoVfs,
    refuses_to_make_vfs_of_no_card: NoVfs,
    makes_vfs_of_the_right_pf: NoVfs,
}

fn set(bench: &dyn Bench, count: u16) -> Step {
    Step::SetNumVfs { pf: bench.pf(), count }
}

fn makes_vfs(bench: &dyn Bench) -> Shown {
    execute(bench, &[set(bench, 3)])?;
    let pf = agree(bench)?;
    same("the number of VFs", &pf.vfs.len(), &3)?;
    for vf in &pf.vfs {
        ensure(vf.driver.is_some() && vf.link.is_some(), format!("bound by the kernel: {vf:?}"))?;
        ensure(vf.vendor == pf.vendor && vf.device != pf.device, format!("a VF of this card: {vf:?}"))?;
    }
    Ok(())
}

fn removes_vfs(bench: &dyn Bench) -> Shown {
    execute(bench, &[set(bench, 0)])?;
    same("the VFs", &agree(bench)?.vfs, &Vec::new())
}

fn refuses_another_number_while_there_are_vfs(bench: &dyn Bench) -> Shown {
    for count in [GIVEN_VFS + 1, GIVEN_VFS - 1] {
        let text = refused(bench, &set(bench, count), "VfsExist")?;
        ensure(text.contains("3 VFs") && text.contains("remove them first"), text)?;
    }
    same("the number of VFs", &look(bench)?.vfs.len(), &GIVEN_VFS.into())
}

fn refuses_more_vfs_than_there_can_be(bench: &dyn Bench) -> Shown {
    let total = look(bench)?.total_vfs;
    let text = refused(bench, &set(bench, total + 1), "TooManyVfs")?;
    ensure(text.contains(&total.to_string()), text)?;
    same("the VFs", &agree(bench)?.vfs, &Vec::new())
}

fn the_same_number_again_changes_nothing(bench: &dyn Bench) -> Shown {
    bench.outsider().set_vf_mac(vf(bench, 1), MacAddr([2, 0, 0, 0, 0xaa, 1]))?;
    let before = look(bench)?;
    execute(bench, &[set(bench, GIVEN_VFS), set(bench, GIVEN_VFS)])?;
    same("the card", &look(bench)?, &before)
}

fn none_of_none_is_fine(bench: &dyn Bench) -> Shown {
    execute(bench, &[set(bench, 0), set(bench, 0)])?;
    same("the VFs", &look(bench)?.vfs, &Vec::new())
}

fn refuses_to_make_vfs_of_no_card(bench: &dyn Bench) -> Shown {
    if let Some(pf) = PciAddress::new(0, 0xfe, 0, 0) {
        let text = refused(bench, &Step::SetNumVfs { pf, count: 1 }, "NoSuchDevice")?;
        ensure(text.contains("0000:fe:00.0"), text)?;
    }
    Ok(())
}

fn makes_vfs_of_the_right_pf(bench: &dyn Bench) -> Shown {
    execute(bench, &[set(bench, 1)])?;
    same("the number of VFs", &agree(bench)?.vfs.len(), &1)?;
    same("the other card's VFs", &bench.witness().pf(bench.other_pf())?.vfs, &Vec::new())
}
