//! Rules for udev: names of PFs and representors in switchdev mode, and what NetworkManager shall leave alone.
//!
//! A representor's rule needs to know the switch, which is there only once the PF is in switchdev mode. So the rule is
//! planned by whoever looks at the PF after that, and stays for the next boot.

use vfleet_api::PciAddress;

use super::planned;
use super::wanted::WantedPf;
use crate::facts::{EswitchMode, Fact, HostFacts, PfFacts, Record};
use crate::files::{DISABLE_NM_SCRIPT, REPRESENTOR_SCRIPT, UDEV_RULES};
use crate::prelude::*;
use crate::step::{Disruption, HostFile, PlannedStep, Step};

const NM: &str = "10-nm-disable-";
const PF_NAME: &str = "10-pf-name-";
const REPRESENTORS: &str = "20-switchdev-";

/// Scripts that rules run: where, what they say, and the rules' names.
const SCRIPTS: [(&str, &str, &str); 2] = [
    (DISABLE_NM_SCRIPT, include_str!("udev/disable-nm-sriov.sh"), NM),
    (REPRESENTOR_SCRIPT, include_str!("udev/switchdev-vf-link-name.sh"), REPRESENTORS),
];

/// Steps about a PF's rules.
#[derive(Debug, Default)]
pub(super) struct RuleSteps {
    pub(super) steps: Vec<PlannedStep>,
    /// [`Record::representors_replayed`] before these steps.
    pub(super) was_replayed: bool,
    /// [`Record::representors_replayed`] after these steps.
    pub(super) is_replayed: bool,
}

/// The steps that give a PF its rules. Right after its record.
///
/// udev is told when rules changed, and once more of representors that have other names nevertheless: who wrote the rules
/// was cut off, or udev was too slow. One that has another name even then is left as it is ([`names_left`]).
pub(super) fn plan_rules(wanted: &WantedPf, found: &PfFacts, facts: &HostFacts) -> RuleSteps {
    let pf = wanted.address;
    if wanted.external {
        return RuleSteps { steps: remove_rules(pf, facts), ..RuleSteps::default() };
    }
    let mut steps = change_rules(wanted, found, facts);
    if !is_switchdev(wanted, found) {
        return RuleSteps { steps, ..RuleSteps::default() };
    }
    let is_changed = !steps.is_empty();
    let is_misnamed = other_names(wanted, found).is_some() && !is_changed;
    let is_told = facts.record(pf).is_some_and(|record| record.representors_replayed);
    if is_changed || is_misnamed && !is_told {
        let why = "its rules changed while its representors were there";
        steps.push(planned(Step::ReplayUdev { pf }, Disruption::None, why));
    }
    RuleSteps { steps, was_replayed: is_misnamed && is_told, is_replayed: is_misnamed }
}

/// Whether representors are there, and shall be.
fn is_switchdev(wanted: &WantedPf, found: &PfFacts) -> bool {
    wanted.eswitch == EswitchMode::Switchdev && found.eswitch == Fact::Value(EswitchMode::Switchdev)
}

fn change_rules(wanted: &WantedPf, found: &PfFacts, facts: &HostFacts) -> Vec<PlannedStep> {
    let pf = wanted.address;
    let is_switchdev = wanted.eswitch == EswitchMode::Switchdev;
    let mut steps = Vec::new();
    steps.extend(match nm_rule(wanted) {
        Some(rule) => write(pf, NM, &rule, facts),
        None => remove(pf, NM, facts),
    });
    match pf_name(wanted, found).filter(|_| is_switchdev) {
        None => steps.extend([PF_NAME, REPRESENTORS].into_iter().filter_map(|kind| remove(pf, kind, facts))),
        Some(name) => {
            steps.extend(write(pf, PF_NAME, &pf_name_rule(pf, &name), facts));
            steps.extend(
                representor_rule(&name, found).and_then(|rule| write(pf, REPRESENTORS, &rule, facts)),
            );
        }
    }
    steps
}

/// Names that representors still have although udev was told to give them others. For people.
pub(super) fn names_left(wanted: &WantedPf, found: &PfFacts, record: &Record) -> Option<String> {
    other_names(wanted, found).filter(|_| is_switchdev(wanted, found) && record.representors_replayed)
}

/// Representors that have other names than the rule gives. For people.
fn other_names(wanted: &WantedPf, found: &PfFacts) -> Option<String> {
    /// The kernel takes no longer name for an interface.
    const LONGEST: usize = 15;
    let name = pf_name(wanted, found)?;
    let other = found.vfs.iter().filter_map(|vf| {
        let given = format!("{name}_{}", vf.index);
        let found = vf.representor.as_ref().filter(|found| **found != given && given.len() <= LONGEST)?;
        Some(format!("{found} is not {given}"))
    });
    let other: Vec<_> = other.collect();
    (!other.is_empty()).then(|| other.join(", "))
}

/// The steps that take away the rules of a PF that is given back.
pub(super) fn remove_rules(pf: PciAddress, facts: &HostFacts) -> Vec<PlannedStep> {
    [NM, PF_NAME, REPRESENTORS].into_iter().filter_map(|kind| remove(pf, kind, facts)).collect()
}

/// A rule that old versions of the Go daemon wrote: it keeps NetworkManager from all VFs, also from those of others.
pub(super) fn remove_leftovers(facts: &HostFacts) -> Option<PlannedStep> {
    let path = format!("{UDEV_RULES}/10-nm-unmanaged.rules");
    let step = facts.files.contains_key(&path).then_some(Step::RemoveFile { pf: None, path })?;
    Some(planned(step, Disruption::None, "each PF has a rule of its own"))
}

/// Adds to the steps of a plan the scripts for the rules that are there in the end: first of all where one is needed,
/// last where none is any more.
pub(super) fn plan_scripts(steps: &mut Vec<PlannedStep>, facts: &HostFacts) {
    for (path, text, rules) in SCRIPTS {
        let found = facts.files.get(path);
        if is_kept(rules, steps, facts) {
            if found.map(String::as_str) != Some(text) {
                let file = HostFile { path: path.to_owned(), text: text.to_owned(), is_program: true };
                let step = Step::WriteFile { pf: None, file };
                steps.insert(0, planned(step, Disruption::None, "rules for udev run it"));
            }
        } else if found.is_some() {
            let step = Step::RemoveFile { pf: None, path: path.to_owned() };
            steps.push(planned(step, Disruption::None, "no rule runs it any more"));
        }
    }
}

/// Whether a rule of this kind is there when these steps are done.
fn is_kept(kind: &str, steps: &[PlannedStep], facts: &HostFacts) -> bool {
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
    Some(planned(step, Disruption::None, "a rule for udev"))
}

fn remove(pf: PciAddress, kind: &str, facts: &HostFacts) -> Option<PlannedStep> {
    let path = path_of(pf, kind);
    let step = facts.files.contains_key(&path).then_some(Step::RemoveFile { pf: Some(pf), path })?;
    Some(planned(step, Disruption::None, "the rule is not wanted any more"))
}

/// The name that the node state gives, which the PF had before switchdev mode made the kernel choose another one.
fn pf_name(wanted: &WantedPf, found: &PfFacts) -> Option<String> {
    let given = wanted.interface.name.as_deref().filter(|name| !name.is_empty());
    let name = given.or_else(|| found.link.as_ref().map(|link| link.name.as_str()))?;
    is_plain(name).then(|| name.to_owned())
}

/// Whether a word may stand in a rule as it is: udev gives a meaning to quotes, `$`, `%` and more.
fn is_plain(word: &str) -> bool {
    !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// VFs in no group are the host's: NetworkManager may have them. `None` where none is in a group.
fn nm_rule(wanted: &WantedPf) -> Option<String> {
    let mut ranges: Vec<_> = wanted.groups.iter().map(|group| group.range).collect();
    ranges.sort_unstable();
    let pf = wanted.address;
    let words: Vec<String> = ranges.into_iter().map(|range| format!(" {range}")).collect();
    (!words.is_empty()).then(|| {
        format!(
            "SUBSYSTEM==\"net\", ACTION==\"add|change|move\", TEST==\"device/physfn\", \
             IMPORT{{program}}=\"{DISABLE_NM_SCRIPT} %k {pf}{}\"\n",
            words.concat()
        )
    })
}

/// Representors hang below the PF as well, and have names of their own. A port's name is missing in legacy mode.
fn pf_name_rule(pf: PciAddress, name: &str) -> String {
    format!(
        "SUBSYSTEM!=\"net\", GOTO=\"end\"\n\
         ATTR{{phys_port_name}}==\"pf*|c*pf*\", GOTO=\"end\"\n\
         ACTION==\"add\", KERNELS==\"{pf}\", NAME=\"{name}\"\n\
         LABEL=\"end\"\n"
    )
}

/// `None` while the switch is not known, or names its ports in another way.
fn representor_rule(name: &str, found: &PfFacts) -> Option<String> {
    let (switch, port) = found.link.as_ref()?.switch_port.as_ref()?;
    let number = port.strip_prefix('p').filter(|digits| !digits.is_empty())?;
    if found.eswitch != Fact::Value(EswitchMode::Switchdev)
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
