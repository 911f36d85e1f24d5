//! Configuration at boot by the units of systemd mode: the same plans and the same executor as in the agent, with files
//! instead of a cluster.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use thiserror::Error;
use vfleet_api::node_state::IN_PROGRESS;
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};
use vfleet_host::{Host, HostError, format_error_chain};
use vfleet_plan::boot::read_config;
use vfleet_plan::files::{BOOT_CONFIG, BOOT_RESULT};
use vfleet_plan::{BootConfig, BootPhase, BootResult, HostFacts, NodeSettings, Step, plan_phase};

use crate::apply::{ApplyContext, ApplyOutcome, apply_plan, survey};

#[cfg(test)]
mod tests;

/// Longest time that cards may take to appear: drivers are loaded while the machine boots.
const CARDS_DEADLINE: Duration = Duration::from_mins(1);

/// Error of a boot phase. The result file contains it, too, unless that cannot be written.
#[derive(Debug, Error)]
pub enum BootError {
    /// Not all cards are configured; the text of the result file.
    #[error("{0}")]
    NotConfigured(String),
    /// The machine cannot be read.
    #[error("cannot read the machine")]
    Unreadable(#[source] HostError),
    /// The result cannot be written.
    #[error("cannot write {BOOT_RESULT}")]
    Result(#[source] HostError),
}

/// Reads the settings in the config of the units. Returns the defaults if it cannot be read: [`run`] reports that.
pub fn read_settings(host: &dyn Host, phase: BootPhase) -> Result<NodeSettings, BootError> {
    let facts = read_facts(host, phase)?;
    let config = facts.files.get(BOOT_CONFIG).and_then(|config| parse_config(config).ok());
    Ok(config.map(|config| config.settings).unwrap_or_default())
}

/// Runs one phase and writes its result to a file. Does nothing without a config.
pub fn run(host: &dyn Host, phase: BootPhase) -> Result<(), BootError> {
    run_within(host, phase, CARDS_DEADLINE)
}

fn run_within(host: &dyn Host, phase: BootPhase, timeout: Duration) -> Result<(), BootError> {
    let facts = read_facts(host, phase)?;
    let Some(config) = facts.files.get(BOOT_CONFIG) else {
        tracing::info!("{BOOT_CONFIG} does not exist: nothing to do");
        return Ok(());
    };
    let mut errors = Vec::new();
    match phase {
        // The result of an earlier boot is not a result of this one.
        BootPhase::BeforeNetwork => {
            let step = Step::RemoveFile { pf: None, path: BOOT_RESULT.to_owned() };
            host.execute(&step).map_err(BootError::Result)?;
        }
        BootPhase::Bridges | BootPhase::AfterNetwork => errors.extend(earlier_error(&facts)),
    }
    let name = phase_name(phase);
    match parse_config(config) {
        Ok(config) => {
            errors.extend(configure(host, phase, &config, timeout).map(|text| format!("{name}: {text}")));
        }
        Err(error) => errors.push(format!("{name}: {error}")),
    }
    write_result(host, phase, &errors)
}

/// Writes the result of a phase that was not started, with the reason.
pub fn write_refusal(host: &dyn Host, phase: BootPhase, reason: &str) -> Result<(), BootError> {
    write_result(host, phase, &[format!("{}: {reason}", phase_name(phase))])
}

/// Reads the machine. A machine that cannot be read is a failure of the phase and replaces the result of an earlier
/// boot.
fn read_facts(host: &dyn Host, phase: BootPhase) -> Result<HostFacts, BootError> {
    let unreadable = |error| -> Result<HostFacts, BootError> {
        let error = BootError::Unreadable(error);
        let result = BootResult::failed(format!("{}: {}", phase_name(phase), format_error_chain(&error)));
        host.execute(&Step::WriteFile { pf: None, file: result.file() }).map_err(BootError::Result)?;
        Err(error)
    };
    host.facts().or_else(unreadable)
}

fn write_result(host: &dyn Host, phase: BootPhase, errors: &[String]) -> Result<(), BootError> {
    let text = errors.join("; ");
    let result = match phase {
        _ if !errors.is_empty() => BootResult::failed(&text),
        BootPhase::BeforeNetwork | BootPhase::Bridges => BootResult::in_progress(),
        BootPhase::AfterNetwork => BootResult::succeeded(),
    };
    host.execute(&Step::WriteFile { pf: None, file: result.file() }).map_err(BootError::Result)?;
    if errors.is_empty() { Ok(()) } else { Err(BootError::NotConfigured(text)) }
}

/// Returns the name of a phase on the command line and in the result.
const fn phase_name(phase: BootPhase) -> &'static str {
    match phase {
        BootPhase::BeforeNetwork => "pre",
        BootPhase::Bridges => "bridges",
        BootPhase::AfterNetwork => "post",
    }
}

/// Parses the text of [`BOOT_CONFIG`].
#[doc(hidden)] // public for tests/fuzz/main.rs
pub fn parse_config(config: &str) -> Result<BootConfig, String> {
    let error_text = |error: &dyn std::error::Error| {
        format!("{BOOT_CONFIG} cannot be read: {}", format_error_chain(error))
    };
    let config: serde_json::Value = serde_saphyr::from_str(config).map_err(|error| error_text(&error))?;
    read_config(config).map_err(|error| error_text(&error))
}

/// Returns the errors of the earlier phases. A later phase continues nevertheless, since one faulty card is no reason to
/// leave the others unfinished; but its result is not a success.
fn earlier_error(facts: &HostFacts) -> Option<String> {
    match read_result(facts) {
        Some(result) if result.sync_status == IN_PROGRESS => None,
        Some(result) if !result.last_sync_error.is_empty() => Some(result.last_sync_error),
        _ => Some("pre: the unit was not run in this boot, or did not end".to_owned()),
    }
}

/// Returns the result that the units wrote in this boot.
pub(crate) fn read_result(facts: &HostFacts) -> Option<BootResult> {
    facts.files.get(BOOT_RESULT).map(|text| parse_result(text))
}

/// Parses the text of [`BOOT_RESULT`]. A text that cannot be read is a failure.
#[doc(hidden)] // public for tests/fuzz/main.rs
pub fn parse_result(text: &str) -> BootResult {
    let result = serde_saphyr::from_str(text);
    result.unwrap_or_else(|error| BootResult::failed(format!("{BOOT_RESULT} cannot be read: {error}")))
}

/// Configures the machine in one phase. Returns the failures in one line.
fn configure(host: &dyn Host, phase: BootPhase, config: &BootConfig, timeout: Duration) -> Option<String> {
    if phase == BootPhase::BeforeNetwork
        && let Err(error) = wait_for_cards(host, timeout, |facts| missing_cards(&config.spec, facts))
    {
        tracing::warn!(
            error = format_error_chain(&error),
            "cannot wait for missing cards: configuring those that exist"
        );
    }
    let planner = |facts: &HostFacts| plan_phase(phase, config, facts);
    let one_card_at_a_time = config.settings.one_card_at_a_time;
    let context =
        ApplyContext { host, node: "this machine", planner: &planner, one_card_at_a_time, listener: &|_| {} };
    let outcome = match survey(host, &planner) {
        Ok((facts, plan)) if plan.steps.is_empty() => ApplyOutcome::without_steps(facts, plan),
        Ok((facts, plan)) => apply_plan(&context, facts, plan),
        Err(error) => ApplyOutcome::unreadable(error),
    };
    tracing::info!(
        phase = phase_name(phase),
        steps = outcome.executed,
        failures = outcome.failures.len(),
        "boot phase done"
    );
    let failures: Vec<String> = outcome.failures.iter().map(ToString::to_string).collect();
    (!failures.is_empty()).then(|| failures.join("; "))
}

/// Waits until no card is missing, at most until `timeout`. The planner reports cards that are still missing.
pub fn wait_for_cards(
    host: &dyn Host,
    timeout: Duration,
    missing: impl Fn(&HostFacts) -> Vec<String>,
) -> Result<(), HostError> {
    let (sender, changes) = channel();
    let wake = move || {
        // The receiver is gone when no card is missing.
        let _ = sender.send(());
    };
    let _watch = host.on_change(Box::new(wake))?;
    let start = Instant::now();
    loop {
        let missing = missing(&host.facts()?);
        if missing.is_empty() {
            return Ok(());
        }
        let left = timeout.saturating_sub(start.elapsed());
        if changes.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(
                missing = missing.join(", "),
                ?timeout,
                "some cards did not appear: going on without them"
            );
            return Ok(());
        }
        // Several changes need one read.
        while changes.try_recv().is_ok() {}
    }
}

/// Returns the cards of the spec that have no interface.
fn missing_cards(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Vec<String> {
    let addresses = spec.interfaces.iter().flatten().filter_map(|entry| entry.pci_address.value().ok());
    addresses.filter(|address| !is_card_present(**address, facts)).map(ToString::to_string).collect()
}

/// Returns whether a card exists, with its interface unless it is a lone VF.
pub fn is_card_present(card: PciAddress, facts: &HostFacts) -> bool {
    facts.pf(card).is_some_and(|pf| pf.link.is_some() || pf.is_lone_vf)
}
