//! What to write for one node.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{SriovNetworkNodeStateSpec, SriovNetworkPoolConfig};
use vfleet_plan::{Fact, NamedPool, NodeIdentity, NodeInput, NodePlan, PolicyAnswer, plan_node_spec, pool};

use super::state::State;
use super::{Fleet, Labels};

/// What to write for one node.
#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    /// All is as it shall be, or nothing can be said yet.
    Nothing,
    /// Create the node state, so that the agent has something to report to. Its spec is left out: what the node
    /// shall be like is not known before its cards are.
    Create,
    /// Put the node state right.
    Update(Upkeep),
    /// The node is gone or runs no agent any more: note until when its node state is kept, in case it comes back.
    KeepUntil { until: Timestamp, version: Option<String> },
    /// The node is away until then; look again.
    LookAgainAt(Timestamp),
    /// The node did not come back in time.
    Delete { uid: Option<String>, version: Option<String> },
}

/// What is to be put right in a node state.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Upkeep {
    /// Its spec shall be this.
    pub(crate) spec: Option<SriovNetworkNodeStateSpec>,
    /// It shall be owned by the operator config, and by nobody else.
    pub(crate) owner: bool,
    /// The node is back: it is kept for good.
    pub(crate) keep_for_good: bool,
    /// The version that this was decided on.
    pub(crate) version: Option<String>,
    /// The version of the spec that this was decided on.
    pub(crate) generation: Option<i64>,
}

impl Fleet {
    /// What to write for the node `name`, and what each policy that selects it is told.
    pub(crate) fn decide(
        &self,
        name: &str,
        stale_after: SignedDuration,
        now: Timestamp,
    ) -> (Decision, Vec<PolicyAnswer>) {
        match (self.agent_node(name), self.states.get(name)) {
            (None, None) => (Decision::Nothing, Vec::new()),
            // There is one, in a form of another version: not ours to judge.
            (Some(_), None) if self.states.unreadable(name).is_some() => (Decision::Nothing, Vec::new()),
            (Some(_), None) => (Decision::Create, Vec::new()),
            (None, Some(state)) => (stale(state, stale_after, now), Vec::new()),
            (Some(labels), Some(state)) => {
                let plan = self.plan(name, labels, state);
                let answers = plan.as_ref().map(|plan| plan.answers.clone()).unwrap_or_default();
                let is_guesswork = |plan: &NodePlan| {
                    let input = self.input(name, labels, state);
                    input.is_none_or(|input| plan.is_guesswork(&input, &self.policies.unknown()))
                };
                (self.upkeep(state, plan.filter(|plan| !is_guesswork(plan))), answers)
            }
        }
    }

    /// Returns what the node shall be like; `None` before its cards are known.
    pub(super) fn plan(&self, name: &str, labels: &Labels, state: &State) -> Option<NodePlan> {
        let input = self.input(name, labels, state)?;
        Some(plan_node_spec(&self.named_policies(), &self.policies.unknown(), &input))
    }

    fn input<'a>(&'a self, name: &str, labels: &'a Labels, state: &'a State) -> Option<NodeInput<'a>> {
        let settings = self.settings.as_ref()?;
        Some(NodeInput {
            labels,
            cards: state.cards.as_deref()?,
            current: &state.spec,
            rdma_mode: self.rdma_mode(name, labels),
            manage_software_bridges: settings.manage_software_bridges,
        })
    }

    /// Returns the RDMA mode of the node's pool. A pool that cannot be read may be the node's.
    fn rdma_mode(&self, name: &str, labels: &Labels) -> Fact<RdmaMode> {
        let node = NodeIdentity { name, labels };
        let cannot_be_judged = |(name, pool): (&String, &SriovNetworkPoolConfig)| {
            pool::selects(&NamedPool { name, spec: &pool.spec }, node).is_err()
        };
        if !self.pools.unknown().is_empty() || self.pools.iter().any(cannot_be_judged) {
            return Fact::Unknown;
        }
        let pool = self.pool_of(name, labels).and_then(|pool| self.pools.get(pool));
        pool.and_then(|pool| pool.spec.rdma_mode).into()
    }

    fn upkeep(&self, state: &State, plan: Option<NodePlan>) -> Decision {
        let owner = self.settings.as_ref().map(|settings| &settings.owner);
        let upkeep = Upkeep {
            spec: plan.map(|plan| plan.spec).filter(|spec| *spec != state.spec),
            owner: !state.owners.iter().eq(owner),
            keep_for_good: state.keep_until.is_some(),
            version: state.version.clone(),
            generation: state.generation,
        };
        if upkeep.spec.is_none() && !upkeep.owner && !upkeep.keep_for_good {
            return Decision::Nothing;
        }
        Decision::Update(upkeep)
    }
}

/// A node state without a node: kept for a while, so that a node that is only away finds its settings again.
fn stale(state: &State, stale_after: SignedDuration, now: Timestamp) -> Decision {
    let delete = || Decision::Delete { uid: state.uid.clone(), version: state.version.clone() };
    let until = state.keep_until.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
    match until {
        _ if stale_after.is_zero() => delete(),
        Some(until) if until <= now => delete(),
        Some(until) => Decision::LookAgainAt(until),
        None => Decision::KeepUntil {
            until: now.checked_add(stale_after).unwrap_or(Timestamp::MAX),
            version: state.version.clone(),
        },
    }
}
