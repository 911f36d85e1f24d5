//! Interfaces that the node itself uses.

use vfleet_plan::HostUse;

use super::cases;
use super::watch::{wakes, watch};
use crate::contract::bench::{Bench, Port, Shown, Stop, Way};
use crate::contract::check::{facts, same, there, vf};

const ROUTE: Option<HostUse> = Some(HostUse::DefaultRoute);

cases! {
    an_idle_card_is_of_no_use_to_the_node: VfsMadeUp,
    tells_a_default_route_on_a_pf: NoVfs,
    tells_a_default_route_on_a_vf: VfsMadeUp,
    tells_a_default_route_through_a_vlan: NoVfs,
    tells_a_default_route_through_a_bridge: NoVfs,
    tells_when_a_default_route_goes: NoVfs,
    wakes_when_a_default_route_comes_and_goes: NoVfs,
}

fn of_pf(bench: &dyn Bench) -> Result<Option<HostUse>, Stop> {
    Ok(there("the interface", facts(bench)?.link)?.host_use)
}

fn of_vfs(bench: &dyn Bench) -> Result<Vec<Option<HostUse>>, Stop> {
    Ok(facts(bench)?.vfs.into_iter().map(|vf| vf.link.and_then(|link| link.host_use)).collect())
}

fn an_idle_card_is_of_no_use_to_the_node(bench: &dyn Bench) -> Shown {
    same("the use of the PF", &of_pf(bench)?, &None)?;
    same("the use of the VFs", &of_vfs(bench)?, &vec![None; 3])
}

fn tells_a_default_route_on_a_pf(bench: &dyn Bench) -> Shown {
    pf_by(bench, Way::Direct)
}

fn tells_a_default_route_through_a_vlan(bench: &dyn Bench) -> Shown {
    pf_by(bench, Way::Vlan)
}

fn tells_a_default_route_through_a_bridge(bench: &dyn Bench) -> Shown {
    pf_by(bench, Way::Bridge)
}

fn pf_by(bench: &dyn Bench, way: Way) -> Shown {
    bench.outsider().lead_default_route(Port::Pf(bench.pf()), way)?;
    same("the use of the PF", &of_pf(bench)?, &ROUTE)?;
    let other = bench.host().facts()?.pf(bench.other_pf()).and_then(|pf| pf.link.clone());
    same("the use of the other PF", &there("its interface", other)?.host_use, &None)
}

fn tells_a_default_route_on_a_vf(bench: &dyn Bench) -> Shown {
    bench.outsider().lead_default_route(Port::Vf(vf(bench, 1)), Way::Direct)?;
    same("the use of the VFs", &of_vfs(bench)?, &vec![None, ROUTE, None])?;
    same("the use of the PF", &of_pf(bench)?, &None)
}

fn tells_when_a_default_route_goes(bench: &dyn Bench) -> Shown {
    bench.outsider().lead_default_route(Port::Pf(bench.pf()), Way::Direct)?;
    same("the use of the PF", &of_pf(bench)?, &ROUTE)?;
    bench.outsider().remove_default_route()?;
    same("the use of the PF", &of_pf(bench)?, &None)
}

fn wakes_when_a_default_route_comes_and_goes(bench: &dyn Bench) -> Shown {
    // Set up first, which wakes by itself.
    bench.outsider().lead_default_route(Port::Pf(bench.pf()), Way::Direct)?;
    bench.outsider().settle()?;
    let (_watch, woken) = watch(bench)?;
    wakes(bench, &woken, "no default route", || bench.outsider().remove_default_route())?;
    wakes(bench, &woken, "a default route", || {
        bench.outsider().lead_default_route(Port::Pf(bench.pf()), Way::Direct)
    })
}
