//! PodDisruptionBudgets that apply to a pod.

use vfleet_api::meta::LabelSelector;

use super::Moment;
use crate::pool::matches_labels;
use crate::prelude::*;

/// PodDisruptionBudget in the namespace of a pod.
#[derive(Clone, Debug)]
pub struct DisruptionBudget<'a> {
    /// Name of the budget.
    pub name: &'a str,
    /// Pod selector: `None` selects no pod, an empty selector selects all.
    pub selector: Option<LabelSelector>,
    /// Time of a granted eviction of a pod with the name in question (`status.disruptedPods`).
    pub disrupted_at: Option<Moment>,
}

/// Returns whether a budget granted the eviction of the pod with these labels, created at this time, although the pod
/// was not deleted: the API server was interrupted in between. The budget counts such a pod as disrupted for two
/// minutes and refuses another eviction. A grant from before the creation belongs to an earlier pod of the same name.
pub fn is_eviction_granted(
    budgets: &[DisruptionBudget<'_>],
    labels: &BTreeMap<String, String>,
    created: Option<Moment>,
) -> bool {
    let mut matching = budgets.iter().filter(|budget| selects(budget, labels));
    created.is_some() && matching.any(|budget| budget.disrupted_at > created)
}

/// Returns the names of the budgets that select a pod with these labels, sorted. An invalid selector selects nothing.
pub fn matching_budgets<'a>(
    budgets: impl IntoIterator<Item = DisruptionBudget<'a>>,
    labels: &BTreeMap<String, String>,
) -> Vec<&'a str> {
    let matching = budgets.into_iter().filter(|budget| selects(budget, labels));
    let mut names: Vec<_> = matching.map(|budget| budget.name).collect();
    names.sort_unstable();
    names
}

fn selects(budget: &DisruptionBudget<'_>, labels: &BTreeMap<String, String>) -> bool {
    budget.selector.as_ref().is_some_and(|selector| matches_labels(selector, labels) == Ok(true))
}
