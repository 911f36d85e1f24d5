//! Changes of VFs by others that vfleet ignores.

use super::{INITIAL_VFS, cases};
use crate::contract::cases::plans::{apply, expect_no_steps, netdevices, split};
use crate::contract::check::{compare_pf, ensure, expect_eq, expect_some, observe_pf, read_pf_facts, vf_ref};
use crate::contract::testbed::{CaseResult, TestBed};

cases! {
    reports_the_permanent_mac: NoVfs,
    vf_options_set_by_others_do_not_change_the_facts: VfsCreatedUp,
    vf_options_set_by_others_need_no_steps: VfsCreatedUp,
    a_vf_in_another_network_namespace_needs_no_steps: VfsCreatedUp,
    a_vf_back_from_another_network_namespace_needs_no_steps: VfsCreatedUp,
    a_software_rdma_device_is_not_reported_for_the_card: VfsCreatedUp,
}

fn reports_the_permanent_mac(testbed: &dyn TestBed) -> CaseResult {
    let reported = expect_some("the interface", read_pf_facts(testbed)?.link)?.permanent_mac;
    ensure(reported.is_some(), "no permanent MAC is reported")?;
    expect_eq("the permanent MAC", &reported, &testbed.observer().permanent_mac(testbed.pf())?)
}

fn vf_options_set_by_others_do_not_change_the_facts(testbed: &dyn TestBed) -> CaseResult {
    let before = read_pf_facts(testbed)?;
    testbed.admin().set_vf_options(vf_ref(testbed, 1))?;
    expect_eq("the facts", &read_pf_facts(testbed)?, &before)?;
    compare_pf(testbed).map(drop)
}

fn vf_options_set_by_others_need_no_steps(testbed: &dyn TestBed) -> CaseResult {
    let desired = split(testbed);
    apply(testbed, &desired)?;
    (0..INITIAL_VFS).try_for_each(|index| testbed.admin().set_vf_options(vf_ref(testbed, index)))?;
    expect_no_steps(testbed.host(), &desired)
}

fn a_vf_in_another_network_namespace_needs_no_steps(testbed: &dyn TestBed) -> CaseResult {
    let desired = netdevices(testbed, INITIAL_VFS);
    apply(testbed, &desired)?;
    testbed.admin().move_to_other_netns(vf_ref(testbed, 1))?;
    testbed.admin().settle()?;
    expect_no_steps(testbed.host(), &desired)
}

fn a_vf_back_from_another_network_namespace_needs_no_steps(testbed: &dyn TestBed) -> CaseResult {
    let desired = netdevices(testbed, INITIAL_VFS);
    apply(testbed, &desired)?;
    let before = observe_pf(testbed)?;
    testbed.admin().move_to_other_netns(vf_ref(testbed, 1))?;
    testbed.admin().move_back_from_other_netns(vf_ref(testbed, 1))?;
    let after = compare_pf(testbed)?;
    expect_eq("the driver", &after.vfs[1].driver, &before.vfs[1].driver)?;
    ensure(after.vfs[1].link.is_some(), "the interface of the VF is missing")?;
    expect_no_steps(testbed.host(), &desired)
}

fn a_software_rdma_device_is_not_reported_for_the_card(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().add_soft_rdma(vf_ref(testbed, 0))?;
    let facts = read_pf_facts(testbed)?;
    expect_eq("the RDMA device of the PF", &facts.rdma, &None)?;
    ensure(facts.vfs.iter().all(|vf| vf.rdma.is_none()), format!("VFs with RDMA: {:?}", facts.vfs))?;
    compare_pf(testbed).map(drop)
}
