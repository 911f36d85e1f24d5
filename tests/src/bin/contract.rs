//! Program `contract`: the contract suite on the kernel of the machine on which it runs.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Parser, ValueEnum};
use vfleet_tests::contract::coverage::{check_against_gaps, render_table};
use vfleet_tests::contract::linux::LinuxTestBed;
use vfleet_tests::contract::suite::{defect_name, detect_defect, run_case};
use vfleet_tests::contract::{
    CardSetup, Case, CaseError, CaseOutcome, CaseReport, Defect, EXIT_CASE_FAILED, Environment, all_cases,
    all_defects, defects_for_kernel,
};

/// Run the contract suite of hosts on this machine, as root. It changes the first two network cards that can have VFs,
/// leaves them without VFs, and removes the records of vfleet: run it only in a disposable machine.
///
/// Prints one line for each case, then a summary in JSON. The exit status is 1 if a case has failed, and 2 if the suite
/// could not be run.
#[derive(Parser)]
#[command(name = "contract")]
#[expect(clippy::struct_excessive_bools, reason = "these are command-line switches")]
struct Arguments {
    /// Confirm that the network cards of this machine may be changed
    #[arg(long, required_unless_present = "list")]
    change_this_machine: bool,
    /// Cases and defects (defect::NAME) to run; by default all cases and one defect of each kind
    names: Vec<String>,
    /// Run no broken hosts
    #[arg(long)]
    no_defects: bool,
    /// Run all broken hosts, not only one of each kind; this takes long
    #[arg(long, conflicts_with = "no_defects")]
    all_defects: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print the names of cases and defects and the table of gaps, and exit
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One line of text for each case
    Text,
    /// One JSON object for each case
    Json,
}

/// Case on a host, which may have a defect.
struct Trial {
    name: String,
    case: &'static Case,
    defect: Option<&'static Defect>,
}

/// Returns all trials, sorted by setup, because creating VFs takes time.
fn all_trials() -> Result<Vec<Trial>> {
    let mut trials: Vec<Trial> =
        all_cases().map(|case| Trial { name: case.name.to_owned(), case, defect: None }).collect();
    for defect in all_defects() {
        let case = defect
            .fastest_case()
            .with_context(|| format!("there is no case that is to detect the defect {}", defect.name))?;
        trials.push(Trial { name: defect_name(defect), case, defect: Some(defect) });
    }
    trials.sort_by_key(|trial| trial.case.setup);
    Ok(trials)
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("contract: {error:?}");
        ExitCode::from(2)
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let trials = select_trials(arguments)?;
    if arguments.list {
        let names: Vec<&str> = trials.iter().map(|trial| trial.name.as_str()).collect();
        writeln!(io::stdout(), "{}\n\n{}", names.join("\n"), render_table())?;
        return Ok(ExitCode::SUCCESS);
    }
    let start = Instant::now();
    let mut testbed = LinuxTestBed::new().map_err(|error| anyhow!("{error:?}"))?;
    let mut reports = Vec::new();
    for trial in &trials {
        let report = run_trial(&mut testbed, trial);
        print(&report, arguments.format)?;
        reports.push(report);
    }
    testbed.prepare(CardSetup::NoVfs).map_err(|error| anyhow!("could not clean the machine: {error:?}"))?;
    summarize(&reports, start.elapsed().as_secs_f64())
}

fn select_trials(arguments: &Arguments) -> Result<Vec<Trial>> {
    let all = all_trials()?;
    for name in &arguments.names {
        ensure!(all.iter().any(|trial| trial.name == *name), "there is no case {name}: see --list");
    }
    let is_default = |defect: &Defect| {
        let runs_on_kernel = || defects_for_kernel().any(|selected| selected.name == defect.name);
        arguments.all_defects || (!arguments.no_defects && runs_on_kernel())
    };
    let is_selected = |trial: &Trial| match &arguments.names[..] {
        [] => trial.defect.is_none_or(is_default),
        names => names.contains(&trial.name),
    };
    Ok(all.into_iter().filter(is_selected).collect())
}

fn run_trial(testbed: &mut LinuxTestBed, trial: &Trial) -> CaseReport {
    let start = Instant::now();
    let outcome = match (testbed.prepare(trial.case.setup), trial.defect) {
        (Err(CaseError::Unsupported(reason)), _) => {
            check_against_gaps(trial.case.name, Environment::Kernel, CaseOutcome::Unsupported(reason))
        }
        (Err(error), _) => CaseOutcome::Failed(format!("could not prepare the test bed: {error:?}")),
        (Ok(()), None) => run_case(trial.case, testbed),
        (Ok(()), Some(defect)) => detect_defect(defect, trial.case, testbed),
    };
    CaseReport::new(trial.name.clone(), outcome, start.elapsed())
}

fn print(report: &CaseReport, format: Format) -> Result<()> {
    let mut out = io::stdout().lock();
    if format == Format::Json {
        writeln!(out, "{}", serde_json::to_string(report)?)?;
        return Ok(out.flush()?);
    }
    let (word, text) = match &report.outcome {
        CaseOutcome::Ok => ("ok", ""),
        CaseOutcome::Failed(error) => ("FAILED", error.as_str()),
        CaseOutcome::Unsupported(reason) => ("unsupported", reason.as_str()),
    };
    writeln!(out, "{word:11} {:6.2} s  {}  {text}", report.seconds, report.name)?;
    Ok(out.flush()?)
}

fn summarize(reports: &[CaseReport], seconds: f64) -> Result<ExitCode> {
    let count = |is: fn(&CaseOutcome) -> bool| reports.iter().filter(|report| is(&report.outcome)).count();
    let failed = count(|outcome| matches!(outcome, CaseOutcome::Failed(_)));
    let summary = serde_json::json!({
        "ok": count(|outcome| matches!(outcome, CaseOutcome::Ok)),
        "failed": failed,
        "cannotShow": count(|outcome| matches!(outcome, CaseOutcome::Unsupported(_))),
        "seconds": seconds,
    });
    writeln!(io::stdout(), "{summary}")?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_CASE_FAILED) })
}
