//! Reading what changes meanwhile: what vanishes is looked for again, for a while.

use std::time::Duration;

use super::{events, sysfs};
use crate::HostError;

/// How long a change may last. An interface that is being unregistered is in sysfs for some milliseconds.
const SETTLING: Duration = Duration::from_secs(1);
/// How often is read at once: most changes are over by then. Not every one ends with an event.
const ATTEMPTS: usize = 8;

/// Returns what `read` gives once nothing vanishes meanwhile; after [`SETTLING`], its last error.
pub(super) fn settled<T>(mut read: impl FnMut() -> Result<T, HostError>) -> Result<T, HostError> {
    let mut last = HostError::Unsettled { what: "the machine".to_owned() };
    let found = events::wait_for(SETTLING, || {
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
    fn what_vanished_is_read_again_until_it_is_there() {
        // More often than at once.
        let mut left = ATTEMPTS + 1;
        let read = settled(|| {
            left -= 1;
            if left > 0 { Err(refused(19)) } else { Ok(7) }
        });
        assert_eq!(read.unwrap(), 7);
    }

    #[test]
    fn what_never_settles_and_what_fails_is_an_error() {
        assert_eq!(settled::<()>(|| Err(refused(2))).unwrap_err().errno(), Some(2));
        let mut reads = 0;
        let failed = settled::<()>(|| {
            reads += 1;
            Err(refused(5))
        });
        assert_eq!((failed.unwrap_err().errno(), reads), (Some(5), 1));
    }
}
