//! `contract`: the contract suite on the kernel of the machine that this runs on.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Parser, ValueEnum};
use vfleet_tests::contract::coverage::{hold_to_table, table};
use vfleet_tests::contract::linux::LinuxBench;
use vfleet_tests::contract::suite::{catch, defect_name, run_case};
use vfleet_tests::contract::{
    Case, Defect, Ending, Environment, Given, Report, SOME_FAILED, Stop, all_cases, all_defects,
    defects_for_kernel, find_case,
};

/// Try the contract of hosts on this machine, as root. Its first two network cards that can have VFs are changed
/// and left without VFs, and vfleet's records are removed: run it in a throw-away machine.
///
/// One line for each case, then a summary in JSON. The exit status is 1 when a case has failed, 2 when the
/// suite could not be run.
#[derive(Parser)]
#[command(name = "contract")]
#[expect(clippy::struct_excessive_bools, reason = "they are the switches of a command line")]
struct Arguments {
    /// Yes, change the network cards of this machine
    #[arg(long, required_unless_present = "list")]
    change_this_machine: bool,
    /// Only these cases and defects (defect::NAME); when none is named, all cases and one defect of each kind
    names: Vec<String>,
    /// Leave out the broken hosts that each must be noticed
    #[arg(long)]
    no_defects: bool,
    /// Try all broken hosts, and not only one of each kind: this takes long
    #[arg(long, conflicts_with = "no_defects")]
    all_defects: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print the names of the cases and defects, and which cases cannot run where; do nothing
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines for people
    Text,
    /// Each line a JSON object
    Json,
}

/// A case, on a host that is broken or not.
struct Trial {
    name: String,
    case: &'static Case,
    defect: Option<&'static Defect>,
}

/// All trials, those that are given the same after each other: it takes time to make VFs.
fn all_trials() -> Result<Vec<Trial>> {
    let mut trials: Vec<Trial> =
        all_cases().map(|case| Trial { name: case.name.to_owned(), case, defect: None }).collect();
    for defect in all_defects() {
        let case = find_case(defect.caught_by).with_context(|| {
            format!("no case is called {}, which shall notice {}", defect.caught_by, defect.name)
        })?;
        trials.push(Trial { name: defect_name(defect), case, defect: Some(defect) });
    }
    trials.sort_by_key(|trial| trial.case.given);
    Ok(trials)
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("contract: {error:?}");
        ExitCode::from(2)
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let trials = choose(arguments)?;
    if arguments.list {
        let names: Vec<&str> = trials.iter().map(|trial| trial.name.as_str()).collect();
        writeln!(io::stdout(), "{}\n\n{}", names.join("\n"), table())?;
        return Ok(ExitCode::SUCCESS);
    }
    let start = Instant::now();
    let mut bench = LinuxBench::new().map_err(|stop| anyhow!("{stop:?}"))?;
    let mut reports = Vec::new();
    for trial in &trials {
        let report = try_on(&mut bench, trial);
        print(&report, arguments.format)?;
        reports.push(report);
    }
    bench.begin(Given::NoVfs).map_err(|stop| anyhow!("the machine could not be cleaned: {stop:?}"))?;
    summarize(&reports, start.elapsed().as_secs_f64())
}

fn choose(arguments: &Arguments) -> Result<Vec<Trial>> {
    let all = all_trials()?;
    for name in &arguments.names {
        ensure!(all.iter().any(|trial| trial.name == *name), "there is no case {name}: see --list");
    }
    let is_tried = |defect: &Defect| {
        let is_one_of_its_kind = || defects_for_kernel().any(|chosen| chosen.name == defect.name);
        arguments.all_defects || (!arguments.no_defects && is_one_of_its_kind())
    };
    let is_chosen = |trial: &Trial| match &arguments.names[..] {
        [] => trial.defect.is_none_or(is_tried),
        names => names.contains(&trial.name),
    };
    Ok(all.into_iter().filter(is_chosen).collect())
}

fn try_on(bench: &mut LinuxBench, trial: &Trial) -> Report {
    let start = Instant::now();
    let ending = match (bench.begin(trial.case.given), trial.defect) {
        (Err(Stop::CannotShow(why)), _) => {
            hold_to_table(trial.case.name, Environment::Kernel, Ending::CannotShow(why))
        }
        (Err(stop), _) => Ending::Failed(format!("the bench is not clean: {stop:?}")),
        (Ok(()), None) => run_case(trial.case, bench),
        (Ok(()), Some(defect)) => catch(defect, trial.case, bench),
    };
    Report::new(trial.name.clone(), ending, start.elapsed())
}

fn print(report: &Report, format: Format) -> Result<()> {
    let mut out = io::stdout().lock();
    if format == Format::Json {
        writeln!(out, "{}", serde_json::to_string(report)?)?;
        return Ok(out.flush()?);
    }
    let (word, text) = match &report.ending {
        Ending::Ok => ("ok", ""),
        Ending::Failed(what) => ("FAILED", what.as_str()),
        Ending::CannotShow(why) => ("cannot show", why.as_str()),
    };
    writeln!(out, "{word:11} {:6.2} s  {}  {text}", report.seconds, report.name)?;
    Ok(out.flush()?)
}

fn summarize(reports: &[Report], seconds: f64) -> Result<ExitCode> {
    let count = |is: fn(&Ending) -> bool| reports.iter().filter(|report| is(&report.ending)).count();
    let failed = count(|ending| matches!(ending, Ending::Failed(_)));
    let summary = serde_json::json!({
        "ok": count(|ending| matches!(ending, Ending::Ok)),
        "failed": failed,
        "cannotShow": count(|ending| matches!(ending, Ending::CannotShow(_))),
        "seconds": seconds,
    });
    writeln!(io::stdout(), "{summary}")?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}
