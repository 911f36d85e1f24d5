//! Whether this process is of use: for the kubelet, which asks.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;

/// The Lease is renewed or seen renewed every few seconds; without a word for so long, we are cut off.
const CUT_OFF_AFTER: Duration = Duration::from_mins(1);

/// When the API server was last heard of.
#[derive(Debug, Default)]
pub(crate) struct Health {
    seen: Mutex<Option<Instant>>,
}

impl Health {
    /// The API server answered.
    pub(crate) fn sees_api_server(&self) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether it can work; if not, why.
    pub(crate) fn ready(&self) -> Result<(), &'static str> {
        match *self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(seen) if seen.elapsed() < CUT_OFF_AFTER => Ok(()),
            Some(_) => Err("the API server has not been heard of for a minute"),
            None => Err("the API server has not answered yet"),
        }
    }
}
