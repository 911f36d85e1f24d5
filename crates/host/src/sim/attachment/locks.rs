//! Locks of devices of a simulated machine.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vfleet_api::PciAddress;

use super::super::host::{SimHost, lock};
use crate::attachment::{DeviceLock, DeviceLockError, LockSubject};

const ESRCH: i32 = 3;

/// Locks that processes hold.
#[derive(Debug, Default)]
pub(in crate::sim) struct DeviceLocks {
    holders: Mutex<BTreeMap<LockSubject, String>>,
    released: Condvar,
}

/// Held lock, which is released when it is dropped, as when its process dies.
struct HeldLock {
    locks: Arc<DeviceLocks>,
    subject: LockSubject,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        lock(&self.locks.holders).remove(&self.subject);
        self.locks.released.notify_all();
    }
}

impl SimHost {
    pub(super) fn lock_within(
        &self,
        subject: &LockSubject,
        holder: &str,
        limit: Duration,
    ) -> Result<DeviceLock, DeviceLockError> {
        let path = PathBuf::from(format!("/var/lib/cni/sriov/pci/vf_lock/{subject}.lock"));
        let dead =
            |_| DeviceLockError::Failed { path: path.clone(), source: io::Error::from_raw_os_error(ESRCH) };
        self.read_machine("lock a device", |_| Ok(())).map_err(dead)?;
        let locks = &self.machine.device_locks;
        let started = Instant::now();
        let mut holders = lock(&locks.holders);
        while let Some(other) = holders.get(subject).cloned() {
            let Some(left) = limit.checked_sub(started.elapsed()) else {
                let subject = subject.clone();
                return Err(DeviceLockError::Busy { subject, holder: other, after: limit });
            };
            holders = locks.released.wait_timeout(holders, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        holders.insert(subject.clone(), holder.to_owned());
        drop(holders);
        Ok(DeviceLock::new(HeldLock { locks: Arc::clone(locks), subject: subject.clone() }))
    }

    /// Returns the holder of the lock of a device.
    pub fn device_lock_holder(&self, device: PciAddress) -> Option<String> {
        lock(&self.machine.device_locks.holders).get(&LockSubject::Device(device)).cloned()
    }
}
