//! Shared parts of the programs that run in a cluster: nothing here decides.
//!
//! - [`watch`], [`guarded`], [`store`]: objects of one kind are watched, parsed and kept
//! - [`queue`], [`retry`], [`pace`], [`wakes`]: keys to work on, now, again or later
//! - [`leadership`], [`write`], [`status`], [`events`]: writes, only while this process leads
//! - [`server`]: small HTTP servers: webhooks, metrics and probes

pub mod events;
pub mod guarded;
pub mod leadership;
pub mod pace;
pub mod queue;
pub mod retry;
pub mod server;
pub mod status;
pub mod store;
pub mod wakes;
pub mod watch;
pub mod write;
