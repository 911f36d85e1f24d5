//! What is read of a machine once and then remembered, because it does not change by itself.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vfleet_api::PciAddress;
use vfleet_plan::FirmwareFacts;

use super::modules::OnDisk;
use super::platform::Networks;
use super::uses::Remembered;
use crate::{HostError, with_causes};

/// How long a failure is remembered before it is tried again: who looks at the machine must not wait each time.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

/// All that is remembered.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The modules of the running kernel.
    pub(super) modules: Mutex<Option<OnDisk>>,
    /// Whether the program that units start at boot is this one, when its file was like this.
    pub(super) boot_program: Mutex<Option<(FileVersion, bool)>>,
    /// What the node used.
    pub(super) uses: Mutex<Option<Remembered>>,
    /// Settings of firmware, by card.
    pub(super) firmware: Answers<FirmwareFacts>,
    /// The tool that was asked for them last, and what its file was like.
    pub(super) firmware_tool: Mutex<Option<(&'static str, FileVersion)>>,
    /// The networks that a cloud told of.
    pub(super) networks: Answers<Networks>,
    /// Those of them that belong to a card.
    pub(super) networks_by_card: Mutex<BTreeMap<PciAddress, String>>,
    /// Interfaces that udev has not named yet, by index, and since when.
    pub(super) unnamed: Mutex<BTreeMap<u32, Instant>>,
}

/// A file's number, length, and when it changed last, in seconds and nanoseconds.
pub(super) type FileVersion = (u64, u64, i64, i64);

/// Returns the version of the file at `path`, which may be a link; `None` when there is none.
pub(super) fn version(path: &Path) -> Option<FileVersion> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.ctime(), metadata.ctime_nsec()))
}

/// Answers to questions that take a while.
#[derive(Debug)]
pub(super) struct Answers<T>(Mutex<BTreeMap<String, Answer<T>>>);

#[derive(Debug)]
enum Answer<T> {
    Given(T),
    Failed(Instant, Arc<HostError>),
}

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Answers<T> {
    /// What `ask` once answered about `subject`. A failure is repeated for a while, and then tried again.
    pub(super) fn get(
        &self,
        subject: &str,
        ask: impl FnOnce() -> Result<T, HostError>,
    ) -> Result<T, Arc<HostError>> {
        match lock(&self.0).get(subject) {
            Some(Answer::Given(answer)) => return Ok(answer.clone()),
            Some(Answer::Failed(when, error)) if when.elapsed() < AGAIN_AFTER => {
                return Err(Arc::clone(error));
            }
            _ => {}
        }
        // Not locked: others ask about other subjects meanwhile.
        let answer = ask().map_err(Arc::new);
        let kept = match &answer {
            Ok(answer) => Answer::Given(answer.clone()),
            Err(error) => {
                tracing::warn!(subject, reason = error.reason(), "not answered: {}", with_causes(&error));
                Answer::Failed(Instant::now(), Arc::clone(error))
            }
        };
        lock(&self.0).insert(subject.to_owned(), kept);
        answer
    }

    /// Has everything asked again that was not answered: who is asked is another.
    pub(super) fn forget_failures(&self) {
        lock(&self.0).retain(|_, answer| matches!(answer, Answer::Given(_)));
    }

    /// Has it asked again.
    pub(super) fn forget(&self, subject: &str) {
        lock(&self.0).remove(subject);
    }
}

/// What is in `mutex`. Nothing here is ever left half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> HostError {
        HostError::NoProgram { program: "x".to_owned() }
    }

    #[test]
    fn an_answer_is_asked_for_once_until_it_is_forgotten() {
        let answers = Answers::default();
        let get = |subject, answer| answers.get(subject, || Ok(answer)).unwrap();
        assert_eq!((get("a", 1), get("a", 2), get("b", 3)), (1, 1, 3));
        answers.forget("a");
        assert_eq!(get("a", 2), 2);
    }

    #[test]
    fn a_failure_is_not_asked_for_again_at_once() {
        let answers = Answers::default();
        for ask in [|| Err(failure()), || Ok(1)] {
            assert_eq!(answers.get("a", ask).unwrap_err().to_string(), failure().to_string());
        }
        answers.forget("a");
        assert_eq!(answers.get("a", || Ok(1)).unwrap(), 1);
    }
}
