//! The contract suite on a real kernel with real SR-IOV semantics, in the VM lab, and a table of what both hosts
//! showed; and stories of the real programs there. Much of both is waiting for cards, so there are two machines: the
//! suite runs on its own, while the stories are told one after the other on another.

use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use vfleet_tests::contract::sim::SimBench;
use vfleet_tests::contract::suite::{defect_name, run_case};
use vfleet_tests::contract::{
    Case, Defect, Ending, Report, all_cases, all_defects, defects_for_kernel, find_case,
};
use vfleet_tests::lab::kernel_suite::{KernelSuite, Selection};
use vfleet_tests::on_kernel::{Programs, TRIALS};
use vfleet_tests::programs::vfleet;

const CONTRACT: &str = env!("CARGO_BIN_EXE_contract");
/// The variable that has all defects tried on the kernel, and not only one of each kind.
const ALL_DEFECTS: &str = "ALL_DEFECTS";
/// Seconds of a case.
const NOT_WORTH_TELLING: f64 = 1.0;
const HOST_TESTS: &str = "host::its_tests_that_change_a_machine_hold";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One after the other: the stories share a machine, and the suite's reports are only waited for.
    arguments.test_threads = Some(1);
    let run = Arc::new(Run::new(&arguments));
    if !arguments.list {
        run.begin();
    }
    let mut trials = stories();
    trials.extend(suite_names().into_iter().map(|name| kernel_trial(&run, name)));
    trials.push(host_tests_trial(&run));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Err(error) = run.print_table() {
        eprintln!("the table could not be printed: {error}");
    }
    conclusion.exit_code()
}

/// What is told on `vfleet_tests::lab::machine()`, while the suite runs on its own.
fn stories() -> Vec<Trial> {
    let trial = |told: &'static vfleet_tests::on_kernel::Trial| {
        Trial::ignorable_test(told.name, || {
            if let Some(reason) = fixture_lab::unavailable() {
                return left_out(&reason);
            }
            let vm = vfleet_tests::lab::machine()?;
            let mortal_agent = Path::new(env!("CARGO_BIN_EXE_mortal_agent"));
            let programs = Programs { vfleet: vfleet(), mortal_agent };
            let start = Instant::now();
            tokio::runtime::Runtime::new()?.block_on(told.run(&vm, programs));
            eprintln!("{} took {:.1} s", told.name, start.elapsed().as_secs_f64());
            Ok(Completion::Completed)
        })
    };
    TRIALS.iter().map(trial).collect()
}

/// In the order in which `contract` tries them, so that each is waited for when it is its turn.
fn suite_names() -> Vec<String> {
    let cases = all_cases().map(|case| (case.given, case.name.to_owned()));
    let is_tried = |defect: &&Defect| {
        env::var_os(ALL_DEFECTS).is_some() || defects_for_kernel().any(|chosen| chosen.name == defect.name)
    };
    let defects = all_defects().filter(is_tried).filter_map(|defect| {
        let case = find_case(defect.caught_by)?;
        Some((case.given, defect_name(defect)))
    });
    let mut names: Vec<_> = cases.chain(defects).collect();
    names.sort_by_key(|(given, _)| *given);
    names.into_iter().map(|(_, name)| name).collect()
}

fn kernel_trial(run: &Arc<Run>, name: String) -> Trial {
    let run = Arc::clone(run);
    Trial::ignorable_test(trial_name(&name), move || run.conclude(&name))
}

fn host_tests_trial(run: &Arc<Run>) -> Trial {
    let run = Arc::clone(run);
    Trial::ignorable_test(HOST_TESTS, move || {
        if let Some(reason) = fixture_lab::unavailable() {
            return left_out(&reason);
        }
        let output = run.suite().wait_for_host_tests().map_err(|error| format!("{error:?}"))?;
        eprint!("{output}");
        Ok(Completion::Completed)
    })
}

fn trial_name(name: &str) -> String {
    format!("kernel::{name}")
}

/// The one run of the suite, and what came of it so far.
struct Run {
    selection: Selection,
    suite: OnceLock<Arc<KernelSuite>>,
    reports: Mutex<Vec<Report>>,
}

impl Run {
    fn new(arguments: &Arguments) -> Self {
        let is_chosen = |name: String| {
            let trial = Trial::test(name, || Ok(()));
            !arguments.is_filtered_out(&trial)
        };
        let cases = suite_names().into_iter().filter(|name| is_chosen(trial_name(name))).collect();
        let selection = Selection { cases, host_tests: is_chosen(HOST_TESTS.to_owned()) };
        Self { selection, suite: OnceLock::new(), reports: Mutex::default() }
    }

    /// Begins with what was chosen, if anything was and a machine can run here.
    fn begin(&self) {
        if (self.selection.host_tests || !self.selection.cases.is_empty())
            && fixture_lab::unavailable().is_none()
        {
            self.suite();
        }
    }

    fn suite(&self) -> &KernelSuite {
        self.suite.get_or_init(|| KernelSuite::start(CONTRACT.into(), self.selection.clone()))
    }

    fn conclude(&self, name: &str) -> Result<Completion, Failed> {
        if let Some(reason) = fixture_lab::unavailable() {
            return left_out(&reason);
        }
        let report = self.suite().wait_for(name).map_err(|error| format!("{error:?}"))?;
        let ending = report.ending.clone();
        if report.seconds > NOT_WORTH_TELLING {
            eprintln!("{} took {:.1} s", trial_name(name), report.seconds);
        }
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
        match ending {
            Ending::Ok => Ok(Completion::Completed),
            Ending::Failed(what) => Err(what.into()),
            Ending::CannotShow(why) => Ok(Completion::ignored_with(format!("cannot show: {why}"))),
        }
    }

    fn print_table(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.is_empty() {
            return Ok(());
        }
        writeln!(out, "{:64} | {:11} | kernel", "case", "sim")?;
        for report in reports.iter() {
            let sim = find_case(&report.name).map_or("-", try_on_sim);
            let kernel = word(&report.ending);
            writeln!(out, "{:64} | {sim:11} | {kernel:11} {:6.2} s", report.name, report.seconds)?;
        }
        let seconds: f64 = reports.iter().map(|report| report.seconds).sum();
        writeln!(out, "{} cases on the kernel in {seconds:.0} s", reports.len())
    }
}

/// No test may be left out under CI.
fn left_out(reason: &str) -> Result<Completion, Failed> {
    if env::var_os("CI").is_some_and(|ci| ci == "true") {
        return Err(format!("no machine can run here: {reason}").into());
    }
    Ok(Completion::ignored_with(format!("no machine can run here: {reason}")))
}

fn try_on_sim(case: &Case) -> &'static str {
    SimBench::new(case.given).map_or("FAILED", |bench| word(&run_case(case, &bench)))
}

fn word(ending: &Ending) -> &'static str {
    match ending {
        Ending::Ok => "ok",
        Ending::Failed(_) => "FAILED",
        Ending::CannotShow(_) => "cannot show",
    }
}
