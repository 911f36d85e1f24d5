//! Whether this process is of use: for the kubelet, which asks.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;

/// The Lease is renewed or seen renewed every few seconds; without a word for so long, we are cut off.
const CUT_OFF_AFTER: Duration = Duration::from_mins(1);

/// When the API server was last heard of, and what is still missing.
#[derive(Debug, Default)]
pub(crate) struct Health {
    seen: Mutex<Option<Instant>>,
    missing: Mutex<Option<&'static str>>,
    /// Since when nothing has been.
    since: Mutex<Option<Instant>>,
}

impl Health {
    /// The API server answered.
    pub(crate) fn sees_api_server(&self) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Something is missing to answer those who ask; nothing, with `None`.
    pub(crate) fn waits_for(&self, what: Option<&'static str>) {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = what;
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = if what.is_some() { None } else { Some(since.unwrap_or_else(Instant::now)) };
    }

    /// For how long nothing has been missing to answer those who ask.
    pub(crate) fn ready_for(&self) -> Option<Duration> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }

    /// Whether it can work; if not, why.
    pub(crate) fn ready(&self) -> Result<(), &'static str> {
        if let Some(missing) = *self.missing.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(missing);
        }
        match *self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(seen) if seen.elapsed() < CUT_OFF_AFTER => Ok(()),
            Some(_) => Err("the API server has not been heard of for a minute"),
            None => Err("the API server has not answered yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_when_the_api_server_answers_and_nothing_is_missing() {
        let health = Health::default();
        assert!(health.ready().is_err());
        health.sees_api_server();
        assert_eq!(health.ready(), Ok(()));
        health.waits_for(Some("a certificate"));
        assert_eq!(health.ready(), Err("a certificate"));
        health.waits_for(None);
        assert_eq!(health.ready(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn how_long_nothing_has_been_missing_is_known() {
        let health = Health::default();
        assert_eq!(health.ready_for(), None);
        for _ in 0..2 {
            health.waits_for(None);
            tokio::time::advance(Duration::from_secs(3)).await;
        }
        assert_eq!(health.ready_for(), Some(Duration::from_secs(6)));
        health.waits_for(Some("a certificate"));
        assert_eq!(health.ready_for(), None);
    }
}
