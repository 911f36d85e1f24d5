//! Phases of a connection, and the deadline of each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::Limits;

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

    pub(super) fn is_in_request(self) -> bool {
        matches!(self, Self::Request | Self::Flush)
    }
}

/// Phase of a connection and its begin. The task of the connection sets it; the server reads it when it has to close a
/// connection.
#[derive(Debug)]
pub(super) struct Activity {
    origin: Instant,
    /// Milliseconds from `origin` to the begin of the phase, and the phase in the lowest bits.
    packed: AtomicU64,
}

impl Activity {
    /// Returns the activity of a new connection. Begins of all connections with the same `origin` can be compared.
    pub(super) fn new(origin: Instant) -> Self {
        let new = Self { origin, packed: AtomicU64::new(0) };
        new.enter(Phase::Header);
        new
    }

    /// Begins a phase.
    pub(super) fn enter(&self, phase: Phase) {
        let milliseconds = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.store(milliseconds, phase);
    }

    /// Notes bytes of the peer.
    pub(super) fn received(&self) {
        if self.phase() == Phase::Idle {
            self.enter(Phase::Header);
        }
    }

    /// Notes that hyper has taken the last part of the response.
    pub(super) fn responded(&self) {
        self.store(self.begin(), Phase::Flush);
    }

    /// Notes that all bytes were sent that hyper had.
    pub(super) fn flushed(&self) {
        if self.phase() == Phase::Flush {
            self.enter(Phase::Idle);
        }
    }

    pub(super) fn phase(&self) -> Phase {
        // Two bits have as many values as there are phases.
        Phase::ALL[usize::from(self.packed.load(Ordering::Relaxed).to_le_bytes()[0] & 0b11)]
    }

    /// Returns the begin of the phase, in milliseconds from the origin.
    pub(super) fn begin(&self) -> u64 {
        self.packed.load(Ordering::Relaxed) >> Phase::BITS
    }

    /// Returns the end of the phase at the latest.
    pub(super) fn deadline(&self, limits: &Limits) -> Instant {
        let limit = match self.phase() {
            Phase::Idle => limits.idle,
            Phase::Header => limits.header,
            Phase::Request | Phase::Flush => limits.request,
        };
        self.origin + Duration::from_millis(self.begin()) + limit
    }

    pub(super) fn store(&self, milliseconds: u64, phase: Phase) {
        self.packed.store(milliseconds << Phase::BITS | phase as u64, Ordering::Relaxed);
    }
}
