//! Cache of facts of a machine that are slow to read and do not change without vfleet.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vfleet_api::PciAddress;
use vfleet_plan::FirmwareFacts;
use vfleet_plan::cni::programs::ProgramOrigin;

use super::host_use::CachedUses;
use super::modules::ModuleLists;
use super::ovs::OvsCache;
use super::platform::Networks;
use super::udev::ReloadRequests;
use crate::{HostError, format_error_chain};

/// Time after which a failed query is repeated. Until then the failure is cached, so that not every read waits for it.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);

/// Cached facts of one machine.
#[derive(Debug, Default)]
pub(super) struct HostCache {
    /// Modules of the running kernel.
    pub(super) modules: Mutex<Option<ModuleLists>>,
    /// Version of the program that units start at boot, and whether it is this program.
    pub(super) boot_program: Mutex<Option<(FileVersion, bool)>>,
    /// Files in the directory of CNI plugins, with their versions and origins.
    pub(super) cni_programs: Mutex<BTreeMap<PathBuf, (FileVersion, ProgramOrigin)>>,
    /// Uses of cards by the node.
    pub(super) uses: Mutex<Option<CachedUses>>,
    /// Firmware settings by card.
    pub(super) firmware: QueryCache<FirmwareFacts>,
    /// Firmware tool that was used last, and the version of its file.
    pub(super) firmware_tool: Mutex<Option<(&'static str, FileVersion)>>,
    /// Networks by cloud, as its metadata lists them.
    pub(super) networks: QueryCache<Networks>,
    /// Networks of cards.
    pub(super) networks_by_card: Mutex<BTreeMap<PciAddress, String>>,
    /// Interface indexes that udev has not named yet, and when they were observed first.
    pub(super) unnamed: Mutex<BTreeMap<u32, Instant>>,
    /// Requests to reload the rules of udev.
    pub(super) reload_requests: ReloadRequests,
    /// State of Open vSwitch.
    pub(super) ovs: OvsCache,
}

/// Version of a file: inode, length, and time of the last change in seconds and nanoseconds.
pub(super) type FileVersion = (u64, u64, i64, i64);

/// Returns the version of the file at `path`, which may be a symbolic link; `None` if there is no such file.
pub(super) fn file_version(path: &Path) -> Option<FileVersion> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.ctime(), metadata.ctime_nsec()))
}

/// Cache of the answers to slow queries, by subject.
#[derive(Debug)]
pub(super) struct QueryCache<T>(Mutex<BTreeMap<String, CachedAnswer<T>>>);

/// Answer to a query, or its failure with the time of the attempt.
#[derive(Debug)]
enum CachedAnswer<T> {
    Value(T),
    Failed(Instant, Arc<HostError>),
}

impl<T> Default for QueryCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> QueryCache<T> {
    /// Returns the cached answer for `subject`, or calls `query`. A failure is cached for [`RETRY_INTERVAL`].
    pub(super) fn get_or_query(
        &self,
        subject: &str,
        query: impl FnOnce() -> Result<T, HostError>,
    ) -> Result<T, Arc<HostError>> {
        match lock(&self.0).get(subject) {
            Some(CachedAnswer::Value(answer)) => return Ok(answer.clone()),
            Some(CachedAnswer::Failed(when, error)) if when.elapsed() < RETRY_INTERVAL => {
                return Err(Arc::clone(error));
            }
            _ => {}
        }
        // Without the lock: queries for other subjects run meanwhile.
        let answer = query().map_err(Arc::new);
        let cached = match &answer {
            Ok(answer) => CachedAnswer::Value(answer.clone()),
            Err(error) => {
                tracing::warn!(
                    subject,
                    reason = error.reason(),
                    "query failed: {}",
                    format_error_chain(&error)
                );
                CachedAnswer::Failed(Instant::now(), Arc::clone(error))
            }
        };
        lock(&self.0).insert(subject.to_owned(), cached);
        answer
    }

    /// Removes all failures, because their cause may be gone.
    pub(super) fn remove_failures(&self) {
        lock(&self.0).retain(|_, answer| matches!(answer, CachedAnswer::Value(_)));
    }

    /// Removes the answer for `subject`.
    pub(super) fn remove(&self, subject: &str) {
        lock(&self.0).remove(subject);
    }
}

/// Locks `mutex`, also after a panic: no cached value is ever left half modified.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> HostError {
        HostError::ProgramNotFound { program: "x".to_owned() }
    }

    #[test]
    fn a_query_runs_once_until_its_answer_is_removed() {
        let answers = QueryCache::default();
        let get = |subject, answer| answers.get_or_query(subject, || Ok(answer)).unwrap();
        assert_eq!((get("a", 1), get("a", 2), get("b", 3)), (1, 1, 3));
        answers.remove("a");
        assert_eq!(get("a", 2), 2);
    }

    #[test]
    fn a_failed_query_is_not_repeated_immediately() {
        let answers = QueryCache::default();
        for query in [|| Err(failure()), || Ok(1)] {
            assert_eq!(answers.get_or_query("a", query).unwrap_err().to_string(), failure().to_string());
        }
        answers.remove("a");
        assert_eq!(answers.get_or_query("a", || Ok(1)).unwrap(), 1);
    }
}
