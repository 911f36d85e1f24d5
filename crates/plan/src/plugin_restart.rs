//! When the separate device plugin has to start again: it reads its config and looks for devices only when it starts.

use crate::prelude::*;

/// What counts of the plugin's pod on a node.
#[derive(Clone, Copy, Debug)]
pub struct PluginPod<'a> {
    /// What it started with, as noted on the pod. `None` on a pod that nobody has looked at yet.
    pub started_with: Option<&'a str>,
    /// Whether the pod is known to be older than what is in the ConfigMap for its node now.
    pub is_older_than_config: bool,
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
        Some(started) if started == now => PluginAction::Nothing,
        None if !pod.is_older_than_config => PluginAction::Note(now.to_owned()),
        _ => PluginAction::Restart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_again_only_when_something_changed_for_it() {
        let pod = PluginPod { started_with: Some("a"), is_older_than_config: false, is_ending: false };
        assert_eq!(plugin_action(pod, "a", true), PluginAction::Nothing);
        assert_eq!(plugin_action(pod, "b", true), PluginAction::Restart);
        assert_eq!(plugin_action(pod, "b", false), PluginAction::Nothing);
        assert_eq!(plugin_action(PluginPod { is_ending: true, ..pod }, "b", true), PluginAction::Nothing);
        let new = PluginPod { started_with: None, ..pod };
        assert_eq!(plugin_action(new, "b", true), PluginAction::Note("b".to_owned()));
        assert_eq!(
            plugin_action(PluginPod { is_older_than_config: true, ..new }, "b", true),
            PluginAction::Restart
        );
    }
}
