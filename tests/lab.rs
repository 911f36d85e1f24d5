//! Tests in the VM lab, on a real kernel with SR-IOV: the contract suite, with a table of its outcomes on both hosts,
//! and scenarios with the real programs. Both mostly wait for cards, so they run on two machines at the same time: the
//! suite on one, the scenarios one after the other on the other.

use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use vfleet_tests::contract::sim::SimTestBed;
use vfleet_tests::contract::suite::{defect_name, run_case};
use vfleet_tests::contract::{
    Case, CaseOutcome, CaseReport, Defect, all_cases, all_defects, defects_for_kernel, find_case,
    is_about_bridges,
};
use vfleet_tests::lab::kernel_suite::{KernelSuite, Selection};
use vfleet_tests::on_kernel::{Programs, SCENARIOS, Scenario};
use vfleet_tests::programs::{vfleet, vfleet_cni};

const CONTRACT: &str = env!("CARGO_BIN_EXE_contract");
/// Environment variable: if set, all defects run on the kernel, not only one of each kind.
const ALL_DEFECTS: &str = "ALL_DEFECTS";
/// Cases that take fewer seconds are not mentioned in the output.
const SLOW_SECONDS: f64 = 1.0;
const HOST_TESTS: &str = "host::its_tests_that_change_a_machine_hold";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One at a time: the scenarios share a machine, and the tests of the suite only wait for its reports.
    arguments.test_threads = Some(1);
    let run = Arc::new(SuiteRun::new(&arguments));
    if !arguments.list {
        run.start();
    }
    let seconds = Arc::new(ScenarioSeconds::default());
    let mut trials = scenario_trials(&seconds);
    trials.extend(suite_names().into_iter().map(|name| kernel_trial(&run, name)));
    trials.push(host_tests_trial(&run));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Err(error) = run.print_table() {
        eprintln!("could not print the table: {error}");
    }
    // tools/steps checks the budgets.
    eprintln!("{:.0} s of tests are about bridges", seconds.about("bridges::") + run.bridge_seconds());
    eprintln!("{:.0} s of tests are about cni", seconds.about("cni::"));
    conclusion.exit_code()
}

/// Seconds of the scenarios that have ended, by name.
#[derive(Default)]
struct ScenarioSeconds(Mutex<Vec<(&'static str, f64)>>);

impl ScenarioSeconds {
    fn note(&self, name: &'static str, seconds: f64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name, seconds));
    }

    /// Returns the sum of the scenarios whose names begin with `prefix`.
    fn about(&self, prefix: &str) -> f64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|(name, _)| name.starts_with(prefix)).fold(0.0, |sum, (_, seconds)| sum + seconds)
    }
}

/// Returns the trials of the scenarios, which run on `vfleet_tests::lab::machine()`. They note their seconds.
fn scenario_trials(all_seconds: &Arc<ScenarioSeconds>) -> Vec<Trial> {
    let trial = |scenario: &'static Scenario| {
        let all_seconds = Arc::clone(all_seconds);
        Trial::ignorable_test(scenario.name, move || {
            if let Some(reason) = fixture_lab::unavailable() {
                return skip(&reason);
            }
            let vm = vfleet_tests::lab::machine()?;
            let programs = Programs {
                vfleet: vfleet(),
                vfleet_cni: vfleet_cni(),
                crashing_agent: Path::new(env!("CARGO_BIN_EXE_crashing_agent")),
                crashing_cni: Path::new(env!("CARGO_BIN_EXE_crashing_cni")),
            };
            let start = Instant::now();
            tokio::runtime::Runtime::new()?.block_on(scenario.run(&vm, programs));
            let seconds = start.elapsed().as_secs_f64();
            all_seconds.note(scenario.name, seconds);
            eprintln!("{} took {seconds:.1} s", scenario.name);
            Ok(Completion::Completed)
        })
    };
    SCENARIOS.iter().map(trial).collect()
}

/// Returns the names of the cases and defects in the order in which `contract` runs them.
fn suite_names() -> Vec<String> {
    let cases = all_cases().map(|case| (case.setup, case.name.to_owned()));
    let is_selected = |defect: &&Defect| {
        env::var_os(ALL_DEFECTS).is_some()
            || defects_for_kernel().any(|selected| selected.name == defect.name)
    };
    let defects = all_defects().filter(is_selected).filter_map(|defect| {
        let case = defect.fastest_case()?;
        Some((case.setup, defect_name(defect)))
    });
    let mut names: Vec<_> = cases.chain(defects).collect();
    names.sort_by_key(|(setup, _)| *setup);
    names.into_iter().map(|(_, name)| name).collect()
}

fn kernel_trial(run: &Arc<SuiteRun>, name: String) -> Trial {
    let run = Arc::clone(run);
    Trial::ignorable_test(trial_name(&name), move || run.wait_for_case(&name))
}

fn host_tests_trial(run: &Arc<SuiteRun>) -> Trial {
    let run = Arc::clone(run);
    Trial::ignorable_test(HOST_TESTS, move || {
        if let Some(reason) = fixture_lab::unavailable() {
            return skip(&reason);
        }
        let output = run.suite().wait_for_host_tests().map_err(|error| format!("{error:?}"))?;
        eprint!("{output}");
        Ok(Completion::Completed)
    })
}

fn trial_name(name: &str) -> String {
    format!("kernel::{name}")
}

/// Run of the contract suite, with its reports so far.
struct SuiteRun {
    selection: Selection,
    suite: OnceLock<Arc<KernelSuite>>,
    reports: Mutex<Vec<CaseReport>>,
}

impl SuiteRun {
    fn new(arguments: &Arguments) -> Self {
        let is_selected = |name: String| {
            let trial = Trial::test(name, || Ok(()));
            !arguments.is_filtered_out(&trial)
        };
        let cases = suite_names().into_iter().filter(|name| is_selected(trial_name(name))).collect();
        let selection = Selection { cases, host_tests: is_selected(HOST_TESTS.to_owned()) };
        Self { selection, suite: OnceLock::new(), reports: Mutex::default() }
    }

    /// Starts the selected part of the suite, if it is not empty and a machine can run here.
    fn start(&self) {
        if (self.selection.host_tests || !self.selection.cases.is_empty())
            && fixture_lab::unavailable().is_none()
        {
            self.suite();
        }
    }

    fn suite(&self) -> &KernelSuite {
        self.suite.get_or_init(|| KernelSuite::start(CONTRACT.into(), self.selection.clone()))
    }

    fn wait_for_case(&self, name: &str) -> Result<Completion, Failed> {
        if let Some(reason) = fixture_lab::unavailable() {
            return skip(&reason);
        }
        let report = self.suite().wait_for(name).map_err(|error| format!("{error:?}"))?;
        let outcome = report.outcome.clone();
        if report.seconds > SLOW_SECONDS {
            eprintln!("{} took {:.1} s", trial_name(name), report.seconds);
        }
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
        match outcome {
            CaseOutcome::Ok => Ok(Completion::Completed),
            CaseOutcome::Failed(error) => Err(error.into()),
            CaseOutcome::Unsupported(reason) => {
                Ok(Completion::ignored_with(format!("unsupported: {reason}")))
            }
        }
    }

    /// Returns the seconds of all cases about bridges so far.
    fn bridge_seconds(&self) -> f64 {
        let is_about_bridges = |report: &&CaseReport| {
            let defect = all_defects().find(|defect| defect_name(defect) == report.name);
            let case = defect.and_then(Defect::fastest_case);
            is_about_bridges(case.map_or(&report.name, |case| case.name))
        };
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.iter().filter(is_about_bridges).map(|report| report.seconds).sum()
    }

    fn print_table(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.is_empty() {
            return Ok(());
        }
        writeln!(out, "{:64} | {:11} | kernel", "case", "sim")?;
        for report in reports.iter() {
            let sim = find_case(&report.name).map_or("-", run_on_sim);
            let kernel = outcome_name(&report.outcome);
            writeln!(out, "{:64} | {sim:11} | {kernel:11} {:6.2} s", report.name, report.seconds)?;
        }
        let seconds: f64 = reports.iter().map(|report| report.seconds).sum();
        writeln!(out, "{} cases on the kernel in {seconds:.0} s", reports.len())
    }
}

/// Skips a test, or fails it if the environment variable `CI` is `true`.
fn skip(reason: &str) -> Result<Completion, Failed> {
    if env::var_os("CI").is_some_and(|ci| ci == "true") {
        return Err(format!("the VM lab cannot run here: {reason}").into());
    }
    Ok(Completion::ignored_with(format!("the VM lab cannot run here: {reason}")))
}

fn run_on_sim(case: &Case) -> &'static str {
    SimTestBed::new(case.setup).map_or("FAILED", |testbed| outcome_name(&run_case(case, &testbed)))
}

fn outcome_name(outcome: &CaseOutcome) -> &'static str {
    match outcome {
        CaseOutcome::Ok => "ok",
        CaseOutcome::Failed(_) => "FAILED",
        CaseOutcome::Unsupported(_) => "unsupported",
    }
}
