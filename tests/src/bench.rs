//! Benchmarks of `make bench`. The operator is compared with a bare loop of the same writes and with the Go operator,
//! in one run on one API server. The agent is compared with bare writes, on simulated and on real cards, and CNI plugins
//! with bare requests to the kernel.

mod admission;
mod bare;
mod cni;
mod drain;
mod fleet;
mod measure;
mod node;
mod operator;
mod process;
mod report;
mod rows;
mod spec_watch;
mod subject;

pub use measure::{Options, Part, run};
pub use node::LabCommand;
