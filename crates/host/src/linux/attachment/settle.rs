//! Drivers that change settings asynchronously: they refuse requests for a while (EBUSY), or report the old value.

use std::time::Duration;

use crate::HostError;
use crate::linux::events;

/// Longest time that a driver may need.
const LIMIT: Duration = Duration::from_secs(2);
const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;

/// Repeats `attempt`, which changes a setting and verifies it, while the driver is busy or reports another value. Returns
/// its last error after two seconds.
pub(super) fn settle(mut attempt: impl FnMut() -> Result<(), HostError>) -> Result<(), HostError> {
    let mut last = None;
    let done = events::wait_for_link(LIMIT, || match attempt() {
        Err(error) if is_transient(&error) => {
            last = Some(error);
            Ok(None)
        }
        result => result.map(Some),
    })?;
    match (done, last) {
        (None, Some(error)) => Err(error),
        _ => Ok(()),
    }
}

fn is_transient(error: &HostError) -> bool {
    matches!(error, HostError::NotVerified { .. }) || matches!(error.errno(), Some(EAGAIN | EBUSY))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn refused(errno: i32) -> HostError {
        let source = io::Error::from_raw_os_error(errno);
        HostError::Netlink { attempt: "set it".to_owned(), message: None, source }
    }

    #[test]
    fn a_busy_driver_gets_another_chance() {
        let mut refusals = vec![refused(EBUSY), refused(EAGAIN), refused(EBUSY)];
        settle(|| refusals.pop().map_or(Ok(()), Err)).unwrap();
        assert!(refusals.is_empty());
    }

    #[test]
    fn other_errors_are_returned_at_once_and_a_driver_that_stays_busy_is_an_error() {
        let mut attempts = 0;
        let error = settle(|| {
            attempts += 1;
            Err(refused(95))
        });
        assert_eq!((error.unwrap_err().errno(), attempts), (Some(95), 1));
        assert_eq!(settle(|| Err(refused(EBUSY))).unwrap_err().errno(), Some(EBUSY));
    }
}
