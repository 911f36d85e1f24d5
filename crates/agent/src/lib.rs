//! The node daemon: watch, facts, plan, execute, verify, report. Decides nothing itself.
//!
//! Wakes up when its node state changes, when the machine changes, and when something that failed is due for
//! another try; never otherwise.

mod alarm;
pub mod apply;
mod attempt;
mod report;
mod run;
mod status;

use std::sync::Arc;

use vfleet_host::Host;

pub use run::{AgentError, run};

/// What an agent needs to know.
#[derive(Clone)]
pub struct Config {
    /// The node that it runs on.
    pub node: String,
    /// The namespace of the node state.
    pub namespace: String,
    /// The machine that it looks after.
    pub host: Arc<dyn Host>,
}
