//! Report of a command: printed as JSON or as tables.

use serde::Serialize;
use vfleet_agent::apply::ApplyOutcome;
use vfleet_plan::admission::{Finding, Severity};
use vfleet_plan::{Disruption, HostFacts, Plan};

use super::exit::ExitStatus;

pub(super) use card::{Card, Vf};

mod card;

/// Report of a command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Exit status of the command.
    pub(super) exit: ExitStatus,
    /// Notes for the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    /// Result of each policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) policies: Vec<PolicyLine>,
    /// Findings of a cluster's admission for each policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) findings: Vec<FindingLine>,
    /// Planned steps.
    pub(super) steps: Vec<StepLine>,
    /// Worst disruption of the steps.
    pub(super) disruption: Disruption,
    /// Problems and failures.
    pub(super) problems: Vec<ProblemLine>,
    /// Reason why no step was executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
    /// Number of executed steps; absent if none was to be executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) executed: Option<usize>,
    /// The machine is about to reboot.
    #[serde(rename = "restarts")]
    pub(super) reboots: bool,
    /// Cards, after the last executed step.
    pub(super) cards: Vec<Card>,
}

/// Result of a policy, for one PF or for the whole machine.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyLine {
    pub(super) policy: String,
    /// PF; absent for the whole machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pf: Option<String>,
    verdict: PolicyVerdict,
    #[serde(rename = "says")]
    pub(super) message: String,
}

/// Result of a policy on a PF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum PolicyVerdict {
    Selected,
    NotSelected,
    AtFault,
}

impl PolicyLine {
    fn new(policy: &str, pf: Option<String>, verdict: PolicyVerdict, message: String) -> Self {
        Self { policy: policy.to_owned(), pf, verdict, message }
    }

    pub(super) fn selected(policy: &str, pf: Option<String>, message: String) -> Self {
        Self::new(policy, pf, PolicyVerdict::Selected, message)
    }

    pub(super) fn not_selected(policy: &str, pf: Option<String>, message: String) -> Self {
        Self::new(policy, pf, PolicyVerdict::NotSelected, message)
    }

    pub(super) fn at_fault(policy: &str, pf: Option<String>, message: String) -> Self {
        Self::new(policy, pf, PolicyVerdict::AtFault, message)
    }

    /// Returns whether the policy selects a PF, also if it cannot be followed.
    pub(super) fn is_selecting(&self) -> bool {
        self.verdict != PolicyVerdict::NotSelected
    }

    /// Returns whether the policy cannot be followed.
    pub(super) fn is_at_fault(&self) -> bool {
        self.verdict == PolicyVerdict::AtFault
    }
}

/// Finding of a cluster's admission for a policy.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FindingLine {
    pub(super) policy: String,
    /// The policy would be refused.
    pub(super) refused: bool,
    /// Field to change; empty for the whole object.
    pub(super) field: String,
    #[serde(rename = "says")]
    pub(super) message: String,
}

impl FindingLine {
    pub(super) fn new(policy: &str, finding: &Finding) -> Self {
        Self {
            policy: policy.to_owned(),
            refused: finding.severity == Severity::Error,
            field: finding.field.clone(),
            message: finding.message.clone(),
        }
    }
}

/// Planned step.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StepLine {
    pub(super) step: String,
    pub(super) why: String,
    pub(super) disruption: Disruption,
}

/// Problem or failure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProblemLine {
    pub(super) reason: &'static str,
    #[serde(rename = "says")]
    pub(super) message: String,
}

impl Report {
    /// Returns the report of a machine and its plan.
    pub(super) fn new(facts: &HostFacts, plan: &Plan) -> Self {
        let step = |planned: &vfleet_plan::PlannedStep| StepLine {
            step: planned.step.to_string(),
            why: planned.why.clone(),
            disruption: planned.disruption,
        };
        let problem = |problem: &vfleet_plan::Problem| ProblemLine {
            reason: problem.cause.reason(),
            message: problem.to_string(),
        };
        let problems: Vec<_> = plan.problems.iter().map(problem).collect();
        Self {
            exit: if problems.is_empty() { ExitStatus::Done } else { ExitStatus::Failed },
            notes: facts.unread_attachments.iter().map(ToString::to_string).collect(),
            policies: Vec::new(),
            findings: Vec::new(),
            steps: plan.steps.iter().map(step).collect(),
            disruption: plan.disruption(),
            problems,
            refused: None,
            executed: None,
            reboots: false,
            cards: card::cards(facts),
        }
    }

    /// Adds the results of policies.
    pub(super) fn with_policies(
        mut self,
        policies: Vec<PolicyLine>,
        findings: Vec<FindingLine>,
        notes: Vec<String>,
    ) -> Self {
        (self.policies, self.findings) = (policies, findings);
        self.notes.extend(notes);
        self.exit = self.exit_status();
        self
    }

    /// Adds the reason why no step was executed.
    pub(super) fn with_refusal(self, reason: String) -> Self {
        Self { exit: ExitStatus::Refused, refused: Some(reason), ..self }
    }

    /// Adds the outcome of the executed steps.
    pub(super) fn with_outcome(mut self, outcome: &ApplyOutcome) -> Self {
        let failures = outcome.failures.iter();
        self.problems = failures
            .map(|failure| ProblemLine { reason: failure.reason(), message: failure.to_string() })
            .collect();
        self.executed = Some(outcome.executed);
        self.reboots = outcome.reboots;
        if let Some(facts) = &outcome.facts {
            self.cards = card::cards(facts);
        }
        self.exit = if self.reboots { ExitStatus::Rebooting } else { self.exit_status() };
        self
    }

    fn exit_status(&self) -> ExitStatus {
        let is_fine = self.problems.is_empty() && !self.policies.iter().any(PolicyLine::is_at_fault);
        if is_fine { ExitStatus::Done } else { ExitStatus::Failed }
    }
}
