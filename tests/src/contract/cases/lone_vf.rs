//! VFs that a hypervisor gave, without their PF.

use vfleet_plan::Step;

use super::cases;
use crate::contract::bench::{Bench, Shown};
use crate::contract::check::{agree, bind, ensure, execute, facts, look, same};

cases! {
    no_pf_is_a_lone_vf: VfsMadeDown,
    tells_a_lone_vf_as_its_own_vf: LoneVf,
    binds_a_lone_vf_and_back: LoneVf,
    a_lone_vf_makes_no_vfs: LoneVf,
}

fn no_pf_is_a_lone_vf(bench: &dyn Bench) -> Shown {
    ensure(!facts(bench)?.is_lone_vf, "it is a PF")
}

fn tells_a_lone_vf_as_its_own_vf(bench: &dyn Bench) -> Shown {
    let facts = facts(bench)?;
    ensure(facts.is_lone_vf, "it is a lone VF")?;
    same("how many VFs it can have", &facts.total_vfs, &1)?;
    let vfs: Vec<_> = facts.vfs.iter().map(|vf| (vf.index, vf.address)).collect();
    same("its VFs", &vfs, &vec![(0, bench.pf())])?;
    same("the driver", &facts.vfs[0].driver, &facts.driver)?;
    same("the interface", &facts.vfs[0].link, &facts.link)?;
    ensure(facts.link.is_some(), "it has an interface")
}

fn binds_a_lone_vf_and_back(bench: &dyn Bench) -> Shown {
    let before = agree(bench)?;
    execute(bench, &[bind(bench, 0, Some("vfio-pci"))])?;
    let bound = agree(bench)?;
    same("the driver", &bound.driver.as_deref(), &Some("vfio-pci"))?;
    same("the interface", &bound.link, &None)?;
    execute(bench, &[bind(bench, 0, None)])?;
    same("the card", &agree(bench)?, &before)
}

fn a_lone_vf_makes_no_vfs(bench: &dyn Bench) -> Shown {
    let before = look(bench)?;
    let done = bench.host().execute(&Step::SetNumVfs { pf: bench.pf(), count: 0 });
    ensure(done.is_err(), "it succeeded")?;
    same("the card", &look(bench)?, &before)
}
