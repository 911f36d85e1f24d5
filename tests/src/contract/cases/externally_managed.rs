//! Externally managed PFs: others create the VFs, vfleet configures them.

use std::time::Duration;

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_api::node_state::Interface;
use vfleet_plan::plan_node;

use super::cases;
use super::plans::{apply, expect_no_steps};
use super::watch::watch;
use crate::contract::check::{compare_pf, ensure, expect_eq, observe_pf};
use crate::contract::specs::{group, spec, with_groups};
use crate::contract::testbed::{CaseResult, TestBed};

cases! {
    vfs_created_by_others_cause_a_notification_and_are_configured: NoVfs,
    only_vfs_in_groups_are_configured: VfsCreatedUp,
    removing_the_policy_keeps_vfs_created_by_others: VfsCreatedUp,
}

fn externally_managed(testbed: &dyn TestBed, num_vfs: i64, vfs: (u16, u16)) -> SriovNetworkNodeStateSpec {
    let interface = with_groups(testbed.pf(), num_vfs, None, vec![group("vfio-pci", vfs, None)]);
    spec(vec![Interface { externally_managed: Some(true), ..interface }])
}

fn vfs_created_by_others_cause_a_notification_and_are_configured(testbed: &dyn TestBed) -> CaseResult {
    let desired = externally_managed(testbed, 2, (0, 1));
    let deadline = Duration::from_secs(if testbed.is_fast() { 1 } else { 30 });
    let (_watch, notifications) = watch(testbed)?;
    let premature = plan_node(&desired, &testbed.host().facts()?);
    ensure(!premature.problems.is_empty(), "the plan for missing VFs has no problem")?;
    testbed.admin().set_num_vfs(testbed.pf(), 2)?;
    let mut plan = plan_node(&desired, &testbed.host().facts()?);
    while !plan.problems.is_empty() {
        ensure(
            notifications.recv_timeout(deadline).is_ok(),
            format!("no notification, problems: {:?}", plan.problems),
        )?;
        plan = plan_node(&desired, &testbed.host().facts()?);
    }
    testbed.admin().settle()?;
    apply(testbed, &desired)?;
    let pf = compare_pf(testbed)?;
    ensure(pf.vfs.iter().all(|vf| vf.driver.as_deref() == Some("vfio-pci")), format!("{pf:?}"))?;
    ensure(pf.link.is_some_and(|link| !link.up) && pf.autoprobe, "the PF was changed")
}

fn only_vfs_in_groups_are_configured(testbed: &dyn TestBed) -> CaseResult {
    let desired = externally_managed(testbed, 3, (1, 1));
    testbed.admin().unbind(crate::contract::check::vf_ref(testbed, 2))?;
    let before = observe_pf(testbed)?;
    apply(testbed, &desired)?;
    let after = compare_pf(testbed)?;
    expect_eq("the driver of the VF in the group", &after.vfs[1].driver.as_deref(), &Some("vfio-pci"))?;
    expect_eq("the previous VF", &after.vfs[0], &before.vfs[0])?;
    expect_eq("the unbound VF", &after.vfs[2], &before.vfs[2])?;
    expect_eq("the PF", &after.link, &before.link)
}

fn removing_the_policy_keeps_vfs_created_by_others(testbed: &dyn TestBed) -> CaseResult {
    apply(testbed, &externally_managed(testbed, 3, (1, 1)))?;
    let count = observe_pf(testbed)?.vfs.len();
    apply(testbed, &spec(Vec::new()))?;
    expect_eq("the number of VFs", &compare_pf(testbed)?.vfs.len(), &count)?;
    expect_eq("the record", &testbed.observer().record(testbed.pf())?, &None)?;
    expect_no_steps(testbed.host(), &spec(Vec::new()))
}
