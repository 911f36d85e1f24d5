//! Protocol of CNI: the environment of a plugin, versions, results and errors.
//!
//! The rules are those of the Go library of CNI, which runtimes and users rely on: variables of the environment are
//! exact, keys of JSON match regardless of case.

mod args;
mod error;
mod invocation;
pub(crate) mod json;
mod output;
pub mod result;
mod version;

pub use args::CniArgs;
pub use error::{CniError, ErrorCode};
pub(crate) use invocation::is_valid_name;
pub use invocation::{Command, Invocation};
pub use output::{error_output, version_output};
pub use version::CniVersion;
