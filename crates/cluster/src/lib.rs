//! Shared parts of the programs that run in a cluster.
//!
//! [`server`] has the small HTTP servers: webhooks, metrics and probes.

pub mod server;
