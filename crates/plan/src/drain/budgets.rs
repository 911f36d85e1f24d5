//! Which PodDisruptionBudgets a pod counts for.

use vfleet_api::meta::LabelSelector;

use super::Moment;
use crate::pool::holds_for;
use crate::prelude::*;

/// A PodDisruptionBudget of the pod's namespace.
#[derive(Clone, Debug)]
pub struct Budget<'a> {
    /// Its name.
    pub name: &'a str,
    /// The pods that it is about: none without a selector, all with an empty one.
    pub selector: Option<LabelSelector>,
    /// When it let a pod of the name in question go that was not seen to end since (`status.disruptedPods`).
    pub let_go: Option<Moment>,
}

/// Whether a pod with these labels, made at this time, was let go already, but was not told to end: whoever asked for it
/// was cut off in between. Its budget counts it as gone for two minutes, and refuses to let it go once more. An earlier pod
/// of its name is another.
pub fn is_let_go(budgets: &[Budget<'_>], labels: &BTreeMap<String, String>, made: Option<Moment>) -> bool {
    let its_own = budgets.iter().filter(|budget| is_about(budget, labels));
    made.is_some() && its_own.into_iter().any(|budget| budget.let_go > made)
}

/// The names of the budgets that a pod with these labels counts for, in order. A selector that cannot be followed
/// selects nothing.
pub fn budgets_of<'a>(
    budgets: impl IntoIterator<Item = Budget<'a>>,
    labels: &BTreeMap<String, String>,
) -> Vec<&'a str> {
    let its_own = budgets.into_iter().filter(|budget| is_about(budget, labels));
    let mut names: Vec<_> = its_own.map(|budget| budget.name).collect();
    names.sort_unstable();
    names
}

fn is_about(budget: &Budget<'_>, labels: &BTreeMap<String, String>) -> bool {
    budget.selector.as_ref().is_some_and(|selector| holds_for(selector, labels) == Ok(true))
}
