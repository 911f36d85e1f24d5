//! Settings of a run from the environment, documented in `tests/fuzz/main.rs`.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Default seed, so that `make test` tries the same inputs every time.
pub(crate) const SEED: u64 = 15;

/// Settings of a run.
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) budget: Budget,
    pub(crate) replayed: Option<PathBuf>,
    pub(crate) is_traced: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Budget {
    Cases(u64),
    Time(Duration),
}

impl Settings {
    /// Reads the environment. By default a target tries `cases` inputs.
    pub(crate) fn read(cases: u64) -> Self {
        let seconds = variable::<f64>("FUZZ_SECONDS").map(Duration::from_secs_f64);
        let budget = match seconds {
            Some(seconds) => Budget::Time(seconds),
            None => Budget::Cases(variable("FUZZ_CASES").unwrap_or(cases)),
        };
        let default_seed =
            || if seconds.is_some() { RandomState::new().build_hasher().finish() } else { SEED };
        Self {
            seed: variable("FUZZ_SEED").unwrap_or_else(default_seed),
            budget,
            replayed: variable("FUZZ_INPUT"),
            is_traced: variable::<String>("FUZZ_TRACE").is_some(),
        }
    }
}

fn variable<T: FromStr<Err: fmt::Debug>>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text} is invalid: {error:?}")))
}
