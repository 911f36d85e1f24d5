//! The contract suite on `SimHost`, and that it notices every broken host.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use vfleet_tests::contract::sim::SimBench;
use vfleet_tests::contract::suite::{catch, run_case};
use vfleet_tests::contract::{Case, Defect, Ending, all_cases, all_defects, find_case};

fn main() -> ExitCode {
    let cases = all_cases()
        .map(|case| Trial::ignorable_test(format!("sim::{}", case.name), || conclude(try_case(case))));
    let defects = all_defects()
        .map(|defect| Trial::ignorable_test(format!("sim::defect::{}", defect.name), move || notice(defect)));
    let trials = cases.chain(defects).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn try_case(case: &Case) -> Ending {
    match SimBench::new(case.given) {
        Ok(bench) => run_case(case, &bench),
        Err(error) => Ending::Failed(error.to_string()),
    }
}

/// By the case that is named for it.
fn notice(defect: &'static Defect) -> Result<Completion, Failed> {
    let case = find_case(defect.caught_by).ok_or("its catcher is no case")?;
    conclude(catch(defect, case, &SimBench::new(case.given)?))
}

fn conclude(ending: Ending) -> Result<Completion, Failed> {
    match ending {
        Ending::Ok => Ok(Completion::Completed),
        Ending::Failed(what) => Err(what.into()),
        Ending::CannotShow(why) => Ok(Completion::ignored_with(why)),
    }
}
