//! Pool limits: number of nodes that may be drained at the same time.

use vfleet_api::keys::DEFAULT_POOL;
use vfleet_api::meta::IntOrString;
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;

use crate::pool::NamedPool;
use crate::prelude::*;

/// Number of nodes of a pool that may be drained at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DrainLimit {
    /// All nodes at once.
    Unlimited,
    /// At most this many nodes; 0 forbids draining.
    AtMost(usize),
    /// The nodes belong to no pool: no drain starts.
    NoPool,
}

impl DrainLimit {
    /// Returns the message for the condition of the pool.
    pub fn text(self) -> String {
        match self {
            Self::Unlimited => "all nodes of the pool may be drained at the same time".to_owned(),
            Self::AtMost(1) => "one node of the pool is drained at a time".to_owned(),
            Self::AtMost(most) => format!("up to {most} nodes of the pool are drained at the same time"),
            Self::NoPool => "nodes that belong to no pool are not drained".to_owned(),
        }
    }

    /// Returns the number of slots that may still be granted.
    pub fn free(self, held: usize) -> usize {
        match self {
            Self::Unlimited => usize::MAX,
            Self::AtMost(most) => most.saturating_sub(held),
            Self::NoPool => 0,
        }
    }

    /// Returns whether `held` slots may be granted at the same time.
    pub fn allows(self, held: usize) -> bool {
        match self {
            Self::Unlimited => true,
            Self::AtMost(most) => held <= most,
            Self::NoPool => false,
        }
    }
}

/// Finding about a pool's limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitNote {
    /// `maxUnavailable: 0`.
    Zero,
    /// No limit is set, which means all nodes at once in the Go operator.
    Missing,
    /// `maxUnavailable` is neither a number nor a percentage.
    Invalid(String),
}

impl LimitNote {
    /// Returns the reason for the condition `Limit`.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Zero => "MaxUnavailableZero",
            Self::Missing => "NoLimitSet",
            Self::Invalid(_) => "InvalidLimit",
        }
    }

    /// Returns the message for the condition `Limit`, with the remedy.
    pub fn text(&self) -> String {
        match self {
            Self::Zero => "maxUnavailable is 0, so no node of this pool is drained: raise it to allow changes that need a drain".to_owned(),
            Self::Missing => "no limit is set, so one node is drained at a time (the Go operator drained all nodes at once): set drainConfig.maxParallelNodeConfiguration, 0 for no limit".to_owned(),
            Self::Invalid(text) => format!("maxUnavailable {text:?} is neither a number nor a percentage from 1% to 100%, so one node is drained at a time: correct the value"),
        }
    }
}

/// Returns the limit of a pool with `total` nodes, and a finding about it.
pub fn drain_limit(pool: &NamedPool<'_>, total: usize) -> (DrainLimit, Option<LimitNote>) {
    let parallel = max_parallel(pool.spec);
    match (parallel, &pool.spec.max_unavailable) {
        (Some(0), None) => (DrainLimit::Unlimited, None),
        (Some(most), None) => (DrainLimit::AtMost(count(most)), None),
        (None, None) if pool.name == DEFAULT_POOL => (DrainLimit::AtMost(1), None),
        (None, None) => (DrainLimit::AtMost(1), Some(LimitNote::Missing)),
        // Admission rejects pools with both fields; if one exists, the stricter limit counts.
        (most, Some(unavailable)) => {
            let (unavailable, note) = max_unavailable(unavailable, total);
            let most = most.filter(|most| *most > 0).map_or(usize::MAX, count);
            (DrainLimit::AtMost(unavailable.min(most)), note)
        }
    }
}

/// Returns whether changing a pool from `old` to `new` lowers its limit below the number of `held` slots, so that more
/// nodes are draining than the new limit allows.
pub fn lowers_limit_below(old: &NamedPool<'_>, new: &NamedPool<'_>, total: usize, held: usize) -> bool {
    let ((before, _), (after, _)) = (drain_limit(old, total), drain_limit(new, total));
    let most = |limit| match limit {
        DrainLimit::Unlimited => usize::MAX,
        DrainLimit::AtMost(most) => most,
        DrainLimit::NoPool => 0,
    };
    most(after) < most(before) && most(after) < held
}

fn max_parallel(spec: &SriovNetworkPoolConfigSpec) -> Option<i64> {
    spec.drain_config.as_ref()?.max_parallel_node_configuration
}

fn max_unavailable(value: &IntOrString, total: usize) -> (usize, Option<LimitNote>) {
    match value {
        IntOrString::Int(0) => (0, Some(LimitNote::Zero)),
        IntOrString::Int(most) if *most < 0 => (1, Some(LimitNote::Invalid(most.to_string()))),
        IntOrString::Int(most) => (count(i64::from(*most)), None),
        IntOrString::String(text) => match percentage(text) {
            Some(percent) => (percent_of(total, percent).max(1), None),
            None => (1, Some(LimitNote::Invalid(text.clone()))),
        },
    }
}

/// Computes a percentage without overflow: admission reads the total from a status that clients can write.
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
