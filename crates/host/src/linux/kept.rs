//! What is read of a machine once and then remembered, because it does not change by itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vfleet_api::PciAddress;
use vfleet_plan::FirmwareFacts;

use super::modules::OnDisk;
use super::platform::Networks;
use crate::HostError;

/// How long a failure is remembered before it is tried again: who looks at the machine must not wait each time.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

/// All that is remembered.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The modules of the running kernel.
    pub(super) modules: Mutex<Option<OnDisk>>,
    /// Settings of firmware, by card.
    pub(super) firmware: Answers<FirmwareFacts>,
    /// The networks that a cloud told of.
    pub(super) networks: Answers<Networks>,
    /// Those of them that belong to a card.
    pub(super) networks_by_card: Mutex<BTreeMap<PciAddress, String>>,
}

/// Answers to questions that take a while.
#[derive(Debug)]
pub(super) struct Answers<T>(Mutex<BTreeMap<String, Answer<T>>>);

#[derive(Debug)]
enum Answer<T> {
    Given(T),
    Failed(Instant),
}

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Answers<T> {
    /// What `ask` once answered about `subject`. `None` when it failed, which is tried again after a while.
    pub(super) fn get(&self, subject: &str, ask: impl FnOnce() -> Result<T, HostError>) -> Option<T> {
        match lock(&self.0).get(subject) {
            Some(Answer::Given(answer)) => return Some(answer.clone()),
            Some(Answer::Failed(when)) if when.elapsed() < AGAIN_AFTER => return None,
            _ => {}
        }
        // Not locked: others ask about other subjects meanwhile.
        let (kept, answer) = match ask() {
            Ok(answer) => (Answer::Given(answer.clone()), Some(answer)),
            Err(_) => (Answer::Failed(Instant::now()), None),
        };
        lock(&self.0).insert(subject.to_owned(), kept);
        answer
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
        assert_eq!(answers.get("a", || Ok(1)), Some(1));
        assert_eq!(answers.get("a", || Ok(2)), Some(1));
        assert_eq!(answers.get("b", || Ok(3)), Some(3));
        answers.forget("a");
        assert_eq!(answers.get("a", || Ok(2)), Some(2));
    }

    #[test]
    fn a_failure_is_not_asked_for_again_at_once() {
        let answers = Answers::default();
        assert_eq!(answers.get("a", || Err(failure())), None);
        assert_eq!(answers.get("a", || Ok(1)), None);
        answers.forget("a");
        assert_eq!(answers.get("a", || Ok(1)), Some(1));
    }
}
