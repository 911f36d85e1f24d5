//! Why pods do not go, in words.

use super::Obstacle;
use super::pod::PodId;

/// More pods than these are only counted.
const NAMED: usize = 3;

/// Why the API server did not evict a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// A disruption budget does not allow it now.
    pub(super) is_by_budget: bool,
    /// What the API server said.
    pub(super) words: String,
    /// `namespace/name` of the budgets that the pod counts for.
    pub(super) budgets: Vec<String>,
}

/// Why one pod does not go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble<'a> {
    /// It was not told to end.
    Refused(&'a Refusal),
    /// It was, and is still there long after its grace period.
    DoesNotEnd {
        /// What is to be done before it can go.
        finalizers: &'a [String],
    },
}

/// Why these pods do not go: the worst first, but all of it. `None` when there are none.
pub(super) fn obstacle(pods: &[(&PodId, Trouble<'_>)]) -> Option<Obstacle> {
    let of = |refused: fn(&Trouble<'_>) -> bool| -> Vec<_> {
        pods.iter().filter(|(_, trouble)| refused(trouble)).copied().collect()
    };
    let refused = of(|trouble| matches!(trouble, Trouble::Refused(refusal) if refusal.is_by_budget));
    let failed = of(|trouble| matches!(trouble, Trouble::Refused(refusal) if !refusal.is_by_budget));
    let staying = of(|trouble| matches!(trouble, Trouble::DoesNotEnd { .. }));
    let told = [
        told(
            "EvictionRefused",
            "the disruption budget does not let it go:",
            &refused,
            "raise its replicas or the budget's maxUnavailable (or lower minAvailable), or delete the pod",
        ),
        told("EvictionFailed", "cannot be evicted:", &failed, "put that right, or delete the pod"),
        told(
            "PodsDoNotEnd",
            "was told to end and is still there after its grace period:",
            &staying,
            "have its finalizers, if any, removed by whoever set them, and see whether the node's kubelet runs",
        ),
    ];
    let mut told = told.into_iter().flatten();
    let mut obstacle = told.next()?;
    for other in told {
        obstacle.message = format!("{}. {}", obstacle.message, other.message);
    }
    Some(obstacle)
}

/// The pods cannot even be looked at.
pub(super) fn not_seen(words: &str) -> Obstacle {
    Obstacle {
        reason: "PodsNotSeen",
        message: format!(
            "the node's pods cannot be looked at: {words}: tried again until the API server answers; see whether the \
             operator's role lets it list and watch pods"
        ),
    }
}

fn told(
    reason: &'static str,
    what: &str,
    pods: &[(&PodId, Trouble<'_>)],
    to_do: &'static str,
) -> Option<Obstacle> {
    let named: Vec<_> = pods.iter().take(NAMED).map(|(pod, trouble)| named(pod, trouble)).collect();
    let more = match pods.len().checked_sub(NAMED) {
        None if pods.is_empty() => return None,
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    Some(Obstacle { reason, message: format!("{what} {}{more}: {to_do}", named.join(", ")) })
}

fn named(pod: &PodId, trouble: &Trouble<'_>) -> String {
    let details = match trouble {
        Trouble::Refused(refusal) => {
            let budgets = match refusal.budgets.as_slice() {
                [] => String::new(),
                [budget] => format!("PodDisruptionBudget {budget}: "),
                several => format!("PodDisruptionBudgets {}: ", several.join(" and ")),
            };
            format!("{budgets}{}", refusal.words)
        }
        Trouble::DoesNotEnd { finalizers: [] } => return format!("pod {pod}"),
        Trouble::DoesNotEnd { finalizers } => format!("finalizers {}", finalizers.join(", ")),
    };
    format!("pod {pod} ({details})")
}
