//! How far a policy or a pool is: nodes counted by where they stand => conditions.

use vfleet_api::conditions::{DEGRADED, LIMIT, PROGRESSING, READY, Verdict};
use vfleet_api::node_policy::SriovNetworkNodePolicyStatus;
use vfleet_api::pool_config::PoolNodes;

use crate::drain::{Limit, LimitNote};
use crate::pool::PoolFault;
use crate::prelude::*;

/// Where a node stands for a policy whose node selector selects it. The worse comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyStanding {
    /// The policy cannot be followed there.
    Fault,
    /// Another policy of the same priority has the VFs, or says otherwise about whether a PF is managed outside.
    Conflict,
    /// The agent reports an error.
    Failed,
    /// It is being worked on.
    Pending,
    /// Its cards are not known yet.
    NoFacts,
    /// The policy selects none of its PFs.
    NoPf,
    /// It is as wanted, but policies that outrank this one have VFs that it asked for.
    Outranked,
    /// It is as wanted.
    Ready,
}

/// Nodes of a policy, counted, and what is to be said about one of them.
#[derive(Clone, Debug, Default)]
pub struct PolicyCount {
    /// How many nodes there are of each standing.
    pub nodes: Vec<(PolicyStanding, usize)>,
    /// The first node of the worst standing that needs an explanation.
    pub example: Option<Example>,
}

/// What is to be said about one node, as an example for those like it.
#[derive(Clone, Debug)]
pub struct Example {
    /// The node.
    pub node: String,
    /// Why, in one word.
    pub reason: &'static str,
    /// What is the matter there.
    pub text: String,
}

impl PolicyCount {
    fn of(&self, standings: &[PolicyStanding]) -> usize {
        self.nodes.iter().filter(|(standing, _)| standings.contains(standing)).map(|(_, count)| count).sum()
    }

    fn matched(&self) -> usize {
        use PolicyStanding::{Conflict, Failed, Fault, Outranked, Pending, Ready};
        self.of(&[Fault, Conflict, Failed, Pending, Outranked, Ready])
    }

    fn ready(&self) -> usize {
        self.of(&[PolicyStanding::Ready, PolicyStanding::Outranked])
    }

    fn failed(&self) -> usize {
        self.of(&[PolicyStanding::Fault, PolicyStanding::Conflict, PolicyStanding::Failed])
    }

    /// The counts as the status shows them.
    pub fn status(&self) -> SriovNetworkNodePolicyStatus {
        let number = |count: usize| Some(i64::try_from(count).unwrap_or(i64::MAX));
        SriovNetworkNodePolicyStatus {
            matched_node_count: number(self.matched()),
            ready_node_count: number(self.ready()),
            failed_node_count: number(self.failed()),
            conditions: None,
        }
    }

    fn example(&self) -> String {
        self.example
            .as_ref()
            .map_or_else(String::new, |example| format!("; node {}: {}", example.node, example.text))
    }
}

/// What is said about a policy.
pub fn policy_verdicts(count: &PolicyCount) -> [Verdict; 3] {
    let (matched, ready, failed) = (count.matched(), count.ready(), count.failed());
    let waiting = count.of(&[PolicyStanding::NoFacts]);
    let without_pf = count.of(&[PolicyStanding::NoPf]);
    let example = count.example();
    if failed > 0 {
        let reason = count.example.as_ref().map_or("NodesFailed", |example| example.reason);
        let text = format!("{failed} of {matched} matched nodes are not as the policy wants{example}");
        let pending = count.of(&[PolicyStanding::Pending]);
        return verdicts(Standing::Bad { goes_on: pending > 0 }, reason, text);
    }
    if ready < matched {
        let text = format!(
            "{ready} of {matched} matched nodes are as the policy wants, the others are being worked on"
        );
        return verdicts(Standing::Busy, "Configuring", text);
    }
    if matched > 0 {
        let mut text = format!("all {matched} matched nodes are as the policy wants{example}");
        if without_pf > 0 {
            text = format!("{text}; it selects no PF on {without_pf} other nodes");
        }
        if waiting > 0 {
            text = format!("{text}; {waiting} nodes have not reported their cards yet");
        }
        return verdicts(Standing::Good { goes_on: waiting > 0 }, "Configured", text);
    }
    if waiting > 0 {
        let text = format!("{waiting} of the nodes that it selects have not reported their cards yet");
        return verdicts(Standing::Busy, "WaitingForNodes", text);
    }
    if without_pf > 0 {
        let text = format!(
            "it selects no PF on any of the {without_pf} nodes that its nodeSelector selects{example}"
        );
        return verdicts(Standing::Bad { goes_on: false }, "NoMatchingPf", text);
    }
    let text = "its nodeSelector selects no node that runs an agent; it is followed as soon as there is one"
        .to_owned();
    verdicts(Standing::Idle, "NoMatchingNode", text)
}

/// What is said about the policy that is left over from old installations.
pub fn ignored_policy_verdicts() -> [Verdict; 3] {
    let text = "a policy of this name is left over from an old installation and is not followed; delete it, or give it another name";
    verdicts(Standing::Idle, "Ignored", text)
}

/// What is said about a policy that cannot even be read.
pub fn unreadable_policy_verdicts(error: &str) -> [Verdict; 3] {
    let text = format!("the policy cannot be read, and what it made until now stays as it is: {error}");
    verdicts(Standing::Bad { goes_on: false }, "Unreadable", text)
}

/// What is known about a pool.
#[derive(Clone, Debug)]
pub struct PoolSight {
    /// Its nodes, counted.
    pub nodes: PoolNodes,
    /// What is wrong with its selector.
    pub fault: Option<PoolFault>,
    /// One of the nodes whose drain is blocked, as an example.
    pub blocked: Option<BlockedNode>,
    /// How many of its nodes may be drained at once, and what is to be said about that. `None`: it is for offload only,
    /// and no node belongs to it.
    pub limit: Option<(Limit, Option<LimitNote>)>,
}

/// A node whose drain is blocked.
#[derive(Clone, Debug)]
pub struct BlockedNode {
    /// The node.
    pub node: String,
    /// What its node state says about that.
    pub message: String,
}

/// What is said about a pool.
pub fn pool_verdicts(pool: &PoolSight) -> Vec<Verdict> {
    let Some((limit, note)) = &pool.limit else { return offload_only_verdicts() };
    let limit = match note {
        None => Verdict { type_: LIMIT, holds: true, reason: "Given", message: limit.text() },
        Some(note) => Verdict { type_: LIMIT, holds: false, reason: note.reason(), message: note.text() },
    };
    course_verdicts(pool).into_iter().chain([limit]).collect()
}

/// Its nodes belong to other pools.
fn offload_only_verdicts() -> Vec<Verdict> {
    const REASON: &str = "OffloadOnly";
    let text = "it is only about Open vSwitch hardware offload: no node belongs to it, and it plays no part in draining";
    let limit = Verdict { type_: LIMIT, holds: true, reason: REASON, message: text.to_owned() };
    verdicts(Standing::Good { goes_on: false }, REASON, text).into_iter().chain([limit]).collect()
}

fn course_verdicts(pool: &PoolSight) -> [Verdict; 3] {
    let number = |count: Option<i64>| count.unwrap_or(0);
    let nodes = &pool.nodes;
    let (total, waiting) = (number(nodes.total), number(nodes.waiting));
    let (draining, blocked) = (number(nodes.draining), number(nodes.blocked));
    if let Some(fault) = &pool.fault {
        return verdicts(Standing::Bad { goes_on: draining > 0 }, fault.reason(), fault.to_string());
    }
    if blocked > 0 {
        let example = pool.blocked.as_ref();
        let example = example.map_or_else(String::new, |one| format!("; node {}: {}", one.node, one.message));
        let text = format!("the drain of {blocked} of {total} nodes is blocked{example}");
        return verdicts(Standing::Bad { goes_on: waiting + draining > blocked }, "DrainBlocked", text);
    }
    if waiting + draining > 0 {
        let text = format!(
            "{draining} of {total} nodes are being drained or configured, {waiting} wait for their turn"
        );
        return verdicts(Standing::Busy, "Draining", text);
    }
    verdicts(
        Standing::Good { goes_on: false },
        "NoNodeWaits",
        format!("none of {total} nodes waits for a drain or is drained"),
    )
}

/// How it is, on the whole.
#[derive(Clone, Copy)]
enum Standing {
    Good {
        /// While more of it may come.
        goes_on: bool,
    },
    Busy,
    /// Nothing to do, and nothing done.
    Idle,
    Bad {
        /// While some of it is still being worked on.
        goes_on: bool,
    },
}

fn verdicts(standing: Standing, reason: &'static str, message: impl Into<String>) -> [Verdict; 3] {
    let message = message.into();
    let (ready, progressing, degraded) = match standing {
        Standing::Good { goes_on } => (true, goes_on, false),
        Standing::Busy => (false, true, false),
        Standing::Idle => (false, false, false),
        Standing::Bad { goes_on } => (false, goes_on, true),
    };
    let verdict = |type_, holds, message| Verdict { type_, holds, reason, message };
    // Once is enough for what does not hold.
    let if_so = |holds: bool| if holds { message.clone() } else { String::new() };
    [
        verdict(READY, ready, message.clone()),
        verdict(PROGRESSING, progressing, if_so(progressing)),
        verdict(DEGRADED, degraded, if_so(degraded)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(nodes: &[(PolicyStanding, usize)]) -> (&'static str, [bool; 3]) {
        let verdicts = policy_verdicts(&PolicyCount { nodes: nodes.to_vec(), example: None });
        (verdicts[0].reason, verdicts.map(|verdict| verdict.holds))
    }

    #[test]
    fn the_worst_standing_decides() {
        use PolicyStanding::{Conflict, Failed, NoFacts, NoPf, Outranked, Pending, Ready};
        const GOOD: [bool; 3] = [true, false, false];
        const BUSY: [bool; 3] = [false, true, false];
        const BAD: [bool; 3] = [false, false, true];
        assert_eq!(said(&[]), ("NoMatchingNode", [false; 3]));
        assert_eq!(said(&[(Ready, 3)]), ("Configured", GOOD));
        assert_eq!(said(&[(Ready, 3), (NoPf, 2)]), ("Configured", GOOD));
        assert_eq!(said(&[(Outranked, 1)]), ("Configured", GOOD));
        assert_eq!(said(&[(NoPf, 2)]), ("NoMatchingPf", BAD));
        assert_eq!(said(&[(NoPf, 2), (NoFacts, 1)]), ("WaitingForNodes", BUSY));
        assert_eq!(said(&[(Ready, 2), (NoFacts, 1)]), ("Configured", [true, true, false]));
        assert_eq!(said(&[(Ready, 2), (Pending, 1)]), ("Configuring", BUSY));
        assert_eq!(said(&[(Ready, 2), (Conflict, 1)]), ("NodesFailed", BAD));
        assert_eq!(said(&[(Failed, 2), (Pending, 1)]), ("NodesFailed", [false, true, true]));
    }

    #[test]
    fn matched_nodes_are_those_where_it_selects_a_pf() {
        use PolicyStanding::{Fault, NoFacts, NoPf, Pending, Ready};
        let nodes = vec![(Fault, 1), (Pending, 2), (Ready, 4), (NoPf, 8), (NoFacts, 16)];
        let status = PolicyCount { nodes, example: None }.status();
        let counts = (status.matched_node_count, status.ready_node_count, status.failed_node_count);
        assert_eq!(counts, (Some(7), Some(4), Some(1)));
    }

    fn pool(counts: [i64; 5]) -> PoolSight {
        let [total, waiting, draining, done, blocked] = counts.map(Some);
        PoolSight {
            nodes: PoolNodes { total, waiting, draining, done, blocked },
            fault: None,
            blocked: None,
            limit: Some((Limit::AtMost(2), None)),
        }
    }

    fn told(pool: &PoolSight) -> Vec<(&'static str, bool, &'static str)> {
        let verdicts = pool_verdicts(pool).into_iter();
        verdicts.map(|verdict| (verdict.type_, verdict.holds, verdict.reason)).collect()
    }

    #[test]
    fn a_pool_is_ready_when_nobody_waits_and_drains() {
        for (counts, reason, [ready, progressing, degraded]) in [
            ([3, 0, 0, 3, 0], "NoNodeWaits", [true, false, false]),
            ([3, 1, 2, 0, 0], "Draining", [false, true, false]),
            ([3, 0, 1, 2, 1], "DrainBlocked", [false, false, true]),
            // The others go on.
            ([3, 1, 1, 1, 1], "DrainBlocked", [false, true, true]),
        ] {
            let expected = [
                (READY, ready, reason),
                (PROGRESSING, progressing, reason),
                (DEGRADED, degraded, reason),
                (LIMIT, true, "Given"),
            ];
            assert_eq!(told(&pool(counts)), expected, "{counts:?}");
        }
    }

    #[test]
    fn a_blocked_pool_names_a_node_and_what_to_do() {
        let blocked = BlockedNode { node: "n1".to_owned(), message: "raise the budget".to_owned() };
        let verdicts = pool_verdicts(&PoolSight { blocked: Some(blocked), ..pool([3, 0, 1, 2, 1]) });
        assert_eq!(verdicts[0].message, "the drain of 1 of 3 nodes is blocked; node n1: raise the budget");
    }

    #[test]
    fn what_is_odd_about_a_limit_is_said() {
        let limit = |note| PoolSight { limit: Some((Limit::AtMost(1), Some(note))), ..pool([1, 0, 0, 1, 0]) };
        assert_eq!(told(&limit(LimitNote::NoneGiven))[3], (LIMIT, false, "NoLimitGiven"));
        assert_eq!(told(&limit(LimitNote::Never))[3], (LIMIT, false, "NeverDrained"));
        assert_eq!(told(&limit(LimitNote::Unreadable("x".to_owned())))[3], (LIMIT, false, "InvalidLimit"));
    }

    #[test]
    fn a_pool_for_offload_only_says_so() {
        let verdicts = pool_verdicts(&PoolSight { limit: None, ..pool([0; 5]) });
        assert_eq!((verdicts[0].holds, verdicts[0].reason), (true, "OffloadOnly"));
        assert!(verdicts[0].message.contains("no part in draining"));
    }
}
