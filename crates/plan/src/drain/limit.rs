//! How many nodes of a pool may be drained at once.

use vfleet_api::keys::DEFAULT_POOL;
use vfleet_api::meta::IntOrString;
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;

use crate::pool::NamedPool;
use crate::prelude::*;

/// How many nodes of a pool may be drained at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// All of them.
    None,
    /// So many. 0 is never.
    AtMost(usize),
    /// The nodes belong to no pool: none of them is begun with.
    NoPool,
}

impl Limit {
    /// In a sentence.
    pub fn text(self) -> String {
        match self {
            Self::None => "all nodes of the pool may be drained at once".to_owned(),
            Self::AtMost(1) => "one node of the pool is drained at a time".to_owned(),
            Self::AtMost(most) => format!("{most} nodes of the pool may be drained at once"),
            Self::NoPool => "no node is drained without a pool".to_owned(),
        }
    }

    /// How many more there may be.
    pub fn free(self, held: usize) -> usize {
        match self {
            Self::None => usize::MAX,
            Self::AtMost(most) => most.saturating_sub(held),
            Self::NoPool => 0,
        }
    }

    /// Whether there may be so many.
    pub fn allows(self, held: usize) -> bool {
        match self {
            Self::None => true,
            Self::AtMost(most) => held <= most,
            Self::NoPool => false,
        }
    }
}

/// What is to be said about a pool's limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitNote {
    /// `maxUnavailable: 0`.
    Never,
    /// No limit is given, which in the Go operator means all nodes at once.
    NoneGiven,
    /// `maxUnavailable` is neither a number nor a percentage.
    Unreadable(String),
}

impl LimitNote {
    /// In one word.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Never => "NeverDrained",
            Self::NoneGiven => "NoLimitGiven",
            Self::Unreadable(_) => "InvalidLimit",
        }
    }

    /// In a sentence that says what to do.
    pub fn text(&self) -> String {
        match self {
            Self::Never => "maxUnavailable is 0: no node of this pool is ever drained; raise it to let changes that need a drain through".to_owned(),
            Self::NoneGiven => "no limit is given, so one node is drained at a time (the Go operator drained all of them at once); set drainConfig.maxParallelNodeConfiguration to change that, 0 for no limit".to_owned(),
            Self::Unreadable(text) => format!("maxUnavailable {text:?} is neither a number nor a percentage from 1% to 100%: one node is drained at a time until it is put right"),
        }
    }
}

/// How many nodes of `pool`, which has `total`, may be drained at once; and what is to be said about that.
pub fn limit(pool: &NamedPool<'_>, total: usize) -> (Limit, Option<LimitNote>) {
    let parallel = max_parallel(pool.spec);
    match (parallel, &pool.spec.max_unavailable) {
        (Some(0), None) => (Limit::None, None),
        (Some(most), None) => (Limit::AtMost(count(most)), None),
        (None, None) if pool.name == DEFAULT_POOL => (Limit::AtMost(1), None),
        (None, None) => (Limit::AtMost(1), Some(LimitNote::NoneGiven)),
        // Both at once is refused; of one that is there all the same the stricter counts.
        (most, Some(unavailable)) => {
            let (unavailable, note) = max_unavailable(unavailable, total);
            let most = most.filter(|most| *most > 0).map_or(usize::MAX, count);
            (Limit::AtMost(unavailable.min(most)), note)
        }
    }
}

/// Whether changing a pool from `old` to `new` lowers its limit below the `held` slots: then nodes that drain now would
/// be too many.
pub fn lowered_below(old: &NamedPool<'_>, new: &NamedPool<'_>, total: usize, held: usize) -> bool {
    let ((before, _), (after, _)) = (limit(old, total), limit(new, total));
    let most = |limit| match limit {
        Limit::None => usize::MAX,
        Limit::AtMost(most) => most,
        Limit::NoPool => 0,
    };
    most(after) < most(before) && most(after) < held
}

fn max_parallel(spec: &SriovNetworkPoolConfigSpec) -> Option<i64> {
    spec.drain_config.as_ref()?.max_parallel_node_configuration
}

fn max_unavailable(given: &IntOrString, total: usize) -> (usize, Option<LimitNote>) {
    match given {
        IntOrString::Int(0) => (0, Some(LimitNote::Never)),
        IntOrString::Int(most) if *most < 0 => (1, Some(LimitNote::Unreadable(most.to_string()))),
        IntOrString::Int(most) => (count(i64::from(*most)), None),
        IntOrString::String(text) => match percentage(text) {
            Some(percent) => (percent_of(total, percent).max(1), None),
            None => (1, Some(LimitNote::Unreadable(text.clone()))),
        },
    }
}

/// Admission takes the total from a status in which anybody may have written any number: nothing may overflow.
fn percent_of(total: usize, percent: usize) -> usize {
    total / 100 * percent + total % 100 * percent / 100
}

fn percentage(text: &str) -> Option<usize> {
    let percent = text.strip_suffix('%')?.parse().ok()?;
    (1..=100).contains(&percent).then_some(percent)
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(1)
}
