//! Parts that all clients of the API server share. Nothing in this crate decides what a cluster should look like.
//!
//! - [`watch`], [`guarded`], [`store`]: watch, parse and store the objects of one kind
//! - [`queue`], [`retry`], [`pace`], [`wake`]: keys to reconcile now, after a failure, at an interval or at a time
//! - [`leadership`], [`write`], [`status`], [`events`]: writes, which are allowed only while this process leads
//! - [`server`]: small HTTP servers for webhooks, metrics and probes

pub mod events;
pub mod guarded;
pub mod leadership;
pub mod pace;
pub mod queue;
pub mod retry;
pub mod server;
pub mod status;
pub mod store;
pub mod wake;
pub mod watch;
pub mod write;
