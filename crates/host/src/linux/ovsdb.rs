//! Client of the Open vSwitch database (OVSDB, RFC 7047) on its unix socket or a TCP port.
//!
//! All calls block and have a deadline. Nothing here decides what a bridge looks like.

mod client;
mod framing;
mod operation;
mod socket;
mod stream;
pub(super) mod value;

pub(super) use client::{Message, OvsdbClient, check_results};
pub(super) use framing::MessageBuffer;
pub(super) use operation::Operation;
pub(super) use socket::{OvsdbSocket, resolve};

use std::time::Duration;

/// Limits for waiting for Open vSwitch.
#[derive(Clone, Copy, Debug)]
pub(super) struct OvsLimits {
    /// Limit for connecting and for each answer. A working server answers in milliseconds.
    pub(super) answer: Duration,
    /// Limit for ovs-vswitchd to apply a change. It needs some milliseconds, and seconds after its start on a large
    /// node.
    pub(super) apply: Duration,
    /// Time without a message after which a watch checks that the server still answers.
    pub(super) idle: Duration,
}

impl Default for OvsLimits {
    fn default() -> Self {
        let (answer, apply, idle) =
            (Duration::from_secs(5), Duration::from_secs(10), Duration::from_secs(30));
        Self { answer, apply, idle }
    }
}
