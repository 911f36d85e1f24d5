//! MTU, and being up.

use vfleet_api::PciAddress;
use vfleet_plan::Step;

use super::{GIVEN_VFS, cases};
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{agree, bind, ensure, execute, look, look_at_vf_link, refused, same, there, vf};
use crate::contract::seen::SeenLink;

cases! {
    sets_the_mtu_of_a_pf: NoVfs,
    refuses_an_mtu_that_the_card_does_not_take: NoVfs,
    sets_the_mtu_of_the_right_vf: VfsMadeDown,
    a_name_that_others_gave_does_not_matter: VfsMadeDown,
    waits_for_the_interface_of_a_vf: NoVfs,
    refuses_an_mtu_for_a_vf_without_an_interface: VfsMadeDown,
    sets_a_pf_up: NoVfs,
    a_pf_that_is_up_stays_as_it_is: NoVfs,
    refuses_what_is_no_card: NoVfs,
    leaves_the_other_pf_alone: NoVfs,
}

fn set_mtu(bench: &dyn Bench, mtu: u32) -> Step {
    Step::SetPfMtu { pf: bench.pf(), mtu }
}

fn set_vf_mtu(bench: &dyn Bench, index: u16, mtu: u32) -> Step {
    Step::SetVfMtu { vf: vf(bench, index), mtu }
}

fn link(bench: &dyn Bench) -> Result<SeenLink, Stop> {
    there("the interface", agree(bench)?.link)
}

fn sets_the_mtu_of_a_pf(bench: &dyn Bench) -> Shown {
    for mtu in [9000, 9000, 2000, 1500] {
        execute(bench, &[set_mtu(bench, mtu)])?;
        same("the MTU", &link(bench)?.mtu, &mtu)?;
    }
    Ok(())
}

fn refuses_an_mtu_that_the_card_does_not_take(bench: &dyn Bench) -> Shown {
    let max = there("the highest MTU", link(bench)?.max_mtu)?;
    let text = refused(bench, &set_mtu(bench, max + 1), "NetlinkRefused")?;
    ensure(text.contains("greater than device maximum") && text.contains("Invalid argument"), text)?;
    let text = refused(bench, &set_mtu(bench, 10), "NetlinkRefused")?;
    ensure(text.contains("less than device minimum"), text)?;
    same("the MTU", &link(bench)?.mtu, &1500)
}

fn sets_the_mtu_of_the_right_vf(bench: &dyn Bench) -> Shown {
    let before = look(bench)?;
    execute(bench, &[set_vf_mtu(bench, 1, 3000)])?;
    let after = agree(bench)?;
    same("its MTU", &after.vfs[1].link.as_ref().map(|link| link.mtu), &Some(3000))?;
    same("the other VF", &after.vfs[0], &before.vfs[0])?;
    same("the PF's interface", &after.link, &before.link)
}

fn a_name_that_others_gave_does_not_matter(bench: &dyn Bench) -> Shown {
    execute(bench, &[set_vf_mtu(bench, 1, 3000)])?;
    bench.outsider().rename(vf(bench, 1), "contract1")?;
    execute(bench, &[set_vf_mtu(bench, 1, 4000)])?;
    same("its MTU", &look_at_vf_link(bench, 1)?.mtu, &4000)
}

fn waits_for_the_interface_of_a_vf(bench: &dyn Bench) -> Shown {
    let pf = bench.pf();
    execute(
        bench,
        &[
            Step::SetAutoprobe { pf, on: false },
            Step::SetNumVfs { pf, count: 1 },
            Step::SetAutoprobe { pf, on: true },
            bind(bench, 0, None),
            set_vf_mtu(bench, 0, 2500),
        ],
    )?;
    same("its MTU", &look_at_vf_link(bench, 0)?.mtu, &2500)
}

fn refuses_an_mtu_for_a_vf_without_an_interface(bench: &dyn Bench) -> Shown {
    execute(bench, &[bind(bench, 0, Some("vfio-pci"))])?;
    let text = refused(bench, &set_vf_mtu(bench, 0, 3000), "NoInterface")?;
    ensure(text.contains("vf 0"), text)?;
    refused(bench, &set_vf_mtu(bench, GIVEN_VFS, 3000), "NoSuchVf").map(drop)
}

fn sets_a_pf_up(bench: &dyn Bench) -> Shown {
    execute(bench, &[Step::SetLinkUp { pf: bench.pf() }])?;
    ensure(link(bench)?.up, "it is up")
}

fn a_pf_that_is_up_stays_as_it_is(bench: &dyn Bench) -> Shown {
    bench.outsider().set_up(bench.pf(), true)?;
    let before = look(bench)?;
    execute(bench, &[Step::SetLinkUp { pf: bench.pf() }])?;
    same("the card", &look(bench)?, &before)
}

fn refuses_what_is_no_card(bench: &dyn Bench) -> Shown {
    let Some(pf) = PciAddress::new(0, 0xfe, 0, 0) else { return Ok(()) };
    for step in
        [Step::SetLinkUp { pf }, Step::SetPfMtu { pf, mtu: 9000 }, Step::SetAutoprobe { pf, on: false }]
    {
        refused(bench, &step, "NoSuchDevice")?;
    }
    Ok(())
}

fn leaves_the_other_pf_alone(bench: &dyn Bench) -> Shown {
    let pf = bench.pf();
    let before = bench.witness().pf(bench.other_pf())?;
    execute(
        bench,
        &[Step::SetPfMtu { pf, mtu: 5000 }, Step::SetAutoprobe { pf, on: false }, Step::SetLinkUp { pf }],
    )?;
    same("its MTU", &link(bench)?.mtu, &5000)?;
    same("the other card", &bench.witness().pf(bench.other_pf())?, &before)
}
