//! `make bench`: the operator beside a bare loop of the same writes and beside the Go operator, in one run, on one API
//! server.

mod bare;
mod fleet;
mod measure;
mod process;
mod report;
mod rows;
mod scenario;
mod subject;
mod watched;

pub use measure::{Options, run};
