//! The agent's side where somebody else drains the node, and speaks by annotations.
//!
//! What the agent asks for is in its node state's status as ever. The annotations repeat it for the external drainer, so
//! that an agent that ends between the two knows what to repeat; and the drainer's answer takes the operator's place.

use vfleet_api::NodeStateView;
use vfleet_api::keys::{CURRENT_DRAIN_STATE, DESIRED_DRAIN_STATE, drain_answer, drain_request};
use vfleet_api::node_state::{DrainScope, DrainStatus};

use super::{AgentMove, Moment, StateFacts, agent_move};

/// How far an external drainer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// It does nothing, and the node is as it usually is.
    #[default]
    Idle,
    /// It is at work.
    Draining,
    /// The pods are gone.
    Complete,
}

/// What the annotations of a node state say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExternalFacts {
    /// What is asked for, or that nothing is; `None` when that cannot be read.
    pub asks: Option<Option<DrainScope>>,
    /// What was answered.
    pub answer: Answer,
}

impl ExternalFacts {
    /// What the annotations of `state` say.
    pub fn of<'a>(state: impl Into<NodeStateView<'a>>) -> Self {
        let annotations = state.into().annotations;
        let text = |key| annotations?.get(key).map(alloc::string::String::as_str);
        Self {
            asks: match text(DESIRED_DRAIN_STATE) {
                None | Some(drain_request::IDLE) => Some(None),
                Some(drain_request::DRAIN) => Some(Some(DrainScope::Partial)),
                Some(drain_request::REBOOT) => Some(Some(DrainScope::Full)),
                Some(_) => None,
            },
            answer: match text(CURRENT_DRAIN_STATE) {
                None | Some(drain_answer::IDLE) => Answer::Idle,
                Some(drain_answer::COMPLETE) => Answer::Complete,
                Some(_) => Answer::Draining,
            },
        }
    }

    /// Whether nothing is asked for and nothing is done.
    pub fn is_at_rest(&self) -> bool {
        self.asks == Some(None) && self.answer == Answer::Idle
    }
}

/// What the agent does next about its drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentAct {
    /// Say on the node state whether somebody else drains the node.
    UseExternal(bool),
    /// Tell the external drainer, on the node and then on the node state, what is asked for.
    TellExternal(Option<DrainScope>),
    /// What it does anyway.
    Move(AgentMove),
}

/// What the agent does next. `wants_external`: it was told that somebody else drains nodes, which counts from when nothing
/// is under way. The rest as in [`agent_move`].
pub fn agent_act(
    state: &StateFacts,
    external: &ExternalFacts,
    wants_external: bool,
    need: Option<DrainScope>,
    has_work: bool,
    now: Moment,
) -> AgentAct {
    let is_idle = state.status == DrainStatus::Idle;
    if is_idle && external.is_at_rest() && state.is_external != wants_external {
        return AgentAct::UseExternal(wants_external);
    }
    if !state.is_external {
        return AgentAct::Move(agent_move(state, need, has_work, now));
    }
    let asks = (!is_idle).then_some(state.scope);
    if external.asks != Some(asks) {
        return AgentAct::TellExternal(asks);
    }
    let status = match external.answer {
        _ if is_idle => DrainStatus::Idle,
        Answer::Idle => DrainStatus::DrainRequired,
        Answer::Draining => DrainStatus::Draining,
        Answer::Complete => DrainStatus::DrainingComplete,
    };
    AgentAct::Move(match agent_move(&StateFacts { status, ..*state }, need, has_work, now) {
        // That answer is about the last request.
        AgentMove::Ask { .. } if external.answer != Answer::Idle => AgentMove::Wait,
        decided => decided,
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

    fn act(state: &StateFacts, facts: ExternalFacts, need: Option<DrainScope>) -> AgentAct {
        agent_act(state, &facts, true, need, need.is_some(), NOW)
    }

    #[test]
    fn the_way_of_a_request() {
        use AgentAct::{Move, TellExternal};
        let says = |asks, answer| ExternalFacts { asks: Some(asks), answer };
        let idle = external(DrainStatus::Idle, DrainScope::Partial);
        let ask = Move(AgentMove::Ask { scope: DrainScope::Full, request: NOW });
        assert_eq!(act(&idle, says(None, Answer::Idle), FULL), ask);
        let asked = external(DrainStatus::DrainRequired, DrainScope::Full);
        assert_eq!(act(&asked, says(None, Answer::Idle), FULL), TellExternal(FULL));
        assert_eq!(act(&asked, says(FULL, Answer::Idle), FULL), Move(AgentMove::Wait));
        assert_eq!(act(&asked, says(FULL, Answer::Draining), FULL), Move(AgentMove::Wait));
        assert_eq!(act(&asked, says(FULL, Answer::Complete), FULL), Move(AgentMove::Proceed));
        assert_eq!(act(&asked, says(FULL, Answer::Complete), None), Move(AgentMove::BeIdle));
        assert_eq!(act(&idle, says(FULL, Answer::Complete), None), TellExternal(None));
        assert_eq!(act(&idle, says(None, Answer::Complete), None), Move(AgentMove::Proceed));
    }

    #[test]
    fn an_answer_from_before_is_none_to_a_new_request() {
        use AgentAct::{Move, TellExternal};
        let idle = external(DrainStatus::Idle, DrainScope::Partial);
        for answer in [Answer::Complete, Answer::Draining] {
            let before = ExternalFacts { asks: Some(PARTIAL), answer };
            assert_eq!(act(&idle, before, PARTIAL), TellExternal(None));
            let told = ExternalFacts { asks: Some(None), answer };
            assert_eq!(act(&idle, told, PARTIAL), Move(AgentMove::Wait));
        }
        let unreadable = ExternalFacts { asks: None, answer: Answer::Idle };
        assert_eq!(act(&idle, unreadable, PARTIAL), TellExternal(None));
    }

    #[test]
    fn more_is_asked_for_anew() {
        let asked = external(DrainStatus::DrainRequired, DrainScope::Partial);
        let complete = ExternalFacts { asks: Some(PARTIAL), answer: Answer::Complete };
        assert_eq!(act(&asked, complete, FULL), AgentAct::Move(AgentMove::BeIdle));
        assert_eq!(act(&asked, complete, PARTIAL), AgentAct::Move(AgentMove::Proceed));
    }

    #[test]
    fn who_drains_changes_only_when_nothing_is_under_way() {
        let rest = ExternalFacts { asks: Some(None), answer: Answer::Idle };
        let internal = StateFacts::default();
        assert_eq!(act(&internal, rest, PARTIAL), AgentAct::UseExternal(true));
        let back = external(DrainStatus::Idle, DrainScope::Partial);
        assert_eq!(agent_act(&back, &rest, false, None, false, NOW), AgentAct::UseExternal(false));
        for (status, facts) in [
            (DrainStatus::Draining, rest),
            (DrainStatus::Idle, ExternalFacts { asks: Some(None), answer: Answer::Draining }),
            (DrainStatus::Idle, ExternalFacts { asks: Some(FULL), answer: Answer::Idle }),
        ] {
            let busy = StateFacts { status, ..StateFacts::default() };
            assert!(matches!(act(&busy, facts, PARTIAL), AgentAct::Move(_)), "{status:?} {facts:?}");
            let busy = StateFacts { is_external: true, ..busy };
            let act = agent_act(&busy, &facts, false, PARTIAL, true, NOW);
            assert!(!matches!(act, AgentAct::UseExternal(_)), "{status:?} {facts:?}");
        }
    }

    #[test]
    fn annotations_are_read() {
        let of = |annotations: serde_json::Value| {
            let state = json!({ "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
                                "metadata": { "name": "n", "annotations": annotations }, "spec": {} });
            ExternalFacts::of(&serde_json::from_value::<SriovNetworkNodeState>(state).unwrap())
        };
        assert!(of(json!(null)).is_at_rest());
        assert!(of(json!({ DESIRED_DRAIN_STATE: "Idle", CURRENT_DRAIN_STATE: "Idle" })).is_at_rest());
        let asked =
            of(json!({ DESIRED_DRAIN_STATE: "Reboot_Required", CURRENT_DRAIN_STATE: "DrainComplete" }));
        assert_eq!(asked, ExternalFacts { asks: Some(FULL), answer: Answer::Complete });
        let odd = of(json!({ DESIRED_DRAIN_STATE: "?", CURRENT_DRAIN_STATE: "?" }));
        assert_eq!(odd, ExternalFacts { asks: None, answer: Answer::Draining });
    }
}
