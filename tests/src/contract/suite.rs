//! Running cases.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bench::{Bench, Stop};
use super::broken::{BrokenBench, Defect};
use super::cases::Case;
use super::coverage::hold_to_table;

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ending {
    Ok,
    Failed(String),
    CannotShow(String),
}

/// A case that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Of the case, or `defect::` and that of the defect.
    pub name: String,
    pub ending: Ending,
    pub seconds: f64,
}

impl Report {
    pub fn new(name: String, ending: Ending, took: Duration) -> Self {
        Self { name, ending, seconds: took.as_secs_f64() }
    }
}

/// The name that a defect is reported by.
pub fn defect_name(defect: &Defect) -> String {
    format!("defect::{}", defect.name)
}

/// Runs one case. Where it cannot be shown, and only there, the table of gaps says so.
pub fn run_case(case: &Case, bench: &dyn Bench) -> Ending {
    hold_to_table(case.name, bench.environment(), attempt(case, bench))
}

fn attempt(case: &Case, bench: &dyn Bench) -> Ending {
    let run = AssertUnwindSafe(|| (case.run)(bench));
    match catch_unwind(run) {
        Ok(Ok(())) => Ending::Ok,
        Ok(Err(Stop::Failed(what))) => Ending::Failed(what),
        Ok(Err(Stop::CannotShow(why))) => Ending::CannotShow(why),
        Err(_) => Ending::Failed("it panicked".to_owned()),
    }
}

/// Whether `case` notices a defect.
pub fn catch(defect: &'static Defect, case: &Case, bench: &dyn Bench) -> Ending {
    match attempt(case, &BrokenBench::new(bench, defect)) {
        Ending::Failed(_) => Ending::Ok,
        Ending::Ok => Ending::Failed(format!("{} does not notice {}", case.name, defect.name)),
        cannot_show @ Ending::CannotShow(_) => hold_to_table(case.name, bench.environment(), cannot_show),
    }
}
