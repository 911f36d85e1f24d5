use std::any::Any;
use std::fmt;

/// Is called when a machine may have changed.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// Keeps a [`Wake`] being called. Dropping it ends that; a call that is under way meanwhile still finishes.
#[must_use = "dropping it ends the watch"]
pub struct Watch {
    _ends_when_dropped: Box<dyn Any + Send + Sync>,
}

impl Watch {
    /// A watch that ends when `guard` is dropped.
    pub(crate) fn new(guard: impl Any + Send + Sync) -> Self {
        Self { _ends_when_dropped: Box::new(guard) }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
