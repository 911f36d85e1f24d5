//! Systemd units, and the program that they start.

use crate::facts::HostFacts;
use crate::files::{BOOT_PROGRAM, UNITS, unit_path};
use crate::node::planned;
use crate::prelude::*;
use crate::step::{Disruption, HostFile, PlannedStep, Step};

/// Minutes after which systemd kills a unit that has not finished. Documented in `docs/systemd-mode.md`.
pub(super) const START_MINUTES: u32 = 5;
/// Seconds between the signals to a unit that is killed. systemd sends four before it abandons a process that hangs in
/// the kernel.
pub(super) const STOP_SECONDS: u32 = 15;

/// Returns the steps that install program and units. The program is first, so that no unit starts without it.
pub(super) fn install(facts: &HostFacts) -> Vec<PlannedStep> {
    let why = "units configure the cards at boot";
    let files = texts().map(|(unit, text)| HostFile { path: unit_path(unit), text, is_program: false });
    let mut steps: Vec<_> = files
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

/// Returns the contents of the units.
///
/// The first unit has no default dependencies: with them it would start after all early services, some of which
/// (cloud-init) wait for the network, which waits for this unit. Nothing requires either unit: the boot continues if
/// one fails, or is killed after its timeout.
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

/// Returns a unit that runs one phase, once in each boot. It uses only directives of systemd 239, which refuses a
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
