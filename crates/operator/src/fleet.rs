//! Fleet controller: node states from policies and nodes, and the status of policies and pools.

pub(crate) mod controller;
pub(crate) mod default_pool;
pub(crate) mod index;
mod reports;
pub(crate) mod shared_watches;
mod state_writer;
