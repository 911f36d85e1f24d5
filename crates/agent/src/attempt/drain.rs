//! Whether the node is drained as far as the work needs it, and what is said to whoever drains it.
//!
//! What is written is written on top of the node state that it was decided on. Where somebody was quicker, it is decided
//! again.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use vfleet_api::keys::{DESIRED_DRAIN_STATE, USE_EXTERNAL_DRAINER, drain_request};
use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_api::{PciAddress, SriovNetworkNodeState};
use vfleet_host::with_causes;
use vfleet_plan::drain::{
    AgentAct, AgentMove, Answer, ExternalFacts, Moment, StateFacts, agent_act, kept_at_asking,
    kept_resources, need,
};
use vfleet_plan::{HostFacts, Plan};

use super::seen::{Seen, Wish, blocked};
use super::{Agent, DueWork, Next, Stop};
use crate::course::Course;
use crate::report::ReportError;
use crate::status::Progress;

/// The way from one drain to a wider one takes four writes with an external drainer. The others are for those who were
/// quicker.
const WRITES: usize = 10;

/// What is waited for.
const FOR_DRAIN: &str = "the node is drained";
const FOR_LAST_DRAIN: &str = "whoever drains the node is done with the last drain";

/// Whether the machine may be changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// It may.
    Granted,
    /// Not before the node is drained.
    NotYet,
    /// Something else is wanted meanwhile, or nothing any more: its change will call for the next attempt.
    Outdated,
}

/// What was done since a node was drained.
#[derive(Debug)]
pub(super) struct Drained {
    request: Option<Moment>,
    touched: BTreeSet<PciAddress>,
}

impl Drained {
    /// Something was done to these PFs, too.
    pub(super) fn with(mut self, pfs: impl IntoIterator<Item = PciAddress>) -> Self {
        self.touched.extend(pfs);
        self
    }
}

impl Agent {
    /// Makes sure that the node is drained as far as the work needs it. Ends the attempt when it is not yet.
    pub(super) async fn drain(&mut self, state: &SriovNetworkNodeState, work: &DueWork) -> Result<(), Stop> {
        match self.may_begin(state, &work.facts, &work.plan).await {
            Ok(Leave::Granted) => Ok(()),
            Ok(Leave::NotYet) => {
                self.waits_for = need(&work.plan);
                self.wait_for_drain(state, &work.facts, &work.plan).await?;
                Err(Stop::Ends(Next::Rest))
            }
            Ok(Leave::Outdated) => Err(Stop::Ends(Next::Rest)),
            Err(error @ ReportError::DrainerForbidden(_)) => {
                self.tell_not_asked(state, &work.facts, &work.plan, &error).await?;
                Err(Stop::Ends(self.again()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether `plan` may be carried out now; asks for a drain where it needs one.
    async fn may_begin(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        plan: &Plan,
    ) -> Result<Leave, ReportError> {
        let need = need(plan);
        let latest = self.state.as_deref().unwrap_or(state);
        match self.act(latest, need, true) {
            AgentAct::Move(AgentMove::Proceed) => return Ok(Leave::Granted),
            // Before it asks: whoever answers does so on top of the request, and another write would be in the way.
            AgentAct::Move(AgentMove::Ask { .. }) => {
                self.tell_waiting(state, facts, plan, FOR_DRAIN, None).await?;
            }
            _ => {}
        }
        match self.settle_drain(state, need, true).await {
            // That the last drain is not needed any more can be told later as well.
            Err(error) if need.is_none() => {
                let error = with_causes(&error);
                tracing::warn!(node = self.config.node, error, "the drain is not withdrawn yet");
                Ok(Leave::Granted)
            }
            settled => settled,
        }
    }

    /// Whether nothing is new in `state` for an agent that waits for a drain.
    pub(super) fn is_waiting_still(&self, known: &Seen, new: &Seen, state: &SriovNetworkNodeState) -> bool {
        let waits = || self.act(state, self.waits_for, true) == AgentAct::Move(AgentMove::Wait);
        known == new || (self.waits_for.is_some() && known.differs_by_drain_only(new) && waits())
    }

    /// Writes all that is to be written about the drain now. `has_work`: there is something to do on the machine.
    pub(super) async fn settle_drain(
        &mut self,
        state: &SriovNetworkNodeState,
        need: Option<DrainScope>,
        has_work: bool,
    ) -> Result<Leave, ReportError> {
        for _ in 0..WRITES {
            let wish = Wish::of(state);
            let Some(latest) = self.state.clone().filter(|latest| Wish::of(latest) == wish) else {
                return Ok(Leave::Outdated);
            };
            self.seen = Some(Seen::of(&latest));
            self.note_drained(&StateFacts::of(&*latest));
            let act = self.act(&latest, need, has_work);
            if let Some(leave) = self.leave(&latest, act) {
                return Ok(leave);
            }
            let now = match self.write(state, &latest, act).await {
                Err(error) if error.is_conflict() => self.speaker.node_state(&self.config.node).await?,
                written => written?,
            };
            self.remember(now);
        }
        Err(ReportError::Contended)
    }

    fn act(&self, latest: &SriovNetworkNodeState, need: Option<DrainScope>, has_work: bool) -> AgentAct {
        let (facts, external) = (StateFacts::of(latest), ExternalFacts::of(latest));
        let wants_external = self.config.uses_external_drainer;
        agent_act(&facts, &external, wants_external, need, has_work, Timestamp::now().into())
    }

    /// Whether the machine may be changed, when nothing is to be written any more.
    fn leave(&self, latest: &SriovNetworkNodeState, act: AgentAct) -> Option<Leave> {
        match act {
            AgentAct::Move(AgentMove::Wait) => Some(Leave::NotYet),
            // The kernel is still at a step of what it was drained for.
            AgentAct::Move(AgentMove::BeIdle) if self.detached.is_any_running() && is_granted(latest) => {
                Some(Leave::NotYet)
            }
            // A new node state says that it is idle, too, unless the Go operator's annotations say otherwise.
            AgentAct::Move(AgentMove::Proceed) if is_told(latest) => Some(Leave::Granted),
            _ => None,
        }
    }

    async fn write(
        &self,
        state: &SriovNetworkNodeState,
        latest: &SriovNetworkNodeState,
        act: AgentAct,
    ) -> Result<SriovNetworkNodeState, ReportError> {
        let node = &self.config.node;
        match act {
            AgentAct::Move(AgentMove::Ask { scope, request }) => {
                tracing::info!(node, ?scope, request = request.text(), "asking for a drain");
                self.speaker.drain(latest, &self.asking(latest, scope, request).await).await
            }
            AgentAct::Move(_) => {
                tracing::info!(node, was = ?StateFacts::of(latest).status, "no drain is needed");
                self.speaker.drain(latest, &self.being_idle(state, latest)).await
            }
            AgentAct::UseExternal(is_used) => {
                let mark = is_used.then_some("true");
                self.speaker.annotate(latest, &json!({ USE_EXTERNAL_DRAINER: mark })).await
            }
            AgentAct::TellExternal(asks) => {
                let request = match asks {
                    None => drain_request::IDLE,
                    Some(DrainScope::Partial) => drain_request::DRAIN,
                    Some(DrainScope::Full) => drain_request::REBOOT,
                };
                // The node first: what the node state says was then said there, too.
                self.speaker.annotate_node(node, request).await?;
                self.speaker.annotate(latest, &json!({ DESIRED_DRAIN_STATE: request })).await
            }
        }
    }

    async fn asking(&self, latest: &SriovNetworkNodeState, scope: DrainScope, request: Moment) -> Value {
        let last = StateFacts::of(latest);
        let is_over = match last.request {
            Some(last_request) if !last.is_external => self.is_over(last_request).await,
            _ => true,
        };
        let mut asking = json!({
            "drainStatus": DrainStatus::DrainRequired,
            "drainScope": scope,
            "drainRequestedAt": request.to_time(),
            "drainRetry": null,
            "keptResources": kept_at_asking(kept(latest), is_over),
        });
        if is_over {
            // Nothing was done to the machine since.
            asking["drainCompletedAt"] = Value::Null;
        }
        asking
    }

    /// Whether the node says that this request is over. What cannot be read is not.
    async fn is_over(&self, request: Moment) -> bool {
        match self.speaker.last_drain(&self.config.node).await {
            Ok(last) => last.is_some_and(|last| last >= request),
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(node = self.config.node, error, "cannot see whether the last drain is over");
                false
            }
        }
    }

    fn being_idle(&self, state: &SriovNetworkNodeState, latest: &SriovNetworkNodeState) -> Value {
        let drained = self.drained.as_ref().filter(|_| is_told(latest));
        let touched = drained.map(|drained| &drained.touched);
        let kept = kept_resources(&state.spec, touched, kept(latest));
        json!({ "drainStatus": DrainStatus::Idle, "keptResources": kept })
    }

    /// All that is done to the machine for a drain is known when it was seen before it was complete.
    fn note_drained(&mut self, facts: &StateFacts) {
        let is_complete = matches!(facts.status, DrainStatus::DrainingComplete | DrainStatus::DrainDisabled);
        let known = self.drained.take().filter(|drained| drained.request == facts.request);
        self.drained = match known {
            _ if facts.is_external => None,
            known if is_complete => known,
            _ => Some(Drained { request: facts.request, touched: BTreeSet::new() }),
        };
    }

    /// Whether it is somebody else who drains the node, or who did so far.
    pub(super) fn has_external_drainer(&self, state: &SriovNetworkNodeState) -> bool {
        self.config.uses_external_drainer || StateFacts::of(state).is_external
    }

    /// Says what it waits for. Whatever changes about that in the node state calls for the next attempt.
    async fn wait_for_drain(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        plan: &Plan,
    ) -> Result<(), ReportError> {
        let latest = self.state.as_deref().filter(|latest| latest.uid() == state.uid()).unwrap_or(state);
        let is_asked_for = StateFacts::of(latest).status != DrainStatus::Idle;
        let what_for = if is_asked_for { FOR_DRAIN } else { FOR_LAST_DRAIN };
        let trouble = blocked(latest).map(|blocked| format!("the drain is blocked: {}", blocked.message));
        self.tell_waiting(state, facts, plan, what_for, trouble).await
    }

    /// Says why nobody could be asked for a drain.
    async fn tell_not_asked(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        plan: &Plan,
        error: &ReportError,
    ) -> Result<(), ReportError> {
        self.tell_waiting(state, facts, plan, FOR_DRAIN, Some(with_causes(error))).await
    }

    async fn tell_waiting(
        &mut self,
        state: &SriovNetworkNodeState,
        facts: &HostFacts,
        plan: &Plan,
        what_for: &str,
        trouble: Option<String>,
    ) -> Result<(), ReportError> {
        let (count, disruption) = (plan.steps.len(), plan.disruption().as_str());
        let mut text = format!("waits until {what_for}: {count} steps, disruption {disruption}");
        if let Some(trouble) = trouble {
            text = format!("{text}; {trouble}");
        }
        tracing::info!(node = self.config.node, text, "the machine is not changed yet");
        let course = Course::begin(plan);
        self.tell(state, Some(facts), &Progress::Waiting { course: &course, text: &text }).await?;
        Ok(())
    }
}

/// Whether the machine may be changed, or could be.
fn is_granted(state: &SriovNetworkNodeState) -> bool {
    matches!(StateFacts::of(state).status, DrainStatus::DrainingComplete | DrainStatus::DrainDisabled)
        || ExternalFacts::of(state).answer == Answer::Complete
}

/// Whether the node state says how far its drain is, in the one way or the other.
fn is_told(state: &SriovNetworkNodeState) -> bool {
    let status = state.status.as_ref().and_then(|status| status.drain_status);
    status.is_some() || !ExternalFacts::of(state).is_at_rest()
}

fn kept(state: &SriovNetworkNodeState) -> Option<&[String]> {
    state.status.as_ref()?.kept_resources.as_deref()
}
