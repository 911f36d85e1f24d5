//! From a node state to a changed machine: facts, plan, execute, facts again. Blocking, and free of the API.

use std::collections::BTreeSet;

use thiserror::Error;
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};
use vfleet_host::{Host, HostError};
use vfleet_plan::{HostFacts, Plan, Problem, plan_node};

/// What came of an attempt.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The machine afterwards; `None` when it could not be read.
    pub(crate) facts: Option<HostFacts>,
    /// How many steps were executed.
    pub(crate) executed: usize,
    /// What went wrong.
    pub(crate) failures: Vec<Failure>,
}

impl Outcome {
    /// The machine cannot be read.
    pub(crate) fn unreadable(error: HostError) -> Self {
        Self { facts: None, executed: 0, failures: vec![Failure::Unreadable(error)] }
    }

    /// The machine is as wanted, except what cannot be.
    pub(crate) fn without_steps(facts: HostFacts, plan: Plan) -> Self {
        let failures = plan.problems.into_iter().map(Failure::Impossible).collect();
        Self { facts: Some(facts), executed: 0, failures }
    }
}

/// Something that keeps the node from being as wanted.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// It cannot be. No use in trying again before the machine or the wish changes.
    #[error("{0}")]
    Impossible(Problem),
    /// A step failed.
    #[error("cannot {step}: {}", chain(.source))]
    Step { pf: Option<PciAddress>, step: String, source: HostError },
    /// The machine cannot be read.
    #[error("cannot read the machine: {}", chain(.0))]
    Unreadable(HostError),
    /// All steps were executed, and still something is not as wanted.
    #[error("still to do after all steps were executed: {step}")]
    StillToDo { pf: Option<PciAddress>, step: String },
}

/// An error with all its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

impl Failure {
    /// In one word, for conditions and events.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Impossible(problem) => problem.cause.reason(),
            Self::Step { source, .. } | Self::Unreadable(source) => source.reason(),
            Self::StillToDo { .. } => "NotVerified",
        }
    }

    /// The PF that it is about; `None` for the whole node.
    pub(crate) fn pf(&self) -> Option<PciAddress> {
        match self {
            Self::Impossible(problem) => problem.pf,
            Self::Step { pf, .. } | Self::StillToDo { pf, .. } => *pf,
            Self::Unreadable(_) => None,
        }
    }

    /// Whether trying again can help although nothing changed.
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        !matches!(self, Self::Impossible(_))
    }
}

/// The machine as it is, and what is to be done on it.
pub(crate) fn survey(
    host: &dyn Host,
    spec: &SriovNetworkNodeStateSpec,
) -> Result<(HostFacts, Plan), HostError> {
    let facts = host.facts()?;
    let plan = plan_node(spec, &facts);
    Ok((facts, plan))
}

/// Executes `plan` and looks at the machine again. A step that fails ends the work on its PF; other PFs go on.
pub(crate) fn carry_out(host: &dyn Host, spec: &SriovNetworkNodeStateSpec, plan: &Plan) -> Outcome {
    let (executed, given_up, mut failures) = execute(host, plan);
    match survey(host, spec) {
        Ok((facts, left)) => {
            let unexplained = left.steps.iter().filter(|planned| !given_up.contains(&planned.step.pf()));
            let still_to_do = unexplained
                .map(|planned| Failure::StillToDo { pf: planned.step.pf(), step: planned.to_string() });
            failures.extend(still_to_do);
            failures.extend(left.problems.into_iter().map(Failure::Impossible));
            Outcome { facts: Some(facts), executed, failures }
        }
        Err(error) => {
            failures.push(Failure::Unreadable(error));
            Outcome { facts: None, executed, failures }
        }
    }
}

/// Executes the steps; gives how many were, the PFs that were given up, and why.
fn execute(host: &dyn Host, plan: &Plan) -> (usize, BTreeSet<Option<PciAddress>>, Vec<Failure>) {
    let mut executed = 0;
    let mut given_up = BTreeSet::new();
    let mut failures = Vec::new();
    for planned in &plan.steps {
        let pf = planned.step.pf();
        if given_up.contains(&pf) {
            continue;
        }
        tracing::info!(step = %planned.step, why = planned.why, "executing");
        match host.execute(&planned.step) {
            Ok(()) => executed += 1,
            Err(source) => {
                given_up.insert(pf);
                failures.push(Failure::Step { pf, step: planned.step.to_string(), source });
            }
        }
    }
    (executed, given_up, failures)
}
