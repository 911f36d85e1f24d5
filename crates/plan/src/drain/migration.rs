//! Drains of the Go operator, told in annotations => our drain status.

use vfleet_api::keys::{CURRENT_DRAIN_STATE, DESIRED_DRAIN_STATE, NODE_DRAIN_STATE};
use vfleet_api::keys::{drain_answer, drain_request};
use vfleet_api::node_state::{DrainScope, DrainStatus};

use super::{Cordon, Mark, Moment, NodeFacts, StateFacts};
use crate::prelude::*;

/// Values of the node's annotation in old versions, whose agents drained their own nodes.
const OLD_DRAINING: &str = "Draining";
const OLD_MCP_PAUSED: &str = "Draining_MCP_Paused";

type Annotations = BTreeMap<String, String>;

/// A node and its node state, as the Go operator may have left them.
#[derive(Clone, Copy, Debug)]
pub struct Leftover<'a> {
    /// The node's annotations.
    pub node_annotations: &'a Annotations,
    /// What counts of the node.
    pub node: NodeFacts,
    /// The node state's annotations.
    pub state_annotations: &'a Annotations,
    /// What counts of the node state.
    pub state: StateFacts,
    /// Whether the node has a machine config pool (OpenShift).
    pub has_mcp: bool,
}

/// What is to be done about it. In this order, each write on top of the version that it was decided on: whoever comes
/// after a crash finds what is left, and plans the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Migration {
    /// First the node state's status. `drainRequestedAt` says that it was written.
    Status(MovedStatus),
    /// Then the node: its annotation goes, and a cordon that was the Go operator's becomes ours, in one write.
    Node(Option<Mark>),
    /// Then the node state's annotations go.
    State,
    /// Somebody wrote a value that means nothing to us: the annotations stay.
    Unknown {
        /// The annotation.
        key: &'static str,
        /// What it says.
        value: String,
    },
}

/// A drain status that came from annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedStatus {
    /// How far the drain is.
    pub status: DrainStatus,
    /// How much is drained.
    pub scope: DrainScope,
    /// The name of the request.
    pub request: Moment,
}

/// What the annotations say together.
#[derive(Clone, Copy)]
struct Told {
    status: DrainStatus,
    scope: DrainScope,
    /// The Go operator cordoned the node.
    is_cordoned_by_it: bool,
}

/// What comes next; `None` when nothing is left of the Go operator's drains, or when somebody else drains the node.
pub fn plan_migration(leftover: &Leftover<'_>, now: Moment) -> Option<Migration> {
    let Leftover { node_annotations, state_annotations, node, state, .. } = leftover;
    let on_node =
        node_annotations.contains_key(NODE_DRAIN_STATE) || node_annotations.contains_key(DESIRED_DRAIN_STATE);
    let on_state =
        [DESIRED_DRAIN_STATE, CURRENT_DRAIN_STATE].iter().any(|key| state_annotations.contains_key(*key));
    if state.is_external || !on_node && !on_state {
        return None;
    }
    let told = match told(leftover) {
        Ok(told) => told,
        Err((key, value)) => return Some(Migration::Unknown { key, value }),
    };
    // With a request it was moved already, or our agent has asked since: then the status says more.
    let is_moved = state.request.is_some() || state.status != DrainStatus::Idle;
    let is_at_rest = told.status == DrainStatus::Idle && !told.is_cordoned_by_it;
    if !is_moved && !is_at_rest {
        let request = Moment::later_than(node.last_request, now);
        return Some(Migration::Status(MovedStatus { status: told.status, scope: told.scope, request }));
    }
    // Without the node's Idle the node state's annotation would count, so that this one goes first.
    let is_told_by_node = !is_moved && is_at_rest && on_state;
    if on_node && !is_told_by_node {
        let is_ours = told.is_cordoned_by_it && node.is_cordoned && node.mark.is_none();
        let mark = Mark { cordon: Cordon::Ours, request: state.request.unwrap_or(now) };
        return Some(Migration::Node(is_ours.then_some(mark)));
    }
    Some(Migration::State)
}

/// Whether the Go operator has a drain of this node under way, or had when it was stopped. Its node state may not be there.
pub fn is_left_in_the_middle(
    node_annotations: &Annotations,
    state_annotations: Option<&Annotations>,
) -> bool {
    let nothing = Annotations::new();
    let leftover = Leftover {
        node_annotations,
        node: NodeFacts::default(),
        state_annotations: state_annotations.unwrap_or(&nothing),
        state: StateFacts::default(),
        has_mcp: false,
    };
    told(&leftover).is_ok_and(|told| told.status != DrainStatus::Idle || told.is_cordoned_by_it)
}

fn told(leftover: &Leftover<'_>) -> Result<Told, (&'static str, String)> {
    let on_node = leftover.node_annotations.get(NODE_DRAIN_STATE).map(|value| (NODE_DRAIN_STATE, value));
    let on_state =
        leftover.state_annotations.get(DESIRED_DRAIN_STATE).map(|value| (DESIRED_DRAIN_STATE, value));
    // The Go operator followed the one on the node.
    let (key, asked) = on_node
        .or(on_state)
        .map_or((NODE_DRAIN_STATE, drain_request::IDLE), |(key, value)| (key, value.as_str()));
    let answer =
        leftover.state_annotations.get(CURRENT_DRAIN_STATE).map_or(drain_answer::IDLE, String::as_str);
    let scope = if asked == drain_request::REBOOT { DrainScope::Full } else { DrainScope::Partial };
    let answered = match answer {
        drain_answer::IDLE => DrainStatus::DrainRequired,
        drain_answer::DRAINING => DrainStatus::Draining,
        drain_answer::COMPLETE => DrainStatus::DrainingComplete,
        other => return Err((CURRENT_DRAIN_STATE, other.to_owned())),
    };
    let status = match asked {
        drain_request::IDLE => DrainStatus::Idle,
        drain_request::DRAIN | drain_request::REBOOT => answered,
        OLD_MCP_PAUSED if leftover.has_mcp => DrainStatus::DrainingMcpPaused,
        OLD_DRAINING | OLD_MCP_PAUSED => DrainStatus::Draining,
        other => return Err((key, other.to_owned())),
    };
    let is_old = matches!(asked, OLD_DRAINING | OLD_MCP_PAUSED);
    Ok(Told { status, scope, is_cordoned_by_it: is_old || answered != DrainStatus::DrainRequired })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(1000);

    #[test]
    fn what_is_left_in_the_middle() {
        for ([state, desired, current], expected) in [
            (["", "", ""], false),
            (["Idle", "Idle", "Idle"], false),
            (["Drain_Required", "", ""], true),
            (["Draining_MCP_Paused", "", ""], true),
            (["", "Reboot_Required", ""], true),
            // It is still to be uncordoned.
            (["Idle", "Idle", "DrainComplete"], true),
            (["Something", "", ""], false),
        ] {
            let Scene { node_annotations, state_annotations, .. } =
                Scene::new([state, desired, current], false);
            assert_eq!(
                is_left_in_the_middle(&node_annotations, Some(&state_annotations)),
                expected,
                "{state} {desired} {current}"
            );
        }
        let Scene { node_annotations, .. } = Scene::new(["Draining", "", ""], true);
        assert!(is_left_in_the_middle(&node_annotations, None), "its node state is still to be made");
    }

    /// A node and its node state in a test's cluster.
    #[derive(Clone)]
    struct Scene {
        node_annotations: Annotations,
        state_annotations: Annotations,
        node: NodeFacts,
        state: StateFacts,
        has_mcp: bool,
    }

    impl Scene {
        /// `state`, `desired-state` and `current-state`; an empty one is not there.
        fn new([state, desired, current]: [&str; 3], is_cordoned: bool) -> Self {
            let all = |list: &[(&str, &str)]| {
                let there = list.iter().filter(|(_, value)| !value.is_empty());
                there.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
            };
            Self {
                node_annotations: all(&[(NODE_DRAIN_STATE, state)]),
                state_annotations: all(&[(DESIRED_DRAIN_STATE, desired), (CURRENT_DRAIN_STATE, current)]),
                node: NodeFacts { is_cordoned, is_ready: true, ..Default::default() },
                state: StateFacts::default(),
                has_mcp: false,
            }
        }

        fn plan(&self) -> Option<Migration> {
            let leftover = Leftover {
                node_annotations: &self.node_annotations,
                node: self.node,
                state_annotations: &self.state_annotations,
                state: self.state,
                has_mcp: self.has_mcp,
            };
            plan_migration(&leftover, NOW)
        }

        /// Carries out what comes next; says whether something did.
        fn go_on(&mut self) -> bool {
            match self.plan() {
                None | Some(Migration::Unknown { .. }) => return false,
                Some(Migration::Status(moved)) => {
                    self.state.status = moved.status;
                    self.state.scope = moved.scope;
                    self.state.request = Some(moved.request);
                }
                Some(Migration::Node(mark)) => {
                    self.node_annotations.clear();
                    self.node.mark = mark.or(self.node.mark);
                }
                Some(Migration::State) => self.state_annotations.clear(),
            }
            true
        }

        fn finish(mut self) -> (DrainStatus, DrainScope, Option<Cordon>) {
            // Three writes at most.
            let writes = (0..4).take_while(|_| self.go_on()).count();
            assert!(writes < 4, "it ends");
            assert!(self.node_annotations.is_empty() && self.state_annotations.is_empty());
            (self.state.status, self.state.scope, self.node.mark.map(|mark| mark.cordon))
        }
    }

    #[test]
    fn drains_under_way_go_on() {
        use DrainScope::{Full, Partial};
        use DrainStatus::{DrainRequired, Draining, DrainingComplete, Idle};
        for (annotations, is_cordoned, expected) in [
            (["Idle", "Idle", "Idle"], false, (Idle, Partial, None)),
            // An administrator's.
            (["Idle", "Idle", "Idle"], true, (Idle, Partial, None)),
            (["Drain_Required", "Drain_Required", "Idle"], false, (DrainRequired, Partial, None)),
            (["Drain_Required", "Drain_Required", "Idle"], true, (DrainRequired, Partial, None)),
            (["Reboot_Required", "Reboot_Required", "Idle"], false, (DrainRequired, Full, None)),
            (["Drain_Required", "Drain_Required", "Draining"], false, (Draining, Partial, None)),
            (["Drain_Required", "Drain_Required", "Draining"], true, (Draining, Partial, Some(Cordon::Ours))),
            (["Reboot_Required", "", "DrainComplete"], true, (DrainingComplete, Full, Some(Cordon::Ours))),
            // Done, and not uncordoned yet.
            (["Idle", "Idle", "DrainComplete"], true, (Idle, Partial, Some(Cordon::Ours))),
            // The one on the node counts.
            (["Idle", "Drain_Required", "Idle"], false, (Idle, Partial, None)),
            (["", "Drain_Required", "Idle"], false, (DrainRequired, Partial, None)),
            (["Draining", "", ""], true, (Draining, Partial, Some(Cordon::Ours))),
            (["Draining_MCP_Paused", "", ""], true, (Draining, Partial, Some(Cordon::Ours))),
        ] {
            assert_eq!(
                Scene::new(annotations, is_cordoned).finish(),
                expected,
                "{annotations:?} {is_cordoned}"
            );
        }
    }

    #[test]
    fn a_machine_config_pool_stays_paused() {
        let mut scene = Scene::new(["Draining_MCP_Paused", "", ""], true);
        scene.has_mcp = true;
        assert_eq!(scene.finish().0, DrainStatus::DrainingMcpPaused);
    }

    #[test]
    fn the_status_is_written_first_and_the_mark_names_its_request() {
        let mut scene = Scene::new(["Drain_Required", "Drain_Required", "Draining"], true);
        let moved = MovedStatus { status: DrainStatus::Draining, scope: DrainScope::Partial, request: NOW };
        assert_eq!(scene.plan(), Some(Migration::Status(moved)));
        scene.go_on();
        let mark = Mark { cordon: Cordon::Ours, request: NOW };
        assert_eq!(scene.plan(), Some(Migration::Node(Some(mark))));
        scene.go_on();
        assert_eq!(scene.plan(), Some(Migration::State));
    }

    #[test]
    fn what_our_agent_says_since_is_not_overwritten() {
        // The status was moved, the operator crashed, and the agent finished meanwhile.
        let mut scene = Scene::new(["Drain_Required", "Drain_Required", "DrainComplete"], true);
        scene.go_on();
        scene.state.status = DrainStatus::Idle;
        assert_eq!(scene.finish(), (DrainStatus::Idle, DrainScope::Partial, Some(Cordon::Ours)));
    }

    #[test]
    fn a_request_is_later_than_the_last() {
        let mut scene = Scene::new(["Drain_Required", "", ""], false);
        scene.node.last_request = Some(Moment(5000));
        scene.go_on();
        assert_eq!(scene.state.request, Some(Moment(5001)));
    }

    #[test]
    fn what_means_nothing_stays_and_is_told() {
        for (annotations, key, value) in [
            (["Sleeping", "Idle", "Idle"], NODE_DRAIN_STATE, "Sleeping"),
            (["", "Sleeping", "Idle"], DESIRED_DRAIN_STATE, "Sleeping"),
            (["Idle", "Idle", "Sleeping"], CURRENT_DRAIN_STATE, "Sleeping"),
        ] {
            let unknown = Migration::Unknown { key, value: value.to_owned() };
            assert_eq!(Scene::new(annotations, false).plan(), Some(unknown));
        }
    }

    #[test]
    fn an_external_drainer_keeps_its_annotations() {
        let mut scene = Scene::new(["Drain_Required", "Drain_Required", "Draining"], true);
        scene.state.is_external = true;
        assert_eq!(scene.plan(), None);
        assert_eq!(Scene::new(["", "", ""], true).plan(), None);
    }
}
