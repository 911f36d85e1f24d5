//! An agent that is killed before and after each kind of step, and started again each time.

use std::collections::BTreeSet;

use fixture_lab::RunningJob;

use super::guest::AGENT_LOG;
use super::scene::{NODE, Scene};

/// Kinds of steps that give a card VFs and take them.
pub(super) const OF_CARDS: [&str; 12] = [
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

/// Kinds of steps that give the kernel other arguments. Whoever asks for a reboot is killed by it.
pub(super) const OF_BOOT_LOADERS: [&str; 4] = ["SetKernelArguments", "CountReboot", REBOOT, "ForgetReboots"];

/// Kinds of steps that have units do the work at boot, or not any more.
pub(super) const OF_UNITS: [&str; 3] = ["InstallProgram", "EnableUnit", "DisableUnit"];

/// Kinds of steps at which nobody is killed in the lab, and why. `SimHost` has all of them.
#[cfg(test)]
const NOT_IN_THE_LAB: [(&str, &str); 9] = [
    ("SetEswitchMode", "only for a card with an embedded switch, which no story has"),
    ("SetTcOffload", "only for a card with an embedded switch"),
    ("SetSoftwareSteering", "only for a card with an embedded switch"),
    ("ReplayUdev", "only for a card with an embedded switch"),
    ("MakeVdpa", "only for a card with an embedded switch"),
    ("RemoveVdpa", "only for a card with an embedded switch"),
    ("SetFirmware", "only Mellanox cards have settings that we know"),
    ("ResetFirmware", "only Mellanox cards have settings that we know"),
    ("SetVfGuid", "nothing emulates InfiniBand"),
];

const REBOOT: &str = "Reboot";

/// On the disk: it outlives reboots.
const DEATHS: &str = "/root/deaths";

pub(super) struct Mortal<'a> {
    scene: &'a Scene<'a>,
    program: String,
    kinds: &'static [&'static str],
}

impl<'a> Mortal<'a> {
    /// One that will be killed at these kinds of steps.
    pub(super) fn new(scene: &'a Scene<'a>, kinds: &'static [&'static str]) -> Self {
        scene.guest.run(&format!("rm -f {DEATHS}"));
        Self { scene, program: scene.guest.install(scene.programs.mortal_agent), kinds }
    }

    /// Starts it, and starts it again whenever it is killed, with more words on its command line.
    pub(super) fn start(&self, words: &str) -> RunningJob {
        let kinds = self.kinds.join(",");
        let agent = format!("{} --node {NODE} --deaths {DEATHS} --kinds {kinds} {words}", self.program);
        self.scene.start(&format!("while :; do {agent} || true; done >{AGENT_LOG} 2>&1"), &[])
    }

    /// Starts it, until it has rebooted the machine.
    pub(super) fn reboot(&self, words: &str) {
        self.scene.until_rebooted(|| self.start(words));
    }

    /// All of it happened.
    pub(super) fn assert_killed_at_all(&self) {
        let killed = self.scene.guest.run(&format!("cat {DEATHS}"));
        let killed: BTreeSet<&str> = killed.lines().collect();
        let expected: BTreeSet<String> = self.kinds.iter().flat_map(|kind| deaths(kind)).collect();
        assert_eq!(killed, expected.iter().map(String::as_str).collect());
    }
}

fn deaths(kind: &str) -> Vec<String> {
    let whens = if kind == REBOOT { &["before"][..] } else { &["before", "after"] };
    whens.iter().map(|when| format!("{when} {kind}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfleet_plan::Step;

    #[test]
    fn no_kind_of_step_is_forgotten() {
        let mut told: Vec<&str> = [&OF_CARDS[..], &OF_BOOT_LOADERS, &OF_UNITS].concat();
        told.extend(NOT_IN_THE_LAB.map(|(kind, _)| kind));
        told.sort_unstable();
        let mut kinds = Step::KINDS.to_vec();
        kinds.sort_unstable();
        assert_eq!(told, kinds, "each kind is in one story, or is left out for a reason");
    }
}
