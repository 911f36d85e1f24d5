//! Tests on a control plane with the definitions of OpenShift's machine config operator, which the tests play.
//!
//! A machine config pool is of the whole cluster and knows one operator, and so is the kind of control plane that the
//! cluster says it has: each test holds [`ALONE`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]

mod drain;
mod offload;

use tokio::sync::Mutex;

/// Held by the one test that runs.
static ALONE: Mutex<()> = Mutex::const_new(());
