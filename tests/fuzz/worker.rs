//! Worker that tries one input after the other, and limits on time and memory.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::driver::Verdict;

/// Limit of the memory of the whole test program, in bytes.
const MAX_MEMORY: usize = 2 << 30;
/// Limit of the time for making a failing input smaller.
const SHRINK_TIME: Duration = Duration::from_secs(5);

/// Input that made a parser fail.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    pub(crate) input: Vec<u8>,
}

pub(crate) type Parser = dyn Fn(&[u8]) -> Verdict + Send + Sync;

/// Input that is being tried, with its start time.
pub(crate) type Current = Arc<Mutex<Option<(Vec<u8>, Instant)>>>;

pub(crate) struct Worker {
    pub(crate) parse: Arc<Parser>,
    pub(crate) slow: Duration,
    pub(crate) current: Current,
    pub(crate) trace: Option<PathBuf>,
}

impl Worker {
    pub(crate) fn try_input(&self, input: &[u8]) -> Result<Verdict, Failure> {
        if let Some(path) = &self.trace {
            std::fs::write(path, input).expect("the trace can be written");
        }
        *lock(&self.current) = Some((input.to_vec(), Instant::now()));
        let begin = processor_time();
        let verdict = self.parse(input);
        let taken = processor_time().saturating_sub(begin);
        let outcome = match verdict {
            Ok(_) if taken > self.slow => {
                let reason =
                    format!("the input took {taken:?} of processor time, the limit is {:?}", self.slow);
                Err(Failure { reason, input: input.to_vec() })
            }
            Ok(verdict) => Ok(verdict),
            Err(reason) => Err(Failure { reason, input: self.shrink(input) }),
        };
        *lock(&self.current) = None;
        outcome
    }

    fn parse(&self, input: &[u8]) -> Result<Verdict, String> {
        PANIC.set(Some(String::new()));
        let verdict = panic::catch_unwind(AssertUnwindSafe(|| (self.parse)(input)));
        let message = PANIC.take().unwrap_or_default();
        verdict.map_err(|_| message)
    }

    /// Removes parts of the input that are not needed for the failure, within [`SHRINK_TIME`].
    fn shrink(&self, input: &[u8]) -> Vec<u8> {
        let (mut smallest, begin) = (input.to_vec(), Instant::now());
        let mut length = smallest.len().div_ceil(2);
        while length > 0 {
            let mut at = 0;
            while at < smallest.len() && begin.elapsed() < SHRINK_TIME {
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

/// Fails if the current input takes too long or too much memory.
pub(crate) fn check_limits(current: &Current, hanging: Duration) -> Result<(), Failure> {
    let Some((input, since)) = lock(current).clone() else { return Ok(()) };
    if since.elapsed() > hanging {
        return Err(Failure { reason: format!("the input does not end within {hanging:?}"), input });
    }
    let memory = resident_memory();
    if memory > MAX_MEMORY {
        let reason = format!(
            "the program uses {memory} bytes of memory, because of this input or one that runs in parallel"
        );
        return Err(Failure { reason, input });
    }
    Ok(())
}

fn resident_memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
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
    /// Last panic of a parser; `None` in threads that run no parser.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics of parsers for the report instead of printing them.
pub(crate) fn capture_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default_hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let is_parser = PANIC.with_borrow_mut(|last| last.as_mut().map(|text| *text = panic.to_string()));
            if is_parser.is_none() {
                default_hook(panic);
            }
        }));
    });
}

/// Writes the input of a failure to a file; returns a report with the next steps.
pub(crate) fn report(name: &str, seed: u64, Failure { reason, input }: &Failure) -> String {
    let path = findings_directory().join(format!("{name}-{:016x}", hash_of(&String::from_utf8_lossy(input))));
    std::fs::write(&path, input).expect("the input can be written");
    let start: Vec<u8> = input.iter().copied().take(200).collect();
    format!(
        "{reason}\n\
         input:  {} bytes, starting with \"{}\"\n\
         found:  FUZZ_SEED={seed}\n\
         replay: FUZZ_INPUT={path} cargo test -p vfleet-tests --test fuzz {name}\n\
         keep:   cp {path} tests/fuzz/corpus/{name}/",
        input.len(),
        start.escape_ascii(),
        path = path.display(),
    )
}

/// Returns the directory of inputs that parsers failed on.
pub(crate) fn findings_directory() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

/// Returns the FNV-1a hash, which unlike that of the standard library is the same on every machine and in every
/// version.
pub(crate) fn hash_of(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
