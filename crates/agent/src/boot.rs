//! What the units of systemd mode do at boot: the same plans and the same executor, with files instead of a cluster.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use thiserror::Error;
use vfleet_api::node_state::IN_PROGRESS;
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};
use vfleet_host::{Host, HostError, with_causes};
use vfleet_plan::boot::read_config;
use vfleet_plan::files::{BOOT_CONFIG, BOOT_RESULT};
use vfleet_plan::{BootConfig, BootPhase, BootResult, HostFacts, NodeSettings, Step, plan_phase};

use crate::apply::{Outcome, Work, carry_out, survey};

#[cfg(test)]
mod tests;

/// How long cards may take to appear: drivers are loaded while the machine boots.
const CARDS_DEADLINE: Duration = Duration::from_mins(1);

/// Why a phase did not lead to what is wanted. All of it is in the result, too, unless that cannot be written.
#[derive(Debug, Error)]
pub enum BootError {
    /// Something is not as wanted: the text of the result.
    #[error("{0}")]
    NotAsWanted(String),
    /// The machine cannot be read.
    #[error("cannot read the machine")]
    Unreadable(#[source] HostError),
    /// The result cannot be written.
    #[error("cannot write down what came of it")]
    Result(#[source] HostError),
}

/// What the config says about how to look at the machine. The usual, where it cannot be read: [`run`] says so.
pub fn settings(host: &dyn Host, phase: BootPhase) -> Result<NodeSettings, BootError> {
    let facts = look(host, phase)?;
    let config = facts.files.get(BOOT_CONFIG).and_then(|config| parse(config).ok());
    Ok(config.map(|config| config.settings).unwrap_or_default())
}

/// Does the work of one phase, and leaves the result in a file. Without a config there is nothing to do.
pub fn run(host: &dyn Host, phase: BootPhase) -> Result<(), BootError> {
    run_within(host, phase, CARDS_DEADLINE)
}

fn run_within(host: &dyn Host, phase: BootPhase, patience: Duration) -> Result<(), BootError> {
    let facts = look(host, phase)?;
    let Some(config) = facts.files.get(BOOT_CONFIG) else {
        tracing::info!("there is no {BOOT_CONFIG}: nothing to do");
        return Ok(());
    };
    let mut errors = Vec::new();
    match phase {
        // What an earlier boot left is no result of this one.
        BootPhase::BeforeNetwork => {
            let step = Step::RemoveFile { pf: None, path: BOOT_RESULT.to_owned() };
            host.execute(&step).map_err(BootError::Result)?;
        }
        BootPhase::AfterNetwork => errors.extend(why_unprepared(&facts)),
    }
    let name = name(phase);
    match parse(config) {
        Ok(config) => {
            errors.extend(configure(host, phase, &config, patience).map(|text| format!("{name}: {text}")));
        }
        Err(error) => errors.push(format!("{name}: {error}")),
    }
    leave_result(host, phase, &errors)
}

/// Leaves it as the result that the phase was not begun, and why.
pub fn refuse(host: &dyn Host, phase: BootPhase, why: &str) -> Result<(), BootError> {
    leave_result(host, phase, &[format!("{}: {why}", name(phase))])
}

/// The machine as it is. One that cannot be read is as good as one that failed, whatever an earlier boot left.
fn look(host: &dyn Host, phase: BootPhase) -> Result<HostFacts, BootError> {
    let unreadable = |error| -> Result<HostFacts, BootError> {
        let error = BootError::Unreadable(error);
        let result = BootResult::failed(format!("{}: {}", name(phase), with_causes(&error)));
        host.execute(&Step::WriteFile { pf: None, file: result.file() }).map_err(BootError::Result)?;
        Err(error)
    };
    host.facts().or_else(unreadable)
}

fn leave_result(host: &dyn Host, phase: BootPhase, errors: &[String]) -> Result<(), BootError> {
    let text = errors.join("; ");
    let result = match phase {
        _ if !errors.is_empty() => BootResult::failed(&text),
        BootPhase::BeforeNetwork => BootResult::in_progress(),
        BootPhase::AfterNetwork => BootResult::succeeded(),
    };
    host.execute(&Step::WriteFile { pf: None, file: result.file() }).map_err(BootError::Result)?;
    if errors.is_empty() { Ok(()) } else { Err(BootError::NotAsWanted(text)) }
}

/// As the command line and the result spell it.
const fn name(phase: BootPhase) -> &'static str {
    match phase {
        BootPhase::BeforeNetwork => "pre",
        BootPhase::AfterNetwork => "post",
    }
}

/// Parses the text of [`BOOT_CONFIG`].
#[doc(hidden)] // public for tests/fuzz/main.rs
pub fn parse(config: &str) -> Result<BootConfig, String> {
    let refused =
        |error: &dyn std::error::Error| format!("{BOOT_CONFIG} cannot be read: {}", with_causes(error));
    let config: serde_json::Value = serde_saphyr::from_str(config).map_err(|error| refused(&error))?;
    read_config(config).map_err(|error| refused(&error))
}

/// What the first phase did not do. The second one goes on all the same, since one card at fault is no reason to leave
/// the others unfinished; but it does not speak of success.
fn why_unprepared(facts: &HostFacts) -> Option<String> {
    match known_result(facts) {
        Some(result) if result.sync_status == IN_PROGRESS => None,
        Some(result) if !result.last_sync_error.is_empty() => Some(result.last_sync_error),
        _ => Some("pre: it was not run in this boot, or did not end".to_owned()),
    }
}

/// What the units left, when they left something.
pub(crate) fn known_result(facts: &HostFacts) -> Option<BootResult> {
    facts.files.get(BOOT_RESULT).map(|text| parse_result(text))
}

/// Parses the text of [`BOOT_RESULT`]. A text that cannot be read is a failure.
#[doc(hidden)] // public for tests/fuzz/main.rs
pub fn parse_result(text: &str) -> BootResult {
    let result = serde_saphyr::from_str(text);
    result.unwrap_or_else(|error| BootResult::failed(format!("{BOOT_RESULT} cannot be read: {error}")))
}

/// Makes the machine what is wanted in this phase; gives what is not.
fn configure(host: &dyn Host, phase: BootPhase, config: &BootConfig, patience: Duration) -> Option<String> {
    if phase == BootPhase::BeforeNetwork
        && let Err(error) = wait_for_cards(host, patience, |facts| missing(&config.spec, facts))
    {
        tracing::warn!(
            error = with_causes(&error),
            "cannot wait for cards; going on with those that are there"
        );
    }
    let planner = |facts: &HostFacts| plan_phase(phase, config, facts);
    let one_card_at_a_time = config.settings.one_card_at_a_time;
    let work = Work { host, node: "this machine", planner: &planner, one_card_at_a_time, listener: &|_| {} };
    let outcome = match survey(host, &planner) {
        Ok((facts, plan)) if plan.steps.is_empty() => Outcome::without_steps(facts, plan),
        Ok((facts, plan)) => carry_out(&work, facts, plan),
        Err(error) => Outcome::unreadable(error),
    };
    tracing::info!(phase = name(phase), steps = outcome.executed, failures = outcome.failures.len(), "done");
    let failures: Vec<String> = outcome.failures.iter().map(ToString::to_string).collect();
    (!failures.is_empty()).then(|| failures.join("; "))
}

/// Waits until nothing is missing any more, for a while. Who is late is missed by the planner, not here.
pub fn wait_for_cards(
    host: &dyn Host,
    patience: Duration,
    missing: impl Fn(&HostFacts) -> Vec<String>,
) -> Result<(), HostError> {
    let (sender, changes) = channel();
    let wake = move || {
        // Nobody listens any more when all are there.
        let _ = sender.send(());
    };
    let _watch = host.on_change(Box::new(wake))?;
    let begin = Instant::now();
    loop {
        let missing = missing(&host.facts()?);
        if missing.is_empty() {
            return Ok(());
        }
        let left = patience.saturating_sub(begin.elapsed());
        if changes.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(
                missing = missing.join(", "),
                ?patience,
                "not all cards are there; going on without"
            );
            return Ok(());
        }
        // Many changes are one.
        while changes.try_recv().is_ok() {}
    }
}

/// Wanted cards that have no interface.
fn missing(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Vec<String> {
    let addresses = spec.interfaces.iter().flatten().filter_map(|wanted| wanted.pci_address.value().ok());
    addresses.filter(|address| !is_there(**address, facts)).map(ToString::to_string).collect()
}

/// Whether a card has its interface, if it is to have one.
pub fn is_there(card: PciAddress, facts: &HostFacts) -> bool {
    facts.pf(card).is_some_and(|pf| pf.link.is_some() || pf.is_lone_vf)
}
