//! A cluster that the Go operator has worked in and left, and that vfleet's operator takes over.
//!
//! Everything the tests compare was written by the Go operator itself. Here is only what its surroundings give it:
//! what an administrator applies, nodes, and what the daemon on each node reports.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "what fails a test is said where it fails")]

mod kind;
mod scene;

pub use kind::Kind;
pub use scene::{Scene, interfaces};
