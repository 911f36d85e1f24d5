//! Agent that is killed before and after each kind of step, and restarted each time.

use std::collections::BTreeSet;

use fixture_lab::RunningJob;

use super::guest::AGENT_LOG;
use super::lab_cluster::{LabCluster, NODE};

/// Kinds of steps that create and remove VFs.
pub(super) const CARD_STEPS: [&str; 12] = [
    "LoadModule",
    "WriteRecord",
    "WriteFile",
    "SetLinkUp",
    "SetPfMtu",
    "SetAutoprobe",
    "SetNumVfs",
    "SetVfMac",
    "BindVf",
    "SetVfMtu",
    "RemoveFile",
    "RemoveRecord",
];

/// Kinds of steps that change kernel arguments. The reboot itself kills the agent after `Reboot`.
pub(super) const BOOT_LOADER_STEPS: [&str; 4] =
    ["SetKernelArguments", "CountReboot", REBOOT, "ForgetReboots"];

/// Kinds of steps that enable and disable the units of systemd mode.
pub(super) const UNIT_STEPS: [&str; 3] = ["InstallProgram", "EnableUnit", "DisableUnit"];

/// Kinds of steps for embedded switches and software bridges.
pub(super) const BRIDGE_STEPS: [&str; 13] = [
    "SetEswitchMode",
    "SetTcOffload",
    "ReplayUdev",
    "SetOvsBridge",
    "RemoveOvsBridge",
    "RemoveOvsPort",
    "EnableOvsOffload",
    "CreateLinuxBridge",
    "SetLinuxBridge",
    "AttachUplink",
    "DetachUplink",
    "SetBridgePort",
    "RemoveLinuxBridge",
];

/// Kinds of steps that change bridges in place.
pub(super) const BRIDGE_CHANGES: [&str; 3] = ["SetOvsBridge", "SetLinuxBridge", "SetBridgePort"];

/// Kinds of steps at which no agent is killed in the lab, with the reason. Tests with `SimHost` cover all kinds.
#[cfg(test)]
const NOT_IN_THE_LAB: [(&str, &str); 6] = [
    ("SetSoftwareSteering", "only for Mellanox cards"),
    ("MakeVdpa", "the VFs of the lab have no vDPA"),
    ("RemoveVdpa", "the VFs of the lab have no vDPA"),
    ("SetFirmware", "only for Mellanox cards"),
    ("ResetFirmware", "only for Mellanox cards"),
    ("SetVfGuid", "InfiniBand is not emulated"),
];

const REBOOT: &str = "Reboot";

/// File with the crashes so far. It is on the disk and survives reboots.
const CRASHES: &str = "/root/crashes";

/// Agent that is killed once before and once after each of the given kinds of steps.
pub(super) struct CrashingAgent<'a> {
    lab: &'a LabCluster<'a>,
    program: String,
    kinds: &'static [&'static str],
}

impl<'a> CrashingAgent<'a> {
    /// Creates an agent that will be killed at these kinds of steps.
    pub(super) fn new(lab: &'a LabCluster<'a>, kinds: &'static [&'static str]) -> Self {
        lab.guest.run(&format!("rm -f {CRASHES}"));
        Self { lab, program: lab.guest.install(lab.programs.crashing_agent), kinds }
    }

    /// Starts the agent with additional arguments, and restarts it whenever it is killed.
    pub(super) fn start(&self, arguments: &str) -> RunningJob {
        let kinds = self.kinds.join(",");
        let agent = format!("{} --node {NODE} --crashes {CRASHES} --kinds {kinds} {arguments}", self.program);
        self.lab.start_script(&format!("while :; do {agent} || true; done >{AGENT_LOG} 2>&1"), &[])
    }

    /// Starts the agent and waits until it has rebooted the machine.
    pub(super) fn reboot(&self, arguments: &str) {
        self.lab.wait_for_reboot(|| self.start(arguments));
    }

    /// Checks that the agent was killed at all kinds of steps.
    pub(super) fn assert_crashed_at_all(&self) {
        let crashes = self.lab.guest.run(&format!("cat {CRASHES}"));
        let crashes: BTreeSet<&str> = crashes.lines().collect();
        let expected: BTreeSet<String> = self.kinds.iter().flat_map(|kind| expected_crashes(kind)).collect();
        assert_eq!(crashes, expected.iter().map(String::as_str).collect());
    }
}

fn expected_crashes(kind: &str) -> Vec<String> {
    let moments = if kind == REBOOT { &["before"][..] } else { &["before", "after"] };
    moments.iter().map(|moment| format!("{moment} {kind}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfleet_plan::Step;

    #[test]
    fn every_kind_of_step_is_listed_once() {
        let mut listed: Vec<&str> =
            [&CARD_STEPS[..], &BOOT_LOADER_STEPS, &UNIT_STEPS, &BRIDGE_STEPS].concat();
        listed.extend(NOT_IN_THE_LAB.map(|(kind, _)| kind));
        listed.sort_unstable();
        let mut kinds = Step::KINDS.to_vec();
        kinds.sort_unstable();
        assert_eq!(listed, kinds, "each kind must be in one list, or be excluded with a reason");
    }
}
