//! Planner of systemd mode: systemd units configure the cards at boot, and the agent writes their config file. Also the
//! steps that leave the mode.

mod bridges;
mod config;
mod fault;
mod in_use;
mod reboots;
mod units;

pub use bridges::kept_bridges;
pub use config::{BootConfig, NodeSettings, config_text, read_config};
pub use fault::BootFault;
pub use in_use::accepted_spec;

use serde::{Deserialize, Serialize};
use vfleet_api::node_state::{FAILED, IN_PROGRESS, SUCCEEDED};
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use crate::facts::HostFacts;
use crate::files::{BOOT_CONFIG, BOOT_NIC_IDS, BOOT_PROGRAM, BOOT_RESULT, GO_BOOT_PROGRAM, UNITS, unit_path};
use crate::node::{
    NodeOptions, Problem, plan_before_network, plan_node_with, plan_ovs_at_boot, plan_with_kept_bridges,
    planned,
};
use crate::prelude::*;
use crate::step::{Disruption, HostFile, Plan, PlannedStep, Step, Target};

/// Input of the planner in systemd mode.
#[derive(Clone, Copy, Debug)]
pub struct BootRequest<'a> {
    /// Desired state.
    pub spec: &'a SriovNetworkNodeStateSpec,
    /// Desired state without the parts that are refused because the node uses them: [`accepted_spec`].
    pub accepted: &'a SriovNetworkNodeStateSpec,
    /// Content of [`BOOT_CONFIG`] for the accepted state.
    pub config: &'a str,
    /// Content of [`BOOT_RESULT`], if the file exists.
    pub result: Option<&'a BootResult>,
    /// Options of the planner.
    pub options: NodeOptions,
}

/// Result of the units: the content of [`BOOT_RESULT`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BootResult {
    /// Succeeded, `InProgress` (the first unit has finished, the last has not) or Failed.
    pub sync_status: String,
    /// Error; empty if there is none.
    pub last_sync_error: String,
}

impl BootResult {
    /// Returns the result after the first unit.
    pub fn in_progress() -> Self {
        Self { sync_status: IN_PROGRESS.to_owned(), last_sync_error: String::new() }
    }

    /// Returns the result of a success.
    pub fn succeeded() -> Self {
        Self { sync_status: SUCCEEDED.to_owned(), last_sync_error: String::new() }
    }

    /// Returns the result of a failure.
    pub fn failed(error: impl Into<String>) -> Self {
        Self { sync_status: FAILED.to_owned(), last_sync_error: error.into() }
    }

    /// Returns the result file. The error is a JSON string, which is YAML and always one line.
    pub fn file(&self) -> HostFile {
        let error =
            config::escape_non_ascii(&serde_json::Value::from(self.last_sync_error.as_str()).to_string());
        let text = format!("syncStatus: {}\nlastSyncError: {error}\n", self.sync_status);
        HostFile { path: BOOT_RESULT.to_owned(), text, is_program: false }
    }
}

/// Returns the steps in systemd mode.
///
/// Changes that disrupt others wait for a reboot, in which the units make them, and so do all other changes of the same
/// PF. Changes without disruption, those of software bridges, and those of VFs on externally managed PFs are made
/// immediately. If the cards match the desired state, there is no reboot: enabling the mode on a configured node does
/// not disrupt it.
pub fn plan_boot(request: &BootRequest<'_>, facts: &HostFacts) -> Plan {
    if request.spec.interfaces.is_none() {
        return Plan::default();
    }
    // A firmware reset does not avoid the reboot in which the units run.
    let options = NodeOptions { firmware_reset: false, ..request.options };
    let node = reboots::keep_unit_counts(plan_accepted(request, facts, options), facts);
    let is_new = facts.files.get(BOOT_CONFIG).map(String::as_str) != Some(request.config);
    // A result beside an old config is outdated, and is removed.
    let result = request.result.filter(|_| !is_new);
    let mut files = units::install(facts, creates_ovs_bridges(request));
    if is_new {
        files.extend(write_config(request, facts));
    }
    // Steps would disturb running units, and their result would not belong to the new config.
    let has_steps = !files.is_empty() || !node.steps.is_empty();
    if has_steps && !facts.running_units.is_empty() {
        return plan_without_reboot(Vec::new(), node.problems, BootFault::Unfinished);
    }
    if node.steps.iter().any(|planned| planned.step == Step::Reboot) {
        return plan_own_reboot(files, node);
    }
    if node.steps.iter().any(sets_firmware) {
        return Plan { steps: [files, node.steps].concat(), problems: node.problems };
    }
    let of_units = |pf: &PciAddress| !is_external(*pf, request.spec);
    let postponed = node.steps.iter().filter(|planned| !is_immediate(planned));
    let waiting_pfs: BTreeSet<_> =
        postponed.filter_map(|planned| planned.step.pf()).filter(of_units).collect();
    if waiting_pfs.is_empty() {
        return plan_immediate_steps(files, node, result, facts);
    }
    let is_waiting = |planned: &PlannedStep| planned.step.pf().is_some_and(|pf| waiting_pfs.contains(&pf));
    let (waiting, mut others): (Vec<_>, Vec<_>) = node.steps.into_iter().partition(is_waiting);
    // Steps of the machine belong to the waiting ones, unless there are others.
    if others.iter().all(|planned| planned.step.pf().is_none()) {
        others.clear();
    }
    let fault = match result {
        Some(result) => unfinished_fault(&waiting, result),
        None => match reboots::plan_reboot(&waiting, request, facts) {
            Ok(reboot) => return Plan { steps: [files, reboot].concat(), problems: node.problems },
            Err(fault) => fault,
        },
    };
    plan_without_reboot([files, others].concat(), node.problems, fault)
}

/// Returns the plan of the accepted state, with problems for the refused parts. A PF with refused parts does not reboot
/// the machine.
fn plan_accepted(request: &BootRequest<'_>, facts: &HostFacts, options: NodeOptions) -> Plan {
    let refused_pfs = in_use::differing_pfs(request.spec, request.accepted);
    if refused_pfs.is_empty() {
        return plan_node_with(request.spec, facts, &options);
    }
    let bridges = bridges::bridges_beside_refused_pfs(request.spec, request.accepted, facts, &refused_pfs);
    let accepted = SriovNetworkNodeStateSpec { bridges, ..request.accepted.clone() };
    let mut plan = plan_node_with(&accepted, facts, &options);
    let waits: BTreeSet<_> = plan
        .steps
        .iter()
        .filter(|planned| !is_immediate(planned))
        .filter_map(|planned| planned.step.pf())
        .filter(|pf| refused_pfs.contains(pf) && !is_external(*pf, request.spec))
        .collect();
    plan.steps.retain(|planned| planned.step.pf().is_none_or(|pf| !waits.contains(&pf)));
    let refused = plan_node_with(request.spec, facts, &options).problems;
    let others =
        plan.problems.into_iter().filter(|problem| problem.pf.is_none_or(|pf| !refused_pfs.contains(&pf)));
    let others: Vec<_> = others.filter(|problem| !refused.contains(problem)).collect();
    Plan { steps: plan.steps, problems: [refused, others].concat() }
}

/// Returns whether the PF is externally managed. Its VFs are often created after boot, so they cannot wait for the next
/// one.
fn is_external(pf: PciAddress, spec: &SriovNetworkNodeStateSpec) -> bool {
    let mut external = spec.interfaces.iter().flatten().filter(|one| one.externally_managed == Some(true));
    external.any(|one| one.pci_address.value() == Ok(&pf))
}

/// Returns whether Open vSwitch bridges are created at boot.
fn creates_ovs_bridges(request: &BootRequest<'_>) -> bool {
    let bridges = request.accepted.bridges.as_ref();
    request.options.manage_bridges && bridges.is_some_and(|bridges| bridges.ovs.iter().flatten().count() > 0)
}

/// Returns whether a step needs no reboot. Bridges are created and removed in a running machine, after a drain if pods
/// use them.
fn is_immediate(planned: &PlannedStep) -> bool {
    has_no_disruption(planned) || matches!(planned.step.target(), Target::Bridge(_))
}

fn has_no_disruption(planned: &PlannedStep) -> bool {
    planned.disruption <= Disruption::Vf
}

/// Phase of the boot in which a unit runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootPhase {
    /// Before the network: PFs are configured and VFs created.
    BeforeNetwork,
    /// Before the network and after Open vSwitch: its bridges are created.
    Bridges,
    /// After the network: everything else.
    AfterNetwork,
}

/// Returns the steps of a unit. Units never reboot the machine, set firmware or change reboot counts: a needed reboot
/// is reported as a problem, and the agent does the rest, since only the agent knows all needs.
pub fn plan_phase(phase: BootPhase, config: &BootConfig, facts: &HostFacts) -> Plan {
    let options = NodeOptions { mellanox: false, ..config.settings.options };
    let facts = in_use::with_recorded_uses(facts, &config.in_use);
    let mut plan = match phase {
        BootPhase::BeforeNetwork => plan_before_network(&config.spec, &facts, &config.settings.options),
        BootPhase::Bridges => plan_ovs_at_boot(&config.spec, &facts, &options),
        BootPhase::AfterNetwork => {
            plan_with_kept_bridges(&config.spec, &facts, options, &config.kept_bridges)
        }
    };
    if let Some(at) = plan.steps.iter().position(|planned| planned.step == Step::Reboot) {
        let why = plan.steps.swap_remove(at).why;
        plan.steps.retain(|planned| !planned.step.leads_to_reboot());
        plan.problems.push(Problem::of_node(BootFault::NeedsReboot { why }));
    }
    plan.steps.retain(|planned| !matches!(planned.step, Step::CountReboot { .. } | Step::ForgetReboots));
    plan
}

/// Returns the steps that remove everything of systemd mode, also files of the Go daemon.
pub fn plan_systemd_mode_removal(facts: &HostFacts) -> Vec<PlannedStep> {
    let why = "the agent configures the cards itself";
    let remove = |path: String| planned(Step::RemoveFile { pf: None, path }, Disruption::None, why);
    let units: Vec<String> = UNITS.iter().map(|unit| unit_path(unit)).collect();
    let mut steps = Vec::new();
    for unit in UNITS.iter().filter(|unit| facts.enabled_units.contains(**unit)) {
        steps.push(planned(Step::DisableUnit { unit: (*unit).to_owned() }, Disruption::None, why));
    }
    // Programs are not in the facts. They are removed before the units, whose presence shows that the programs may
    // exist.
    if units.iter().any(|unit| facts.files.contains_key(unit)) {
        steps.extend([BOOT_PROGRAM, GO_BOOT_PROGRAM].map(|program| remove(program.to_owned())));
    }
    let files = [BOOT_CONFIG, BOOT_RESULT, BOOT_NIC_IDS].map(str::to_owned);
    steps.extend(units.into_iter().chain(files).filter(|path| facts.files.contains_key(path)).map(remove));
    steps
}

/// Returns the steps that write the config. The old result is removed first, since it belongs to the old config.
fn write_config(request: &BootRequest<'_>, facts: &HostFacts) -> Vec<PlannedStep> {
    let why = "the desired state at boot changed";
    let mut steps = Vec::new();
    if facts.files.contains_key(BOOT_RESULT) {
        let step = Step::RemoveFile { pf: None, path: BOOT_RESULT.to_owned() };
        steps.push(planned(step, Disruption::None, why));
    }
    let file = HostFile { path: BOOT_CONFIG.to_owned(), text: request.config.to_owned(), is_program: false };
    steps.push(planned(Step::WriteFile { pf: None, file }, Disruption::None, why));
    steps
}

/// Returns the plan of a machine that reboots anyway (kernel arguments, firmware), after which the units use their
/// config. It is written after the steps of the cards and before the reboot, which does not follow if one of them
/// fails.
fn plan_own_reboot(files: Vec<PlannedStep>, mut node: Plan) -> Plan {
    let leads_to_reboot = |planned: &PlannedStep| planned.step.leads_to_reboot();
    let at = node.steps.iter().position(leads_to_reboot).unwrap_or(node.steps.len());
    node.steps.splice(at..at, files);
    node
}

/// Returns whether the step sets firmware that takes effect after a reboot. The next plan requests the reboot.
fn sets_firmware(planned: &PlannedStep) -> bool {
    matches!(planned.step, Step::SetFirmware { .. }) && planned.disruption == Disruption::Reboot
}

fn plan_immediate_steps(
    files: Vec<PlannedStep>,
    node: Plan,
    result: Option<&BootResult>,
    facts: &HostFacts,
) -> Plan {
    let succeeds = node.problems.is_empty();
    let mut steps = [files, node.steps].concat();
    if succeeds && result != Some(&BootResult::succeeded()) {
        let step = Step::WriteFile { pf: None, file: BootResult::succeeded().file() };
        steps.push(planned(step, Disruption::None, "the cards are configured without a reboot"));
    }
    if succeeds && reboots::has_unit_counts(facts) {
        steps.retain(|planned| !matches!(planned.step, Step::CountReboot { .. }));
        steps.push(planned(Step::ForgetReboots, Disruption::None, "the purpose of the reboots is reached"));
    }
    Plan { steps, problems: node.problems }
}

/// Returns the fault if the units have run and the cards still do not match: another reboot would change nothing.
fn unfinished_fault(waiting: &[PlannedStep], result: &BootResult) -> BootFault {
    match result.sync_status.as_str() {
        SUCCEEDED => BootFault::ChangedSince {
            step: waiting.first().map(|planned| planned.step.to_string()).unwrap_or_default(),
        },
        IN_PROGRESS => BootFault::Unfinished,
        _ => BootFault::Failed { error: result.last_sync_error.clone() },
    }
}

fn plan_without_reboot(steps: Vec<PlannedStep>, mut problems: Vec<Problem>, fault: BootFault) -> Plan {
    problems.push(Problem::of_node(fault));
    Plan { steps, problems }
}

#[cfg(test)]
mod tests;
