//! When the separate device plugin has to start again: it reads its config and looks for devices only when it starts.

use crate::prelude::*;

/// What counts of the plugin's pod on a node.
#[derive(Clone, Copy, Debug)]
pub struct PluginPod<'a> {
    /// A fingerprint of what it found when it started; `None` when nobody knows.
    pub started_with: Option<&'a str>,
    /// Whether that is noted on the pod.
    pub is_noted: bool,
    /// Whether it is about to end.
    pub is_ending: bool,
}

/// What to do with the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginAction {
    /// It knows what it should know, or the node is still being changed.
    Nothing,
    /// Note on the pod what it started with.
    Note(String),
    /// Let it start again.
    Restart,
}

/// What to do with the plugin's pod on a node. `now` is a fingerprint of its config and of the node's VFs; `is_settled`
/// says that both are as wanted: the plugin is not disturbed in the middle of a change.
pub fn plugin_action(pod: PluginPod<'_>, now: &str, is_settled: bool) -> PluginAction {
    if pod.is_ending || !is_settled {
        return PluginAction::Nothing;
    }
    match pod.started_with {
        Some(started) if started != now => PluginAction::Restart,
        _ if pod.is_noted => PluginAction::Nothing,
        // Of one that nobody saw start it is taken for granted: restarting it without need would disturb pods.
        _ => PluginAction::Note(now.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_again_only_when_something_changed_for_it() {
        let pod = PluginPod { started_with: Some("a"), is_noted: true, is_ending: false };
        assert_eq!(plugin_action(pod, "a", true), PluginAction::Nothing);
        assert_eq!(plugin_action(pod, "b", true), PluginAction::Restart);
        assert_eq!(plugin_action(pod, "b", false), PluginAction::Nothing);
        assert_eq!(plugin_action(PluginPod { is_ending: true, ..pod }, "b", true), PluginAction::Nothing);
        let new = PluginPod { is_noted: false, ..pod };
        assert_eq!(plugin_action(new, "a", true), PluginAction::Note("a".to_owned()));
        assert_eq!(plugin_action(new, "b", true), PluginAction::Restart);
        let unknown = PluginPod { started_with: None, ..new };
        assert_eq!(plugin_action(unknown, "b", true), PluginAction::Note("b".to_owned()));
    }
}
