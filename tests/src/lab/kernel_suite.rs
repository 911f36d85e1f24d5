//! Tests that need a kernel and no API server, in one boot of one machine: the program `contract`, whose reports arrive
//! one by one, and then the tests of `vfleet-host` that change the machine.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use fixture_lab::{Job, Options, Vm};

use super::host_tests;
use crate::contract::{CaseReport, EXIT_CASE_FAILED};

/// Deadline of the whole run; generous, because another machine may run at the same time.
const DEADLINE: Duration = Duration::from_hours(1);

/// Selected part of the suite.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Names of cases and defects of the contract.
    pub cases: Vec<String>,
    /// The tests of `vfleet-host` run as well.
    pub host_tests: bool,
}

/// Run of the suite, in progress or finished.
#[derive(Default)]
pub struct KernelSuite {
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    reports: BTreeMap<String, CaseReport>,
    /// Output of the tests of `vfleet-host`, or their error.
    host_tests: Option<Result<String, String>>,
    /// Result of the run, once it has ended. No report arrives afterwards.
    end: Option<Result<(), String>>,
}

impl KernelSuite {
    /// Boots a machine and starts the selected tests. `program` is the path of `contract`.
    pub fn start(program: PathBuf, selection: Selection) -> Arc<Self> {
        let suite = Arc::new(Self::default());
        let running = Arc::clone(&suite);
        thread::spawn(move || {
            // Threads that wait for a report must learn of the end, also after a panic.
            let end = catch_unwind(AssertUnwindSafe(|| running.run(&program, selection)));
            let end = end.unwrap_or_else(|_| Err(anyhow!("the run panicked; see above")));
            let end = end.map_err(|error| format!("{error:?}"));
            running.lock().end = Some(end);
            running.changed.notify_all();
        });
        suite
    }

    fn run(&self, program: &Path, selection: Selection) -> Result<()> {
        let vm = Vm::boot(&Options::default())?;
        if !selection.cases.is_empty() {
            self.run_cases(&vm, program, selection.cases)?;
        }
        if selection.host_tests {
            let host_tests = host_tests::run(&vm).map_err(|error| format!("{error:?}"));
            self.lock().host_tests = Some(host_tests);
        }
        Ok(())
    }

    fn run_cases(&self, vm: &Vm, program: &Path, names: Vec<String>) -> Result<()> {
        let job = Job::new(vm.put(program)?)
            .args(["--change-this-machine", "--format", "json"])
            .args(names)
            .deadline(DEADLINE);
        let end = vm.spawn(&job)?.wait_streaming(&mut OutputParser { suite: self, rest: Vec::new() })?;
        let is_reported = end.status == 0 || end.status == i32::from(EXIT_CASE_FAILED);
        ensure!(is_reported, "{} ended with status {}: {}", program.display(), end.status, end.output);
        Ok(())
    }

    /// Waits for the end of the tests of `vfleet-host`, and returns their output.
    pub fn wait_for_host_tests(&self) -> Result<String> {
        self.wait("the tests of vfleet-host", |progress| progress.host_tests.clone())?
            .map_err(|error| anyhow!(error))
    }

    /// Waits for the report of a case.
    pub fn wait_for(&self, name: &str) -> Result<CaseReport> {
        self.wait(name, |progress| progress.reports.get(name).cloned())
    }

    fn wait<T>(&self, what: &str, find: impl Fn(&Progress) -> Option<T>) -> Result<T> {
        let mut progress = self.lock();
        loop {
            if let Some(found) = find(&progress) {
                return Ok(found);
            }
            if let Some(end) = &progress.end {
                let error =
                    end.as_ref().err().map_or("the run ended without a report of this test", String::as_str);
                return Err(anyhow!("{error}")).with_context(|| format!("{what}: not run"));
            }
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parser of the output of `contract`, which consists of lines.
struct OutputParser<'a> {
    suite: &'a KernelSuite,
    rest: Vec<u8>,
}

impl Write for OutputParser<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            // Other lines are the summary, or text from standard error.
            if let Ok(report) = serde_json::from_slice::<CaseReport>(&line) {
                self.suite.lock().reports.insert(report.name.clone(), report);
                self.suite.changed.notify_all();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
