//! Interfaces that the node itself uses.

use vfleet_plan::HostUse;

use super::cases;
use super::watch::{expect_notification, watch};
use crate::contract::check::{expect_eq, expect_some, read_pf_facts, vf_ref};
use crate::contract::testbed::{CaseError, CaseResult, PciFunction, RoutePath, TestBed};

const ROUTE: Option<HostUse> = Some(HostUse::DefaultRoute);

cases! {
    an_idle_card_is_not_used_by_the_node: VfsCreatedUp,
    reports_a_default_route_on_a_pf: NoVfs,
    reports_a_default_route_on_a_vf: VfsCreatedUp,
    reports_a_default_route_through_a_vlan: NoVfs,
    reports_a_default_route_through_a_bridge: NoVfs,
    reports_that_a_default_route_was_removed: NoVfs,
    notifies_when_a_default_route_is_added_or_removed: NoVfs,
}

fn read_pf_use(testbed: &dyn TestBed) -> Result<Option<HostUse>, CaseError> {
    Ok(expect_some("the interface", read_pf_facts(testbed)?.link)?.host_use)
}

fn read_vf_uses(testbed: &dyn TestBed) -> Result<Vec<Option<HostUse>>, CaseError> {
    Ok(read_pf_facts(testbed)?.vfs.into_iter().map(|vf| vf.link.and_then(|link| link.host_use)).collect())
}

fn an_idle_card_is_not_used_by_the_node(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the host use of the PF", &read_pf_use(testbed)?, &None)?;
    expect_eq("the host use of the VFs", &read_vf_uses(testbed)?, &vec![None; 3])
}

fn reports_a_default_route_on_a_pf(testbed: &dyn TestBed) -> CaseResult {
    expect_route_on_pf(testbed, RoutePath::Direct)
}

fn reports_a_default_route_through_a_vlan(testbed: &dyn TestBed) -> CaseResult {
    expect_route_on_pf(testbed, RoutePath::Vlan)
}

fn reports_a_default_route_through_a_bridge(testbed: &dyn TestBed) -> CaseResult {
    expect_route_on_pf(testbed, RoutePath::Bridge)
}

fn expect_route_on_pf(testbed: &dyn TestBed, path: RoutePath) -> CaseResult {
    testbed.admin().add_default_route(PciFunction::Pf(testbed.pf()), path)?;
    expect_eq("the host use of the PF", &read_pf_use(testbed)?, &ROUTE)?;
    let other = testbed.host().facts()?.pf(testbed.other_pf()).and_then(|pf| pf.link.clone());
    expect_eq("the host use of the other PF", &expect_some("the interface", other)?.host_use, &None)
}

fn reports_a_default_route_on_a_vf(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().add_default_route(PciFunction::Vf(vf_ref(testbed, 1)), RoutePath::Direct)?;
    expect_eq("the host use of the VFs", &read_vf_uses(testbed)?, &vec![None, ROUTE, None])?;
    expect_eq("the host use of the PF", &read_pf_use(testbed)?, &None)
}

fn reports_that_a_default_route_was_removed(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().add_default_route(PciFunction::Pf(testbed.pf()), RoutePath::Direct)?;
    expect_eq("the host use of the PF", &read_pf_use(testbed)?, &ROUTE)?;
    testbed.admin().remove_default_route()?;
    expect_eq("the host use of the PF", &read_pf_use(testbed)?, &None)
}

fn notifies_when_a_default_route_is_added_or_removed(testbed: &dyn TestBed) -> CaseResult {
    // Setting the link up also notifies, so do it before watching.
    testbed.admin().add_default_route(PciFunction::Pf(testbed.pf()), RoutePath::Direct)?;
    testbed.admin().settle()?;
    let (_watch, notifications) = watch(testbed)?;
    expect_notification(testbed, &notifications, "no default route", || {
        testbed.admin().remove_default_route()
    })?;
    expect_notification(testbed, &notifications, "a default route", || {
        testbed.admin().add_default_route(PciFunction::Pf(testbed.pf()), RoutePath::Direct)
    })
}
