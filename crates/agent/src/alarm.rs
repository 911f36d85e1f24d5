//! When the agent looks at its machine next.

use std::time::Duration;

use tokio::time::Instant;

/// A change of the machine comes in many events (seven VFs make dozens); they are taken as one.
const SETTLE: Duration = Duration::from_millis(100);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// An alarm clock.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    due: Option<Instant>,
    /// After a failed step. An attempt changes the machine, and so would call for the next one at once.
    not_before: Option<Instant>,
}

impl Alarm {
    /// Something else is wanted.
    pub(crate) fn now(&mut self) {
        self.due = Some(Instant::now());
        self.not_before = None;
    }

    /// The machine changed. Further changes do not put the alarm off.
    pub(crate) fn soon(&mut self) {
        let soon = Instant::now() + SETTLE;
        let soon = self.not_before.map_or(soon, |earliest| soon.max(earliest));
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// An attempt failed, and so did `failures` in a row.
    pub(crate) fn after_failure(&mut self, failures: u32) {
        let doublings = failures.saturating_sub(1).min(16);
        let later = Instant::now() + FIRST_RETRY.saturating_mul(1 << doublings).min(LONGEST_RETRY);
        self.due = Some(later);
        self.not_before = Some(later);
    }

    /// Waits until it is time; for ever when nothing is due.
    pub(crate) async fn rings(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn seconds_until_it_rings(alarm: &Alarm) -> f64 {
        let start = Instant::now();
        alarm.rings().await;
        start.elapsed().as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_are_one() {
        let mut alarm = Alarm::default();
        alarm.soon();
        tokio::time::advance(SETTLE / 2).await;
        alarm.soon();
        assert!(seconds_until_it_rings(&alarm).await < 0.06);
    }

    #[tokio::test(start_paused = true)]
    async fn the_traces_of_a_failed_attempt_do_not_call_for_the_next_one() {
        let mut alarm = Alarm::default();
        alarm.after_failure(3);
        alarm.soon();
        assert!((3.9..4.1).contains(&seconds_until_it_rings(&alarm).await));
    }

    #[tokio::test(start_paused = true)]
    async fn another_wish_does() {
        let mut alarm = Alarm::default();
        alarm.after_failure(10);
        alarm.now();
        assert!(seconds_until_it_rings(&alarm).await < 0.01);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_after_failures_has_an_end() {
        let mut alarm = Alarm::default();
        alarm.after_failure(u32::MAX);
        assert!((59.0..61.0).contains(&seconds_until_it_rings(&alarm).await));
    }
}
