//! Rules of udev: names of PFs and representors in switchdev mode, and VFs that NetworkManager must not manage.
//!
//! The rule for representors contains the switch ID, which exists only in switchdev mode. So it is planned when the PF
//! is read the next time, and applies to the next boot too.

use vfleet_api::PciAddress;

use super::desired::DesiredPf;
use super::planned;
use crate::facts::{EswitchMode, Fact, HostFacts, PfFacts, Record};
use crate::files::{BRIDGE_RULE, DISABLE_NM_SCRIPT, REPRESENTOR_SCRIPT, UDEV_RULES};
use crate::prelude::*;
use crate::step::{Disruption, HostFile, PlannedStep, Step};

const NM: &str = "10-nm-disable-";
const PF_NAME: &str = "10-pf-name-";
const REPRESENTORS: &str = "20-switchdev-";

/// Scripts that rules run: path, content, and prefix of the rules.
const SCRIPTS: [(&str, &str, &str); 2] = [
    (DISABLE_NM_SCRIPT, include_str!("udev/disable-nm-sriov.sh"), NM),
    (REPRESENTOR_SCRIPT, include_str!("udev/switchdev-vf-link-name.sh"), REPRESENTORS),
];

/// Steps for the rules of a PF.
#[derive(Debug, Default)]
pub(super) struct RuleSteps {
    pub(super) steps: Vec<PlannedStep>,
    /// [`Record::representors_replayed`] before these steps.
    pub(super) was_replayed: bool,
    /// [`Record::representors_replayed`] after these steps.
    pub(super) is_replayed: bool,
}

/// Returns the steps that write the rules of a PF. They follow its record.
///
/// udev is triggered when rules changed, and once more if representors have wrong names although the rules are right,
/// because the process that wrote them was interrupted or udev was too slow. After that, wrong names are left
/// ([`wrong_names`]).
pub(super) fn plan_rules(desired: &DesiredPf, observed: &PfFacts, facts: &HostFacts) -> RuleSteps {
    let pf = desired.address;
    if desired.external {
        return RuleSteps { steps: remove_rules(pf, facts), ..RuleSteps::default() };
    }
    let mut steps = change_rules(desired, observed, facts);
    if !is_switchdev(desired, observed) {
        return RuleSteps { steps, ..RuleSteps::default() };
    }
    let is_changed = !steps.is_empty();
    let is_misnamed = mismatched_names(desired, observed).is_some() && !is_changed;
    let was_triggered = facts.record(pf).is_some_and(|record| record.representors_replayed);
    if is_changed || is_misnamed && !was_triggered {
        let why = "rules changed while representors exist";
        steps.push(planned(Step::ReplayUdev { pf }, Disruption::None, why));
    }
    RuleSteps { steps, was_replayed: is_misnamed && was_triggered, is_replayed: is_misnamed }
}

/// Returns whether representors exist and are desired.
fn is_switchdev(desired: &DesiredPf, observed: &PfFacts) -> bool {
    desired.eswitch == EswitchMode::Switchdev && observed.eswitch == Fact::Value(EswitchMode::Switchdev)
}

fn change_rules(desired: &DesiredPf, observed: &PfFacts, facts: &HostFacts) -> Vec<PlannedStep> {
    let pf = desired.address;
    let is_switchdev = desired.eswitch == EswitchMode::Switchdev;
    let mut steps = Vec::new();
    steps.extend(match nm_rule(desired) {
        Some(rule) => write(pf, NM, &rule, facts),
        None => remove(pf, NM, facts),
    });
    match pf_name(desired, observed).filter(|_| is_switchdev) {
        None => steps.extend([PF_NAME, REPRESENTORS].into_iter().filter_map(|kind| remove(pf, kind, facts))),
        Some(name) => {
            steps.extend(write(pf, PF_NAME, &pf_name_rule(pf, &name), facts));
            steps.extend(
                representor_rule(&name, observed).and_then(|rule| write(pf, REPRESENTORS, &rule, facts)),
            );
        }
    }
    steps
}

/// Returns the wrong names that representors still have after udev was triggered, for messages.
pub(super) fn wrong_names(desired: &DesiredPf, observed: &PfFacts, record: &Record) -> Option<String> {
    mismatched_names(desired, observed)
        .filter(|_| is_switchdev(desired, observed) && record.representors_replayed)
}

/// Returns representors whose names do not match the rule, for messages.
fn mismatched_names(desired: &DesiredPf, observed: &PfFacts) -> Option<String> {
    /// Maximum length of an interface name.
    const MAX_LENGTH: usize = 15;
    let name = pf_name(desired, observed)?;
    let mismatched = observed.vfs.iter().filter_map(|vf| {
        let given = format!("{name}_{}", vf.index);
        let observed =
            vf.representor.as_ref().filter(|observed| **observed != given && given.len() <= MAX_LENGTH)?;
        Some(format!("{observed} instead of {given}"))
    });
    let mismatched: Vec<_> = mismatched.collect();
    (!mismatched.is_empty()).then(|| mismatched.join(", "))
}

/// Returns the steps that remove the rules of a PF.
pub(super) fn remove_rules(pf: PciAddress, facts: &HostFacts) -> Vec<PlannedStep> {
    [NM, PF_NAME, REPRESENTORS].into_iter().filter_map(|kind| remove(pf, kind, facts)).collect()
}

/// Returns the step that writes the rule that hides the bridge of a PF from NetworkManager.
pub(super) fn write_bridge_rule(pf: PciAddress, bridge: &str, facts: &HostFacts) -> Option<PlannedStep> {
    let rule = format!(
        "SUBSYSTEM==\"net\", ACTION==\"add|change|move\", KERNEL==\"{bridge}\", ENV{{NM_UNMANAGED}}=\"1\"\n"
    );
    write(pf, BRIDGE_RULE, &rule, facts)
}

/// Returns the step that removes the rule of a bridge.
pub(super) fn remove_bridge_rule(pf: PciAddress, facts: &HostFacts) -> Option<PlannedStep> {
    remove(pf, BRIDGE_RULE, facts)
}

/// Returns the step that removes a rule of old versions of the Go daemon, which hid all VFs from NetworkManager.
pub(super) fn remove_obsolete_rule(facts: &HostFacts) -> Option<PlannedStep> {
    let path = format!("{UDEV_RULES}/10-nm-unmanaged.rules");
    let step = facts.files.contains_key(&path).then_some(Step::RemoveFile { pf: None, path })?;
    Some(planned(step, Disruption::None, "each PF has its own rule"))
}

/// Adds steps for the scripts of the rules that exist at the end: a needed script is written first, an unused one is
/// removed last.
pub(super) fn plan_scripts(steps: &mut Vec<PlannedStep>, facts: &HostFacts) {
    for (path, text, rules) in SCRIPTS {
        let observed = facts.files.get(path);
        if has_rule(rules, steps, facts) {
            if observed.map(String::as_str) != Some(text) {
                let file = HostFile { path: path.to_owned(), text: text.to_owned(), is_program: true };
                let step = Step::WriteFile { pf: None, file };
                steps.insert(0, planned(step, Disruption::None, "udev rules run it"));
            }
        } else if observed.is_some() {
            let step = Step::RemoveFile { pf: None, path: path.to_owned() };
            steps.push(planned(step, Disruption::None, "no udev rule runs it anymore"));
        }
    }
}

/// Returns whether a rule of this kind exists after these steps.
fn has_rule(kind: &str, steps: &[PlannedStep], facts: &HostFacts) -> bool {
    let start = format!("{UDEV_RULES}/{kind}");
    let mut rules: BTreeSet<&str> = facts.files.keys().map(String::as_str).collect();
    for planned in steps {
        match &planned.step {
            Step::WriteFile { file, .. } => rules.insert(&file.path),
            Step::RemoveFile { path, .. } => rules.remove(path.as_str()),
            _ => continue,
        };
    }
    rules.iter().any(|path| path.starts_with(&start))
}

fn path_of(pf: PciAddress, kind: &str) -> String {
    format!("{UDEV_RULES}/{kind}{pf}.rules")
}

fn write(pf: PciAddress, kind: &str, rule: &str, facts: &HostFacts) -> Option<PlannedStep> {
    let path = path_of(pf, kind);
    let text = format!("# Written by vfleet; changes are lost.\n{rule}");
    if facts.files.get(&path) == Some(&text) {
        return None;
    }
    let step = Step::WriteFile { pf: Some(pf), file: HostFile { path, text, is_program: false } };
    Some(planned(step, Disruption::None, "udev rule of the PF"))
}

fn remove(pf: PciAddress, kind: &str, facts: &HostFacts) -> Option<PlannedStep> {
    let path = path_of(pf, kind);
    let step = facts.files.contains_key(&path).then_some(Step::RemoveFile { pf: Some(pf), path })?;
    Some(planned(step, Disruption::None, "the rule is not needed anymore"))
}

/// Returns the name in the node state, which the PF had before the kernel renamed it in switchdev mode.
fn pf_name(desired: &DesiredPf, observed: &PfFacts) -> Option<String> {
    let given = desired.interface.name.as_deref().filter(|name| !name.is_empty());
    let name = given.or_else(|| observed.link.as_ref().map(|link| link.name.as_str()))?;
    is_plain(name).then(|| name.to_owned())
}

/// Returns whether a rule can contain the word unquoted: quotes, `$`, `%` and others have a meaning for udev.
fn is_plain(word: &str) -> bool {
    !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// Returns the rule that hides VFs in groups from NetworkManager; `None` without groups.
fn nm_rule(desired: &DesiredPf) -> Option<String> {
    let mut ranges: Vec<_> = desired.groups.iter().map(|group| group.range).collect();
    ranges.sort_unstable();
    let pf = desired.address;
    let words: Vec<String> = ranges.into_iter().map(|range| format!(" {range}")).collect();
    (!words.is_empty()).then(|| {
        format!(
            "SUBSYSTEM==\"net\", ACTION==\"add|change|move\", TEST==\"device/physfn\", \
             IMPORT{{program}}=\"{DISABLE_NM_SCRIPT} %k {pf}{}\"\n",
            words.concat()
        )
    })
}

/// Returns the rule that names the PF. Representors are children of the PF too and have other names. `phys_port_name`
/// is missing in legacy mode.
fn pf_name_rule(pf: PciAddress, name: &str) -> String {
    format!(
        "SUBSYSTEM!=\"net\", GOTO=\"end\"\n\
         ATTR{{phys_port_name}}==\"pf*|c*pf*\", GOTO=\"end\"\n\
         ACTION==\"add\", KERNELS==\"{pf}\", NAME=\"{name}\"\n\
         LABEL=\"end\"\n"
    )
}

/// Returns the rule that names representors; `None` while the switch ID is unknown, or if its ports have other names.
fn representor_rule(name: &str, observed: &PfFacts) -> Option<String> {
    let (switch, port) = observed.link.as_ref()?.switch_port.as_ref()?;
    let number = port.strip_prefix('p').filter(|digits| !digits.is_empty())?;
    if observed.eswitch != Fact::Value(EswitchMode::Switchdev)
        || !is_plain(switch)
        || !number.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    Some(format!(
        "SUBSYSTEM==\"net\", ACTION==\"add\", ATTR{{phys_switch_id}}==\"{switch}\", \
         ATTR{{phys_port_name}}==\"pf{number}vf*\", \
         IMPORT{{program}}=\"{REPRESENTOR_SCRIPT} $attr{{phys_port_name}}\", NAME=\"{name}_$env{{VFLEET_VF}}\"\n"
    ))
}
