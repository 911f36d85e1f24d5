//! Runs one target: replays its corpus, then mutates it until the budget is used up.

use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::mutate::Mutator;

/// The seed of runs that nobody gave one: `make test` tries the same inputs every time.
const SEED: u64 = 15;
/// Mutated inputs per target, unless the target or the environment says otherwise.
const CASES: u64 = 1500;
/// The processor time that one input may take.
const SLOW: Duration = Duration::from_secs(2);
/// The time after which an input counts as never ending. Longer than [`SLOW`]: the machine may be busy.
const HANGING: Duration = Duration::from_secs(20);
/// The memory of the whole test program, in bytes, that no input may push it above.
const MOST_MEMORY: usize = 2 << 30;
/// How often a running input is looked at.
const TICK: Duration = Duration::from_millis(50);
/// The effort spent on making a failing input smaller.
const SHRINKING: Duration = Duration::from_secs(5);

/// The result of a parser for one input.
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

/// A parser and the inputs that its mutations start from.
pub(crate) struct Target {
    name: &'static str,
    corpus: Vec<Vec<u8>>,
    words: &'static [&'static str],
    cases: u64,
    slow: Duration,
    hanging: Duration,
}

/// The numbers of a run without a failure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) inputs: u64,
    pub(crate) accepted: u64,
    pub(crate) seconds: f64,
}

/// An input that a parser did not survive.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    pub(crate) input: Vec<u8>,
}

/// The environment's settings, documented in `tests/fuzz.rs`.
struct Settings {
    seed: u64,
    budget: Budget,
    replayed: Option<PathBuf>,
    is_traced: bool,
}

#[derive(Clone, Copy)]
enum Budget {
    Cases(u64),
    Time(Duration),
}

impl Target {
    /// Returns the target whose corpus is in `tests/fuzz/corpus/NAME`.
    pub(crate) fn new(name: &'static str) -> Self {
        let directory = corpus_directory(name);
        let corpus = if directory.exists() { files_of(&directory) } else { Vec::new() };
        Self { name, corpus, words: &[], cases: CASES, slow: SLOW, hanging: HANGING }
    }

    /// Adds all files below a directory of the repository, which other tests keep there.
    pub(crate) fn with_files(mut self, directory: &str) -> Self {
        let found = files_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(directory));
        assert!(!found.is_empty(), "{directory} has no files: the corpus of {} moved", self.name);
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

    /// Sets the number of mutated inputs of a short run, for parsers that take long.
    pub(crate) const fn with_cases(mut self, cases: u64) -> Self {
        self.cases = cases;
        self
    }

    /// Sets the time after which an input counts as never ending.
    pub(crate) const fn with_deadline(mut self, hanging: Duration) -> Self {
        self.hanging = hanging;
        self
    }

    /// Sets the processor time that one input may take.
    pub(crate) const fn with_processor_time(mut self, slow: Duration) -> Self {
        self.slow = slow;
        self
    }

    /// Runs `parse` on the corpus and on mutations of it, and fails the test with a report on the first input that
    /// makes it panic, run too long or use too much memory. Fails as well when no input of the corpus is accepted:
    /// then the target shows nothing.
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

    /// Runs with the settings of a short run, whatever the environment says.
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
        quiet_panics();
        let parse: Arc<Parser> = Arc::new(parse);
        let current = Arc::new(Mutex::new(None));
        let (done, outcome) = mpsc::channel();
        let (slow, hanging) = (self.slow, self.hanging);
        let worker = Worker { parse, slow, current: Arc::clone(&current), trace: self.trace_file(settings) };
        let (name, budget, seed) = (self.name, settings.budget, settings.seed);
        let replayed = settings.replayed.as_ref().map(|path| std::fs::read(path).expect("FUZZ_INPUT"));
        // The thread has the name of the target: a stack overflow ends the process and says no more than that.
        let run = move || {
            let _ = done.send(match replayed {
                Some(input) => worker.try_input(&input).map(|_| Statistics::default()),
                None => self.work(&worker, budget, seed),
            });
        };
        let name = format!("fuzz {name} with seed {seed}");
        thread::Builder::new().name(name).spawn(run).expect("a thread");
        loop {
            match outcome.recv_timeout(TICK) {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Timeout) => watch(&current, hanging)?,
                Err(RecvTimeoutError::Disconnected) => panic!("the driver itself failed"),
            }
        }
    }

    fn trace_file(&self, settings: &Settings) -> Option<PathBuf> {
        settings.is_traced.then(|| findings_directory().join(format!("{}-trace", self.name)))
    }

    fn work(self, worker: &Worker, budget: Budget, seed: u64) -> Result<Statistics, Failure> {
        let mut statistics = Statistics::default();
        for input in &self.corpus {
            statistics.count(worker.try_input(input)?);
        }
        if statistics.accepted == 0 {
            let reason = "no input of the corpus is accepted: the target shows nothing".to_owned();
            return Err(Failure { reason, input: self.corpus[0].clone() });
        }
        let begin = Instant::now();
        let mut mutator = Mutator::new(seed ^ hash_of(self.name), self.corpus, self.words);
        let is_over = |inputs: u64| match budget {
            Budget::Cases(most) => inputs >= most,
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

impl Settings {
    fn read(cases: u64) -> Self {
        let seconds = variable::<f64>("FUZZ_SECONDS").map(Duration::from_secs_f64);
        let budget = match seconds {
            Some(seconds) => Budget::Time(seconds),
            None => Budget::Cases(variable("FUZZ_CASES").unwrap_or(cases)),
        };
        let fresh = || if seconds.is_some() { RandomState::new().build_hasher().finish() } else { SEED };
        Self {
            seed: variable("FUZZ_SEED").unwrap_or_else(fresh),
            budget,
            replayed: variable("FUZZ_INPUT"),
            is_traced: variable::<String>("FUZZ_TRACE").is_some(),
        }
    }
}

fn variable<T: FromStr<Err: fmt::Debug>>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text} cannot be read: {error:?}")))
}

type Parser = dyn Fn(&[u8]) -> Verdict + Send + Sync;

/// The input that is being tried, and since when.
type Current = Arc<Mutex<Option<(Vec<u8>, Instant)>>>;

struct Worker {
    parse: Arc<Parser>,
    slow: Duration,
    current: Current,
    trace: Option<PathBuf>,
}

impl Worker {
    fn try_input(&self, input: &[u8]) -> Result<Verdict, Failure> {
        if let Some(path) = &self.trace {
            std::fs::write(path, input).expect("the trace can be written");
        }
        *lock(&self.current) = Some((input.to_vec(), Instant::now()));
        let begin = processor_time();
        let verdict = self.parse(input);
        let taken = processor_time().saturating_sub(begin);
        *lock(&self.current) = None;
        match verdict {
            Ok(_) if taken > self.slow => {
                let reason = format!("it took {taken:?} of processor time, and {:?} are enough", self.slow);
                Err(Failure { reason, input: input.to_vec() })
            }
            Ok(verdict) => Ok(verdict),
            Err(reason) => Err(Failure { reason, input: self.shrunk(input) }),
        }
    }

    fn parse(&self, input: &[u8]) -> Result<Verdict, String> {
        PANIC.set(Some(String::new()));
        let verdict = panic::catch_unwind(AssertUnwindSafe(|| (self.parse)(input)));
        let message = PANIC.take().unwrap_or_default();
        verdict.map_err(|_| message)
    }

    /// Leaves out whatever is not needed for the failure, as far as that is found quickly.
    fn shrunk(&self, input: &[u8]) -> Vec<u8> {
        let (mut smallest, begin) = (input.to_vec(), Instant::now());
        let mut length = smallest.len().div_ceil(2);
        while length > 0 {
            let mut at = 0;
            while at < smallest.len() && begin.elapsed() < SHRINKING {
                let end = smallest.len().min(at + length);
                let without = [&smallest[..at], &smallest[end..]].concat();
                if self.parse(&without).is_err() {
                    smallest = without;
                } else {
                    at = end;
                }
            }
            length /= 2;
        }
        smallest
    }
}

/// Fails when the input that is being tried takes too long or too much.
fn watch(current: &Current, hanging: Duration) -> Result<(), Failure> {
    let Some((input, since)) = lock(current).clone() else { return Ok(()) };
    if since.elapsed() > hanging {
        return Err(Failure { reason: format!("it does not end: {hanging:?} were not enough"), input });
    }
    let memory = resident_memory();
    if memory > MOST_MEMORY {
        let reason = format!("the program uses {memory} bytes of memory, by this input or one beside it");
        return Err(Failure { reason, input });
    }
    Ok(())
}

fn resident_memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("/proc is there");
    let pages: usize = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the thread has a clock").into()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The last panic of a parser; `None` in threads that run no parser.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics of parsers for the report, instead of printing each.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let is_parser = PANIC.with_borrow_mut(|last| last.as_mut().map(|text| *text = panic.to_string()));
            if is_parser.is_none() {
                usual(panic);
            }
        }));
    });
}

fn report(name: &str, seed: u64, Failure { reason, input }: &Failure) -> String {
    let path = findings_directory().join(format!("{name}-{:016x}", hash_of(&String::from_utf8_lossy(input))));
    std::fs::write(&path, input).expect("the input can be written");
    let beginning: Vec<u8> = input.iter().copied().take(200).collect();
    format!(
        "{reason}\n\
         input:  {} bytes, beginning with \"{}\"\n\
         found:  FUZZ_SEED={seed}\n\
         replay: FUZZ_INPUT={path} cargo test -p vfleet-tests --test fuzz {name}\n\
         keep:   cp {path} tests/fuzz/corpus/{name}/",
        input.len(),
        beginning.escape_ascii(),
        path = path.display(),
    )
}

fn findings_directory() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

fn corpus_directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name)
}

/// The files of a directory and those below it, sorted by path.
fn files_of(directory: &Path) -> Vec<Vec<u8>> {
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

/// FNV-1a: the same on every machine and in every version, unlike the standard library's.
fn hash_of(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
