//! Draining: it follows pools, nodes and node states, asks `vfleet_plan::drain`, and writes what it says.
//!
//! - [`evictions`]: the pods of nodes that are being drained
//! - [`mcp`]: OpenShift's machine config pools, paused while nodes are drained
//! - [`migration`]: drains of the Go operator that are under way

#[allow(dead_code, reason = "the controller that uses it is not there yet")]
mod mcp;
#[allow(dead_code, reason = "the controller that uses it is not there yet")]
mod migration;
