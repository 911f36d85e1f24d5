//! Systemd units, and the program that they start.

use crate::facts::HostFacts;
use crate::files::{BOOT_PROGRAM, BRIDGE_UNIT, FIRST_UNIT, LAST_UNIT, unit_path};
use crate::node::planned;
use crate::prelude::*;
use crate::step::{Disruption, HostFile, PlannedStep, Step};

/// Minutes after which systemd kills a unit that has not finished. Documented in `docs/systemd-mode.md`.
pub(super) const START_MINUTES: u32 = 5;
/// Seconds between the signals to a unit that is killed. systemd sends four before it abandons a process that hangs in
/// the kernel.
pub(super) const STOP_SECONDS: u32 = 15;

/// Returns the steps that install program and units. The program is first, so that no unit starts without it. The unit
/// of bridges is installed only if it `creates_bridges`, and removed otherwise.
pub(super) fn install(facts: &HostFacts, creates_bridges: bool) -> Vec<PlannedStep> {
    let why = "units configure the cards at boot";
    let mut texts = Vec::from(texts());
    if creates_bridges {
        texts.push((BRIDGE_UNIT, bridge_text()));
    }
    let units: Vec<_> = texts.iter().map(|(unit, _)| *unit).collect();
    let mut steps: Vec<_> = texts
        .into_iter()
        .map(|(unit, text)| HostFile { path: unit_path(unit), text, is_program: false })
        .filter(|file| facts.files.get(&file.path) != Some(&file.text))
        .map(|file| planned(Step::WriteFile { pf: None, file }, Disruption::None, why))
        .collect();
    if !facts.has_boot_program {
        let step = Step::InstallProgram { path: BOOT_PROGRAM.to_owned() };
        steps.insert(0, planned(step, Disruption::None, why));
    }
    for unit in units.iter().filter(|unit| !facts.enabled_units.contains(**unit)) {
        steps.push(planned(Step::EnableUnit { unit: (*unit).to_owned() }, Disruption::None, why));
    }
    if !creates_bridges {
        steps.extend(remove_bridge_unit(facts));
    }
    steps
}

/// Returns the steps that remove the unit of bridges, if it exists.
fn remove_bridge_unit(facts: &HostFacts) -> Vec<PlannedStep> {
    let why = "no Open vSwitch bridge is created at boot";
    let (unit, path) = (BRIDGE_UNIT.to_owned(), unit_path(BRIDGE_UNIT));
    let disable = facts.enabled_units.contains(&unit).then_some(Step::DisableUnit { unit });
    let remove = facts.files.contains_key(&path).then_some(Step::RemoveFile { pf: None, path });
    [disable, remove].into_iter().flatten().map(|step| planned(step, Disruption::None, why)).collect()
}

/// Returns the contents of the units that always exist.
///
/// The first unit has no default dependencies: with them it would start after all early services, some of which
/// (cloud-init) wait for the network, which waits for this unit. Nothing requires either unit: the boot continues if
/// one fails, or is killed after its timeout.
fn texts() -> [(&'static str, String); 2] {
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
         After=network-online.target {FIRST_UNIT}\n\
         Before=kubelet.service\n"
    );
    [(FIRST_UNIT, text(early, "pre")), (LAST_UNIT, text(&late, "post"))]
}

/// Returns the content of the unit of Open vSwitch bridges, which runs between Open vSwitch and the network.
///
/// Like the first unit and the services of Open vSwitch, it has no default dependencies: where cloud-init waits for
/// systemd-networkd, that is started before all services with default dependencies. For the same reason the unit is not
/// ordered after openvswitch-switch.service and openvswitch.service, which have default dependencies and only group the
/// two services that are named here. Nothing requires the unit, and the unit requires nothing.
fn bridge_text() -> String {
    let when = format!(
        "Description=Open vSwitch bridges of network cards, before the network starts (vfleet)\n\
         DefaultDependencies=no\n\
         RequiresMountsFor=/etc/sriov-operator /var/lib/sriov\n\
         After={FIRST_UNIT} ovsdb-server.service ovs-vswitchd.service\n\
         Before=NetworkManager.service systemd-networkd.service network.target\n\
         Before={LAST_UNIT} kubelet.service\n\
         Conflicts=shutdown.target\n\
         Before=shutdown.target\n"
    );
    text(&when, "bridges")
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
