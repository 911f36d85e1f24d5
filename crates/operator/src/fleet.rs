//! The fleet: policies and nodes to node states, and the status of policies and pools.

pub(crate) mod controller;
pub(crate) mod default_pool;
pub(crate) mod index;
mod reports;
pub(crate) mod shared;
mod state_writer;
