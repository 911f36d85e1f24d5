//! When the external Go device plugin has to start again: it reads its config and looks for devices only when it starts.

use crate::prelude::*;
use crate::step::{Disruption, Plan, Step};

/// Whether the plugin is held back while `plan` is carried out: devices that it offers come and go. A VF that is only
/// put right again is the same to it as before.
pub fn holds_plugin_back(plan: &Plan) -> bool {
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

/// What counts of the plugin's pod on a node.
#[derive(Clone, Copy, Debug)]
pub struct PluginPod<'a> {
    /// A fingerprint of what it found when it started; `None` when nobody knows.
    pub started_with: Option<&'a str>,
    /// Whether that is noted on the pod.
    pub is_noted: bool,
    /// Whether it looked for devices already; one that waits for them finds what is there then.
    pub has_started: bool,
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
    if pod.is_ending || !pod.has_started || !is_settled {
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
    use vfleet_api::VfRef;

    use super::*;
    use crate::step::{PlannedStep, VfDriver};

    #[test]
    fn it_starts_again_only_when_something_changed_for_it() {
        let pod = PluginPod { started_with: Some("a"), is_noted: true, has_started: true, is_ending: false };
        assert_eq!(plugin_action(pod, "a", true), PluginAction::Nothing);
        assert_eq!(plugin_action(pod, "b", true), PluginAction::Restart);
        assert_eq!(plugin_action(pod, "b", false), PluginAction::Nothing);
        assert_eq!(plugin_action(PluginPod { is_ending: true, ..pod }, "b", true), PluginAction::Nothing);
        let waiting = PluginPod { has_started: false, ..pod };
        assert_eq!(plugin_action(waiting, "b", true), PluginAction::Nothing);
        let new = PluginPod { is_noted: false, ..pod };
        assert_eq!(plugin_action(new, "a", true), PluginAction::Note("a".to_owned()));
        assert_eq!(plugin_action(new, "b", true), PluginAction::Restart);
        let unknown = PluginPod { started_with: None, ..new };
        assert_eq!(plugin_action(unknown, "b", true), PluginAction::Note("b".to_owned()));
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
            holds_plugin_back(&Plan { steps, problems: Vec::new() })
        };
        assert!(held_back(&[&mtu, &make]));
        assert!(!held_back(&[&mtu]));
        assert!(!held_back(&[&heal]));
        assert!(!held_back(&[]));
    }
}
