//! Take-over of a cluster that the Go operator has managed.
//!
//! Everything that the tests compare was written by the Go operator itself. This module provides only its input:
//! objects of an administrator, nodes, and reports of the daemon on each node.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "a failed expectation is explained where it fails")]

mod cluster;
mod kind;

pub use cluster::{TakeoverCluster, interfaces};
pub use kind::Kind;
