//! Notifications about software bridges.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::cases;
use super::watch::{expect_notification, watch};
use crate::contract::bridges::OvsTable;
use crate::contract::check::bridges::{
    BRIDGE, FOREIGN, compare_ovs_bridge, create_linux_bridge, create_ovs_bridge, expect_master,
    interface_name,
};
use crate::contract::check::{ensure, expect_eq};
use crate::contract::testbed::{CaseResult, TestBed};

cases! {
    notifies_when_others_change_our_linux_bridge: NoVfs,
    notifies_when_others_create_and_remove_linux_bridges: NoVfs,
    notifies_when_others_change_our_ovs_bridge: NoVfs,
    notifies_when_ovs_restarts: NoVfs,
    statistics_of_ovs_are_no_notification: NoVfs,
}

/// Returns the time without a notification after which no other is expected.
fn quiet_time(testbed: &dyn TestBed) -> Duration {
    Duration::from_millis(if testbed.is_fast() { 1 } else { 400 })
}

/// Waits until no notification arrives for a while.
fn wait_for_quiet(testbed: &dyn TestBed, notifications: &Receiver<()>) {
    while notifications.recv_timeout(quiet_time(testbed)).is_ok() {}
}

fn notifies_when_others_change_our_linux_bridge(testbed: &dyn TestBed) -> CaseResult {
    create_linux_bridge(testbed)?;
    let (_watch, notifications) = watch(testbed)?;
    let (admin, pf) = (testbed.admin(), testbed.pf());
    let expect = |what: &str, change: &dyn Fn() -> CaseResult| {
        wait_for_quiet(testbed, &notifications);
        expect_notification(testbed, &notifications, what, change)
    };
    expect("a port setting", &|| admin.set_port_setting(BRIDGE, pf, "learning", "off"))?;
    expect("another port", &|| admin.add_port(BRIDGE, testbed.other_pf()))?;
    expect("a removed uplink", &|| admin.remove_port(BRIDGE, pf))?;
    expect("a bridge that is down", &|| admin.set_bridge_up(BRIDGE, false))?;
    expect("a deleted bridge", &|| admin.remove_bridge(BRIDGE))
}

fn notifies_when_others_create_and_remove_linux_bridges(testbed: &dyn TestBed) -> CaseResult {
    let (_watch, notifications) = watch(testbed)?;
    expect_notification(testbed, &notifications, "a bridge", || testbed.admin().add_bridge(FOREIGN))?;
    wait_for_quiet(testbed, &notifications);
    expect_notification(testbed, &notifications, "no bridge", || testbed.admin().remove_bridge(FOREIGN))
}

fn notifies_when_others_change_our_ovs_bridge(testbed: &dyn TestBed) -> CaseResult {
    create_ovs_bridge(testbed)?;
    let interface = interface_name(testbed)?;
    let (_watch, notifications) = watch(testbed)?;
    let admin = testbed.admin();
    let expect = |what: &str, change: &dyn Fn() -> CaseResult| {
        wait_for_quiet(testbed, &notifications);
        expect_notification(testbed, &notifications, what, change)
    };
    expect("a key of the bridge", &|| {
        admin.set_ovs_entry(OvsTable::Bridge, BRIDGE, "external_ids", "foreign", "new")
    })?;
    expect("a key of the uplink", &|| {
        admin.set_ovs_entry(OvsTable::Interface, &interface, "other_config", "foreign", "new")
    })?;
    expect("another port", &|| admin.add_internal_ovs_port(BRIDGE, "contract-pod"))?;
    expect("a removed uplink", &|| admin.remove_ovs_port(&interface))?;
    expect("a deleted bridge", &|| admin.remove_ovs_bridge(BRIDGE))?;
    expect("a bridge of another program", &|| admin.add_ovs_bridge(FOREIGN))
}

fn notifies_when_ovs_restarts(testbed: &dyn TestBed) -> CaseResult {
    let (_, created) = create_ovs_bridge(testbed)?;
    let (_watch, notifications) = watch(testbed)?;
    wait_for_quiet(testbed, &notifications);
    expect_notification(testbed, &notifications, "a restart", || testbed.admin().restart_ovs())?;
    wait_for_quiet(testbed, &notifications);
    // The rows are on a disk, and the watch has a connection to the new server.
    expect_eq("the bridge", &compare_ovs_bridge(testbed)?, &created)?;
    expect_master(testbed, Some("ovs-system"))?;
    expect_notification(testbed, &notifications, "a key after the restart", || {
        testbed.admin().set_ovs_entry(OvsTable::Bridge, BRIDGE, "external_ids", "foreign", "new")
    })
}

fn statistics_of_ovs_are_no_notification(testbed: &dyn TestBed) -> CaseResult {
    create_ovs_bridge(testbed)?;
    let interface = interface_name(testbed)?;
    let (_watch, notifications) = watch(testbed)?;
    wait_for_quiet(testbed, &notifications);
    for packets in [1, 2] {
        testbed.admin().set_ovs_statistics(&interface, packets)?;
    }
    ensure(notifications.recv_timeout(2 * quiet_time(testbed)).is_err(), "statistics caused a notification")?;
    expect_notification(testbed, &notifications, "a key", || {
        testbed.admin().set_ovs_entry(OvsTable::Bridge, BRIDGE, "external_ids", "foreign", "new")
    })
}
