//! Many attachments at the same time in the machine of the lab, with fewer VFs than pods.

use std::path::Path;
use std::sync::{Barrier, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::lab_vf::{LabVf, Pod};
use super::runtime::Runtime;

/// Limit for a free VF.
const LIMIT: Duration = Duration::from_mins(5);

/// Outcome of many attachments.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Turns {
    /// Errors, one for each attachment that failed.
    pub(super) failures: Vec<String>,
    /// Time from the first ADD to the last DEL.
    pub(super) seconds: f64,
}

/// Attaches pods, all at the same time, each of which waits until one of the VFs is free and releases it afterwards.
pub(crate) fn attach_in_turns(plugin: &Path, count: usize) -> Result<Turns> {
    let runtime = Runtime { plugin };
    let vfs = LabVf::list()?;
    let pods = (0..count).map(|number| Pod::create(&format!("turn{number}"))).collect::<Result<Vec<_>>>()?;
    let free = FreeVfs { vfs: Mutex::new(vfs.clone()), returned: Condvar::new() };
    let (start, failures) = (Barrier::new(count + 1), Mutex::new(Vec::new()));
    let attach = |pod: &Pod| {
        start.wait();
        if let Err(error) = free.take().and_then(|vf| take_turn(runtime, pod, vf, &free)) {
            lock(&failures).push(format!("{error:#}"));
        }
    };
    let started = thread::scope(|scope| {
        for pod in &pods {
            drop(scope.spawn(|| attach(pod)));
        }
        start.wait();
        Instant::now()
    });
    let seconds = started.elapsed().as_secs_f64();
    vfs.iter().try_for_each(LabVf::check_restored)?;
    Ok(Turns { failures: failures.into_inner()?, seconds })
}

/// Attaches a VF to a pod and releases it, in any case, for the next pod.
fn take_turn(runtime: Runtime<'_>, pod: &Pod, vf: LabVf, free: &FreeVfs) -> Result<()> {
    let added = runtime.add(pod, &vf).and_then(|_| {
        ensure!(vf.index().is_err(), "{} succeeded, but {} is on the host", pod.name, vf.address);
        Ok(())
    });
    let deleted = runtime.delete(pod, &vf);
    free.give_back(vf);
    added.and(deleted.map(drop))
}

/// VFs that no pod has, as a kubelet knows them.
struct FreeVfs {
    vfs: Mutex<Vec<LabVf>>,
    returned: Condvar,
}

impl FreeVfs {
    /// Takes a VF, as soon as there is one.
    fn take(&self) -> Result<LabVf> {
        let vfs = lock(&self.vfs);
        let waited = self.returned.wait_timeout_while(vfs, LIMIT, |vfs| vfs.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.pop().context("timed out waiting for a free VF")
    }

    fn give_back(&self, vf: LabVf) {
        lock(&self.vfs).push(vf);
        self.returned.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
