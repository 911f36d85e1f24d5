//! systemd mode: the cards are made what is wanted at boot, by units of systemd, and the agent only says what they shall
//! do. Also how a machine leaves that mode.

mod config;
mod fault;
mod guard;
mod in_use;
mod units;

pub use config::{BootConfig, NodeSettings, config_text, read_config};
pub use fault::BootFault;
pub use in_use::accepted;

use serde::{Deserialize, Serialize};
use vfleet_api::node_state::{FAILED, IN_PROGRESS, SUCCEEDED};
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use crate::facts::HostFacts;
use crate::files::{BOOT_CONFIG, BOOT_NIC_IDS, BOOT_PROGRAM, BOOT_RESULT, GO_BOOT_PROGRAM, UNITS, unit_path};
use crate::node::{NodeOptions, Problem, plan_before_network, plan_node_with, planned};
use crate::prelude::*;
use crate::step::{Disruption, HostFile, Plan, PlannedStep, Step};

/// What the units shall do, and what came of it the last time.
#[derive(Clone, Copy, Debug)]
pub struct BootWish<'a> {
    /// What the machine shall be like.
    pub spec: &'a SriovNetworkNodeStateSpec,
    /// What of it is not refused because of what the node itself uses: [`accepted`].
    pub accepted: &'a SriovNetworkNodeStateSpec,
    /// The same as the text of [`BOOT_CONFIG`].
    pub config: &'a str,
    /// What [`BOOT_RESULT`] says, when it is there.
    pub result: Option<&'a BootResult>,
    /// What the node may do beyond the usual.
    pub options: NodeOptions,
}

/// What came of the units' work: the content of [`BOOT_RESULT`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BootResult {
    /// Succeeded, `InProgress` (the first unit is done, the second is not) or Failed.
    pub sync_status: String,
    /// Why it failed; empty otherwise.
    pub last_sync_error: String,
}

impl BootResult {
    /// The first unit is done.
    pub fn in_progress() -> Self {
        Self { sync_status: IN_PROGRESS.to_owned(), last_sync_error: String::new() }
    }

    /// All is as wanted.
    pub fn succeeded() -> Self {
        Self { sync_status: SUCCEEDED.to_owned(), last_sync_error: String::new() }
    }

    /// Something is not as wanted.
    pub fn failed(error: impl Into<String>) -> Self {
        Self { sync_status: FAILED.to_owned(), last_sync_error: error.into() }
    }

    /// As a file. JSON is YAML, and its quotes keep any text one line.
    pub fn file(&self) -> HostFile {
        let error = config::one_line(&self.last_sync_error.as_str().into());
        let text = format!("syncStatus: {}\nlastSyncError: {error}\n", self.sync_status);
        HostFile { path: BOOT_RESULT.to_owned(), text, is_program: false }
    }
}

/// The steps in systemd mode.
///
/// A change that takes VFs or a PF from somebody waits for a restart, in which the units do it. Done at once is what
/// disturbs nobody, and what is wanted of VFs on PFs that are managed outside. Where there is nothing to do on the cards
/// there is no restart: whoever switches the mode on for a node that is as wanted does not pay for it.
pub fn plan_boot(wish: &BootWish<'_>, facts: &HostFacts) -> Plan {
    if wish.spec.interfaces.is_none() {
        return Plan::default();
    }
    // A restart of the firmware saves none of the machine, in which the units do their work.
    let options = NodeOptions { firmware_reset: false, ..wish.options };
    let node = guard::with_our_count(plan_accepted(wish, facts, options), facts);
    let is_new = facts.files.get(BOOT_CONFIG).map(String::as_str) != Some(wish.config);
    // One beside another config does not speak about this one, and is removed.
    let result = wish.result.filter(|_| !is_new);
    let mut files = units::install(facts);
    if is_new {
        files.extend(write_config(wish, facts));
    }
    // Units at work would be disturbed, and what they leave would not be about the config beside it.
    let is_something_to_do = !files.is_empty() || !node.steps.is_empty();
    if is_something_to_do && !facts.working_units.is_empty() {
        return without_restart(Vec::new(), node.problems, BootFault::Unfinished);
    }
    if node.steps.iter().any(|planned| planned.step == Step::Reboot) {
        return with_its_own_restart(files, node);
    }
    if node.steps.iter().any(sets_firmware) {
        return Plan { steps: [files, node.steps].concat(), problems: node.problems };
    }
    let of_units = |planned: &PlannedStep| planned.step.pf().is_some_and(|pf| !is_external(pf, wish.spec));
    if node.steps.iter().filter(|planned| of_units(planned)).all(disturbs_nobody) {
        return at_once(files, node, result, facts);
    }
    let (waiting, mut others): (Vec<_>, Vec<_>) = node.steps.into_iter().partition(of_units);
    // What is for the whole machine is for what waits, unless there is something else.
    if others.iter().all(|planned| planned.step.pf().is_none()) {
        others.clear();
    }
    let fault = match result {
        Some(result) => not_as_wanted(&waiting, result),
        None => match guard::restart(&waiting, wish, facts) {
            Ok(restart) => return Plan { steps: [files, restart].concat(), problems: node.problems },
            Err(fault) => fault,
        },
    };
    without_restart([files, others].concat(), node.problems, fault)
}

/// What is accepted is done, and what is refused is said. A PF of which something is refused does not have the machine
/// restart.
fn plan_accepted(wish: &BootWish<'_>, facts: &HostFacts, options: NodeOptions) -> Plan {
    let held = in_use::held(wish.spec, wish.accepted);
    if held.is_empty() {
        return plan_node_with(wish.spec, facts, &options);
    }
    let mut plan = plan_node_with(wish.accepted, facts, &options);
    let waits: BTreeSet<_> = plan
        .steps
        .iter()
        .filter(|planned| !disturbs_nobody(planned))
        .filter_map(|planned| planned.step.pf())
        .filter(|pf| held.contains(pf) && !is_external(*pf, wish.spec))
        .collect();
    plan.steps.retain(|planned| planned.step.pf().is_none_or(|pf| !waits.contains(&pf)));
    let refused = plan_node_with(wish.spec, facts, &options).problems;
    let others = plan.problems.into_iter().filter(|problem| problem.pf.is_none_or(|pf| !held.contains(&pf)));
    let others: Vec<_> = others.filter(|problem| !refused.contains(problem)).collect();
    Plan { steps: plan.steps, problems: [refused, others].concat() }
}

/// Somebody else makes its VFs, often after the boot: they cannot wait for the next one, which would take them away.
fn is_external(pf: PciAddress, spec: &SriovNetworkNodeStateSpec) -> bool {
    let mut external = spec.interfaces.iter().flatten().filter(|one| one.externally_managed == Some(true));
    external.any(|one| one.pci_address.value() == Ok(&pf))
}

fn disturbs_nobody(planned: &PlannedStep) -> bool {
    planned.disruption <= Disruption::Vf
}

/// When a unit does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootPhase {
    /// Before the network: PFs are set up and VFs made.
    BeforeNetwork,
    /// After it: all the rest.
    AfterNetwork,
}

/// The steps of a unit. It never restarts the machine: where that is needed it says so, and the agent sees to it. Nor does
/// it set the firmware of cards: the agent does that before the restart. And as it does not see all that a restart is
/// for, the count of restarts is the agent's as well.
pub fn plan_phase(phase: BootPhase, config: &BootConfig, facts: &HostFacts) -> Plan {
    let options = NodeOptions { mellanox: false, ..config.settings.options };
    let facts = in_use::known(facts, &config.in_use);
    let mut plan = match phase {
        BootPhase::BeforeNetwork => plan_before_network(&config.spec, &facts),
        BootPhase::AfterNetwork => plan_node_with(&config.spec, &facts, &options),
    };
    if let Some(at) = plan.steps.iter().position(|planned| planned.step == Step::Reboot) {
        let why = plan.steps.swap_remove(at).why;
        plan.steps.retain(|planned| !planned.step.leads_to_restart());
        plan.problems.push(Problem::of_the_node(BootFault::NeedsRestart { why }));
    }
    plan.steps.retain(|planned| !matches!(planned.step, Step::CountReboot { .. } | Step::ForgetReboots));
    plan
}

/// The steps that leave nothing of systemd mode behind, be it ours or the Go daemon's.
pub fn plan_no_boot(facts: &HostFacts) -> Vec<PlannedStep> {
    let why = "the agent itself looks after the cards";
    let remove = |path: String| planned(Step::RemoveFile { pf: None, path }, Disruption::None, why);
    let units: Vec<String> = UNITS.iter().map(|unit| unit_path(unit)).collect();
    let mut steps = Vec::new();
    for unit in UNITS.iter().filter(|unit| facts.enabled_units.contains(**unit)) {
        steps.push(planned(Step::DisableUnit { unit: (*unit).to_owned() }, Disruption::None, why));
    }
    // Others' programs are not among the facts. They go before the units that start them, which tell that they may be there.
    if units.iter().any(|unit| facts.files.contains_key(unit)) {
        steps.extend([BOOT_PROGRAM, GO_BOOT_PROGRAM].map(|program| remove(program.to_owned())));
    }
    let files = [BOOT_CONFIG, BOOT_RESULT, BOOT_NIC_IDS].map(str::to_owned);
    steps.extend(units.into_iter().chain(files).filter(|path| facts.files.contains_key(path)).map(remove));
    steps
}

/// The result goes first: while it is there it speaks about the config beside it.
fn write_config(wish: &BootWish<'_>, facts: &HostFacts) -> Vec<PlannedStep> {
    let why = "something else is wanted at boot";
    let mut steps = Vec::new();
    if facts.files.contains_key(BOOT_RESULT) {
        let step = Step::RemoveFile { pf: None, path: BOOT_RESULT.to_owned() };
        steps.push(planned(step, Disruption::None, why));
    }
    let file = HostFile { path: BOOT_CONFIG.to_owned(), text: wish.config.to_owned(), is_program: false };
    steps.push(planned(Step::WriteFile { pf: None, file }, Disruption::None, why));
    steps
}

/// The machine restarts anyway (kernel arguments, firmware): the units then find their config. It is written when the
/// cards are done with, right before what leads to the restart, which does not follow when that fails.
fn with_its_own_restart(files: Vec<PlannedStep>, mut node: Plan) -> Plan {
    let leads_to_restart = |planned: &PlannedStep| planned.step.leads_to_restart();
    let at = node.steps.iter().position(leads_to_restart).unwrap_or(node.steps.len());
    node.steps.splice(at..at, files);
    node
}

/// Settings that count after a restart. The next plan, which sees them, asks for that one.
fn sets_firmware(planned: &PlannedStep) -> bool {
    matches!(planned.step, Step::SetFirmware { .. }) && planned.disruption == Disruption::Reboot
}

fn at_once(files: Vec<PlannedStep>, node: Plan, result: Option<&BootResult>, facts: &HostFacts) -> Plan {
    let succeeds = node.problems.is_empty();
    let mut steps = [files, node.steps].concat();
    if succeeds && result != Some(&BootResult::succeeded()) {
        let step = Step::WriteFile { pf: None, file: BootResult::succeeded().file() };
        steps.push(planned(step, Disruption::None, "the cards are as wanted without a restart"));
    }
    if succeeds && guard::is_counting(facts) {
        steps.retain(|planned| !matches!(planned.step, Step::CountReboot { .. }));
        steps.push(planned(Step::ForgetReboots, Disruption::None, "they led to what they were for"));
    }
    Plan { steps, problems: node.problems }
}

/// The units did their work, and still the machine is not as wanted. Another restart would change nothing.
fn not_as_wanted(waiting: &[PlannedStep], result: &BootResult) -> BootFault {
    match result.sync_status.as_str() {
        SUCCEEDED => BootFault::ChangedSince {
            step: waiting.first().map(|planned| planned.step.to_string()).unwrap_or_default(),
        },
        IN_PROGRESS => BootFault::Unfinished,
        _ => BootFault::Failed { error: result.last_sync_error.clone() },
    }
}

fn without_restart(steps: Vec<PlannedStep>, mut problems: Vec<Problem>, fault: BootFault) -> Plan {
    problems.push(Problem::of_the_node(fault));
    Plan { steps, problems }
}

#[cfg(test)]
mod tests;
