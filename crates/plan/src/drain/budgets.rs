//! Which PodDisruptionBudgets a pod counts for.

use vfleet_api::pool_config::LabelSelector;

use crate::pool::holds_for;
use crate::prelude::*;

/// A PodDisruptionBudget of the pod's namespace.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    /// Its name.
    pub name: &'a str,
    /// The pods that it is about: none without a selector, all with an empty one.
    pub selector: Option<&'a LabelSelector>,
}

/// The names of the budgets that a pod with these labels counts for, in order. A selector that cannot be followed
/// selects nothing.
pub fn budgets_of<'a>(
    budgets: impl IntoIterator<Item = Budget<'a>>,
    labels: &BTreeMap<String, String>,
) -> Vec<&'a str> {
    let is_about =
        |budget: &Budget<'_>| budget.selector.is_some_and(|selector| holds_for(selector, labels) == Ok(true));
    let mut names: Vec<_> = budgets.into_iter().filter(is_about).map(|budget| budget.name).collect();
    names.sort_unstable();
    names
}
