//! Phases of a connection and their deadlines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::ServerLimits;

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing of the next request has arrived.
    Idle,
    /// The header of a request is being received.
    Header,
    /// A request is being received or answered.
    Request,
    /// The response is complete, but not yet sent.
    Flush,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Idle, Self::Header, Self::Request, Self::Flush];
    const BITS: u32 = 2;

    /// Returns the phase as a clause after "while".
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Idle => "waiting for a request",
            Self::Header => "receiving a request header",
            Self::Request => "processing a request",
            Self::Flush => "sending a response",
        }
    }

    pub(super) fn is_in_request(self) -> bool {
        matches!(self, Self::Request | Self::Flush)
    }
}

/// Current phase of a connection and the time it began. Set by the task of the connection, read by the server when it
/// has to close a connection.
#[derive(Debug)]
pub(super) struct Activity {
    origin: Instant,
    /// Milliseconds from `origin` to the start of the phase, and the phase in the lowest bits.
    packed: AtomicU64,
}

impl Activity {
    /// Returns the activity of a new connection. Start times of connections with the same `origin` can be compared.
    pub(super) fn new(origin: Instant) -> Self {
        let new = Self { origin, packed: AtomicU64::new(0) };
        new.enter(Phase::Header);
        new
    }

    /// Starts a phase.
    pub(super) fn enter(&self, phase: Phase) {
        let milliseconds = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.store(milliseconds, phase);
    }

    /// Records that bytes were received.
    pub(super) fn record_received(&self) {
        if self.phase() == Phase::Idle {
            self.enter(Phase::Header);
        }
    }

    /// Records that hyper has taken the last part of the response.
    pub(super) fn record_response_end(&self) {
        self.store(self.started_at(), Phase::Flush);
    }

    /// Records that hyper has sent all its bytes.
    pub(super) fn record_flushed(&self) {
        if self.phase() == Phase::Flush {
            self.enter(Phase::Idle);
        }
    }

    pub(super) fn phase(&self) -> Phase {
        // There are four phases, so that two bits always are a valid index.
        Phase::ALL[usize::from(self.packed.load(Ordering::Relaxed).to_le_bytes()[0] & 0b11)]
    }

    /// Returns the start of the phase in milliseconds from the origin.
    pub(super) fn started_at(&self) -> u64 {
        self.packed.load(Ordering::Relaxed) >> Phase::BITS
    }

    /// Returns the deadline of the phase.
    pub(super) fn deadline(&self, limits: &ServerLimits) -> Instant {
        let limit = match self.phase() {
            Phase::Idle => limits.idle,
            Phase::Header => limits.header,
            Phase::Request | Phase::Flush => limits.request,
        };
        self.origin + Duration::from_millis(self.started_at()) + limit
    }

    pub(super) fn store(&self, milliseconds: u64, phase: Phase) {
        self.packed.store(milliseconds << Phase::BITS | phase as u64, Ordering::Relaxed);
    }
}
