//! Naming of interfaces by udev, and replay of its rules.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vfleet_api::PciAddress;

use super::command::Command;
use super::root::HostRoot;
use super::{cache, pci, sysfs};
use crate::{HostError, format_error_chain};

/// Limit for udev to read its rules and to process its queue, which at boot contains every device of the machine.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(1);

/// Limit for udev to read a new rule. Two in a row are shorter than the limit of a step, which continues without it.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Limit for udev to name an interface. An interface that is not named by then keeps its name.
const NAMING_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns whether udev has named the interface. Until then a new interface has the name from the kernel (eth0) and no
/// alternative names. On a machine without udev no interface is renamed.
pub(super) fn has_named(root: &HostRoot, index: u32) -> bool {
    let is_done =
        root.at(&format!("/run/udev/data/n{index}")).exists() || !root.at("/run/udev/control").exists();
    let mut unnamed = cache::lock(&root.cache().unnamed);
    if is_done {
        unnamed.remove(&index);
        return true;
    }
    unnamed.entry(index).or_insert_with(Instant::now).elapsed() >= NAMING_TIMEOUT
}

/// Requests to reload the rules of udev. Cards that are configured in parallel send them at the same time.
#[derive(Debug, Default)]
pub(super) struct ReloadRequests {
    /// Number of requests.
    sent: AtomicU64,
    /// Number of requests that had been sent when the latest finished reload started.
    served: Mutex<u64>,
}

impl ReloadRequests {
    /// Calls `reload`. Requests that are sent while another reload runs share the next one.
    fn send(&self, reload: impl FnOnce()) {
        let request = self.sent.fetch_add(1, Ordering::SeqCst) + 1;
        let mut served = cache::lock(&self.served);
        if *served < request {
            let sent = self.sent.load(Ordering::SeqCst);
            reload();
            *served = sent;
        }
    }
}

/// Makes udev read its rules now. By itself it checks for new rules at most every three seconds, so that they would not
/// apply to an interface that is created meanwhile.
pub(super) fn read_rules_now(root: &HostRoot) {
    if !root.at("/run/udev/control").exists() {
        return;
    }
    root.cache().reload_requests.send(|| {
        if let Err(error) = reload(root, RELOAD_TIMEOUT) {
            let error = format_error_chain(&error);
            tracing::warn!(
                error,
                "udev does not read its new rules: they may not apply to the next interfaces"
            );
        }
    });
}

fn reload(root: &HostRoot, limit: Duration) -> Result<(), HostError> {
    Command::new("udevadm", limit).arguments(["control", "--reload"]).run(root).map(drop)
}

/// Makes udev process the interface of a PF and its representors again, and waits for the end.
pub(super) fn replay(root: &HostRoot, pf: PciAddress) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    reload(root, SETTLE_TIMEOUT)?;
    for interface in list_interfaces(root, pf)? {
        match sysfs::write(&interface.join("uevent"), "add") {
            // udev has already renamed the interface.
            Err(error) if sysfs::has_vanished(&error) => {}
            written => written?,
        }
    }
    // One second less than the limit of the command, so that udevadm ends by itself.
    let limit = format!("--timeout={}", SETTLE_TIMEOUT.as_secs() - 1);
    let settle = Command::new("udevadm", SETTLE_TIMEOUT).arguments(["settle".to_owned(), limit]);
    settle.run(root).map(drop)
}

/// Lists the interfaces of a PF and all ports of its switch.
fn list_interfaces(root: &HostRoot, pf: PciAddress) -> Result<Vec<PathBuf>, HostError> {
    let own = sysfs::list_paths_if_exists(&root.device(pf).join("net"))?;
    let mut switch = None;
    for interface in &own {
        switch = switch.or(read_switch_id(interface)?);
    }
    let Some(switch) = switch else { return Ok(own) };
    let mut ports = own;
    for interface in sysfs::list_paths_if_exists(&root.at("/sys/class/net"))? {
        let is_new = !ports.iter().any(|port| port.file_name() == interface.file_name());
        if is_new && read_switch_id(&interface)?.as_ref() == Some(&switch) {
            ports.push(interface);
        }
    }
    Ok(ports)
}

/// Reads the ID of the switch of an interface; `None` if the interface is no port, or vanishes meanwhile.
fn read_switch_id(interface: &Path) -> Result<Option<String>, HostError> {
    match sysfs::read_if_supported(&interface.join("phys_switch_id")) {
        Err(error) if sysfs::has_vanished(&error) => Ok(None),
        switch => Ok(switch?.filter(|id| !id.is_empty())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn requests_during_a_reload_share_the_next_one() {
        const LATER: u64 = 5;
        let (requests, count) = (ReloadRequests::default(), AtomicU64::new(0));
        let reload = || {
            count.fetch_add(1, Ordering::SeqCst);
        };
        let is_running = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                requests.send(|| {
                    is_running.wait();
                    while requests.sent.load(Ordering::SeqCst) <= LATER {
                        thread::yield_now();
                    }
                    reload();
                });
            });
            is_running.wait();
            for _ in 0..LATER {
                scope.spawn(|| requests.send(reload));
            }
        });
        assert_eq!(count.load(Ordering::SeqCst), 2, "one for the first request, and one for all others");
        requests.send(reload);
        assert_eq!(count.load(Ordering::SeqCst), 3, "an earlier reload does not know later rules");
    }
}
