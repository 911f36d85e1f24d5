//! Facts about cards, also after changes by others.

use std::sync::mpsc;
use std::time::Duration;

use vfleet_api::MacAddr;

use super::{INITIAL_VFS, cases};
use crate::contract::check::{compare_pf, ensure, expect_eq, expect_some, read_pf_facts, vf_ref};
use crate::contract::observed::ObservedPf;
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

/// Deadline for a carrier. Negotiation takes some seconds, and emulated cards are slow.
const CARRIER_DEADLINE: Duration = Duration::from_secs(30);

cases! {
    reports_the_link_of_a_pf: NoVfs,
    facts_of_an_unchanged_machine_are_equal: VfsCreatedDown,
    reports_a_new_alternative_name: NoVfs,
    reports_no_speed_while_the_link_is_down: NoVfs,
    reports_the_speed_when_there_is_a_carrier: NoVfs,
    reports_an_mtu_set_by_others: NoVfs,
    reports_a_link_set_up_and_down_by_others: NoVfs,
    reports_autoprobe_switched_by_others: NoVfs,
    reports_vfs_created_by_others: VfsCreatedUp,
    reports_vfs_in_index_order: VfsCreatedDown,
    reports_that_others_removed_the_vfs: VfsCreatedDown,
    reports_a_mac_set_by_others: VfsCreatedDown,
    reports_a_vf_unbound_by_others: VfsCreatedDown,
    reports_a_name_set_by_others: VfsCreatedDown,
    reports_every_pf: NoVfs,
    reports_no_numa_node_on_a_machine_with_a_single_one: NoVfs,
    reports_no_cloud_network_outside_a_cloud: NoVfs,
}

fn reports_no_numa_node_on_a_machine_with_a_single_one(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the NUMA node", &read_pf_facts(testbed)?.numa_node, &None)
}

fn reports_no_cloud_network_outside_a_cloud(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the cloud network", &read_pf_facts(testbed)?.net_filter.value(), &None)
}

fn reports_every_pf(testbed: &dyn TestBed) -> CaseResult {
    let reported: Vec<ObservedPf> = testbed.host().facts()?.pfs.iter().map(ObservedPf::from_facts).collect();
    let observed: Vec<ObservedPf> =
        testbed.observer().pfs()?.into_iter().map(ObservedPf::as_in_facts).collect();
    expect_eq("the PFs", &reported, &observed)?;
    ensure(observed.len() >= 2, "there are fewer than two cards")?;
    ensure(reported.is_sorted_by_key(|pf| pf.address), "the PFs are not sorted by address")
}

fn reports_the_link_of_a_pf(testbed: &dyn TestBed) -> CaseResult {
    let link = expect_some("the interface", compare_pf(testbed)?.link)?;
    ensure(link.is_ethernet && !link.up, format!("not an Ethernet card with its link down: {link:?}"))?;
    ensure(link.mac.is_some_and(MacAddr::is_usable), format!("no usable MAC: {link:?}"))?;
    ensure(
        link.max_mtu.is_some_and(|max| max >= link.mtu),
        format!("the maximum MTU is missing or too low: {link:?}"),
    )?;
    expect_eq("the MTU", &link.mtu, &1500)
}

fn facts_of_an_unchanged_machine_are_equal(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the facts", &read_pf_facts(testbed)?, &read_pf_facts(testbed)?)
}

fn reports_a_new_alternative_name(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().set_alt_name(testbed.pf(), "contract-name")?;
    let link = expect_some("the interface", compare_pf(testbed)?.link)?;
    ensure(link.alt_names.iter().any(|name| name == "contract-name"), format!("{link:?}"))
}

fn reports_no_speed_while_the_link_is_down(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the speed", &expect_some("the interface", read_pf_facts(testbed)?.link)?.speed, &None)
}

fn reports_the_speed_when_there_is_a_carrier(testbed: &dyn TestBed) -> CaseResult {
    let (sender, notifications) = mpsc::channel();
    let _watch = testbed.host().on_change(Box::new(move || {
        let _ = sender.send(());
    }))?;
    testbed.admin().set_up(testbed.pf(), true)?;
    loop {
        if let Some(speed) = read_pf_facts(testbed)?.link.and_then(|link| link.speed) {
            return expect_eq("the speed", &speed, &1000);
        }
        let timed_out = |_| CaseError::Failed("no speed is reported although the link is up".to_owned());
        notifications.recv_timeout(CARRIER_DEADLINE).map_err(timed_out)?;
    }
}

fn reports_an_mtu_set_by_others(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().set_mtu(testbed.pf(), 4000)?;
    expect_eq("the MTU", &expect_some("the interface", compare_pf(testbed)?.link)?.mtu, &4000)
}

fn reports_a_link_set_up_and_down_by_others(testbed: &dyn TestBed) -> CaseResult {
    for up in [true, false] {
        testbed.admin().set_up(testbed.pf(), up)?;
        expect_eq(
            "whether the link is up",
            &expect_some("the interface", compare_pf(testbed)?.link)?.up,
            &up,
        )?;
    }
    Ok(())
}

fn reports_autoprobe_switched_by_others(testbed: &dyn TestBed) -> CaseResult {
    for on in [false, true] {
        testbed.admin().set_autoprobe(testbed.pf(), on)?;
        expect_eq("autoprobe", &compare_pf(testbed)?.autoprobe, &on)?;
    }
    Ok(())
}

fn reports_vfs_created_by_others(testbed: &dyn TestBed) -> CaseResult {
    let pf = compare_pf(testbed)?;
    expect_eq("the number of VFs", &pf.vfs.len(), &INITIAL_VFS.into())?;
    for vf in pf.vfs {
        ensure(vf.driver.is_some() && vf.link.is_some(), format!("not bound by the kernel: {vf:?}"))?;
    }
    Ok(())
}

fn reports_vfs_in_index_order(testbed: &dyn TestBed) -> CaseResult {
    let vfs = read_pf_facts(testbed)?.vfs;
    let indexes: Vec<u16> = vfs.iter().map(|vf| vf.index).collect();
    expect_eq("the indexes", &indexes, &(0..INITIAL_VFS).collect())?;
    ensure(vfs.is_sorted_by_key(|vf| vf.address), format!("not sorted by address: {vfs:?}"))
}

fn reports_that_others_removed_the_vfs(testbed: &dyn TestBed) -> CaseResult {
    compare_pf(testbed)?;
    testbed.admin().set_num_vfs(testbed.pf(), 0)?;
    expect_eq("the VFs", &compare_pf(testbed)?.vfs, &Vec::new())
}

fn reports_a_mac_set_by_others(testbed: &dyn TestBed) -> CaseResult {
    // Read before the change, to detect a host that caches facts.
    compare_pf(testbed)?;
    let mac = MacAddr([2, 0, 0, 0, 0xaa, 1]);
    testbed.admin().set_vf_mac(vf_ref(testbed, 1), mac)?;
    let macs: Vec<_> = compare_pf(testbed)?.vfs.iter().map(|vf| vf.admin_mac).collect();
    expect_eq("the admin MACs", &macs, &vec![Some(MacAddr::ZERO), Some(mac), Some(MacAddr::ZERO)])
}

fn reports_a_vf_unbound_by_others(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().unbind(vf_ref(testbed, 0))?;
    let vfs = compare_pf(testbed)?.vfs;
    let drivers: Vec<_> = vfs.iter().map(|vf| vf.driver.is_some()).collect();
    expect_eq("which VFs have a driver", &drivers, &vec![false, true, true])?;
    expect_eq("the interface of the unbound VF", &vfs[0].link, &None)
}

fn reports_a_name_set_by_others(testbed: &dyn TestBed) -> CaseResult {
    compare_pf(testbed)?;
    testbed.admin().rename(vf_ref(testbed, 1), "contract1")?;
    let link = expect_some("the interface", compare_pf(testbed)?.vfs[1].link.clone())?;
    expect_eq("the name", &link.name.as_str(), &"contract1")
}
