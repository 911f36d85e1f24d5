//! Draining: it follows pools, nodes and node states, asks `vfleet_plan::drain`, and writes what it says.
//!
//! - [`evictions`]: the pods of nodes that are being drained

mod evictions;
