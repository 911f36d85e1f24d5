//! Running cases.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::bench::{Bench, Stop};
use super::broken::{BrokenBench, Defect};
use super::cases::{Case, all_cases, find_case};

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

/// Runs one case.
pub fn run_case(case: &Case, bench: &dyn Bench) -> Ending {
    let run = AssertUnwindSafe(|| (case.run)(bench));
    match catch_unwind(run) {
        Ok(Ok(())) => Ending::Ok,
        Ok(Err(Stop::Failed(what))) => Ending::Failed(what),
        Ok(Err(Stop::CannotShow(why))) => Ending::CannotShow(why),
        Err(_) => Ending::Failed("it panicked".to_owned()),
    }
}

/// Runs one case and takes the time.
pub fn report_case(case: &Case, bench: &dyn Bench) -> Report {
    let start = Instant::now();
    let ending = run_case(case, bench);
    Report::new(case.name.to_owned(), ending, start.elapsed())
}

/// Whether the case that is the quickest to notice a defect does so.
pub fn catch(defect: &'static Defect, bench: &dyn Bench) -> Ending {
    let Some(case) = find_case(defect.caught_by) else {
        return Ending::Failed(format!("there is no case {}", defect.caught_by));
    };
    caught(defect, case, run_case(case, &BrokenBench::new(bench, defect)))
}

fn caught(defect: &Defect, case: &Case, ending: Ending) -> Ending {
    match ending {
        Ending::Failed(_) => Ending::Ok,
        Ending::Ok => Ending::Failed(format!("{} does not notice {}", case.name, defect.name)),
        Ending::CannotShow(why) => Ending::CannotShow(why),
    }
}

/// How many cases of the whole suite notice a defect, on a new bench for each.
pub fn count_catchers<B: Bench>(defect: &'static Defect, new_bench: impl Fn() -> B) -> usize {
    let is_caught = |case: &&Case| {
        let ending = run_case(case, &BrokenBench::new(&new_bench(), defect));
        matches!(ending, Ending::Failed(_))
    };
    all_cases().filter(is_caught).count()
}
