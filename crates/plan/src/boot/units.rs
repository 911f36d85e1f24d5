//! The units of systemd, and the program that they start.

use crate::facts::HostFacts;
use crate::files::{BOOT_PROGRAM, UNITS, unit_path};
use crate::node::planned;
use crate::prelude::*;
use crate::step::{Disruption, HostFile, PlannedStep, Step};

/// Minutes after which systemd kills a unit that has not ended. Documented in `docs/systemd-mode.md`.
pub(super) const START_MINUTES: u32 = 5;
/// Seconds between the signals to a unit that is killed. There are four before systemd gives up on a process that the
/// kernel does not let go of.
pub(super) const STOP_SECONDS: u32 = 15;

/// The steps that put program and units in place. The program goes first: no unit starts what is not there.
pub(super) fn install(facts: &HostFacts) -> Vec<PlannedStep> {
    let why = "units configure the cards at boot";
    let wanted = texts().map(|(unit, text)| HostFile { path: unit_path(unit), text, is_program: false });
    let mut steps: Vec<_> = wanted
        .into_iter()
        .filter(|file| facts.files.get(&file.path) != Some(&file.text))
        .map(|file| planned(Step::WriteFile { pf: None, file }, Disruption::None, why))
        .collect();
    if !facts.has_boot_program {
        let step = Step::InstallProgram { path: BOOT_PROGRAM.to_owned() };
        steps.insert(0, planned(step, Disruption::None, why));
    }
    for unit in UNITS.iter().filter(|unit| !facts.enabled_units.contains(**unit)) {
        steps.push(planned(Step::EnableUnit { unit: (*unit).to_owned() }, Disruption::None, why));
    }
    steps
}

/// The units' texts.
///
/// The first one has no default dependencies: with them it would start after all early services, and some of those
/// (cloud-init) wait for the network, which waits for it. Nothing requires either unit: the boot goes on without one
/// that fails, and without one that takes too long once systemd has killed it.
fn texts() -> [(&'static str, String); 2] {
    let [before, after] = UNITS;
    let early = "Description=VFs of network cards, before the network starts (vfleet)\n\
         DefaultDependencies=no\n\
         RequiresMountsFor=/etc/sriov-operator /var/lib/sriov\n\
         After=systemd-udevd.service systemd-modules-load.service systemd-remount-fs.service\n\
         Wants=network-pre.target\n\
         Before=network-pre.target NetworkManager.service systemd-networkd.service\n\
         Before=openvswitch.service openvswitch-switch.service ovsdb-server.service ovs-vswitchd.service\n\
         Conflicts=shutdown.target\n\
         Before=shutdown.target\n";
    let late = format!(
        "Description=Drivers of VFs, once the network is there (vfleet)\n\
         Wants=network-online.target\n\
         After=network-online.target {before}\n\
         Before=kubelet.service\n"
    );
    [(before, text(early, "pre")), (after, text(&late, "post"))]
}

/// A unit that does the work of one phase, once in each boot. Everything in it is known to systemd 239, which refuses a
/// oneshot service with `Restart=`.
fn text(when: &str, phase: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "# Written by vfleet {version}, and written again when it changes.\n\
         [Unit]\n\
         {when}\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         TimeoutStartSec={START_MINUTES}min\n\
         TimeoutStopSec={STOP_SECONDS}s\n\
         ExecStart={BOOT_PROGRAM} boot --phase {phase}\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}
