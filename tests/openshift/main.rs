//! Tests on a control plane with the definitions of OpenShift's machine config operator, which the tests play.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]

mod drain;
mod offload;
