//! Contract suite on `SimHost`, with all broken hosts.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use vfleet_tests::contract::sim::SimTestBed;
use vfleet_tests::contract::suite::{detect_defect, run_case};
use vfleet_tests::contract::{Case, CaseOutcome, Defect, all_cases, all_defects, find_case};

fn main() -> ExitCode {
    let cases = all_cases()
        .map(|case| Trial::ignorable_test(format!("sim::{}", case.name), || to_completion(run_on_sim(case))));
    let defects = all_defects().map(|defect| {
        Trial::ignorable_test(format!("sim::defect::{}", defect.name), move || detect_on_sim(defect))
    });
    let trials = cases.chain(defects).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn run_on_sim(case: &Case) -> CaseOutcome {
    match SimTestBed::new(case.setup) {
        Ok(testbed) => run_case(case, &testbed),
        Err(error) => CaseOutcome::Failed(error.to_string()),
    }
}

/// Detects a defect with the case that is named for it.
fn detect_on_sim(defect: &'static Defect) -> Result<Completion, Failed> {
    let case = find_case(defect.detected_by).ok_or("the case that detects the defect does not exist")?;
    to_completion(detect_defect(defect, case, &SimTestBed::new(case.setup)?))
}

fn to_completion(outcome: CaseOutcome) -> Result<Completion, Failed> {
    match outcome {
        CaseOutcome::Ok => Ok(Completion::Completed),
        CaseOutcome::Failed(error) => Err(error.into()),
        CaseOutcome::Unsupported(reason) => Ok(Completion::ignored_with(reason)),
    }
}
