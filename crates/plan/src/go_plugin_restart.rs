//! Restarts of the Go device plugin, which reads its config and discovers devices only when it starts.

use crate::prelude::*;
use crate::step::{Disruption, Plan, Step};

/// Returns whether the plugin must not start while `plan` is executed, because devices appear and disappear. A repair
/// of single VFs does not change its devices.
pub fn blocks_plugin_start(plan: &Plan) -> bool {
    plan.disruption() >= Disruption::Pf
        && plan.steps.iter().any(|planned| {
            matches!(
                planned.step,
                Step::SetNumVfs { .. }
                    | Step::SetEswitchMode { .. }
                    | Step::BindVf { .. }
                    | Step::MakeVdpa { .. }
                    | Step::RemoveVdpa { .. }
            )
        })
}

/// State of the plugin's pod on a node.
#[derive(Clone, Copy, Debug)]
pub struct PluginPod<'a> {
    /// Fingerprint of config and devices when the pod started; `None` if unknown.
    pub started_with: Option<&'a str>,
    /// The fingerprint is stored on the pod.
    pub is_stored: bool,
    /// The plugin has discovered devices. One that still waits will discover the current ones.
    pub has_started: bool,
    /// The pod is terminating.
    pub is_ending: bool,
}

/// Action for the plugin's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginAction {
    /// The plugin is up to date, or the node is still being configured.
    Nothing,
    /// Store this fingerprint on the pod.
    StoreFingerprint(String),
    /// Restart the pod.
    Restart,
}

/// Returns the action for the plugin's pod on a node. `now` is the fingerprint of its config and of the node's VFs.
/// While the node is not `is_settled`, the plugin is not restarted.
pub fn plugin_action(pod: PluginPod<'_>, now: &str, is_settled: bool) -> PluginAction {
    if pod.is_ending || !pod.has_started || !is_settled {
        return PluginAction::Nothing;
    }
    match pod.started_with {
        Some(started) if started != now => PluginAction::Restart,
        _ if pod.is_stored => PluginAction::Nothing,
        // The fingerprint of a pod that started unobserved is assumed to be current: a needless restart would disturb
        // pods.
        _ => PluginAction::StoreFingerprint(now.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use vfleet_api::VfRef;

    use super::*;
    use crate::step::{PlannedStep, VfDriver};

    #[test]
    fn it_starts_again_only_when_something_changed_for_it() {
        let pod = PluginPod { started_with: Some("a"), is_stored: true, has_started: true, is_ending: false };
        assert_eq!(plugin_action(pod, "a", true), PluginAction::Nothing);
        assert_eq!(plugin_action(pod, "b", true), PluginAction::Restart);
        assert_eq!(plugin_action(pod, "b", false), PluginAction::Nothing);
        assert_eq!(plugin_action(PluginPod { is_ending: true, ..pod }, "b", true), PluginAction::Nothing);
        let waiting = PluginPod { has_started: false, ..pod };
        assert_eq!(plugin_action(waiting, "b", true), PluginAction::Nothing);
        let new = PluginPod { is_stored: false, ..pod };
        assert_eq!(plugin_action(new, "a", true), PluginAction::StoreFingerprint("a".to_owned()));
        assert_eq!(plugin_action(new, "b", true), PluginAction::Restart);
        let unknown = PluginPod { started_with: None, ..new };
        assert_eq!(plugin_action(unknown, "b", true), PluginAction::StoreFingerprint("b".to_owned()));
    }

    #[test]
    fn it_is_held_back_only_while_devices_come_and_go() {
        let planned = |step, disruption| PlannedStep { step, disruption, why: String::new() };
        let pf = "0000:01:00.0".parse().unwrap();
        let make = planned(Step::SetNumVfs { pf, count: 4 }, Disruption::Pf);
        let bind = Step::BindVf { vf: VfRef { pf, index: 0 }, driver: VfDriver::Kernel };
        let heal = planned(bind, Disruption::Vf);
        let mtu = planned(Step::SetPfMtu { pf, mtu: 9000 }, Disruption::Pf);
        let held_back = |steps: &[&PlannedStep]| {
            let steps = steps.iter().map(|&planned| planned.clone()).collect();
            blocks_plugin_start(&Plan { steps, problems: Vec::new() })
        };
        assert!(held_back(&[&mtu, &make]));
        assert!(!held_back(&[&mtu]));
        assert!(!held_back(&[&heal]));
        assert!(!held_back(&[]));
    }
}
