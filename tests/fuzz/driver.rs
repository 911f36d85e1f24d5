//! Driver of a target: replays its corpus, then mutates it until the budget is used up.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::mutate::Mutator;
use crate::settings::{Budget, SEED, Settings};
use crate::worker::{
    Failure, Parser, Worker, capture_panics, check_limits, findings_directory, hash_of, report,
};

/// Default number of mutated inputs per target.
const CASES: u64 = 1500;
/// Limit of the processor time for one input.
const SLOW: Duration = Duration::from_secs(2);
/// Time after which an input counts as hanging. Longer than [`SLOW`], because the machine may be busy.
const HANGING: Duration = Duration::from_secs(20);
/// Interval of checks of a running input.
const TICK: Duration = Duration::from_millis(50);

/// Result of a parser for one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The parser returned a value, and all properties of that value hold.
    Accepted,
    /// The parser returned an error or nothing.
    Refused,
}

impl Verdict {
    /// Returns the verdict for a parser that accepted its input or not.
    pub(crate) const fn of(is_accepted: bool) -> Self {
        if is_accepted { Self::Accepted } else { Self::Refused }
    }
}

/// Fuzz target: a parser with its corpus.
pub(crate) struct Target {
    name: &'static str,
    corpus: Vec<Vec<u8>>,
    words: &'static [&'static str],
    cases: u64,
    slow: Duration,
    hanging: Duration,
}

/// Statistics of a run without a failure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) inputs: u64,
    pub(crate) accepted: u64,
    pub(crate) seconds: f64,
}

impl Target {
    /// Returns the target whose corpus is in `tests/fuzz/corpus/NAME`.
    pub(crate) fn new(name: &'static str) -> Self {
        let directory = corpus_directory(name);
        let corpus = if directory.exists() { read_files(&directory) } else { Vec::new() };
        Self { name, corpus, words: &[], cases: CASES, slow: SLOW, hanging: HANGING }
    }

    /// Adds all files below a directory of the repository that belongs to other tests.
    pub(crate) fn with_files(mut self, directory: &str) -> Self {
        let found = read_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(directory));
        assert!(!found.is_empty(), "{directory} has no files: update the path in target {}", self.name);
        self.corpus.extend(found);
        self
    }

    /// Adds one input.
    pub(crate) fn with_input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.corpus.push(input.into());
        self
    }

    /// Adds words that mutations insert.
    pub(crate) fn with_words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// Sets the number of mutated inputs of a short run, for slow parsers.
    pub(crate) const fn with_cases(mut self, cases: u64) -> Self {
        self.cases = cases;
        self
    }

    /// Sets the time after which an input counts as hanging.
    pub(crate) const fn with_deadline(mut self, hanging: Duration) -> Self {
        self.hanging = hanging;
        self
    }

    /// Sets the limit of the processor time for one input.
    pub(crate) const fn with_processor_time(mut self, slow: Duration) -> Self {
        self.slow = slow;
        self
    }

    /// Runs `parse` on the corpus and on mutations of it. Fails the test with a report at the first input that makes
    /// the parser panic, run too long or use too much memory. Also fails if no input of the corpus is accepted, because
    /// such a target tests nothing.
    pub(crate) fn run(self, parse: impl Fn(&[u8]) -> Verdict + Send + Sync + 'static) {
        let settings = Settings::read(self.cases);
        let (name, seed) = (self.name, settings.seed);
        match self.try_run(&settings, parse) {
            Ok(Statistics { inputs, accepted, seconds }) => {
                eprintln!("fuzz {name}: seed {seed}, {inputs} inputs in {seconds:.1} s, {accepted} accepted");
            }
            Err(failure) => panic!("{}", report(name, seed, &failure)),
        }
    }

    /// Runs with the settings of a short run and ignores the environment.
    pub(crate) fn probe(
        self,
        parse: impl Fn(&[u8]) -> Verdict + Send + Sync + 'static,
    ) -> Result<Statistics, Failure> {
        let budget = Budget::Cases(self.cases);
        self.try_run(&Settings { seed: SEED, budget, replayed: None, is_traced: false }, parse)
    }

    fn try_run(
        self,
        settings: &Settings,
        parse: impl Fn(&[u8]) -> Verdict + Send + Sync + 'static,
    ) -> Result<Statistics, Failure> {
        assert!(!self.corpus.is_empty(), "{} has no corpus", self.name);
        capture_panics();
        let parse: Arc<Parser> = Arc::new(parse);
        let current = Arc::new(Mutex::new(None));
        let (done, outcome) = mpsc::channel();
        let (slow, hanging) = (self.slow, self.hanging);
        let worker = Worker { parse, slow, current: Arc::clone(&current), trace: self.trace_file(settings) };
        let (name, budget, seed) = (self.name, settings.budget, settings.seed);
        let replayed = settings.replayed.as_ref().map(|path| std::fs::read(path).expect("FUZZ_INPUT"));
        // The thread has the name of the target, because the message of a stack overflow contains only that name.
        let run = move || {
            let _ = done.send(match replayed {
                Some(input) => worker.try_input(&input).map(|_| Statistics::default()),
                None => self.run_inputs(&worker, budget, seed),
            });
        };
        let name = format!("fuzz {name} with seed {seed}");
        thread::Builder::new().name(name).spawn(run).expect("a thread");
        loop {
            match outcome.recv_timeout(TICK) {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Timeout) => check_limits(&current, hanging)?,
                Err(RecvTimeoutError::Disconnected) => panic!("the driver failed"),
            }
        }
    }

    fn trace_file(&self, settings: &Settings) -> Option<PathBuf> {
        settings.is_traced.then(|| findings_directory().join(format!("{}-trace", self.name)))
    }

    fn run_inputs(self, worker: &Worker, budget: Budget, seed: u64) -> Result<Statistics, Failure> {
        let mut statistics = Statistics::default();
        for input in &self.corpus {
            statistics.count(worker.try_input(input)?);
        }
        if statistics.accepted == 0 {
            let reason = "no input of the corpus is accepted: the target tests nothing".to_owned();
            return Err(Failure { reason, input: self.corpus[0].clone() });
        }
        let begin = Instant::now();
        let mut mutator = Mutator::new(seed ^ hash_of(self.name), self.corpus, self.words);
        let is_over = |inputs: u64| match budget {
            Budget::Cases(limit) => inputs >= limit,
            Budget::Time(limit) => begin.elapsed() >= limit,
        };
        let mut mutated = 0;
        while !is_over(mutated) {
            let input = mutator.next_input();
            let verdict = worker.try_input(&input)?;
            statistics.count(verdict);
            if verdict == Verdict::Accepted {
                mutator.keep(input);
            }
            mutated += 1;
        }
        statistics.seconds = begin.elapsed().as_secs_f64();
        Ok(statistics)
    }
}

impl Statistics {
    fn count(&mut self, verdict: Verdict) {
        self.inputs += 1;
        self.accepted += u64::from(verdict == Verdict::Accepted);
    }
}

fn corpus_directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name)
}

/// Reads all files below a directory, sorted by path.
fn read_files(directory: &Path) -> Vec<Vec<u8>> {
    let mut paths = vec![directory.to_owned()];
    let mut files = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let mut below: Vec<_> = std::fs::read_dir(&path)
                .expect("a directory")
                .map(|entry| entry.expect("a file").path())
                .collect();
            below.sort();
            paths.extend(below.into_iter().rev());
        } else {
            files.push(std::fs::read(&path).expect("a file"));
        }
    }
    files
}
