//! When the agent looks at its machine next.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// A change of the machine comes in many events (seven VFs make dozens); they are taken as one.
const SETTLE: Duration = Duration::from_millis(100);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Whoever reads what to do needs a moment to do it; and most of it is told by the machine itself.
const FIRST_LOOK: Duration = Duration::from_secs(10);
const LONGEST_LOOK: Duration = Duration::from_mins(5);
/// What fails on one card must not keep the agent from what happens to the others for long.
const LONGEST_DEAFNESS: Duration = Duration::from_secs(3);

/// An alarm clock.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    due: Option<Instant>,
    /// Events of the machine do not ring before this. What an attempt changes would call for the next one at once,
    /// and so would a program that undoes what the agent does.
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

    /// Something is worth another look then.
    pub(crate) fn at(&mut self, then: Instant) {
        self.due = Some(self.due.map_or(then, |due| due.min(then)));
    }

    /// An attempt failed, the `times`-th in a row: try again, each time a little later. A change of the machine is looked
    /// at before that.
    pub(crate) fn again(&mut self, times: u32) {
        let (now, pause) = (Instant::now(), pause(times));
        self.due = Some(now + pause);
        self.not_before = Some(now + pause.min(LONGEST_DEAFNESS));
    }

    /// What was right is repaired for the `times`-th time in a row: somebody undoes it. Take more and more time.
    pub(crate) fn hold_off(&mut self, times: u32) {
        self.not_before = Some(Instant::now() + pause(times));
    }

    /// Rang: nothing is due any more.
    pub(crate) fn stop(&mut self) {
        self.due = None;
    }

    /// Waits until it is time; for ever when nothing is due.
    pub(crate) async fn rings(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

/// Pause before another attempt, when the last `times` failed.
fn pause(times: u32) -> Duration {
    growing(FIRST_PAUSE, LONGEST_PAUSE, times)
}

/// Pause before the machine is looked at again, when nobody had removed the cause of a failure at the last `times` looks.
pub(crate) fn pause_before_look(times: u32) -> Duration {
    growing(FIRST_LOOK, LONGEST_LOOK, times)
}

/// Twice as long each time, and not the same for all nodes: a fleet that failed at once must not try at once.
fn growing(first: Duration, longest: Duration, times: u32) -> Duration {
    let pause = first.saturating_mul(1 << times.saturating_sub(1).min(16)).min(longest);
    let percent = 75 + RandomState::new().build_hasher().finish() % 50;
    pause.mul_f64(f64::from(u32::try_from(percent).unwrap_or(100)) / 100.0)
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
    async fn the_traces_of_a_failed_attempt_do_not_call_for_the_next_one_at_once() {
        let mut alarm = Alarm::default();
        alarm.again(2);
        alarm.soon();
        assert!((1.4..2.6).contains(&seconds_until_it_rings(&alarm).await));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_looked_at_soon_also_after_many_failures() {
        let mut alarm = Alarm::default();
        alarm.again(10);
        tokio::time::advance(LONGEST_DEAFNESS).await;
        alarm.soon();
        assert!(seconds_until_it_rings(&alarm).await < 0.2);
        alarm.again(10);
        alarm.soon();
        assert!((2.9..3.2).contains(&seconds_until_it_rings(&alarm).await));
    }

    #[tokio::test(start_paused = true)]
    async fn another_wish_does() {
        let mut alarm = Alarm::default();
        alarm.again(10);
        alarm.now();
        assert!(seconds_until_it_rings(&alarm).await < 0.01);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_after_failures_has_an_end() {
        let mut alarm = Alarm::default();
        alarm.again(u32::MAX);
        assert!((44.0..76.0).contains(&seconds_until_it_rings(&alarm).await));
    }

    #[test]
    fn looks_for_a_repair_come_ever_later_up_to_some_minutes() {
        let seconds = |times| pause_before_look(times).as_secs_f64();
        assert!((7.0..13.0).contains(&seconds(1)) && (29.0..51.0).contains(&seconds(3)));
        assert!((220.0..380.0).contains(&seconds(u32::MAX)));
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_who_undoes_everything_is_answered_less_and_less_often() {
        let mut alarm = Alarm::default();
        alarm.hold_off(5);
        alarm.soon();
        assert!((11.0..21.0).contains(&seconds_until_it_rings(&alarm).await));
    }

    #[tokio::test(start_paused = true)]
    async fn holding_off_alone_calls_for_nothing() {
        let mut alarm = Alarm::default();
        alarm.hold_off(1);
        let rings = tokio::time::timeout(Duration::from_hours(1), alarm.rings());
        assert!(rings.await.is_err());
    }
}
