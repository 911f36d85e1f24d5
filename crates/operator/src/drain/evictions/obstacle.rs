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

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> PodId {
        let (namespace, uid) = ("team".to_owned(), format!("uid-{name}"));
        PodId { namespace, name: name.to_owned(), uid, labels: std::collections::BTreeMap::new(), made: None }
    }

    fn refusal(is_by_budget: bool, words: &str, budgets: &[&str]) -> Refusal {
        let budgets = budgets.iter().copied().map(str::to_owned).collect();
        Refusal { is_by_budget, words: words.to_owned(), budgets }
    }

    #[test]
    fn no_trouble_is_no_obstacle() {
        assert_eq!(obstacle(&[]), None);
    }

    #[test]
    fn pod_and_budget_are_named_with_what_to_do() {
        let refusal = refusal(true, "it needs 1 healthy pods and has 1", &["team/guard"]);
        let told = obstacle(&[(&pod("a"), Trouble::Refused(&refusal))]).unwrap();
        assert_eq!(told.reason, "EvictionRefused");
        let expected = "the disruption budget does not let it go: pod team/a (PodDisruptionBudget team/guard: it needs \
                        1 healthy pods and has 1): raise its replicas or the budget's maxUnavailable (or lower \
                        minAvailable), or delete the pod";
        assert_eq!(told.message, expected);
    }

    #[test]
    fn three_are_named_and_the_others_counted() {
        let refusal = refusal(false, "no", &[]);
        let pods = ["a", "b", "c", "d", "e"].map(pod);
        let all: Vec<_> = pods.iter().map(|pod| (pod, Trouble::Refused(&refusal))).collect();
        let message = |count: usize| obstacle(&all[..count]).unwrap().message;
        let three = "cannot be evicted: pod team/a (no), pod team/b (no), pod team/c (no)";
        assert_eq!(message(3), format!("{three}: put that right, or delete the pod"));
        assert_eq!(message(5), format!("{three} and 2 more: put that right, or delete the pod"));
    }

    #[test]
    fn all_kinds_are_told_and_the_worst_gives_the_reason() {
        let (refused, failed) =
            (refusal(true, "full", &[]), refusal(false, "forbidden", &["team/x", "team/y"]));
        let finalizers = ["example.com/hold".to_owned()];
        let (a, b, c, d) = (pod("a"), pod("b"), pod("c"), pod("d"));
        let staying = (&c, Trouble::DoesNotEnd { finalizers: &finalizers });
        let hanging = (&d, Trouble::DoesNotEnd { finalizers: &[] });
        let failing = (&b, Trouble::Refused(&failed));
        let told = obstacle(&[staying, hanging, failing, (&a, Trouble::Refused(&refused))]).unwrap();
        assert_eq!(told.reason, "EvictionRefused");
        for part in [
            "pod team/a (full)",
            "pod team/b (PodDisruptionBudgets team/x and team/y: forbidden)",
            "still there after its grace period: pod team/c (finalizers example.com/hold), pod team/d: ",
        ] {
            assert!(told.message.contains(part), "{}: {part}", told.message);
        }
        assert_eq!(obstacle(&[staying, failing]).unwrap().reason, "EvictionFailed");
        assert_eq!(obstacle(&[staying]).unwrap().reason, "PodsDoNotEnd");
    }
}
