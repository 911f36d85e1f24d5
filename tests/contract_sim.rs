//! Contract suite on `SimHost`, with all broken hosts.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use vfleet_tests::contract::sim::SimTestBed;
use vfleet_tests::contract::suite::{detect_defect, run_case};
use vfleet_tests::contract::{Case, CaseOutcome, Defect, all_cases, all_defects, find_case};

fn main() -> ExitCode {
    let cases = all_cases()
        .map(|case| Trial::ignorable_test(format!("sim::{}", case.name), || to_completion(run_on_sim(case))));
    let detections =
        all_defects().flat_map(|defect| defect.detected_by.iter().map(move |case| (defect, *case)));
    let defects = detections.map(|(defect, case)| {
        let name = format!("sim::defect::{}::{case}", defect.name);
        Trial::ignorable_test(name, move || detect_on_sim(defect, case))
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

/// Detects a defect with a case.
fn detect_on_sim(defect: &'static Defect, case: &str) -> Result<Completion, Failed> {
    let case = find_case(case).ok_or("the case that detects the defect does not exist")?;
    to_completion(detect_defect(defect, case, &SimTestBed::new(case.setup)?))
}

fn to_completion(outcome: CaseOutcome) -> Result<Completion, Failed> {
    match outcome {
        CaseOutcome::Ok => Ok(Completion::Completed),
        CaseOutcome::Failed(error) => Err(error.into()),
        CaseOutcome::Unsupported(reason) => Ok(Completion::ignored_with(reason)),
    }
}
