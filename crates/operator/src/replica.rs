//! One replica of the operator: leader election, shared context, metrics and probes.

pub(crate) mod context;
pub(crate) mod health;
pub(crate) mod lease;
pub(crate) mod metrics;
pub(crate) mod server;
