//! Readiness of this replica, for the kubelet.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;

/// Time without contact after which this replica counts as disconnected. The lease changes every few seconds.
const DISCONNECTED_AFTER: Duration = Duration::from_mins(1);

/// Last contact with the API server, and the reason why the replica is not ready.
#[derive(Debug, Default)]
pub(crate) struct Health {
    last_contact: Mutex<Option<Instant>>,
    missing: Mutex<Option<&'static str>>,
    /// Time since which nothing is missing.
    ready_since: Mutex<Option<Instant>>,
}

impl Health {
    /// Records that the API server answered.
    pub(crate) fn record_api_server_contact(&self) {
        *self.last_contact.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Sets the reason why webhooks cannot be served yet; `None` when they can.
    pub(crate) fn set_missing(&self, missing: Option<&'static str>) {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = missing;
        let mut since = self.ready_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = if missing.is_some() { None } else { Some(since.unwrap_or_else(Instant::now)) };
    }

    /// Returns the time for which nothing has been missing.
    pub(crate) fn ready_duration(&self) -> Option<Duration> {
        self.ready_since.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }

    /// Returns the reason why this replica is not ready, if it is not.
    pub(crate) fn check_ready(&self) -> Result<(), &'static str> {
        if let Some(missing) = *self.missing.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(missing);
        }
        match *self.last_contact.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(contact) if contact.elapsed() < DISCONNECTED_AFTER => Ok(()),
            Some(_) => Err("no contact with the API server for one minute"),
            None => Err("the API server has not answered yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_ready_when_the_api_server_answers_and_nothing_is_missing() {
        let health = Health::default();
        assert!(health.check_ready().is_err());
        health.record_api_server_contact();
        assert_eq!(health.check_ready(), Ok(()));
        health.set_missing(Some("a certificate"));
        assert_eq!(health.check_ready(), Err("a certificate"));
        health.set_missing(None);
        assert_eq!(health.check_ready(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_for_which_nothing_is_missing_is_measured() {
        let health = Health::default();
        assert_eq!(health.ready_duration(), None);
        for _ in 0..2 {
            health.set_missing(None);
            tokio::time::advance(Duration::from_secs(3)).await;
        }
        assert_eq!(health.ready_duration(), Some(Duration::from_secs(6)));
        health.set_missing(Some("a certificate"));
        assert_eq!(health.ready_duration(), None);
    }
}
