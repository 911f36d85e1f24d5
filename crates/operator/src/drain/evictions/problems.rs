//! Messages about pods that cannot be evicted or do not terminate.

use super::DrainHold;
use super::pod::{PodId, TERMINATION_MARGIN};

/// Number of pods, and of groups of pods, that a message names. Others are only counted.
const NAMED: usize = 3;

/// Refusal of an eviction by the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EvictionRefusal {
    /// A PodDisruptionBudget does not allow the eviction.
    pub(super) is_by_budget: bool,
    /// Message of the API server.
    pub(super) message: String,
    /// `namespace/name` of the budgets that select the pod.
    pub(super) budgets: Vec<String>,
}

/// Reason why a pod is not gone yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum PodProblem<'a> {
    /// The API server refuses the eviction.
    Refused(&'a EvictionRefusal),
    /// The pod has not terminated after its grace period.
    NotTerminated {
        /// Finalizers of the pod.
        finalizers: &'a [String],
    },
}

/// Describes all problems. The worst one comes first and gives the reason. `None` without problems.
pub(super) fn describe_problems(pods: &[(&PodId, PodProblem<'_>)]) -> Option<DrainHold> {
    let refusals = |is_by_budget: bool| {
        group_pods(pods.iter().filter_map(|(pod, problem)| match problem {
            PodProblem::Refused(refusal) if refusal.is_by_budget == is_by_budget => Some((*pod, *refusal)),
            _ => None,
        }))
    };
    let not_terminated = group_pods(pods.iter().filter_map(|(pod, problem)| match problem {
        PodProblem::NotTerminated { finalizers } => Some((*pod, *finalizers)),
        PodProblem::Refused(_) => None,
    }));
    let holds = [
        hold("EvictionRefused", &refusals(true), refused_text),
        hold("EvictionFailed", &refusals(false), failed_text),
        hold("PodsNotTerminated", &not_terminated, not_terminated_text),
    ];
    let mut holds = holds.into_iter().flatten();
    let mut first = holds.next()?;
    for other in holds {
        first.message = format!("{}; {}", first.message, other.message);
    }
    Some(first)
}

/// Describes a failed list or watch of pods.
pub(super) fn describe_list_error(error: &str) -> DrainHold {
    DrainHold {
        reason: "PodsUnreadable",
        message: format!(
            "cannot list or watch the pods of the node, retrying: {error}: check the role of the operator and the API \
             server"
        ),
    }
}

/// Groups pods that have the same problem.
fn group_pods<'a, K: PartialEq>(pods: impl Iterator<Item = (&'a PodId, K)>) -> Vec<(K, Vec<&'a PodId>)> {
    let mut groups: Vec<(K, Vec<&PodId>)> = Vec::new();
    for (pod, key) in pods {
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(pod),
            None => groups.push((key, vec![pod])),
        }
    }
    groups
}

fn hold<K: Copy>(
    reason: &'static str,
    groups: &[(K, Vec<&PodId>)],
    describe: impl Fn(K, &[&PodId]) -> String,
) -> Option<DrainHold> {
    let texts: Vec<_> = groups.iter().take(NAMED).map(|(key, pods)| describe(*key, pods)).collect();
    let more: usize = groups.iter().skip(NAMED).map(|(_, pods)| pods.len()).sum();
    let mut message = texts.join("; ");
    if more > 0 {
        message = format!("{message}; and {more} more pods");
    }
    (!groups.is_empty()).then_some(DrainHold { reason, message })
}

fn refused_text(refusal: &EvictionRefusal, pods: &[&PodId]) -> String {
    let budget = match refusal.budgets.as_slice() {
        [] => "a PDB".to_owned(),
        [budget] => format!("PDB {budget}"),
        several => format!("one of PDBs {}", several.join(", ")),
    };
    let detail = healthy_pods(&refusal.message).unwrap_or_else(|| refusal.message.clone());
    format!(
        "{budget} allows no eviction of {} now ({detail}): add replicas or raise maxUnavailable (or lower \
         minAvailable), or delete the pod",
        name_pods(pods)
    )
}

/// Reads the numbers from the API server's message "The disruption budget x needs 2 healthy pods and has 2 currently".
fn healthy_pods(message: &str) -> Option<String> {
    let (_, rest) = message.split_once(" needs ")?;
    let (needed, rest) = rest.split_once(" healthy pods and has ")?;
    let (healthy, _) = rest.split_once(" currently")?;
    let (needed, healthy) = (needed.parse::<u32>().ok()?, healthy.parse::<u32>().ok()?);
    Some(format!("needs {needed} healthy, has {healthy}"))
}

fn failed_text(refusal: &EvictionRefusal, pods: &[&PodId]) -> String {
    let budgets = match refusal.budgets.as_slice() {
        [] => String::new(),
        [budget] => format!(" (PDB {budget})"),
        several => format!(" (PDBs {})", several.join(", ")),
    };
    format!("cannot evict {}: {}{budgets}: fix the cause or delete the pod", name_pods(pods), refusal.message)
}

fn not_terminated_text(finalizers: &[String], pods: &[&PodId]) -> String {
    let (has, its) = if pods.len() == 1 { ("has", "its") } else { ("have", "their") };
    let seconds = TERMINATION_MARGIN.as_secs();
    let cause = match finalizers {
        [] => "check the kubelet on the node".to_owned(),
        [finalizer] => format!("finalizer {finalizer}; remove it, or check its controller"),
        several => format!("finalizers {}; remove them, or check their controllers", several.join(", ")),
    };
    format!("{} {has} not terminated {seconds} s after {its} grace period: {cause}", name_pods(pods))
}

fn name_pods(pods: &[&PodId]) -> String {
    let names: Vec<_> = pods.iter().take(NAMED).map(ToString::to_string).collect();
    let noun = if pods.len() == 1 { "pod" } else { "pods" };
    match pods.len().saturating_sub(NAMED) {
        0 => format!("{noun} {}", names.join(", ")),
        more => format!("{noun} {} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> PodId {
        let (namespace, uid) = ("team".to_owned(), format!("uid-{name}"));
        let labels = std::collections::BTreeMap::new();
        PodId { namespace, name: name.to_owned(), uid, labels, created: None }
    }

    fn refusal(is_by_budget: bool, message: &str, budgets: &[&str]) -> EvictionRefusal {
        let budgets = budgets.iter().copied().map(str::to_owned).collect();
        EvictionRefusal { is_by_budget, message: message.to_owned(), budgets }
    }

    #[test]
    fn without_problems_there_is_no_hold() {
        assert_eq!(describe_problems(&[]), None);
    }

    #[test]
    fn a_refusal_names_budget_pod_and_remedy() {
        let message = "The disruption budget guard needs 10 healthy pods and has 10 currently";
        let refusal = refusal(true, message, &["team/guard"]);
        let hold = describe_problems(&[(&pod("a"), PodProblem::Refused(&refusal))]).unwrap();
        assert_eq!(hold.reason, "EvictionRefused");
        let expected = "PDB team/guard allows no eviction of pod team/a now (needs 10 healthy, has 10): add replicas \
                        or raise maxUnavailable (or lower minAvailable), or delete the pod";
        assert_eq!(hold.message, expected);
    }

    #[test]
    fn an_unknown_message_of_the_api_server_is_repeated() {
        let refusal = refusal(true, "the budget is still being processed", &[]);
        let hold = describe_problems(&[(&pod("a"), PodProblem::Refused(&refusal))]).unwrap();
        let expected = "a PDB allows no eviction of pod team/a now (the budget is still being processed): add replicas \
                        or raise maxUnavailable (or lower minAvailable), or delete the pod";
        assert_eq!(hold.message, expected);
    }

    #[test]
    fn three_pods_are_named_and_the_others_counted() {
        let refusal = refusal(false, "no", &[]);
        let pods = ["a", "b", "c", "d", "e"].map(pod);
        let all: Vec<_> = pods.iter().map(|pod| (pod, PodProblem::Refused(&refusal))).collect();
        let message = |count: usize| describe_problems(&all[..count]).unwrap().message;
        let remedy = "fix the cause or delete the pod";
        assert_eq!(message(3), format!("cannot evict pods team/a, team/b, team/c: no: {remedy}"));
        assert_eq!(message(5), format!("cannot evict pods team/a, team/b, team/c and 2 more: no: {remedy}"));
    }

    #[test]
    fn all_problems_are_described_and_the_worst_gives_the_reason() {
        let (refused, failed) =
            (refusal(true, "full", &[]), refusal(false, "forbidden", &["team/x", "team/y"]));
        let finalizers = ["example.com/hold".to_owned()];
        let (a, b, c, d) = (pod("a"), pod("b"), pod("c"), pod("d"));
        let finalized = (&c, PodProblem::NotTerminated { finalizers: &finalizers });
        let hanging = (&d, PodProblem::NotTerminated { finalizers: &[] });
        let failing = (&b, PodProblem::Refused(&failed));
        let hold =
            describe_problems(&[finalized, hanging, failing, (&a, PodProblem::Refused(&refused))]).unwrap();
        assert_eq!(hold.reason, "EvictionRefused");
        for part in [
            "no eviction of pod team/a now (full)",
            "cannot evict pod team/b: forbidden (PDBs team/x, team/y)",
            "pod team/c has not terminated 30 s after its grace period: finalizer example.com/hold",
            "pod team/d has not terminated 30 s after its grace period: check the kubelet on the node",
        ] {
            assert!(hold.message.contains(part), "{}: {part}", hold.message);
        }
        assert_eq!(describe_problems(&[finalized, failing]).unwrap().reason, "EvictionFailed");
        assert_eq!(describe_problems(&[finalized]).unwrap().reason, "PodsNotTerminated");
    }
}
