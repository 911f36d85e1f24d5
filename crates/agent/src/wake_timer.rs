//! Timer that decides when the agent makes its next attempt.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// Time to collect events: one change of the machine causes many (seven VFs cause dozens).
const SETTLE: Duration = Duration::from_millis(100);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_mins(1);
/// An administrator needs a moment to read a problem and to fix it; most fixes cause an event anyway.
const FIRST_RECHECK: Duration = Duration::from_secs(10);
const LAST_RECHECK: Duration = Duration::from_mins(5);
/// Longest time that a failure of one card delays the reaction to changes of the others.
const LONGEST_DELAY: Duration = Duration::from_secs(3);

/// Timer for the next attempt.
#[derive(Debug, Default)]
pub(crate) struct WakeTimer {
    due: Option<Instant>,
    /// Changes of the machine do not cause an attempt before this time. Otherwise the changes that an attempt makes
    /// would cause the next one at once, and so would a program that undoes them.
    not_before: Option<Instant>,
}

impl WakeTimer {
    /// Requests an attempt at once: the desired state changed.
    pub(crate) fn wake_now(&mut self) {
        self.due = Some(Instant::now());
        self.not_before = None;
    }

    /// Requests an attempt soon: the machine changed. Further changes do not delay it.
    pub(crate) fn wake_soon(&mut self) {
        let soon = Instant::now() + SETTLE;
        let soon = self.not_before.map_or(soon, |earliest| soon.max(earliest));
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// Requests an attempt at `time`, or earlier if one is due earlier.
    pub(crate) fn wake_at(&mut self, time: Instant) {
        self.due = Some(self.due.map_or(time, |due| due.min(time)));
    }

    /// Requests a retry after `failures` failed attempts in a row, each time a little later. A change of the machine
    /// causes an attempt before that.
    pub(crate) fn retry_after(&mut self, failures: u32) {
        let (now, pause) = (Instant::now(), retry_pause(failures));
        self.due = Some(now + pause);
        self.not_before = Some(now + pause.min(LONGEST_DELAY));
    }

    /// Delays the reaction to changes of the machine after `repairs` repairs in a row: another program undoes them.
    pub(crate) fn hold_off(&mut self, repairs: u32) {
        self.not_before = Some(Instant::now() + retry_pause(repairs));
    }

    /// Delays the reaction to changes of the machine by `pause`: a reaction is expensive.
    pub(crate) fn rest(&mut self, pause: Duration) {
        self.not_before = Some(Instant::now() + pause);
    }

    /// Clears the timer, at the start of an attempt.
    pub(crate) fn clear(&mut self) {
        self.due = None;
    }

    /// Waits until an attempt is due; forever when none is.
    pub(crate) async fn wait(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

/// Returns the pause before a retry after so many failures in a row.
fn retry_pause(failures: u32) -> Duration {
    growing_pause(FIRST_RETRY, LAST_RETRY, failures)
}

/// Returns the pause before the machine is read again after so many checks that found a problem unfixed.
pub(crate) fn recheck_pause(checks: u32) -> Duration {
    growing_pause(FIRST_RECHECK, LAST_RECHECK, checks)
}

/// Returns a pause that doubles each time. It is random, so that nodes that failed together do not retry together.
fn growing_pause(first: Duration, longest: Duration, times: u32) -> Duration {
    let pause = first.saturating_mul(1 << times.saturating_sub(1).min(16)).min(longest);
    let percent = 75 + RandomState::new().build_hasher().finish() % 50;
    pause.mul_f64(f64::from(u32::try_from(percent).unwrap_or(100)) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn seconds_until_due(timer: &WakeTimer) -> f64 {
        let start = Instant::now();
        timer.wait().await;
        start.elapsed().as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_cause_one_attempt() {
        let mut timer = WakeTimer::default();
        timer.wake_soon();
        tokio::time::advance(SETTLE / 2).await;
        timer.wake_soon();
        assert!(seconds_until_due(&timer).await < 0.06);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_by_a_failed_attempt_do_not_cause_the_next_one_at_once() {
        let mut timer = WakeTimer::default();
        timer.retry_after(2);
        timer.wake_soon();
        assert!((1.4..2.6).contains(&seconds_until_due(&timer).await));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_causes_an_attempt_soon_also_after_many_failures() {
        let mut timer = WakeTimer::default();
        timer.retry_after(10);
        tokio::time::advance(LONGEST_DELAY).await;
        timer.wake_soon();
        assert!(seconds_until_due(&timer).await < 0.2);
        timer.retry_after(10);
        timer.wake_soon();
        assert!((2.9..3.2).contains(&seconds_until_due(&timer).await));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_desired_state_causes_an_attempt_at_once() {
        let mut timer = WakeTimer::default();
        timer.retry_after(10);
        timer.wake_now();
        assert!(seconds_until_due(&timer).await < 0.01);
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_after_failures_is_limited() {
        let mut timer = WakeTimer::default();
        timer.retry_after(u32::MAX);
        assert!((44.0..76.0).contains(&seconds_until_due(&timer).await));
    }

    #[test]
    fn rechecks_become_rarer_up_to_some_minutes() {
        let seconds = |times| recheck_pause(times).as_secs_f64();
        assert!((7.0..13.0).contains(&seconds(1)) && (29.0..51.0).contains(&seconds(3)));
        assert!((220.0..380.0).contains(&seconds(u32::MAX)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_undoes_repairs_is_answered_less_and_less_often() {
        let mut timer = WakeTimer::default();
        timer.hold_off(5);
        timer.wake_soon();
        assert!((11.0..21.0).contains(&seconds_until_due(&timer).await));
    }

    #[tokio::test(start_paused = true)]
    async fn holding_off_alone_causes_no_attempt() {
        let mut timer = WakeTimer::default();
        timer.hold_off(1);
        let wait = tokio::time::timeout(Duration::from_hours(1), timer.wait());
        assert!(wait.await.is_err());
    }
}
