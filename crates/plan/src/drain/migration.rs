//! Migration of drains that the Go operator left in annotations.

use vfleet_api::keys::{CURRENT_DRAIN_STATE, DESIRED_DRAIN_STATE, NODE_DRAIN_STATE};
use vfleet_api::keys::{drain_progress, drain_request};
use vfleet_api::node_state::{DrainScope, DrainStatus};

use super::{CordonMark, CordonOrigin, Moment, NodeFacts, StateFacts};
use crate::prelude::*;

/// Values of the Node's annotation in old versions, in which agents drained their own nodes.
const OLD_DRAINING: &str = "Draining";
const OLD_MCP_PAUSED: &str = "Draining_MCP_Paused";

type Annotations = BTreeMap<String, String>;

/// Drain state of a node as the Go operator left it.
#[derive(Clone, Copy, Debug)]
pub struct GoDrainState<'a> {
    /// Annotations of the Node.
    pub node_annotations: &'a Annotations,
    /// Facts about the Node.
    pub node: NodeFacts,
    /// Annotations of the node state.
    pub state_annotations: &'a Annotations,
    /// Facts about the node state.
    pub state: StateFacts,
    /// The node has a machine config pool (OpenShift).
    pub has_mcp: bool,
}

/// Next write of a migration. The writes happen in this order, each with the resource version of its decision, so that
/// after a crash the remaining ones are planned again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationStep {
    /// First: write the status of the node state. `drainRequestedAt` shows that it was written.
    Status(MigratedStatus),
    /// Second: remove the annotations of the Node and mark a cordon of the Go operator as ours, in one write.
    Node(Option<CordonMark>),
    /// Third: remove the annotations of the node state.
    State,
    /// An annotation has an unknown value: the annotations stay.
    UnknownValue {
        /// Annotation.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

/// Drain status derived from the Go operator's annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigratedStatus {
    /// Drain status.
    pub status: DrainStatus,
    /// Scope of the drain.
    pub scope: DrainScope,
    /// Time that identifies the request.
    pub request: Moment,
}

/// Drain status that all annotations together express.
#[derive(Clone, Copy)]
struct GoDrainStatus {
    status: DrainStatus,
    scope: DrainScope,
    is_cordoned_by_go_operator: bool,
}

/// Returns the next step of a migration; `None` if nothing of the Go operator is left or an external drainer drains the
/// node.
pub fn plan_migration(found: &GoDrainState<'_>, now: Moment) -> Option<MigrationStep> {
    let GoDrainState { node_annotations, state_annotations, node, state, .. } = found;
    let on_node =
        node_annotations.contains_key(NODE_DRAIN_STATE) || node_annotations.contains_key(DESIRED_DRAIN_STATE);
    let on_state =
        [DESIRED_DRAIN_STATE, CURRENT_DRAIN_STATE].iter().any(|key| state_annotations.contains_key(*key));
    if state.is_external || !on_node && !on_state {
        return None;
    }
    let go_status = match read_annotations(found) {
        Ok(status) => status,
        Err((key, value)) => return Some(MigrationStep::UnknownValue { key, value }),
    };
    // With a request the status was written already, or the agent has requested a drain since: the status is newer.
    let is_status_written = state.request.is_some() || state.status != DrainStatus::Idle;
    let is_idle = go_status.status == DrainStatus::Idle && !go_status.is_cordoned_by_go_operator;
    if !is_status_written && !is_idle {
        let request = Moment::later_than(node.last_request, now);
        return Some(MigrationStep::Status(MigratedStatus {
            status: go_status.status,
            scope: go_status.scope,
            request,
        }));
    }
    // The Node's `Idle` overrides the annotation of the node state, so the latter must be removed first.
    let state_comes_first = !is_status_written && is_idle && on_state;
    if on_node && !state_comes_first {
        let is_ours = go_status.is_cordoned_by_go_operator && node.is_cordoned && node.mark.is_none();
        let mark = CordonMark { cordon: CordonOrigin::Ours, request: state.request.unwrap_or(now) };
        return Some(MigrationStep::Node(is_ours.then_some(mark)));
    }
    Some(MigrationStep::State)
}

/// Returns whether the Go operator has not finished a drain of this node. The node state may not exist.
pub fn has_unfinished_go_drain(
    node_annotations: &Annotations,
    state_annotations: Option<&Annotations>,
) -> bool {
    let empty = Annotations::new();
    let found = GoDrainState {
        node_annotations,
        node: NodeFacts::default(),
        state_annotations: state_annotations.unwrap_or(&empty),
        state: StateFacts::default(),
        has_mcp: false,
    };
    read_annotations(&found)
        .is_ok_and(|found| found.status != DrainStatus::Idle || found.is_cordoned_by_go_operator)
}

/// Reads the annotations. The error is an annotation with an unknown value.
fn read_annotations(found: &GoDrainState<'_>) -> Result<GoDrainStatus, (&'static str, String)> {
    let on_node = found.node_annotations.get(NODE_DRAIN_STATE).map(|value| (NODE_DRAIN_STATE, value));
    let on_state = found.state_annotations.get(DESIRED_DRAIN_STATE).map(|value| (DESIRED_DRAIN_STATE, value));
    // For the Go operator the annotation on the Node counted.
    let (key, requested) = on_node
        .or(on_state)
        .map_or((NODE_DRAIN_STATE, drain_request::IDLE), |(key, value)| (key, value.as_str()));
    let answer =
        found.state_annotations.get(CURRENT_DRAIN_STATE).map_or(drain_progress::IDLE, String::as_str);
    let scope = if requested == drain_request::REBOOT { DrainScope::Full } else { DrainScope::Partial };
    let answered = match answer {
        drain_progress::IDLE => DrainStatus::DrainRequired,
        drain_progress::DRAINING => DrainStatus::Draining,
        drain_progress::COMPLETE => DrainStatus::DrainingComplete,
        other => return Err((CURRENT_DRAIN_STATE, other.to_owned())),
    };
    let status = match requested {
        drain_request::IDLE => DrainStatus::Idle,
        drain_request::DRAIN | drain_request::REBOOT => answered,
        OLD_MCP_PAUSED if found.has_mcp => DrainStatus::DrainingMcpPaused,
        OLD_DRAINING | OLD_MCP_PAUSED => DrainStatus::Draining,
        other => return Err((key, other.to_owned())),
    };
    let is_old = matches!(requested, OLD_DRAINING | OLD_MCP_PAUSED);
    Ok(GoDrainStatus {
        status,
        scope,
        is_cordoned_by_go_operator: is_old || answered != DrainStatus::DrainRequired,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(1000);

    #[test]
    fn unfinished_drains_of_the_go_operator_are_found() {
        for ([state, desired, current], expected) in [
            (["", "", ""], false),
            (["Idle", "Idle", "Idle"], false),
            (["Drain_Required", "", ""], true),
            (["Draining_MCP_Paused", "", ""], true),
            (["", "Reboot_Required", ""], true),
            // The node is not uncordoned yet.
            (["Idle", "Idle", "DrainComplete"], true),
            (["Something", "", ""], false),
        ] {
            let Scene { node_annotations, state_annotations, .. } =
                Scene::new([state, desired, current], false);
            assert_eq!(
                has_unfinished_go_drain(&node_annotations, Some(&state_annotations)),
                expected,
                "{state} {desired} {current}"
            );
        }
        let Scene { node_annotations, .. } = Scene::new(["Draining", "", ""], true);
        assert!(has_unfinished_go_drain(&node_annotations, None), "its node state does not exist yet");
    }

    /// Node and node state of a test.
    #[derive(Clone)]
    struct Scene {
        node_annotations: Annotations,
        state_annotations: Annotations,
        node: NodeFacts,
        state: StateFacts,
        has_mcp: bool,
    }

    impl Scene {
        /// Values of `state`, `desired-state` and `current-state`; an empty one is absent.
        fn new([state, desired, current]: [&str; 3], is_cordoned: bool) -> Self {
            let annotations = |list: &[(&str, &str)]| {
                let present = list.iter().filter(|(_, value)| !value.is_empty());
                present.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
            };
            Self {
                node_annotations: annotations(&[(NODE_DRAIN_STATE, state)]),
                state_annotations: annotations(&[
                    (DESIRED_DRAIN_STATE, desired),
                    (CURRENT_DRAIN_STATE, current),
                ]),
                node: NodeFacts { is_cordoned, is_ready: true, ..Default::default() },
                state: StateFacts::default(),
                has_mcp: false,
            }
        }

        fn plan(&self) -> Option<MigrationStep> {
            let found = GoDrainState {
                node_annotations: &self.node_annotations,
                node: self.node,
                state_annotations: &self.state_annotations,
                state: self.state,
                has_mcp: self.has_mcp,
            };
            plan_migration(&found, NOW)
        }

        /// Executes the next step; returns whether there was one.
        fn advance(&mut self) -> bool {
            match self.plan() {
                None | Some(MigrationStep::UnknownValue { .. }) => return false,
                Some(MigrationStep::Status(moved)) => {
                    self.state.status = moved.status;
                    self.state.scope = moved.scope;
                    self.state.request = Some(moved.request);
                }
                Some(MigrationStep::Node(mark)) => {
                    self.node_annotations.clear();
                    self.node.mark = mark.or(self.node.mark);
                }
                Some(MigrationStep::State) => self.state_annotations.clear(),
            }
            true
        }

        fn finish(mut self) -> (DrainStatus, DrainScope, Option<CordonOrigin>) {
            // Three writes at most.
            let writes = (0..4).take_while(|_| self.advance()).count();
            assert!(writes < 4, "it ends");
            assert!(self.node_annotations.is_empty() && self.state_annotations.is_empty());
            (self.state.status, self.state.scope, self.node.mark.map(|mark| mark.cordon))
        }
    }

    #[test]
    fn unfinished_drains_continue() {
        use DrainScope::{Full, Partial};
        use DrainStatus::{DrainRequired, Draining, DrainingComplete, Idle};
        for (annotations, is_cordoned, expected) in [
            (["Idle", "Idle", "Idle"], false, (Idle, Partial, None)),
            // Cordoned by an administrator.
            (["Idle", "Idle", "Idle"], true, (Idle, Partial, None)),
            (["Drain_Required", "Drain_Required", "Idle"], false, (DrainRequired, Partial, None)),
            (["Drain_Required", "Drain_Required", "Idle"], true, (DrainRequired, Partial, None)),
            (["Reboot_Required", "Reboot_Required", "Idle"], false, (DrainRequired, Full, None)),
            (["Drain_Required", "Drain_Required", "Draining"], false, (Draining, Partial, None)),
            (
                ["Drain_Required", "Drain_Required", "Draining"],
                true,
                (Draining, Partial, Some(CordonOrigin::Ours)),
            ),
            (
                ["Reboot_Required", "", "DrainComplete"],
                true,
                (DrainingComplete, Full, Some(CordonOrigin::Ours)),
            ),
            // Finished, but not uncordoned yet.
            (["Idle", "Idle", "DrainComplete"], true, (Idle, Partial, Some(CordonOrigin::Ours))),
            // The annotation on the Node counts.
            (["Idle", "Drain_Required", "Idle"], false, (Idle, Partial, None)),
            (["", "Drain_Required", "Idle"], false, (DrainRequired, Partial, None)),
            (["Draining", "", ""], true, (Draining, Partial, Some(CordonOrigin::Ours))),
            (["Draining_MCP_Paused", "", ""], true, (Draining, Partial, Some(CordonOrigin::Ours))),
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
        let moved =
            MigratedStatus { status: DrainStatus::Draining, scope: DrainScope::Partial, request: NOW };
        assert_eq!(scene.plan(), Some(MigrationStep::Status(moved)));
        scene.advance();
        let mark = CordonMark { cordon: CordonOrigin::Ours, request: NOW };
        assert_eq!(scene.plan(), Some(MigrationStep::Node(Some(mark))));
        scene.advance();
        assert_eq!(scene.plan(), Some(MigrationStep::State));
    }

    #[test]
    fn a_later_status_of_the_agent_is_not_overwritten() {
        // The status was migrated, the operator crashed, and the agent finished in the meantime.
        let mut scene = Scene::new(["Drain_Required", "Drain_Required", "DrainComplete"], true);
        scene.advance();
        scene.state.status = DrainStatus::Idle;
        assert_eq!(scene.finish(), (DrainStatus::Idle, DrainScope::Partial, Some(CordonOrigin::Ours)));
    }

    #[test]
    fn a_request_is_later_than_the_last() {
        let mut scene = Scene::new(["Drain_Required", "", ""], false);
        scene.node.last_request = Some(Moment(5000));
        scene.advance();
        assert_eq!(scene.state.request, Some(Moment(5001)));
    }

    #[test]
    fn unknown_values_stay_and_are_reported() {
        for (annotations, key, value) in [
            (["Sleeping", "Idle", "Idle"], NODE_DRAIN_STATE, "Sleeping"),
            (["", "Sleeping", "Idle"], DESIRED_DRAIN_STATE, "Sleeping"),
            (["Idle", "Idle", "Sleeping"], CURRENT_DRAIN_STATE, "Sleeping"),
        ] {
            let unknown = MigrationStep::UnknownValue { key, value: value.to_owned() };
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
