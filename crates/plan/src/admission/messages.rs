//! Parts of messages that several rules share.

use crate::prelude::*;

/// Message of rule G02: rules that need cluster facts were skipped.
pub(super) const NOT_CHECKED: &str =
    "not checked against the cluster, which is still being read: see condition Valid";

/// Number of names in a message.
const MAX_NAMES: usize = 3;

/// Joins the first names, and says how many more there are.
pub(super) fn join_names(names: &[&str]) -> String {
    let shown = names.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
