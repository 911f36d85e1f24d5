//! Guard of a watch of a machine.

use std::any::Any;
use std::fmt;

/// Callback for a machine that may have changed.
pub type ChangeCallback = Box<dyn Fn() + Send + Sync>;

/// Guard of a watch: dropping it ends the watch. A call of the [`ChangeCallback`] that has begun is not interrupted.
#[must_use = "dropping the guard ends the watch"]
pub struct WatchGuard {
    _ends_when_dropped: Box<dyn Any + Send + Sync>,
}

impl WatchGuard {
    /// Returns a guard that drops `guard` when the watch ends.
    pub(crate) fn new(guard: impl Any + Send + Sync) -> Self {
        Self { _ends_when_dropped: Box::new(guard) }
    }
}

impl fmt::Debug for WatchGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchGuard")
    }
}
