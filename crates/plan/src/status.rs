//! Status conditions of policies and pools, derived from the number of nodes in each state.

use vfleet_api::conditions::{ConditionUpdate, DEGRADED, LIMIT, NO_FAILURE, PROGRESSING, READY};
use vfleet_api::node_policy::SriovNetworkNodePolicyStatus;
use vfleet_api::pool_config::PoolNodes;

use crate::drain::{DrainLimit, LimitNote};
use crate::pool::PoolFault;
use crate::prelude::*;

/// State of a policy on one node that its nodeSelector selects, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyNodeStatus {
    /// The policy cannot be followed on the node.
    Fault,
    /// Another policy of the same priority has the VFs, or contradicts this one about externallyManaged.
    Conflict,
    /// The agent reports an error.
    Failed,
    /// The node is being configured.
    Pending,
    /// The agent has not reported the cards of the node yet.
    NoFacts,
    /// The policy selects no PF of the node.
    NoPf,
    /// The node is configured, but policies of higher precedence have VFs that this policy requests.
    Outranked,
    /// The node is configured.
    Ready,
}

/// Nodes of a policy, counted by status.
#[derive(Clone, Debug, Default)]
pub struct PolicyNodeCounts {
    /// Number of nodes of each status.
    pub nodes: Vec<(PolicyNodeStatus, usize)>,
    /// First node of the worst status that needs an explanation.
    pub example: Option<NodeExample>,
    /// Reason why no node with an agent matches, if none does.
    pub no_match: String,
}

/// Node that stands for all nodes of the same status in a message.
#[derive(Clone, Debug)]
pub struct NodeExample {
    /// Name of the node.
    pub node: String,
    /// Reason for conditions.
    pub reason: &'static str,
    /// Description of the problem on the node.
    pub text: String,
}

impl PolicyNodeCounts {
    fn count(&self, statuses: &[PolicyNodeStatus]) -> usize {
        self.nodes.iter().filter(|(status, _)| statuses.contains(status)).map(|(_, count)| count).sum()
    }

    fn matched(&self) -> usize {
        use PolicyNodeStatus::{Conflict, Failed, Fault, Outranked, Pending, Ready};
        self.count(&[Fault, Conflict, Failed, Pending, Outranked, Ready])
    }

    fn ready(&self) -> usize {
        self.count(&[PolicyNodeStatus::Ready, PolicyNodeStatus::Outranked])
    }

    fn failed(&self) -> usize {
        self.count(&[PolicyNodeStatus::Fault, PolicyNodeStatus::Conflict, PolicyNodeStatus::Failed])
    }

    /// Returns the status of the policy, without conditions.
    pub fn status(&self) -> SriovNetworkNodePolicyStatus {
        let number = |count: usize| Some(i64::try_from(count).unwrap_or(i64::MAX));
        SriovNetworkNodePolicyStatus {
            matched_node_count: number(self.matched()),
            ready_node_count: number(self.ready()),
            failed_node_count: number(self.failed()),
            conditions: None,
        }
    }

    fn example_text(&self) -> String {
        self.example
            .as_ref()
            .map_or_else(String::new, |example| format!("; node {}: {}", example.node, example.text))
    }
}

/// Returns the conditions Ready, Progressing and Degraded of a policy.
pub fn policy_conditions(counts: &PolicyNodeCounts) -> [ConditionUpdate; 3] {
    let (matched, ready, failed) = (counts.matched(), counts.ready(), counts.failed());
    let waiting = counts.count(&[PolicyNodeStatus::NoFacts]);
    let without_pf = counts.count(&[PolicyNodeStatus::NoPf]);
    let example = counts.example_text();
    if failed > 0 {
        let reason = counts.example.as_ref().map_or("NodesFailed", |example| example.reason);
        let text = format!("{failed} of {matched} matched nodes are not configured{example}");
        let pending = counts.count(&[PolicyNodeStatus::Pending]);
        return conditions(Health::Degraded { progressing: pending > 0 }, reason, text);
    }
    if ready < matched {
        let text = format!("{ready} of {matched} matched nodes are configured");
        return conditions(Health::Progressing, "Configuring", text);
    }
    if matched > 0 {
        let mut text = format!("all {matched} matched nodes are configured{example}");
        if without_pf > 0 {
            text = format!("{text}; nicSelector matches no PF on {without_pf} other nodes");
        }
        if waiting > 0 {
            text = format!("{text}; {waiting} nodes have not reported their cards yet");
        }
        return conditions(Health::Ready { progressing: waiting > 0 }, "Configured", text);
    }
    if waiting > 0 {
        let text = format!("{waiting} of the selected nodes have not reported their cards yet");
        return conditions(Health::Progressing, "WaitingForNodes", text);
    }
    if without_pf > 0 {
        let text = format!("nicSelector matches no PF on any of the {without_pf} selected nodes{example}");
        return conditions(Health::Degraded { progressing: false }, "NoMatchingPf", text);
    }
    conditions(Health::Inactive, "NoMatchingNode", counts.no_match.as_str())
}

/// Returns the conditions of the policy named `default`, which old installations leave behind.
pub fn ignored_policy_conditions() -> [ConditionUpdate; 3] {
    let text = "policies named default are left over from old installations and are ignored: delete the policy, or create it under another name";
    conditions(Health::Inactive, "Ignored", text)
}

/// Returns the conditions of a policy that this version cannot read.
pub fn unreadable_policy_conditions(error: &str) -> [ConditionUpdate; 3] {
    let text = format!("the policy cannot be read, so its VFs stay as they are: {error}");
    conditions(Health::Degraded { progressing: false }, "Unreadable", text)
}

/// State of a pool from which its conditions are derived.
#[derive(Clone, Debug)]
pub struct PoolSummary {
    /// Nodes of the pool, counted by state.
    pub nodes: PoolNodes,
    /// Fault of the selector.
    pub fault: Option<PoolFault>,
    /// One of the nodes whose drain is blocked, as an example.
    pub blocked: Option<BlockedNode>,
    /// Pool limit, with a note about it. `None` if the pool only requests hardware offload, so that no node belongs to
    /// it.
    pub limit: Option<(DrainLimit, Option<LimitNote>)>,
}

/// Node whose drain is blocked.
#[derive(Clone, Debug)]
pub struct BlockedNode {
    /// Name of the node.
    pub node: String,
    /// Message of the condition Blocked of its node state.
    pub message: String,
}

/// Returns the conditions Ready, Progressing, Degraded and Limit of a pool.
pub fn pool_conditions(pool: &PoolSummary) -> Vec<ConditionUpdate> {
    let Some((limit, note)) = &pool.limit else { return offload_only_conditions() };
    let limit = match note {
        None => ConditionUpdate { type_: LIMIT, status: true, reason: "LimitSet", message: limit.text() },
        Some(note) => {
            ConditionUpdate { type_: LIMIT, status: false, reason: note.reason(), message: note.text() }
        }
    };
    drain_conditions(pool).into_iter().chain([limit]).collect()
}

/// Returns the conditions of a pool that only requests hardware offload: its nodes belong to other pools.
fn offload_only_conditions() -> Vec<ConditionUpdate> {
    const REASON: &str = "OffloadOnly";
    let text = "the pool only enables Open vSwitch hardware offload: no node belongs to it, and it does not limit drains";
    let limit = ConditionUpdate { type_: LIMIT, status: true, reason: REASON, message: text.to_owned() };
    conditions(Health::Ready { progressing: false }, REASON, text).into_iter().chain([limit]).collect()
}

fn drain_conditions(pool: &PoolSummary) -> [ConditionUpdate; 3] {
    let number = |count: Option<i64>| count.unwrap_or(0);
    let nodes = &pool.nodes;
    let (total, waiting) = (number(nodes.total), number(nodes.waiting));
    let (draining, blocked) = (number(nodes.draining), number(nodes.blocked));
    if let Some(fault) = &pool.fault {
        return conditions(Health::Degraded { progressing: draining > 0 }, fault.reason(), fault.to_string());
    }
    if blocked > 0 {
        let example = pool.blocked.as_ref();
        let example = example.map_or_else(String::new, |one| format!("; node {}: {}", one.node, one.message));
        let text = format!("the drain of {blocked} of {total} nodes is blocked{example}");
        return conditions(
            Health::Degraded { progressing: waiting + draining > blocked },
            "DrainBlocked",
            text,
        );
    }
    if waiting + draining > 0 {
        let text = format!(
            "{draining} of {total} nodes are being drained or configured, {waiting} wait for a drain slot"
        );
        return conditions(Health::Progressing, "Draining", text);
    }
    conditions(
        Health::Ready { progressing: false },
        "NoPendingDrains",
        format!("none of {total} nodes waits for a drain or is being drained"),
    )
}

/// Overall state of an object, which decides its three conditions.
#[derive(Clone, Copy)]
enum Health {
    Ready {
        /// More nodes may follow.
        progressing: bool,
    },
    Progressing,
    /// Nothing is configured and nothing is to be done.
    Inactive,
    Degraded {
        /// Some nodes are still being worked on.
        progressing: bool,
    },
}

fn conditions(health: Health, reason: &'static str, message: impl Into<String>) -> [ConditionUpdate; 3] {
    let message = message.into();
    let (ready, progressing, degraded) = match health {
        Health::Ready { progressing } => (true, progressing, false),
        Health::Progressing => (false, true, false),
        Health::Inactive => (false, false, false),
        Health::Degraded { progressing } => (false, progressing, true),
    };
    let condition = |type_, status, reason, message| ConditionUpdate { type_, status, reason, message };
    // Ready always has the message; repeating it in false conditions would only be noise.
    let if_true = |status: bool| if status { message.clone() } else { String::new() };
    [
        condition(READY, ready, reason, message.clone()),
        condition(PROGRESSING, progressing, reason, if_true(progressing)),
        condition(DEGRADED, degraded, if degraded { reason } else { NO_FAILURE }, if_true(degraded)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(nodes: &[(PolicyNodeStatus, usize)]) -> (&'static str, [bool; 3]) {
        let conditions = policy_conditions(&PolicyNodeCounts { nodes: nodes.to_vec(), ..Default::default() });
        (conditions[0].reason, conditions.map(|condition| condition.status))
    }

    #[test]
    fn the_worst_node_status_decides() {
        use PolicyNodeStatus::{Conflict, Failed, NoFacts, NoPf, Outranked, Pending, Ready};
        const READY: [bool; 3] = [true, false, false];
        const PROGRESSING: [bool; 3] = [false, true, false];
        const DEGRADED: [bool; 3] = [false, false, true];
        assert_eq!(policy(&[]), ("NoMatchingNode", [false; 3]));
        assert_eq!(policy(&[(Ready, 3)]), ("Configured", READY));
        assert_eq!(policy(&[(Ready, 3), (NoPf, 2)]), ("Configured", READY));
        assert_eq!(policy(&[(Outranked, 1)]), ("Configured", READY));
        assert_eq!(policy(&[(NoPf, 2)]), ("NoMatchingPf", DEGRADED));
        assert_eq!(policy(&[(NoPf, 2), (NoFacts, 1)]), ("WaitingForNodes", PROGRESSING));
        assert_eq!(policy(&[(Ready, 2), (NoFacts, 1)]), ("Configured", [true, true, false]));
        assert_eq!(policy(&[(Ready, 2), (Pending, 1)]), ("Configuring", PROGRESSING));
        assert_eq!(policy(&[(Ready, 2), (Conflict, 1)]), ("NodesFailed", DEGRADED));
        assert_eq!(policy(&[(Failed, 2), (Pending, 1)]), ("NodesFailed", [false, true, true]));
    }

    #[test]
    fn matched_nodes_are_those_where_it_selects_a_pf() {
        use PolicyNodeStatus::{Fault, NoFacts, NoPf, Pending, Ready};
        let nodes = vec![(Fault, 1), (Pending, 2), (Ready, 4), (NoPf, 8), (NoFacts, 16)];
        let status = PolicyNodeCounts { nodes, ..Default::default() }.status();
        let counts = (status.matched_node_count, status.ready_node_count, status.failed_node_count);
        assert_eq!(counts, (Some(7), Some(4), Some(1)));
    }

    fn pool(counts: [i64; 5]) -> PoolSummary {
        let [total, waiting, draining, done, blocked] = counts.map(Some);
        PoolSummary {
            nodes: PoolNodes { total, waiting, draining, done, blocked },
            fault: None,
            blocked: None,
            limit: Some((DrainLimit::AtMost(2), None)),
        }
    }

    fn reported(pool: &PoolSummary) -> Vec<(&'static str, bool, &'static str)> {
        let conditions = pool_conditions(pool).into_iter();
        conditions.map(|condition| (condition.type_, condition.status, condition.reason)).collect()
    }

    #[test]
    fn a_pool_is_ready_when_no_node_waits_or_drains() {
        for (counts, reason, [ready, progressing, degraded]) in [
            ([3, 0, 0, 3, 0], "NoPendingDrains", [true, false, false]),
            ([3, 1, 2, 0, 0], "Draining", [false, true, false]),
            ([3, 0, 1, 2, 1], "DrainBlocked", [false, false, true]),
            // The drains of other nodes continue.
            ([3, 1, 1, 1, 1], "DrainBlocked", [false, true, true]),
        ] {
            let expected = [
                (READY, ready, reason),
                (PROGRESSING, progressing, reason),
                (DEGRADED, degraded, if degraded { reason } else { NO_FAILURE }),
                (LIMIT, true, "LimitSet"),
            ];
            assert_eq!(reported(&pool(counts)), expected, "{counts:?}");
        }
    }

    #[test]
    fn a_blocked_pool_names_a_node_and_the_remedy() {
        let blocked = BlockedNode { node: "n1".to_owned(), message: "raise the budget".to_owned() };
        let conditions = pool_conditions(&PoolSummary { blocked: Some(blocked), ..pool([3, 0, 1, 2, 1]) });
        assert_eq!(conditions[0].message, "the drain of 1 of 3 nodes is blocked; node n1: raise the budget");
    }

    #[test]
    fn a_note_about_the_limit_is_reported() {
        let limit =
            |note| PoolSummary { limit: Some((DrainLimit::AtMost(1), Some(note))), ..pool([1, 0, 0, 1, 0]) };
        assert_eq!(reported(&limit(LimitNote::Missing))[3], (LIMIT, false, "NoLimitSet"));
        assert_eq!(reported(&limit(LimitNote::Zero))[3], (LIMIT, false, "MaxUnavailableZero"));
        assert_eq!(reported(&limit(LimitNote::Invalid("x".to_owned())))[3], (LIMIT, false, "InvalidLimit"));
    }

    #[test]
    fn a_pool_for_offload_only_is_reported_as_such() {
        let conditions = pool_conditions(&PoolSummary { limit: None, ..pool([0; 5]) });
        assert_eq!((conditions[0].status, conditions[0].reason), (true, "OffloadOnly"));
        assert!(conditions[0].message.contains("does not limit drains"));
    }
}
