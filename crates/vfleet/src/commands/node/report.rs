//! What a command tells: for programs as it is, for people as tables.

use serde::Serialize;
use vfleet_agent::apply::Outcome;
use vfleet_plan::admission::{Finding, Severity};
use vfleet_plan::{HostFacts, Plan};

use super::exit::Exit;

pub(super) use card::{Card, Vf};

mod card;

/// All that a command tells.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// How the command ends.
    pub(super) exit: Exit,
    /// What one should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    /// What each policy is told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) policies: Vec<PolicyLine>,
    /// What a cluster's admission would say of each policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) findings: Vec<FindingLine>,
    /// What is to be done, or was to be.
    pub(super) steps: Vec<StepLine>,
    /// How much the steps disturb.
    pub(super) disruption: &'static str,
    /// What cannot be, or went wrong.
    pub(super) problems: Vec<ProblemLine>,
    /// Why nothing was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
    /// How many steps were executed; absent when none should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) executed: Option<usize>,
    /// The machine is about to restart.
    pub(super) restarts: bool,
    /// The cards: before, or afterwards when something was done.
    pub(super) cards: Vec<Card>,
}

/// What a policy is told.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyLine {
    pub(super) policy: String,
    /// The card that it is about; absent for the whole machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pf: Option<String>,
    verdict: Verdict,
    pub(super) says: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Verdict {
    Selected,
    NotSelected,
    AtFault,
}

impl PolicyLine {
    fn new(policy: &str, pf: Option<String>, verdict: Verdict, says: String) -> Self {
        Self { policy: policy.to_owned(), pf, verdict, says }
    }

    pub(super) fn selected(policy: &str, pf: Option<String>, says: String) -> Self {
        Self::new(policy, pf, Verdict::Selected, says)
    }

    pub(super) fn not_selected(policy: &str, pf: Option<String>, says: String) -> Self {
        Self::new(policy, pf, Verdict::NotSelected, says)
    }

    pub(super) fn at_fault(policy: &str, pf: Option<String>, says: String) -> Self {
        Self::new(policy, pf, Verdict::AtFault, says)
    }

    /// Whether the policy selects something, or says that it does and cannot be followed.
    pub(super) fn is_selecting(&self) -> bool {
        self.verdict != Verdict::NotSelected
    }

    /// Whether the policy cannot be followed.
    pub(super) fn is_at_fault(&self) -> bool {
        self.verdict == Verdict::AtFault
    }
}

/// What a cluster's admission would say of a policy.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FindingLine {
    pub(super) policy: String,
    /// Whether the policy would be refused for it.
    pub(super) refused: bool,
    /// The field that is to be changed; empty for all of it.
    pub(super) field: String,
    pub(super) says: String,
}

impl FindingLine {
    pub(super) fn new(policy: &str, finding: &Finding) -> Self {
        Self {
            policy: policy.to_owned(),
            refused: finding.severity == Severity::Error,
            field: finding.field.clone(),
            says: finding.message.clone(),
        }
    }
}

/// A step.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StepLine {
    pub(super) step: String,
    pub(super) why: String,
    pub(super) disruption: &'static str,
}

/// Something that cannot be, or went wrong.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProblemLine {
    pub(super) reason: &'static str,
    pub(super) says: String,
}

impl Report {
    /// Of a machine, and of what is to be done on it.
    pub(super) fn new(facts: &HostFacts, plan: &Plan) -> Self {
        let step = |planned: &vfleet_plan::PlannedStep| StepLine {
            step: planned.step.to_string(),
            why: planned.why.clone(),
            disruption: planned.disruption.as_str(),
        };
        let problem = |problem: &vfleet_plan::Problem| ProblemLine {
            reason: problem.cause.reason(),
            says: problem.to_string(),
        };
        let problems: Vec<_> = plan.problems.iter().map(problem).collect();
        Self {
            exit: if problems.is_empty() { Exit::Done } else { Exit::Failed },
            notes: Vec::new(),
            policies: Vec::new(),
            findings: Vec::new(),
            steps: plan.steps.iter().map(step).collect(),
            disruption: plan.disruption().as_str(),
            problems,
            refused: None,
            executed: None,
            restarts: false,
            cards: card::cards(facts),
        }
    }

    /// With what policies are told.
    pub(super) fn with_policies(
        mut self,
        policies: Vec<PolicyLine>,
        findings: Vec<FindingLine>,
        notes: Vec<String>,
    ) -> Self {
        (self.policies, self.findings, self.notes) = (policies, findings, notes);
        self.exit = self.verdict();
        self
    }

    /// Nothing was done.
    pub(super) fn refused(self, why: String) -> Self {
        Self { exit: Exit::Refused, refused: Some(why), ..self }
    }

    /// The steps were executed, and this came of it.
    pub(super) fn ended(mut self, outcome: &Outcome) -> Self {
        let failures = outcome.failures.iter();
        self.problems = failures
            .map(|failure| ProblemLine { reason: failure.reason(), says: failure.to_string() })
            .collect();
        self.executed = Some(outcome.executed);
        self.restarts = outcome.reboots;
        if let Some(facts) = &outcome.facts {
            self.cards = card::cards(facts);
        }
        self.exit = if self.restarts { Exit::Restarting } else { self.verdict() };
        self
    }

    fn verdict(&self) -> Exit {
        let is_fine = self.problems.is_empty() && !self.policies.iter().any(PolicyLine::is_at_fault);
        if is_fine { Exit::Done } else { Exit::Failed }
    }
}
