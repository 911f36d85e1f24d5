//! Tests on a control plane with the CRDs of OpenShift. The tests simulate the machine config operator.
//!
//! Machine config pools and the topology of the control plane are cluster-scoped and support only one operator, so each
//! test holds [`ALONE`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]

mod drain;
mod offload;

use tokio::sync::Mutex;

/// Lock of the running test.
static ALONE: Mutex<()> = Mutex::const_new(());
