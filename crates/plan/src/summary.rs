//! Summary of a plan for Events and conditions: one phrase for each PF instead of every step.

use core::fmt;

use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use crate::facts::{EswitchMode, HostFacts};
use crate::prelude::*;
use crate::step::{Disruption, Plan, PlannedStep, Step, Target};

/// Number of PFs that are listed by name.
const MAX_PFS: usize = 4;

/// Returns the changes of `plan` in one line, for example `ens1f0: creating 8 VFs for policy nics`.
pub fn summarize_plan(plan: &Plan, spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> String {
    let changes = collect_changes(plan.steps.iter());
    let line = |(target, change): &(Target, ChangeKind)| match target.pf() {
        Some(pf) => format!("{}: {}{}", pf_name(pf, facts), change.active(), policies(pf, spec)),
        None => change.active(),
    };
    let lines: Vec<String> = changes.iter().map(line).collect();
    join_limited(&lines, "; ")
}

/// Returns the changes of `plan` for which pods must leave, for example `8 VFs are created on ens1f0`.
pub fn summarize_disruptive_changes(plan: &Plan, facts: &HostFacts) -> String {
    let disruptive = plan.steps.iter().filter(|planned| planned.disruption >= Disruption::Drain);
    let lanes: BTreeSet<Target> = disruptive.map(|planned| planned.step.target().lane()).collect();
    let steps = plan.steps.iter().filter(|planned| lanes.contains(&planned.step.target().lane()));
    let line = |(target, change): &(Target, ChangeKind)| {
        change.passive(&target.pf().map(|pf| pf_name(pf, facts)).unwrap_or_default())
    };
    let texts: Vec<String> = collect_changes(steps).iter().map(line).collect();
    if texts.is_empty() { "the node is configured".to_owned() } else { join_limited(&texts, " and ") }
}

/// Returns the number of steps, for example `23 steps`.
pub fn count_steps(plan: &Plan) -> String {
    let count = plan.steps.len();
    format!("{count} {}", if count == 1 { "step" } else { "steps" })
}

/// Most important change of a PF, or of the machine. The order is that of importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ChangeKind {
    ConfigurePf,
    ConfigureVfs { count: usize },
    ConfigureMachine,
    ResetPf,
    SetEswitchMode { is_switchdev: bool },
    RemoveVfs,
    CreateVfs { count: u16 },
    ChangeFirmware,
    Reboot,
}

impl ChangeKind {
    fn of(planned: &PlannedStep) -> Self {
        match &planned.step {
            Step::Reboot => Self::Reboot,
            Step::SetFirmware { .. } | Step::ResetFirmware { .. } => Self::ChangeFirmware,
            Step::SetNumVfs { count: 0, .. } => Self::RemoveVfs,
            Step::SetNumVfs { count, .. } => Self::CreateVfs { count: *count },
            Step::SetEswitchMode { mode, .. } => {
                Self::SetEswitchMode { is_switchdev: *mode == EswitchMode::Switchdev }
            }
            Step::RemoveRecord { .. } => Self::ResetPf,
            step => match step.target() {
                Target::Machine => Self::ConfigureMachine,
                Target::Pf(_) | Target::Bridge(_) => Self::ConfigurePf,
                Target::Vf(_) => Self::ConfigureVfs { count: 1 },
            },
        }
    }

    /// Returns the change as `creating 8 VFs`.
    fn active(self) -> String {
        match self {
            Self::ConfigurePf => "configuring the PF".to_owned(),
            Self::ConfigureVfs { count } => format!("configuring {}", Vfs(count)),
            Self::ConfigureMachine => "configuring the node".to_owned(),
            Self::ResetPf => "resetting the PF".to_owned(),
            Self::SetEswitchMode { is_switchdev } => format!("switching to {} mode", mode(is_switchdev)),
            Self::RemoveVfs => "removing all VFs".to_owned(),
            Self::CreateVfs { count } => format!("creating {}", Vfs(count.into())),
            Self::ChangeFirmware => "changing firmware settings".to_owned(),
            Self::Reboot => "rebooting the node".to_owned(),
        }
    }

    /// Returns the change as `8 VFs are created on ens1f0`.
    fn passive(self, pf: &str) -> String {
        match self {
            Self::ConfigurePf => format!("{pf} is configured"),
            Self::ConfigureVfs { count } => format!("{} of {pf} {} configured", Vfs(count), are(count)),
            Self::ConfigureMachine => "the node is configured".to_owned(),
            Self::ResetPf => format!("{pf} is reset"),
            Self::SetEswitchMode { is_switchdev } => {
                format!("{pf} is switched to {} mode", mode(is_switchdev))
            }
            Self::RemoveVfs => format!("the VFs of {pf} are removed"),
            Self::CreateVfs { count } => {
                format!("{} {} created on {pf}", Vfs(count.into()), are(count.into()))
            }
            Self::ChangeFirmware => format!("the firmware settings of {pf} are changed"),
            Self::Reboot => "the node is rebooted".to_owned(),
        }
    }
}

/// Returns the most important change of each PF, and of the machine, in the order of the steps.
fn collect_changes<'a>(steps: impl Iterator<Item = &'a PlannedStep>) -> Vec<(Target, ChangeKind)> {
    let mut changes: Vec<(Target, ChangeKind, BTreeSet<Target>)> = Vec::new();
    for planned in steps {
        let (target, kind) = (planned.step.target(), ChangeKind::of(planned));
        match changes.iter_mut().find(|(lane, ..)| *lane == target.lane()) {
            None => changes.push((target.lane(), kind, [target].into())),
            Some((_, most_important, targets)) => {
                targets.insert(target);
                *most_important = kind.max(*most_important);
            }
        }
    }
    let with_count = |(lane, kind, targets): (Target, ChangeKind, BTreeSet<Target>)| match kind {
        ChangeKind::ConfigureVfs { .. } => {
            let count = targets.iter().filter(|target| matches!(target, Target::Vf(_))).count();
            (lane, ChangeKind::ConfigureVfs { count })
        }
        _ => (lane, kind),
    };
    let mut changes: Vec<_> = changes.into_iter().map(with_count).collect();
    // Files and modules are not worth a phrase beside PFs.
    if changes.len() > 1 {
        changes.retain(|(_, kind)| *kind != ChangeKind::ConfigureMachine);
    }
    changes
}

fn pf_name(pf: PciAddress, facts: &HostFacts) -> String {
    let link = facts.pf(pf).and_then(|pf| pf.link.as_ref());
    link.map_or_else(|| pf.to_string(), |link| link.name.clone())
}

fn policies(pf: PciAddress, spec: &SriovNetworkNodeStateSpec) -> String {
    let mut entries = spec.interfaces.iter().flatten();
    let entry = entries.find(|entry| entry.pci_address.value() == Ok(&pf));
    let groups = entry.into_iter().flat_map(|entry| entry.vf_groups.iter().flatten());
    let names: BTreeSet<&str> =
        groups.filter_map(|group| group.policy_name.as_deref()).filter(|name| !name.is_empty()).collect();
    match names.len() {
        0 => String::new(),
        1 => format!(" for policy {}", names.into_iter().collect::<String>()),
        _ => format!(" for policies {}", names.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

fn join_limited(lines: &[String], separator: &str) -> String {
    let mut listed = lines[..lines.len().min(MAX_PFS)].join(separator);
    if lines.len() > MAX_PFS {
        listed = format!("{listed}{separator}{} more", lines.len() - MAX_PFS);
    }
    listed
}

const fn mode(is_switchdev: bool) -> &'static str {
    if is_switchdev { "switchdev" } else { "legacy" }
}

const fn are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// Number of VFs, in words.
struct Vfs(usize);

impl fmt::Display for Vfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { "VF" } else { "VFs" })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vfleet_api::VfRef;

    use super::*;

    fn pf(number: u8) -> PciAddress {
        format!("0000:{number:02x}:00.0").parse().unwrap()
    }

    fn plan(steps: Vec<(Step, Disruption)>) -> Plan {
        let planned = |(step, disruption)| PlannedStep { step, disruption, why: String::new() };
        Plan { steps: steps.into_iter().map(planned).collect(), problems: Vec::new() }
    }

    fn spec() -> SriovNetworkNodeStateSpec {
        let group = |policy: &str| json!({ "policyName": policy });
        let entry = json!({ "pciAddress": pf(1), "vfGroups": [group("nics"), group("dpdk"), group("nics")] });
        serde_json::from_value(json!({ "interfaces": [entry] })).unwrap()
    }

    #[test]
    fn each_pf_has_one_phrase() {
        let set_mtu = |index| Step::SetVfMtu { vf: VfRef { pf: pf(2), index }, mtu: 9000 };
        let plan = plan(vec![
            (Step::LoadModule { module: "vfio-pci".to_owned(), options: Vec::new() }, Disruption::None),
            (Step::SetNumVfs { pf: pf(1), count: 0 }, Disruption::Drain),
            (Step::SetNumVfs { pf: pf(1), count: 8 }, Disruption::Pf),
            (Step::SetPfMtu { pf: pf(2), mtu: 9000 }, Disruption::Pf),
            (set_mtu(0), Disruption::Vf),
            (set_mtu(1), Disruption::Drain),
        ]);
        let facts = HostFacts::default();
        assert_eq!(
            summarize_plan(&plan, &spec(), &facts),
            "0000:01:00.0: creating 8 VFs for policies dpdk, nics; 0000:02:00.0: configuring 2 VFs"
        );
        assert_eq!(
            summarize_disruptive_changes(&plan, &facts),
            "8 VFs are created on 0000:01:00.0 and 2 VFs of 0000:02:00.0 are configured"
        );
    }

    #[test]
    fn a_long_list_is_cut() {
        let up = |number| (Step::SetLinkUp { pf: pf(number) }, Disruption::Pf);
        let text = summarize_plan(&plan((1..=6).map(up).collect()), &spec(), &HostFacts::default());
        assert!(text.ends_with("0000:04:00.0: configuring the PF; 2 more"), "{text}");
        let reboot = plan(vec![(Step::Reboot, Disruption::Reboot)]);
        assert_eq!(summarize_plan(&reboot, &spec(), &HostFacts::default()), "rebooting the node");
        assert_eq!(count_steps(&reboot), "1 step");
    }
}
