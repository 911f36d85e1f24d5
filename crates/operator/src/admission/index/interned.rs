//! Interned values: equal values share one allocation, so that they can be compared by pointer.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Number of values below which unused ones are not removed.
const MIN_SWEEP: usize = 64;

/// Set of interned values.
#[derive(Debug)]
pub(super) struct Interned<T> {
    values: HashSet<Arc<T>>,
    /// Number of values at which unused ones are removed.
    sweep_at: usize,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), sweep_at: MIN_SWEEP }
    }
}

impl<T: Hash + Eq> Interned<T> {
    /// Returns the shared allocation of `value`.
    pub(super) fn intern(&mut self, value: T) -> Arc<T> {
        if let Some(shared) = self.values.get(&value) {
            return Arc::clone(shared);
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = MIN_SWEEP.max(2 * self.values.len());
        }
        let new = Arc::new(value);
        self.values.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_shared_and_unused_ones_are_removed() {
        let mut interned = Interned::default();
        let used = interned.intern(0);
        assert!(Arc::ptr_eq(&used, &interned.intern(0)));
        for value in 1..10 * MIN_SWEEP {
            interned.intern(value);
        }
        assert!(
            interned.values.len() <= MIN_SWEEP && interned.values.contains(&0),
            "{}",
            interned.values.len()
        );
    }
}
