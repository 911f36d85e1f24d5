//! What several kinds of objects are told in the same words.

use crate::prelude::*;

/// The rules that need to know the cluster were skipped.
pub(super) const NOT_CHECKED: &str =
    "not checked against the cluster, which is still being read: see the status";

/// So many names are enough to know what is meant.
const MOST_NAMES: usize = 3;

/// The first of these names, and how many more there are.
pub(super) fn some_of(names: &[&str]) -> String {
    let shown = names.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
