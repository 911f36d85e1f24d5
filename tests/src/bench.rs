//! `make bench`: the operator beside a bare loop of the same writes and beside the Go operator, in one run, on one API
//! server; and the agent's part on simulated and on real cards, beside bare writes of the same.

mod admission;
mod bare;
mod drain;
mod fleet;
mod measure;
mod node;
mod process;
mod report;
mod rows;
mod scenario;
mod subject;
mod watched;

pub use measure::{Options, Part, run};
pub use node::Inside;
