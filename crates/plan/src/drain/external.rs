//! Drain decisions of the agent where an external drainer drains the node.
//!
//! Agent and external drainer communicate through annotations. The agent writes its request to the status of the node
//! state as usual and then repeats it in the annotations, so that an agent that restarts in between can repeat it. The
//! drainer's annotation takes the place of the operator's drain status.

use vfleet_api::NodeStateView;
use vfleet_api::keys::{CURRENT_DRAIN_STATE, DESIRED_DRAIN_STATE, drain_progress, drain_request};
use vfleet_api::node_state::{DrainScope, DrainStatus};

use super::{AgentAction, Moment, StateFacts, plan_agent_action};

/// Progress of an external drainer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExternalProgress {
    /// No drain, and the node serves pods.
    #[default]
    Idle,
    /// The drain is in progress.
    Draining,
    /// The pods are evicted.
    Complete,
}

/// Drain annotations of a node state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExternalFacts {
    /// Requested scope, `Some(None)` for no request; `None` for an unknown value.
    pub requested: Option<Option<DrainScope>>,
    /// Progress that the drainer reports.
    pub progress: ExternalProgress,
}

impl ExternalFacts {
    /// Reads the annotations of `state`.
    pub fn of<'a>(state: impl Into<NodeStateView<'a>>) -> Self {
        let annotations = state.into().annotations;
        let text = |key| annotations?.get(key).map(alloc::string::String::as_str);
        Self {
            requested: match text(DESIRED_DRAIN_STATE) {
                None | Some(drain_request::IDLE) => Some(None),
                Some(drain_request::DRAIN) => Some(Some(DrainScope::Partial)),
                Some(drain_request::REBOOT) => Some(Some(DrainScope::Full)),
                Some(_) => None,
            },
            progress: match text(CURRENT_DRAIN_STATE) {
                None | Some(drain_progress::IDLE) => ExternalProgress::Idle,
                Some(drain_progress::COMPLETE) => ExternalProgress::Complete,
                Some(_) => ExternalProgress::Draining,
            },
        }
    }

    /// Returns whether there is no request and no drain.
    pub fn is_idle(&self) -> bool {
        self.requested == Some(None) && self.progress == ExternalProgress::Idle
    }
}

/// Next step of the agent in a drain, also with an external drainer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentDrainStep {
    /// Set or remove the annotation on the node state that an external drainer drains the node.
    SetUseExternal(bool),
    /// Write the request to the annotations of the Node, then of the node state.
    AnnotateRequest(Option<DrainScope>),
    /// Act as without an external drainer.
    Act(AgentAction),
}

/// Returns the next step of the agent. `use_external`: the configuration names an external drainer, which applies as
/// soon as no drain is in progress. The other parameters are those of [`plan_agent_action`].
pub fn plan_agent_step(
    state: &StateFacts,
    external: &ExternalFacts,
    use_external: bool,
    needed: Option<DrainScope>,
    has_steps: bool,
    now: Moment,
) -> AgentDrainStep {
    let is_idle = state.status == DrainStatus::Idle;
    if is_idle && external.is_idle() && state.is_external != use_external {
        return AgentDrainStep::SetUseExternal(use_external);
    }
    if !state.is_external {
        return AgentDrainStep::Act(plan_agent_action(state, needed, has_steps, now));
    }
    let request = (!is_idle).then_some(state.scope);
    if external.requested != Some(request) {
        return AgentDrainStep::AnnotateRequest(request);
    }
    let status = match external.progress {
        _ if is_idle => DrainStatus::Idle,
        ExternalProgress::Idle => DrainStatus::DrainRequired,
        ExternalProgress::Draining => DrainStatus::Draining,
        ExternalProgress::Complete => DrainStatus::DrainingComplete,
    };
    AgentDrainStep::Act(match plan_agent_action(&StateFacts { status, ..*state }, needed, has_steps, now) {
        // The drainer still reports on the last request.
        AgentAction::Request { .. } if external.progress != ExternalProgress::Idle => AgentAction::Wait,
        action => action,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vfleet_api::SriovNetworkNodeState;

    use super::*;

    const NOW: Moment = Moment(100);
    const PARTIAL: Option<DrainScope> = Some(DrainScope::Partial);
    const FULL: Option<DrainScope> = Some(DrainScope::Full);

    fn external(status: DrainStatus, scope: DrainScope) -> StateFacts {
        StateFacts { status, scope, is_external: true, ..StateFacts::default() }
    }

    fn step(state: &StateFacts, facts: ExternalFacts, needed: Option<DrainScope>) -> AgentDrainStep {
        plan_agent_step(state, &facts, true, needed, needed.is_some(), NOW)
    }

    #[test]
    fn a_request_goes_through_annotations() {
        use AgentDrainStep::{Act, AnnotateRequest};
        let facts = |requested, progress| ExternalFacts { requested: Some(requested), progress };
        let idle = external(DrainStatus::Idle, DrainScope::Partial);
        let request = Act(AgentAction::Request { scope: DrainScope::Full, request: NOW });
        assert_eq!(step(&idle, facts(None, ExternalProgress::Idle), FULL), request);
        let asked = external(DrainStatus::DrainRequired, DrainScope::Full);
        assert_eq!(step(&asked, facts(None, ExternalProgress::Idle), FULL), AnnotateRequest(FULL));
        assert_eq!(step(&asked, facts(FULL, ExternalProgress::Idle), FULL), Act(AgentAction::Wait));
        assert_eq!(step(&asked, facts(FULL, ExternalProgress::Draining), FULL), Act(AgentAction::Wait));
        assert_eq!(step(&asked, facts(FULL, ExternalProgress::Complete), FULL), Act(AgentAction::Proceed));
        assert_eq!(step(&asked, facts(FULL, ExternalProgress::Complete), None), Act(AgentAction::SetIdle));
        assert_eq!(step(&idle, facts(FULL, ExternalProgress::Complete), None), AnnotateRequest(None));
        assert_eq!(step(&idle, facts(None, ExternalProgress::Complete), None), Act(AgentAction::Proceed));
    }

    #[test]
    fn progress_of_the_last_request_does_not_answer_a_new_one() {
        use AgentDrainStep::{Act, AnnotateRequest};
        let idle = external(DrainStatus::Idle, DrainScope::Partial);
        for progress in [ExternalProgress::Complete, ExternalProgress::Draining] {
            let before = ExternalFacts { requested: Some(PARTIAL), progress };
            assert_eq!(step(&idle, before, PARTIAL), AnnotateRequest(None));
            let annotated = ExternalFacts { requested: Some(None), progress };
            assert_eq!(step(&idle, annotated, PARTIAL), Act(AgentAction::Wait));
        }
        let unreadable = ExternalFacts { requested: None, progress: ExternalProgress::Idle };
        assert_eq!(step(&idle, unreadable, PARTIAL), AnnotateRequest(None));
    }

    #[test]
    fn a_wider_scope_needs_a_new_request() {
        let asked = external(DrainStatus::DrainRequired, DrainScope::Partial);
        let complete = ExternalFacts { requested: Some(PARTIAL), progress: ExternalProgress::Complete };
        assert_eq!(step(&asked, complete, FULL), AgentDrainStep::Act(AgentAction::SetIdle));
        assert_eq!(step(&asked, complete, PARTIAL), AgentDrainStep::Act(AgentAction::Proceed));
    }

    #[test]
    fn the_drainer_changes_only_while_no_drain_is_in_progress() {
        let rest = ExternalFacts { requested: Some(None), progress: ExternalProgress::Idle };
        let internal = StateFacts::default();
        assert_eq!(step(&internal, rest, PARTIAL), AgentDrainStep::SetUseExternal(true));
        let back = external(DrainStatus::Idle, DrainScope::Partial);
        assert_eq!(
            plan_agent_step(&back, &rest, false, None, false, NOW),
            AgentDrainStep::SetUseExternal(false)
        );
        for (status, facts) in [
            (DrainStatus::Draining, rest),
            (
                DrainStatus::Idle,
                ExternalFacts { requested: Some(None), progress: ExternalProgress::Draining },
            ),
            (DrainStatus::Idle, ExternalFacts { requested: Some(FULL), progress: ExternalProgress::Idle }),
        ] {
            let busy = StateFacts { status, ..StateFacts::default() };
            assert!(matches!(step(&busy, facts, PARTIAL), AgentDrainStep::Act(_)), "{status:?} {facts:?}");
            let busy = StateFacts { is_external: true, ..busy };
            let step = plan_agent_step(&busy, &facts, false, PARTIAL, true, NOW);
            assert!(!matches!(step, AgentDrainStep::SetUseExternal(_)), "{status:?} {facts:?}");
        }
    }

    #[test]
    fn annotations_are_read() {
        let of = |annotations: serde_json::Value| {
            let state = json!({ "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
                                "metadata": { "name": "n", "annotations": annotations }, "spec": {} });
            ExternalFacts::of(&serde_json::from_value::<SriovNetworkNodeState>(state).unwrap())
        };
        assert!(of(json!(null)).is_idle());
        assert!(of(json!({ DESIRED_DRAIN_STATE: "Idle", CURRENT_DRAIN_STATE: "Idle" })).is_idle());
        let asked =
            of(json!({ DESIRED_DRAIN_STATE: "Reboot_Required", CURRENT_DRAIN_STATE: "DrainComplete" }));
        assert_eq!(asked, ExternalFacts { requested: Some(FULL), progress: ExternalProgress::Complete });
        let odd = of(json!({ DESIRED_DRAIN_STATE: "?", CURRENT_DRAIN_STATE: "?" }));
        assert_eq!(odd, ExternalFacts { requested: None, progress: ExternalProgress::Draining });
    }
}
