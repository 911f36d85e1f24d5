//! Values that many have in common, each kept once: two that are equal are at the same place.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Below so many, nobody looks for those that are not used any more.
const FEW: usize = 64;

/// Each value once.
#[derive(Debug)]
pub(super) struct Interned<T> {
    kept: HashSet<Arc<T>>,
    /// With so many, those that nobody uses any more are forgotten.
    sweep_at: usize,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { kept: HashSet::new(), sweep_at: FEW }
    }
}

impl<T: Hash + Eq> Interned<T> {
    /// The one that is kept of all that are equal to `value`.
    pub(super) fn intern(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.kept.get(&value) {
            return Arc::clone(known);
        }
        if self.kept.len() >= self.sweep_at {
            self.kept.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = FEW.max(2 * self.kept.len());
        }
        let new = Arc::new(value);
        self.kept.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ones_are_one_and_unused_ones_go() {
        let mut interned = Interned::default();
        let used = interned.intern(0);
        assert!(Arc::ptr_eq(&used, &interned.intern(0)));
        for value in 1..10 * FEW {
            interned.intern(value);
        }
        assert!(interned.kept.len() <= FEW && interned.kept.contains(&0), "{}", interned.kept.len());
    }
}
