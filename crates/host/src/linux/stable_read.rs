//! Consistent reads of state that changes: a read during which something vanished is repeated for a while.

use std::time::Duration;

use super::{events, sysfs};
use crate::HostError;

/// Longest time that a change may take. An interface that is being unregistered stays in sysfs for some milliseconds.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Number of reads before waiting for an event: most changes end meanwhile, and not every change ends with an event.
const ATTEMPTS: usize = 8;

/// Repeats `read` until nothing vanishes during the read. Returns the last error after [`TIMEOUT`].
pub(super) fn read_stable<T>(mut read: impl FnMut() -> Result<T, HostError>) -> Result<T, HostError> {
    let mut last = HostError::ConcurrentChange { subject: "the machine".to_owned() };
    let found = events::wait_for(TIMEOUT, || {
        for _ in 0..ATTEMPTS {
            match read() {
                Err(error) if sysfs::has_vanished(&error) => last = error,
                read => return read.map(Some),
            }
        }
        Ok(None)
    })?;
    found.ok_or(last)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;

    fn refused(errno: i32) -> HostError {
        sysfs::failed("read", Path::new("/sys/x"), io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn a_read_is_repeated_until_nothing_vanishes() {
        // More reads than before the first wait.
        let mut left = ATTEMPTS + 1;
        let read = read_stable(|| {
            left -= 1;
            if left > 0 { Err(refused(19)) } else { Ok(7) }
        });
        assert_eq!(read.unwrap(), 7);
    }

    #[test]
    fn a_read_that_stays_unstable_or_fails_is_an_error() {
        assert_eq!(read_stable::<()>(|| Err(refused(2))).unwrap_err().errno(), Some(2));
        let mut reads = 0;
        let failed = read_stable::<()>(|| {
            reads += 1;
            Err(refused(5))
        });
        assert_eq!((failed.unwrap_err().errno(), reads), (Some(5), 1));
    }
}
