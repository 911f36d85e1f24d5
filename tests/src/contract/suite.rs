//! Runner of contract cases.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::broken::{BrokenTestBed, Defect};
use super::cases::Case;
use super::coverage::check_against_gaps;
use super::testbed::{CaseError, TestBed};

/// Outcome of a case. The program `contract` prints it as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CaseOutcome {
    Ok,
    Failed(String),
    #[serde(rename = "cannotShow")]
    Unsupported(String),
}

/// Report of a case that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseReport {
    /// Name of the case, or `defect::` and the name of the defect.
    pub name: String,
    #[serde(rename = "ending")]
    pub outcome: CaseOutcome,
    pub seconds: f64,
}

impl CaseReport {
    pub fn new(name: String, outcome: CaseOutcome, duration: Duration) -> Self {
        Self { name, outcome, seconds: duration.as_secs_f64() }
    }
}

/// Returns the name under which a defect is reported.
pub fn defect_name(defect: &Defect) -> String {
    format!("defect::{}", defect.name)
}

/// Runs one case and checks its outcome against the table of gaps.
pub fn run_case(case: &Case, testbed: &dyn TestBed) -> CaseOutcome {
    check_against_gaps(case.name, testbed.environment(), run_unchecked(case, testbed))
}

fn run_unchecked(case: &Case, testbed: &dyn TestBed) -> CaseOutcome {
    let run = AssertUnwindSafe(|| (case.run)(testbed));
    match catch_unwind(run) {
        Ok(Ok(())) => CaseOutcome::Ok,
        Ok(Err(CaseError::Failed(error))) => CaseOutcome::Failed(error),
        Ok(Err(CaseError::Unsupported(reason))) => CaseOutcome::Unsupported(reason),
        Err(_) => CaseOutcome::Failed("the case panicked".to_owned()),
    }
}

/// Runs `case` on a host with a defect. The outcome is `Ok` if the case detects the defect.
pub fn detect_defect(defect: &'static Defect, case: &Case, testbed: &dyn TestBed) -> CaseOutcome {
    match run_unchecked(case, &BrokenTestBed::new(testbed, defect)) {
        CaseOutcome::Failed(_) => CaseOutcome::Ok,
        CaseOutcome::Ok => {
            CaseOutcome::Failed(format!("{} does not detect the defect {}", case.name, defect.name))
        }
        unsupported @ CaseOutcome::Unsupported(_) => {
            check_against_gaps(case.name, testbed.environment(), unsupported)
        }
    }
}
