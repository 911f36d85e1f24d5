//! Notifications about changes.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use vfleet_api::MacAddr;
use vfleet_host::WatchGuard;
use vfleet_plan::Step;
use vfleet_plan::files::GUIDS;

use super::cases;
use crate::contract::check::{ensure, execute, vf_ref};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

const DEADLINE: Duration = Duration::from_secs(10);

cases! {
    notifies_when_others_create_and_remove_vfs: NoVfs,
    notifies_when_others_change_an_mtu: NoVfs,
    notifies_when_others_set_the_link_up: NoVfs,
    notifies_when_others_change_a_vf: VfsCreatedUp,
    notifies_when_the_guid_file_changes: NoVfs,
    notifies_when_a_module_is_installed: NoVfs,
    notifies_every_watcher: NoVfs,
    notifies_after_its_own_steps: NoVfs,
    dropping_a_watch_releases_its_callback: NoVfs,
}

pub(super) fn watch(testbed: &dyn TestBed) -> Result<(WatchGuard, Receiver<()>), CaseError> {
    let (sender, notifications) = mpsc::channel();
    let watch = testbed.host().on_change(Box::new(move || {
        let _ = sender.send(());
    }))?;
    Ok((watch, notifications))
}

/// Checks that `change` causes a notification. Earlier notifications are discarded.
pub(super) fn expect_notification(
    testbed: &dyn TestBed,
    notifications: &Receiver<()>,
    what: &str,
    change: impl FnOnce() -> CaseResult,
) -> CaseResult {
    testbed.admin().settle()?;
    while notifications.try_recv().is_ok() {}
    change()?;
    ensure(notifications.recv_timeout(DEADLINE).is_ok(), format!("{what}: no notification"))
}

fn notifies_when_others_create_and_remove_vfs(testbed: &dyn TestBed) -> CaseResult {
    let (_watch, notifications) = watch(testbed)?;
    for count in [1, 0] {
        let change = || testbed.admin().set_num_vfs(testbed.pf(), count);
        expect_notification(testbed, &notifications, &format!("{count} VFs"), change)?;
    }
    Ok(())
}

fn notifies_when_others_change_an_mtu(testbed: &dyn TestBed) -> CaseResult {
    let (_watch, notifications) = watch(testbed)?;
    expect_notification(testbed, &notifications, "another MTU", || {
        testbed.admin().set_mtu(testbed.pf(), 3000)
    })
}

fn notifies_when_others_set_the_link_up(testbed: &dyn TestBed) -> CaseResult {
    let (_watch, notifications) = watch(testbed)?;
    expect_notification(testbed, &notifications, "link up", || testbed.admin().set_up(testbed.pf(), true))
}

fn notifies_when_others_change_a_vf(testbed: &dyn TestBed) -> CaseResult {
    let (_watch, notifications) = watch(testbed)?;
    let mac = MacAddr([2, 0, 0, 0, 0xcc, 1]);
    expect_notification(testbed, &notifications, "another MAC", || {
        testbed.admin().set_vf_mac(vf_ref(testbed, 0), mac)
    })?;
    expect_notification(testbed, &notifications, "another name", || {
        testbed.admin().rename(vf_ref(testbed, 0), "contract0")
    })?;
    expect_notification(testbed, &notifications, "no driver", || testbed.admin().unbind(vf_ref(testbed, 0)))
}

fn notifies_when_the_guid_file_changes(testbed: &dyn TestBed) -> CaseResult {
    let (_watch, notifications) = watch(testbed)?;
    for text in [Some("[]\n"), Some("[{}]\n"), None, Some("[]\n"), None] {
        let change = || testbed.admin().write_file(GUIDS, text);
        expect_notification(testbed, &notifications, &format!("the GUID file is {text:?}"), change)?;
    }
    Ok(())
}

fn notifies_when_a_module_is_installed(testbed: &dyn TestBed) -> CaseResult {
    let (_watch, notifications) = watch(testbed)?;
    for _ in 0..2 {
        expect_notification(testbed, &notifications, "another list of modules", || {
            testbed.admin().rewrite_module_list()
        })?;
    }
    Ok(())
}

fn notifies_every_watcher(testbed: &dyn TestBed) -> CaseResult {
    let (_first, first_notifications) = watch(testbed)?;
    let (_second, second_notifications) = watch(testbed)?;
    expect_notification(testbed, &first_notifications, "the first", || {
        testbed.admin().set_mtu(testbed.pf(), 3000)
    })?;
    ensure(second_notifications.recv_timeout(DEADLINE).is_ok(), "the second watcher was not notified")
}

fn notifies_after_its_own_steps(testbed: &dyn TestBed) -> CaseResult {
    let (_watch, notifications) = watch(testbed)?;
    let step = Step::SetPfMtu { pf: testbed.pf(), mtu: 3000 };
    expect_notification(testbed, &notifications, "its own step", || execute(testbed, &[step]))
}

fn dropping_a_watch_releases_its_callback(testbed: &dyn TestBed) -> CaseResult {
    let (watch, notifications) = watch(testbed)?;
    drop(watch);
    // The callback owns the sender: the channel is disconnected when the callback was dropped.
    while notifications.recv_timeout(DEADLINE).is_ok() {}
    let is_released = notifications.try_recv() == Err(mpsc::TryRecvError::Disconnected);
    ensure(is_released, "the callback was not dropped")
}
