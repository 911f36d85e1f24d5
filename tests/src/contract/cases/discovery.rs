//! What a host tells of its cards, and that it notices what others do.

use std::sync::mpsc;
use std::time::Duration;

use vfleet_api::MacAddr;

use super::{GIVEN_VFS, cases};
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{agree, ensure, facts, same, there, vf};
use crate::contract::seen::SeenPf;

/// Cards need some seconds to negotiate, and an emulated one is slow.
const CARRIER_DEADLINE: Duration = Duration::from_secs(30);

cases! {
    tells_the_link_of_a_pf: NoVfs,
    facts_of_a_quiet_machine_are_the_same_twice: VfsMadeDown,
    tells_a_new_alternative_name: NoVfs,
    tells_no_speed_while_down: NoVfs,
    tells_the_speed_once_there_is_a_carrier: NoVfs,
    tells_an_mtu_that_others_set: NoVfs,
    tells_when_others_set_it_up_and_down: NoVfs,
    tells_when_others_switch_autoprobe: NoVfs,
    tells_vfs_that_others_made: VfsMadeUp,
    tells_vfs_by_index: VfsMadeDown,
    tells_when_others_removed_the_vfs: VfsMadeDown,
    tells_a_mac_that_others_set: VfsMadeDown,
    tells_a_vf_that_others_unbound: VfsMadeDown,
    tells_a_name_that_others_gave: VfsMadeDown,
    tells_every_pf: NoVfs,
    tells_no_numa_node_of_a_machine_with_one: NoVfs,
    tells_no_network_of_a_cloud_outside_one: NoVfs,
}

fn tells_no_numa_node_of_a_machine_with_one(bench: &dyn Bench) -> Shown {
    same("the NUMA node", &facts(bench)?.numa_node, &None)
}

fn tells_no_network_of_a_cloud_outside_one(bench: &dyn Bench) -> Shown {
    same("the network", &facts(bench)?.net_filter.value(), &None)
}

fn tells_every_pf(bench: &dyn Bench) -> Shown {
    let told: Vec<SeenPf> = bench.host().facts()?.pfs.iter().map(SeenPf::told).collect();
    let seen: Vec<SeenPf> = bench.witness().pfs()?.into_iter().map(SeenPf::as_told).collect();
    same("the PFs", &told, &seen)?;
    ensure(seen.len() >= 2, "there are at least two cards")?;
    ensure(told.is_sorted_by_key(|pf| pf.address), "they are sorted by address")
}

fn tells_the_link_of_a_pf(bench: &dyn Bench) -> Shown {
    let link = there("the interface", agree(bench)?.link)?;
    ensure(link.is_ethernet && !link.up, format!("an Ethernet card that is down: {link:?}"))?;
    ensure(link.mac.is_some_and(MacAddr::is_usable), format!("its own address: {link:?}"))?;
    ensure(link.max_mtu.is_some_and(|max| max >= link.mtu), format!("its highest MTU: {link:?}"))?;
    same("its MTU", &link.mtu, &1500)
}

fn facts_of_a_quiet_machine_are_the_same_twice(bench: &dyn Bench) -> Shown {
    same("the facts", &facts(bench)?, &facts(bench)?)
}

fn tells_a_new_alternative_name(bench: &dyn Bench) -> Shown {
    bench.outsider().set_alt_name(bench.pf(), "contract-name")?;
    let link = there("the interface", agree(bench)?.link)?;
    ensure(link.alt_names.iter().any(|name| name == "contract-name"), format!("{link:?}"))
}

fn tells_no_speed_while_down(bench: &dyn Bench) -> Shown {
    same("the speed", &there("the interface", facts(bench)?.link)?.speed, &None)
}

fn tells_the_speed_once_there_is_a_carrier(bench: &dyn Bench) -> Shown {
    let (sender, woken) = mpsc::channel();
    let _watch = bench.host().on_change(Box::new(move || {
        let _ = sender.send(());
    }))?;
    bench.outsider().set_up(bench.pf(), true)?;
    loop {
        if let Some(speed) = facts(bench)?.link.and_then(|link| link.speed) {
            return same("the speed", &speed, &1000);
        }
        let too_late = |_| Stop::Failed("there is no speed although it is up".to_owned());
        woken.recv_timeout(CARRIER_DEADLINE).map_err(too_late)?;
    }
}

fn tells_an_mtu_that_others_set(bench: &dyn Bench) -> Shown {
    bench.outsider().set_mtu(bench.pf(), 4000)?;
    same("the MTU", &there("the interface", agree(bench)?.link)?.mtu, &4000)
}

fn tells_when_others_set_it_up_and_down(bench: &dyn Bench) -> Shown {
    for up in [true, false] {
        bench.outsider().set_up(bench.pf(), up)?;
        same("whether it is up", &there("the interface", agree(bench)?.link)?.up, &up)?;
    }
    Ok(())
}

fn tells_when_others_switch_autoprobe(bench: &dyn Bench) -> Shown {
    for on in [false, true] {
        bench.outsider().set_autoprobe(bench.pf(), on)?;
        same("whether autoprobe is on", &agree(bench)?.autoprobe, &on)?;
    }
    Ok(())
}

fn tells_vfs_that_others_made(bench: &dyn Bench) -> Shown {
    let pf = agree(bench)?;
    same("the number of VFs", &pf.vfs.len(), &GIVEN_VFS.into())?;
    for vf in pf.vfs {
        ensure(vf.driver.is_some() && vf.link.is_some(), format!("bound by the kernel: {vf:?}"))?;
    }
    Ok(())
}

fn tells_vfs_by_index(bench: &dyn Bench) -> Shown {
    let vfs = facts(bench)?.vfs;
    let indexes: Vec<u16> = vfs.iter().map(|vf| vf.index).collect();
    same("the indexes", &indexes, &(0..GIVEN_VFS).collect())?;
    ensure(vfs.is_sorted_by_key(|vf| vf.address), format!("addresses in order: {vfs:?}"))
}

fn tells_when_others_removed_the_vfs(bench: &dyn Bench) -> Shown {
    agree(bench)?;
    bench.outsider().set_num_vfs(bench.pf(), 0)?;
    same("the VFs", &agree(bench)?.vfs, &Vec::new())
}

fn tells_a_mac_that_others_set(bench: &dyn Bench) -> Shown {
    // Once before, so that a host that remembers is found out.
    agree(bench)?;
    let mac = MacAddr([2, 0, 0, 0, 0xaa, 1]);
    bench.outsider().set_vf_mac(vf(bench, 1), mac)?;
    let told: Vec<_> = agree(bench)?.vfs.iter().map(|vf| vf.admin_mac).collect();
    same("the addresses", &told, &vec![Some(MacAddr::ZERO), Some(mac), Some(MacAddr::ZERO)])
}

fn tells_a_vf_that_others_unbound(bench: &dyn Bench) -> Shown {
    bench.outsider().unbind(vf(bench, 0))?;
    let vfs = agree(bench)?.vfs;
    let drivers: Vec<_> = vfs.iter().map(|vf| vf.driver.is_some()).collect();
    same("which VFs have a driver", &drivers, &vec![false, true, true])?;
    same("the interface of the unbound VF", &vfs[0].link, &None)
}

fn tells_a_name_that_others_gave(bench: &dyn Bench) -> Shown {
    agree(bench)?;
    bench.outsider().rename(vf(bench, 1), "contract1")?;
    let link = there("the interface", agree(bench)?.vfs[1].link.clone())?;
    same("the name", &link.name.as_str(), &"contract1")
}
